"""Outcomes of claims as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        wanted = f" (expected {_stated(outcome)})"
        verdict += paint.verdict(Verdict.REFUTED, wanted)
    return (outcome.claim.name, verdict, _evidence(outcome))


def _stated(outcome: Outcome) -> str:
    claim = outcome.claim
    mesh = ", ".join(f"{axis}={size}" for axis, size in claim.mesh)
    factor = f"factor {claim.factor}" if claim.factor else ""
    return ", ".join(filter(None, (claim.verdict.value, factor, mesh)))


def _evidence(outcome: Outcome) -> str:
    """What a proof covers; where a refuted claim fails, and by what."""
    found = outcome.counterexample
    if not found:
        return outcome.covers
    mesh = {**found["mesh"], **found["turns"]}
    where = ", ".join(f"{name}={size}" for name, size in mesh.items())
    condition = str(found["condition"]).replace("_", " ")
    return f"{condition}: {found['got']}, not {found['expected']}, at {where}"


def _closing(outcomes: Sequence[Outcome], paint: Paint) -> str:
    wrong = sum(not o.as_expected for o in outcomes)
    if wrong:
        return paint.verdict(Verdict.REFUTED, f"{wrong} of {plural(len(outcomes), 'claim')} differ")
    return f"{plural(len(outcomes), 'claim')}, every one as expected"
