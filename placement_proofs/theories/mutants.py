"""Mutants: next to every claim, something that differs a little and has the opposite verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from placement_proofs.checking import plan_of
from placement_proofs.conditions import conditions_of, prove_plan, verdict_of
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject
from placement_proofs.needed import dropped
from placement_proofs.program import Program, Update
from placement_proofs.program.print import step_text
from placement_proofs.prove import find_repairs, prove
from placement_proofs.theorems import finding
from placement_proofs.theories.claims import Claim, Theory
from placement_proofs.verdict import Verdict

KINDS = ("all-reduce gradient", "reduce-scatter gradient", "all-reduce parameter", "all-gather")


@dataclass(frozen=True)
class Mutant:
    """What was changed, and whether the verdict turned; no text: nothing was found."""

    text: str
    killed: bool


NONE = Mutant("", False)


def mutant_of(claim: Claim, theory: Theory) -> Mutant:
    """Something close to a claim that gives the opposite verdict."""
    if claim.against:
        return _against(claim, theory)
    if claim.theorem is not None:
        return _of_theorem(claim)
    assert claim.subject is not None
    if claim.subject.program is not None:
        return _of_program(claim, claim.subject.program)
    return _of_composition(claim, claim.subject)


def _against(claim: Claim, theory: Theory) -> Mutant:
    """The other claim must state the opposite; that it gives it is checked where it stands."""
    other = next((c for c in theory.claims if c.name == claim.against), None)
    if other is None:
        return Mutant(f"no claim is named {claim.against}", False)
    return Mutant(f"claim: {other.name}", other.verdict is _opposite(claim.verdict))


def _opposite(verdict: Verdict) -> Verdict:
    return Verdict.REFUTED if verdict is Verdict.PROVED else Verdict.PROVED


def _of_theorem(claim: Claim) -> Mutant:
    assert claim.theorem is not None
    name = claim.theorem.name
    if claim.wrong:
        return Mutant("the right form is proved", finding(name).verdict is Verdict.PROVED)
    killed = sum(finding(name, wrong).verdict is Verdict.REFUTED for wrong in claim.theorem.wrong)
    count = len(claim.theorem.wrong)
    return Mutant(f"{killed} of {count} wrong forms refuted", 0 < killed == count)


def _of_program(claim: Claim, program: Program) -> Mutant:
    if claim.verdict is Verdict.PROVED:
        return next(_refuted(program), NONE)
    repairs = find_repairs(program, prove(program, certify=False))
    return Mutant(f"{repairs[0].action}: {repairs[0].text}", True) if repairs else NONE


def _refuted(program: Program) -> Iterator[Mutant]:
    ways = reversed(list(dropped(program.steps)))
    for step, steps in sorted(ways, key=lambda way: isinstance(way[0], Update)):
        mutated = replace(program, steps=steps)
        result = prove(mutated, certify=False, everywhere=False)
        if result.verdict is Verdict.REFUTED:
            yield Mutant(f"without {step_text(step)}", True)


def _of_composition(claim: Claim, subject: Subject) -> Mutant:
    if claim.verdict is Verdict.REFUTED:
        right = replace(subject, deviations=())
        return Mutant("the derived plan", _verdict(right) is Verdict.PROVED)
    for text in claim.mutant or tuple(_deviations(subject)):
        deviated = replace(subject, deviations=(*subject.deviations, text))
        if _verdict(deviated) is Verdict.REFUTED:
            return Mutant(text, True)
    return NONE


def _deviations(subject: Subject) -> Iterator[str]:
    composition, _ = subject.composed()
    for kind in KINDS:
        for axis in composition.mesh.axes:
            yield f"drop {kind} {axis.name}"
    yield "drop scale"


def _verdict(subject: Subject) -> Verdict:
    try:
        plan, _ = plan_of(subject, clipping=True)
    except IllFormed:
        return Verdict.ILL_FORMED
    return verdict_of(conditions_of(prove_plan(plan, {})))
