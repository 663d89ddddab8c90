"""Measured runs against predictions, fitted constants, and recommendations, as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from placement_proofs.layouts.calibrate import Calibration, Score
from placement_proofs.layouts.constants import NAMES, Constants
from placement_proofs.layouts.evaluate import HARD, Confusion, Evaluation, Published, Sweep
from placement_proofs.layouts.evidence import Advice, Compared, Evidence
from placement_proofs.layouts.planned import Offer
from placement_proofs.layouts.rules import RULES
from placement_proofs.layouts.setting import Job
from placement_proofs.layouts.summary import Pairs, Way
from placement_proofs.render.layouts import seconds
from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import bullets, columns, paragraph, section, sections

EXCEPTIONS = 3
"""Exceptions of a recommendation that are shown; all are in the JSON."""


def share(value: float) -> str:
    """A share in percent with one digit.

    >>> share(0.98097), share(float("nan"))
    ('98.1%', '-')
    """
    return "-" if math.isnan(value) else f"{100 * value:.1f}%"


def evaluation_text(
    found: Mapping[str, Evaluation],
    mfu: Published | None,
    rules: Sequence[Evidence],
    paint: Paint = PLAIN,
) -> str:
    """Evaluations by name (``given`` first), the utilisation column, the recommendations."""
    given = found["given"]
    parts = [
        section(paint.strong("constants"), _constants_of(found)),
        section(paint.strong("memory"), _memory(found)),
        section(paint.strong("step time"), _time(found)),
        section(paint.strong("choices by sweep"), _choices(found)),
        section(paint.strong(f"each sweep, {_name('given', given)}"), _sweeps(given)),
        section(paint.strong("recommendations and measured pairs"), _rules(rules)),
        section(paint.strong("published utilisation"), _published(mfu)),
    ]
    return sections(parts)


def _name(key: str, one: Evaluation) -> str:
    if key == "given":
        return "fitted constants" if one.constants.fitted else "these constants"
    return {"unfitted": "no fitted constant"}.get(key, key)


def _constants_of(found: Mapping[str, Evaluation]) -> str:
    given = found["given"]
    inside = [s.name for s in given.sweeps if s.fitted]
    outside = [s.name for s in given.sweeps if not s.fitted]
    texts = [f"fitted on: {given.constants.fitted or 'nothing'}"]
    if inside:
        texts.append(f"in-sample, their own fit: {', '.join(inside)}")
    if outside:
        texts.append(f"not in the fit: {', '.join(outside)}")
    if "held out" in found:
        texts.append("held out: each model is predicted with constants fitted to the others")
    return bullets(texts)


def _memory(found: Mapping[str, Evaluation]) -> str:
    low, high = HARD
    head = ("", "right", "runs", "fits, ran", "fits, oom", "full, ran", "full, oom")
    rows: list[Sequence[str]] = [head]
    for key, one in found.items():
        rows.append((_name(key, one), *_outcomes(one.memory)))
        rows.append((f"  {low:.0f}-{high:.0f} GiB predicted", *_outcomes(one.hard)))
    given = found["given"]
    rows.append(("always out of memory", share(given.always), str(given.memory.count)))
    rows.append(("kernel available", *_outcomes(given.kernels)))
    return columns(rows, right=range(1, 7))


def _outcomes(one: Confusion) -> tuple[str, ...]:
    counts = (one.count, one.fits_ran, one.fits_oom, one.full_ran, one.full_oom)
    return (share(one.accuracy), *map(str, counts))


def _time(found: Mapping[str, Evaluation]) -> str:
    rows: list[Sequence[str]] = [("", "median error", "90%", "bias", "runs", "rank correlation")]
    for key, one in found.items():
        e = one.steps
        errors = (share(e.median), share(e.p90), share(e.bias), str(e.runs))
        rows.append((_name(key, one), *errors, f"{one.correlation:.3f}"))
    return columns(rows, right=range(1, 6))


def _choices(found: Mapping[str, Evaluation]) -> str:
    """Means over sweeps."""
    rows: list[Sequence[str]] = [("mean over sweeps", "launches", "regret", "regret of first 3")]
    for key, one in found.items():
        rows.append((f"predicted, {_name(key, one)}", *_means(one, "predicted")))
    given = found["given"]
    rows.append(("rules of the paper", *_means(given, "rules")))
    rows.append(("rules of the paper, told what runs", *_means(given, "told")))
    return columns(rows, right=range(1, 4))


def _means(one: Evaluation, choice: str) -> tuple[str, ...]:
    regrets = (one.mean(choice, name) for name in ("regret", "regret_of_three"))
    return (f"{one.mean(choice, 'launches'):.1f}", *map(share, regrets))


def _sweeps(given: Evaluation) -> str:
    head: Sequence[str] = (
        "",
        "runs",
        "ran",
        "rank",
        "launches",
        "regret",
        "first 3",
        "rules",
        "first that runs",
    )
    return columns([head, *map(_sweep, given.sweeps)], right=range(1, 8))


def _sweep(one: Sweep) -> tuple[str, ...]:
    rank = "-" if math.isnan(one.correlation) else f"{one.correlation:.3f}"
    chosen = one.predicted
    regrets = (share(chosen.regret), share(chosen.regret_of_three))
    rules = f"{share(one.rules.regret)} in {one.rules.launches}"
    counts = (str(one.runs), str(one.ran), rank, str(chosen.launches))
    return (one.name, *counts, *regrets, rules, chosen.layout)


def _rules(found: Sequence[Evidence]) -> str:
    return "\n".join(
        line
        for rule, one in zip(RULES, found, strict=True)
        for line in _pairs(rule.advice, str(rule.gain), one)
    )


def _pairs(advice: str, gain: str, one: Evidence) -> Iterator[str]:
    """The hit rate of a recommendation, and its exceptions."""
    yield paragraph(f"{one.rule}: {advice}", hanging=2)
    yield paragraph(f"holds where {gain} > 0", indent=4, hanging=2)
    if not one.pairs:
        yield "    no pair of runs differs in this alone"
    else:
        median = f"median {share(one.median)}"
        told = f"the inequality agrees in {one.foretold}"
        yield f"    {one.hits} of {one.pairs} pairs are faster so ({median}); {told}"
    yield f"    the fastest run of a sweep is so in {one.best} of {one.sweeps}"
    yield from _exceptions(one)


def _exceptions(one: Evidence) -> Iterator[str]:
    most = sorted(one.exceptions, key=lambda e: -e[2])
    for job, (first, second), slower, told in most[:EXCEPTIONS]:
        said = "as the inequality says" if told else "against the inequality"
        text = f"not for {job}: {first} is {share(slower)} slower than {second} ({said})"
        yield paragraph(text, indent=4, hanging=2)
    if len(most) > EXCEPTIONS:
        yield f"    and {len(most) - EXCEPTIONS} more (--json)"


def _published(mfu: Published | None) -> str:
    if mfu is None:
        return ""
    return paragraph(
        f"the mfu column is that of step_time_s to {mfu.median:.1e} in the median of {mfu.runs} "
        f"runs, at most {mfu.most:.1e}; in {mfu.exact} of them to the last digit"
    )


def ways_text(ways: Iterable[Way]) -> str:
    """How well outcomes, step times and choices are predicted, one way a line."""
    head = ("", "outcomes right", "step time off by", "launches", "slower than best by")
    rows = [
        (w.name, _said(w.outcomes), _said(w.error), _mean(w.launches), _said(w.regret))
        for w in ways
    ]
    return columns([head, *rows], right=range(1, 5))


def _said(value: float | None) -> str:
    return "" if value is None else share(value)


def _mean(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def pairs_text(found: Iterable[Pairs]) -> str:
    """Recommendations as inequalities, and the measured pairs of each."""
    gains = {rule.name: f"{rule.gain} > 0" for rule in RULES}
    head = ("recommendation", "holds where", "pairs", "faster so", "by", "foretold", "best")
    rows = [
        (
            p.rule,
            gains[p.rule],
            str(p.pairs),
            str(p.hits),
            _said(p.median),
            str(p.foretold),
            f"{p.best} of {p.sweeps}",
        )
        for p in found
    ]
    return columns([head, *rows], right=range(2, 7))


def calibration_text(found: Calibration, output: str | None, paint: Paint = PLAIN) -> str:
    """The constants and their errors."""
    rows: list[Sequence[str]] = [("", "outcomes right", "step median", "step 90%")]
    rows.append(("in-sample: all runs", *_score(found.inside)))
    rows += [(f"held out: {h.model}", *_score(h.score)) for h in found.held]
    if found.outside:
        rows.append(("held out: all", *_score(found.outside)))
    spread = columns(_spread(found), right=range(1, 2 + len(found.held)))
    parts = [
        section(paint.strong("constants"), spread),
        section(paint.strong("errors"), columns(rows, right=(1, 2, 3))),
        f"fitted on {found.constants.fitted}",
        f"written to {output}; use it with --constants {output}" if output else "",
    ]
    return sections(parts)


def _spread(found: Calibration) -> Iterator[Sequence[str]]:
    """Each constant as fitted on all runs, and without each model."""
    yield ("", "all", *(f"without {h.model}" for h in found.held))
    every = (found.constants, *(h.constants for h in found.held))
    for name in NAMES:
        yield (name, *(_number(getattr(c, name)) for c in every))


def _number(value: float) -> str:
    return f"{value / 2**30:.2f} GiB" if value > 1e6 else f"{value:.4g}"


def _score(one: Score) -> tuple[str, str, str]:
    return share(one.accuracy), share(one.median), share(one.p90)


def advice_text(
    job: Job,
    best: Sequence[Offer],
    constants: Constants,
    advice: Iterable[Advice],
    measured: Sequence[Evidence],
    paint: Paint = PLAIN,
) -> str:
    """The recommendations at the fastest layout of a job."""
    title = f"{job.name}, {job.shape.sequence} tokens, {job.gpus} x {job.machine.device.title}"
    if not best:
        return f"{title}\nno layout fits; placement-proofs layouts says what would"
    at = f"fastest that fits: {best[0].layout}, {seconds(best[0].step)} a step"
    fitted = f"constants fitted on {constants.fitted or 'nothing'}"
    by_name = {one.rule: one for one in measured}
    parts = [f"{paint.strong(title)}\n{at}\n{paragraph(fitted, indent=0)}"]
    parts += ["\n".join(_advice(one, by_name.get(one.rule.name), paint)) for one in advice]
    return sections(parts)


def _advice(one: Advice, measured: Evidence | None, paint: Paint) -> Iterator[str]:
    rule = one.rule
    yield f"{paint.strong(rule.name)}: {rule.advice}"
    yield f"  {rule.gain} > 0"
    used = [f"{n} {text}" for n, text in rule.meaning.items() if n in str(rule.gain)]
    yield paragraph("with " + "; ".join(used), hanging=2)
    if one.layout is None:
        yield "  none of the fastest layouts has a valid neighbour that differs in this alone"
    else:
        yield paragraph(f"{one.layout}", hanging=2)
    for pair in one.pairs:
        yield from _compared(one, pair)
    if measured and measured.pairs:
        yield f"  measured: {measured.hits} of {measured.pairs} pairs, {share(measured.median)}"


def _compared(one: Advice, pair: Compared) -> Iterator[str]:
    first, second = pair.layouts
    other = second if one.follows else first
    verdict = "holds" if pair.holds else "does not hold"
    numbers = ", ".join(f"{name} = {value:.4g}" for name, value in pair.values.items())
    yield paragraph(f"{verdict} against {other}: {seconds(pair.gain)} ({numbers})", hanging=2)
    steps = f"whole steps {seconds(pair.sides[0].step)} and {seconds(pair.sides[1].step)}"
    peaks = " and ".join(f"{side.peak / 2**30:.1f}" for side in pair.sides)
    yield f"    {steps}; fullest ranks {peaks} GiB"
