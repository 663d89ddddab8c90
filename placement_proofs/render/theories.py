"""Outcomes of claims as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, section, sections
from placement_proofs.render.units import plural
from placement_proofs.theories import Outcome
from placement_proofs.verdict import Verdict


def outcomes_text(
    outcomes: Sequence[Outcome], titles: Mapping[str, str], paint: Paint = PLAIN
) -> str:
    """Claims by theory: the verdict, whether it is the expected one, and what it covers."""
    parts = []
    for name, group in groupby(outcomes, key=lambda o: o.theory):
        title = f"{name}: {titles[name]}" if titles.get(name) else name
        parts.append(section(paint.strong(title), columns([_row(o, paint) for o in group])))
    return sections([*parts, _closing(outcomes, paint)])


def _row(outcome: Outcome, paint: Paint) -> tuple[str, ...]:
    verdict = paint.verdict(outcome.verdict)
    if not outcome.as_expected:
        wanted = " ".join(filter(None, (outcome.claim.expect.value, outcome.claim.condition)))
        verdict += paint.verdict(Verdict.REFUTED, f" (expected {wanted})")
    return (outcome.claim.name, verdict, "; ".join(_covered(outcome)))


def _covered(outcome: Outcome) -> Iterator[str]:
    if outcome.condition:
        yield outcome.condition.replace("_", " ")
    if outcome.covers or outcome.reason:
        yield outcome.covers or outcome.reason


def _closing(outcomes: Sequence[Outcome], paint: Paint) -> str:
    wrong = sum(not o.as_expected for o in outcomes)
    if wrong:
        return paint.verdict(Verdict.REFUTED, f"{wrong} of {plural(len(outcomes), 'claim')} differ")
    return f"{plural(len(outcomes), 'claim')}, every one as expected"
