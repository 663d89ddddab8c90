"""The obligations behind a claim: element programs, and scripts for the solvers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from placement_proofs import theorems
from placement_proofs.checking import plan_of
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject
from placement_proofs.program import Program
from placement_proofs.project import project
from placement_proofs.prove import uninterpreted
from placement_proofs.prove.certificate import blocks
from placement_proofs.prove.core import Outside
from placement_proofs.prove.engine import execute
from placement_proofs.prove.sizes import TooManyCases
from placement_proofs.prove.smt import Answer, decide, decide_again
from placement_proofs.theorems import Finding
from placement_proofs.theories.claims import Claim

COEFFICIENTS, STATES = "QF_NRA", "QF_UF"


@dataclass(frozen=True)
class Script:
    """One block of SMT-LIB 2 (declarations and assertions) and the logic it is in."""

    name: str
    logic: str
    text: str
    claimed: str = "unsat"


def finding(claim: Claim) -> Finding:
    """The outcome of a claim about a theorem in code."""
    assert claim.theorem is not None
    return theorems.finding(claim.theorem.name, claim.wrong)


def programs(subject: Subject) -> tuple[Program, ...]:
    """The element programs of a subject: its own, or those its plan is projected on."""
    if subject.program is not None:
        return (subject.program,)
    plan, _ = plan_of(subject, clipping=True)
    return tuple(dict.fromkeys(p.program for p in project(plan)))


def scripts(claim: Claim) -> tuple[Script, ...]:
    """Every obligation of a claim, without repetition."""
    if claim.subject is None:
        queries = finding(claim).queries
        return tuple(Script(q.name, q.logic, q.text, q.expected) for q in queries)
    found: dict[tuple[str, str], Script] = {}
    for index, program in enumerate(programs(claim.subject), 1):
        for made in _program_scripts(program, f"program {index}"):
            found.setdefault((made.logic, made.text), made)
    return tuple(found.values())


def _program_scripts(program: Program, name: str) -> Iterator[Script]:
    try:
        runs = execute(program, {})
    except (TooManyCases, IllFormed):
        return
    for number, text in enumerate(blocks(runs), 1):
        yield Script(f"{name}: coefficients, size class {number}", COEFFICIENTS, text)
    classes = dict.fromkeys(frozenset(run.size.ones & set(program.axes)) for run in runs.runs)
    for number, ones in enumerate(classes, 1):
        try:
            texts = tuple(uninterpreted.scripts(program, ones))
        except Outside:
            continue
        for way, text in enumerate(texts, 1):
            which = f", positions {way}" if len(texts) > 1 else ""
            yield Script(f"{name}: states, size class {number}{which}", STATES, text)


@cache
def answer(text: str, seed: int = 0) -> Answer:
    """z3's answer to a block, once."""
    return decide(text, seed)


@cache
def second_answer(text: str, logic: str) -> str:
    """cvc5's answer to a block, once."""
    return decide_again(text, logic)
