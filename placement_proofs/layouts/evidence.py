"""Recommendations against layouts: the numbers of their inequalities, and measured pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from placement_proofs.cost.evaluation import evaluate
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.predict import predictor
from placement_proofs.layouts.rules import RULES, Pair, Rule, Side
from placement_proofs.layouts.runs import Run, sweeps
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.space import Choices, space
from placement_proofs.layouts.vector import Array


@dataclass(frozen=True)
class Compared:
    """A pair of layouts of a job under a rule.

    Attributes:
        layouts: the recommended one and the other.
        sides: both by the forms.
        values: of the symbols of the gain; ``gain`` is its value (seconds a step).
    """

    job: Job
    layouts: Pair
    sides: tuple[Side, Side]
    values: Mapping[str, float]
    gain: float

    @property
    def holds(self) -> bool:
        """Whether the inequality says that the recommended layout is faster."""
        return self.gain > 0

    def to_json(self) -> dict[str, object]:
        """Layouts, values and gain; steps by the forms (seconds)."""
        return {
            "layouts": [str(layout) for layout in self.layouts],
            "steps": [side.step for side in self.sides],
            "peaks": [side.peak for side in self.sides],
            "values": dict(self.values),
            "gain": self.gain,
            "holds": self.holds,
        }


def compared(
    rule: Rule, pairs: Sequence[tuple[Job, Pair]], constants: Constants
) -> tuple[Compared, ...]:
    """Pairs of layouts under a rule, with numbers for its inequality.

    Raises:
        IllFormed: a layout does not fit its job, or has no plan.
    """
    flat = [(job, layout) for job, pair in pairs for layout in pair]
    if not flat:
        return ()
    prepared = predictor(flat)
    step, peak = prepared.step(constants), prepared.peak(constants)
    slow = prepared.slowest(constants)
    sides = [
        Side(float(slow[i]) / (m := job.microbatches(layout)), m, layout.pipeline, *both)
        for i, ((job, layout), both) in enumerate(zip(flat, _rows(step, peak), strict=True))
    ]
    found = []
    for i, (job, pair) in enumerate(pairs):
        one, two = sides[2 * i], sides[2 * i + 1]
        values = rule.values(one, two)
        gain = float(evaluate(rule.gain, values))
        found.append(Compared(job, pair, (one, two), values, gain))
    return tuple(found)


def _rows(*columns: Array) -> Iterator[tuple[float, ...]]:
    return (tuple(map(float, row)) for row in zip(*columns, strict=True))


@dataclass(frozen=True)
class Evidence:
    """Measured pairs of a rule.

    Attributes:
        rule: its name.
        pairs: how many pairs of runs differ in nothing else; both ran.
        hits: pairs in which the recommended layout was faster.
        median: the median of the other's step by the recommended one's, minus 1.
        foretold: pairs in which the inequality says what was measured.
        exceptions: pairs in which the recommended layout was slower: both layouts, by how much
            (a share), and whether the inequality says so.
        best, sweeps: in how many sweeps the fastest run is as recommended, and of how many.
    """

    rule: str
    pairs: int
    hits: int
    median: float
    foretold: int
    exceptions: tuple[tuple[str, Pair, float, bool], ...]
    best: int
    sweeps: int

    def to_json(self) -> dict[str, object]:
        """Counts and exceptions."""
        rows = [
            {"job": job, "layouts": [str(x) for x in pair], "slower by": by, "foretold": told}
            for job, pair, by, told in self.exceptions
        ]
        return {**vars(self), "exceptions": rows}


def evidence(runs: Sequence[Run], constants: Constants) -> tuple[Evidence, ...]:
    """The measured pairs of every rule."""
    steps = _steps(runs)
    best = [
        min((run for run in part if run.step), key=lambda run: run.step or 0.0).layout
        for _, part in sweeps(tuple(runs))
        if any(run.step for run in part)
    ]
    return tuple(_evidence(rule, steps, best, constants) for rule in RULES)


def _steps(runs: Sequence[Run]) -> dict[tuple[Job, Layout], float]:
    """The median step of every layout of a job that ran."""
    found: dict[tuple[Job, Layout], list[float]] = {}
    for run in runs:
        if run.step is not None:
            found.setdefault((run.job, run.layout), []).append(run.step)
    return {key: float(np.median(values)) for key, values in found.items()}


def _evidence(
    rule: Rule,
    steps: Mapping[tuple[Job, Layout], float],
    best: Sequence[Layout],
    constants: Constants,
) -> Evidence:
    pairs = [
        (job, (layout, other))
        for job, layout in steps
        for other in rule.others(layout)
        if (job, other) in steps
    ]
    ratios = [steps[job, two] / steps[job, one] - 1 for job, (one, two) in pairs]
    said = [pair.holds for pair in compared(rule, pairs, constants)]
    exceptions = tuple(
        (f"{job.name}, {job.shape.sequence} tokens, {job.gpus} devices", pair, -ratio, not holds)
        for (job, pair), ratio, holds in zip(pairs, ratios, said, strict=True)
        if ratio <= 0
    )
    return Evidence(
        rule.name,
        len(pairs),
        len(pairs) - len(exceptions),
        float(np.median(ratios)) if ratios else float("nan"),
        sum((ratio > 0) == holds for ratio, holds in zip(ratios, said, strict=True)),
        exceptions,
        sum(map(rule.follows, best)),
        len(best),
    )


@dataclass(frozen=True)
class Advice:
    """What a rule says of a job, at the fastest layout that has neighbours to compare with.

    Attributes:
        rule: the recommendation.
        layout: the layout; nothing where none of those looked at has a neighbour.
        follows: whether it is as recommended.
        pairs: it and its neighbours.
    """

    rule: Rule
    layout: Layout | None
    follows: bool
    pairs: tuple[Compared, ...]

    def to_json(self) -> dict[str, object]:
        """The inequality with its numbers."""
        return {
            "rule": self.rule.name,
            "advice": self.rule.advice,
            "inequality": f"{self.rule.gain} > 0",
            "meaning": dict(self.rule.meaning),
            "layout": None if self.layout is None else str(self.layout),
            "follows": self.follows,
            "pairs": [pair.to_json() for pair in self.pairs],
        }


def advised(job: Job, fastest: Sequence[Layout], constants: Constants) -> tuple[Advice, ...]:
    """Every rule of a job: whether its inequality holds, at the first layout that it is about."""
    return tuple(_advised(job, rule, fastest, constants) for rule in RULES)


def _advised(job: Job, rule: Rule, fastest: Sequence[Layout], constants: Constants) -> Advice:
    for layout in fastest:
        pairs = [(layout, other) for other in rule.others(layout)]
        pairs += [(better, layout) for better in rule.toward(layout)]
        valid = [(job, pair) for pair in pairs if all(is_valid(job, one) for one in pair)]
        if valid:
            return Advice(rule, layout, rule.follows(layout), compared(rule, valid, constants))
    return Advice(rule, None, False, ())


def is_valid(job: Job, layout: Layout) -> bool:
    """Whether a layout is one of the valid ones of the job."""
    single = {f.name: (getattr(layout, f.name),) for f in fields(Choices)}
    return bool(space(job, Choices(**single)).blocks)
