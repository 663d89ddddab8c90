"""Outcomes of claims as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, section, sections
from placement_proofs.render.units import plural
from placement_proofs.theories import Outcome, Theory
from placement_proofs.verdict import Verdict

HEAD = ("claim", "verdict", "z3", "cvc5", "kernel", "mutant killed", "covers")


def outcomes_text(
    outcomes: Sequence[Outcome], theories: Sequence[Theory], paint: Paint = PLAIN
) -> str:
    """Claims by theory: verdict, checkers, mutant, what it covers; then what is open."""
    known = {theory.name: theory for theory in theories}
    parts = []
    for name, group in groupby(outcomes, key=lambda o: o.theory):
        theory = known[name]
        rows = [_row(o, paint) for o in group]
        if len(rows[0]) == len(HEAD):
            rows.insert(0, HEAD)
        title = f"{name}: {theory.title}" if theory.title else name
        parts.append(section(paint.strong(title), columns(rows)))
        if theory.open:
            left = [(o.name, "open", o.reason) for o in theory.open]
            parts.append(section(paint.strong(f"{name}: out of reach"), columns(left)))
    return sections([*parts, _closing(outcomes, theories, paint)])


def _row(outcome: Outcome, paint: Paint) -> tuple[str, ...]:
    verdict = paint.verdict(outcome.verdict)
    if not outcome.as_expected:
        wanted = f" (expected {_stated(outcome)})"
        verdict += paint.verdict(Verdict.REFUTED, wanted)
    told = (outcome.claim.name, verdict)
    found = outcome.evidence
    if found is None:
        return (*told, _evidence(outcome))
    checked = [c.text + (" (against)" if c.against else "") for c in (found.z3, found.cvc5)]
    kernel = found.kernel.text + (" (against)" if found.kernel.against else "")
    killed = found.mutant.text if found.mutant.killed else f"no: {found.mutant.text or 'none'}"
    return (*told, *checked, kernel, killed, _evidence(outcome))


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
    more = ""
    if (second := outcome.second) is not None:
        sizes = ", ".join(f"{name}={size}" for name, size in second.sizes)
        more = f"; {second.got}, not {second.expected}, at {sizes}"
    return f"{condition}: {found['got']}, not {found['expected']}, at {where}{more}"


def _closing(outcomes: Sequence[Outcome], theories: Sequence[Theory], paint: Paint) -> str:
    wrong = sum(not o.as_expected for o in outcomes)
    if wrong:
        return paint.verdict(Verdict.REFUTED, f"{wrong} of {plural(len(outcomes), 'claim')} differ")
    left = sum(len(t.open) for t in theories)
    said = f"{plural(len(outcomes), 'claim')}, every one as expected"
    return f"{said}; {left} listed as out of reach" if left else said
