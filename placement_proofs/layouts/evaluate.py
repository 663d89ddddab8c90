"""How well layouts are predicted: measured runs against forms, and against simple rules.

A tool that plans is judged by what it would have led to: which runs it would have started, which of
these would have run out of memory, and how much slower its choice is than the best of the sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from placement_proofs.errors import IllFormed
from placement_proofs.layouts.calibrate import GIB, Flags, Table, calibrate
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.evidence import Evidence
from placement_proofs.layouts.kernels import available
from placement_proofs.layouts.runs import Run, sweeps
from placement_proofs.layouts.setting import Layout
from placement_proofs.layouts.vector import Array

HARD = (60.0, 100.0)
"""GiB predicted between which an outcome is hard to tell."""


@dataclass(frozen=True)
class Confusion:
    """Outcomes of runs that memory decided: what was predicted, and what happened.

    Attributes:
        fits_ran, fits_oom: predicted to fit, and ran or went out of memory.
        full_ran, full_oom: predicted to be too large.
    """

    fits_ran: int
    fits_oom: int
    full_ran: int
    full_oom: int

    @property
    def count(self) -> int:
        """Runs."""
        return self.fits_ran + self.fits_oom + self.full_ran + self.full_oom

    @property
    def accuracy(self) -> float:
        """The share of right predictions (not a number without runs)."""
        return (self.fits_ran + self.full_oom) / self.count if self.count else float("nan")

    def to_json(self) -> dict[str, float]:
        """Counts and the share of right ones."""
        counts = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**counts, "runs": self.count, "accuracy": self.accuracy}


@dataclass(frozen=True)
class Errors:
    """Relative errors of step times of the runs that ran: absolute ones, and with their sign."""

    median: float
    p90: float
    bias: float
    runs: int

    def to_json(self) -> dict[str, float]:
        """Fields by name."""
        return dict(vars(self))


@dataclass(frozen=True)
class Choice:
    """What an order of layouts leads to in a sweep.

    Attributes:
        layout: the first in the order that ran.
        launches: how many were started until one ran.
        regret: by what share its step is slower than the best of the sweep.
        regret_of_three: the same of the best of the first three (of more, if none of these ran).
    """

    layout: str
    launches: int
    regret: float
    regret_of_three: float

    def to_json(self) -> dict[str, float | str]:
        """Fields by name."""
        return dict(vars(self))


@dataclass(frozen=True)
class Sweep:
    """A sweep: its runs, the rank correlation of predicted and measured steps, and the choices.

    Attributes:
        name: of the sweep; ``fitted`` says whether the constants were fitted on it.
        runs, ran: how many, and how many ran.
        correlation: Spearman's, over the runs that ran (not a number below three).
        predicted: the choice by predicted steps among what is predicted to fit.
        rules: the choice by the rules of the paper, which say nothing about what fits.
        told: the choice by those rules among what did run.
    """

    name: str
    fitted: bool
    runs: int
    ran: int
    correlation: float
    predicted: Choice
    rules: Choice
    told: Choice

    def to_json(self) -> dict[str, object]:
        """Fields by name."""
        choices = {n: getattr(self, n).to_json() for n in ("predicted", "rules", "told")}
        return {**vars(self), **choices}


@dataclass(frozen=True)
class Evaluation:
    """Predictions with some constants against runs.

    Attributes:
        constants: what the predictions were made with.
        memory: over all runs that memory decided; ``hard`` those predicted between ``HARD`` GiB.
        always: the share right of the answer that everything is too large.
        kernels: the runs whose kernel did not run on their sizes: predicted and happened.
        steps: relative errors of step times.
        sweeps: by sweep.
    """

    constants: Constants
    memory: Confusion
    hard: Confusion
    always: float
    kernels: Confusion
    steps: Errors
    sweeps: tuple[Sweep, ...]

    def mean(self, choice: str, value: str) -> float:
        """The mean of a value of a choice over sweeps."""
        values = [getattr(getattr(s, choice), value) for s in self.sweeps]
        return float(np.mean(values)) if values else float("nan")

    @property
    def correlation(self) -> float:
        """The median rank correlation over sweeps."""
        known = [s.correlation for s in self.sweeps if not np.isnan(s.correlation)]
        return float(np.median(known)) if known else float("nan")

    def to_json(self) -> dict[str, object]:
        """Everything, with means over sweeps."""
        means = {
            choice: {
                value: self.mean(choice, value)
                for value in ("launches", "regret", "regret_of_three")
            }
            for choice in ("predicted", "rules", "told")
        }
        return {
            "constants": self.constants.to_json(),
            "memory": self.memory.to_json(),
            "hard": {"between GiB": list(HARD), **self.hard.to_json()},
            "always out of memory": self.always,
            "kernel unavailable": self.kernels.to_json(),
            "step time": self.steps.to_json(),
            "rank correlation": self.correlation,
            "choices": means,
            "sweeps": [sweep.to_json() for sweep in self.sweeps],
        }


@dataclass(frozen=True)
class Published:
    """The published MFU against that of the published step time: shares of difference."""

    runs: int
    exact: int
    median: float
    most: float

    def to_json(self) -> dict[str, float]:
        """Fields by name."""
        return dict(vars(self))


EXACT = 1e-12
"""Relative difference below which two utilisations are the same."""


def published(runs: Sequence[Run]) -> Published | None:
    """How the MFU column follows from the step times; nothing where no run has both."""
    off = np.array(
        [abs(run.job.mfu(run.step) / run.mfu - 1) for run in runs if run.step and run.mfu]
    )
    if not off.size:
        return None
    return Published(off.size, int((off < EXACT).sum()), float(np.median(off)), float(off.max()))


def evaluate(given: Table, constants: Constants) -> Evaluation:
    """The predictions with these constants against the runs."""
    return judged(
        given, constants, given.predicted.peak(constants), given.predicted.step(constants)
    )


def held_out_evaluation(given: Table) -> Evaluation:
    """Every run predicted with constants fitted to the runs of the other models.

    Raises:
        IllFormed: all runs are of one model.
    """
    found = calibrate(given)
    if not found.held:
        raise IllFormed(
            "--held-out",
            f"runs of one model, {given.models[0]}",
            "a model is left out, and the constants are fitted to the others",
            "give runs of several models, or leave the option out",
        )
    peak, step = np.zeros(len(given.runs)), np.ones(len(given.runs))
    for one in found.held:
        here = given.of(one.model)
        peak[here] = given.predicted.peak(one.constants)[here]
        step[here] = given.predicted.step(one.constants)[here]
    said = "the runs of the other models, for each model"
    return judged(given, replace(found.constants, fitted=said), peak, step)


def evaluated_json(
    found: Mapping[str, Evaluation], mfu: Published | None, rules: Sequence[Evidence]
) -> dict[str, object]:
    """Evaluations by name, the utilisation column, and the recommendations."""
    return {
        "evaluations": {name: one.to_json() for name, one in found.items()},
        "published mfu": mfu.to_json() if mfu else None,
        "recommendations": [one.to_json() for one in rules],
    }


def judged(given: Table, constants: Constants, peak: Array, step: Array) -> Evaluation:
    """Predicted bytes and seconds against the runs."""
    full = peak > given.capacity
    size = peak / GIB
    hard = (size >= HARD[0]) & (size <= HARD[1])
    return Evaluation(
        constants,
        _confusion(given, full, given.decided),
        _confusion(given, full, given.decided & hard),
        float(given.oom[given.decided].mean()) if given.decided.any() else float("nan"),
        _kernels(given.runs),
        _errors((step / given.step - 1)[given.ran]),
        tuple(_sweeps(given, constants, peak, step)),
    )


def _confusion(given: Table, full: Flags, among: Flags) -> Confusion:
    def count(a: Flags, b: Flags) -> int:
        return int((a & b & among).sum())

    oom = given.oom
    return Confusion(count(~full, ~oom), count(~full, oom), count(full, ~oom), count(full, oom))


def _errors(relative: Array) -> Errors:
    if not relative.size:
        return Errors(float("nan"), float("nan"), float("nan"), 0)
    size = np.abs(relative)
    p90 = float(np.quantile(size, 0.9))
    return Errors(float(np.median(size)), p90, float(np.median(relative)), relative.size)


def _runs_at_all(run: Run) -> bool:
    layout = run.layout
    return available(layout.attention, run.job.shape.heads, layout.micro_batch, layout.tensor)


def _kernels(runs: Sequence[Run]) -> Confusion:
    """In place of memory: whether the kernel is available. Out of memory says nothing about it."""
    pairs = [(_runs_at_all(r), r.ran) for r in runs if r.ran or r.outcome == "kernel-unavailable"]
    return Confusion(
        pairs.count((True, True)),
        pairs.count((True, False)),
        pairs.count((False, True)),
        pairs.count((False, False)),
    )


# choices


@dataclass(frozen=True)
class _Candidate:
    """A layout of a sweep with what became of it; repeated runs are one, with their median step."""

    layout: Layout
    step: float | None
    index: int


def _candidates(runs: Sequence[Run], at: Sequence[int]) -> list[_Candidate]:
    groups: dict[Layout, list[int]] = {}
    for run, i in zip(runs, at, strict=True):
        groups.setdefault(run.layout, []).append(i)
    steps = dict(zip(at, (run.step for run in runs), strict=True))
    found = []
    for layout, members in groups.items():
        ran = sorted(s for i in members if (s := steps[i]) is not None)
        often = len(ran) * 2 > len(members)
        found.append(_Candidate(layout, ran[(len(ran) - 1) // 2] if often else None, members[0]))
    return found


def _sweeps(given: Table, constants: Constants, peak: Array, step: Array) -> list[Sweep]:
    places: dict[str, list[int]] = {}
    for i, run in enumerate(given.runs):
        places.setdefault(run.sweep, []).append(i)
    full = peak > given.capacity
    found = []
    for name, runs in sweeps(given.runs):
        at = places[name]
        candidates = _candidates(runs, at)
        if not any(c.step for c in candidates):
            continue
        usable = [c for c in candidates if _runs_at_all(given.runs[c.index])]
        by_time = sorted(usable, key=lambda c: (bool(full[c.index]), float(step[c.index])))
        by_rule = sorted(candidates, key=lambda c: rule_order(c.layout))
        ran = [i for i in at if given.ran[i]]
        found.append(
            Sweep(
                name,
                name in constants.fitted.replace(",", " ").split(),
                len(at),
                len(ran),
                spearman(step[ran], given.step[ran]),
                _choice(by_time, candidates),
                _choice(by_rule, candidates),
                _choice([c for c in by_rule if c.step], candidates),
            )
        )
    return found


def rule_order(layout: Layout) -> tuple[float, ...]:
    """The order in which the rules of the paper would try layouts (arXiv 2311.05610, section 5).

    The kernels of flash-attention 2 and of norms, no recomputation, micro-batch 1, as little model
    parallelism as possible, pipeline before tensor. Sequence parallelism is its rule for models
    above 30B or long sequences; here it decides last.
    """
    kernels = 2 * (layout.attention != "flash-2") + (layout.norm != "fused")
    model = layout.tensor * layout.pipeline
    recomputed = layout.recompute != "none"
    return kernels, recomputed, layout.micro_batch, model, layout.tensor, not layout.sequence


def _choice(order: Sequence[_Candidate], candidates: Sequence[_Candidate]) -> Choice:
    """What trying layouts in an order leads to."""
    best = min(c.step for c in candidates if c.step)
    ran = [(i, c) for i, c in enumerate(order) if c.step]
    if not ran:
        return Choice("none ran", len(order), float("inf"), float("inf"))
    first, chosen = ran[0]
    three = min(c.step or best for i, c in ran if i < max(3, first + 1))
    regret = (chosen.step or best) / best - 1
    return Choice(str(chosen.layout), first + 1, regret, three / best - 1)


def spearman(a: Array, b: Array) -> float:
    """The rank correlation of two columns; not a number below three rows or without variation."""
    if len(a) < 3:
        return float("nan")
    first, second = _ranks(a), _ranks(b)
    if not first.std() or not second.std():
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Array) -> Array:
    """Ranks from 0; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Array = (ends - (counts + 1) / 2)[inverse]
    return ranks
