"""The equivalence theorem: the conditions hold iff every step equals the single-device step.

Sufficiency is an induction over steps: all copies hold the specification's state, every use
reads it, every gradient is the target at it, and equal arguments give an update equal results;
then all copies hold the next state. Necessity is a construction for each way of failing: a
choice of contributions, and of an optimizer, for which the two runs differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from placement_proofs.prove import prove
from placement_proofs.replay import replay
from placement_proofs.theorems.finding import Check, Finding, Query, Theorem, conclude, reals
from placement_proofs.theorems.placements import RUNNABLE, Point, element_program
from placement_proofs.verdict import Verdict

COVERS = "every optimizer, every number of steps; all placements of one axis by replay at 1, 2, 3"

_STATE = """(declare-sort V 0)
(declare-fun update (V V) V)
(declare-fun target (V) V)
(declare-const spec V)
(declare-const next V)
(declare-const here V)
(declare-const there V)
(declare-const read V)
(declare-const g V)
(declare-const h V)
"""
_DEFINED = "(= next (update spec (target spec)))"
_CONSISTENT = ("(= here spec)", "(= there spec)", "(= read spec)")
_INTEGRAL = ("(= g (target read))", "(= h (target read))")
_NEXT = "(and (= (update here g) next) (= (update there h) next))"


def _step(name: str, premises: tuple[str, ...]) -> Query:
    return Query(name, "QF_UF", _STATE, (_DEFINED, *premises), _NEXT)


def _construction(name: str, names: str, premises: tuple[str, ...], goal: str) -> Query:
    return Query(name, "QF_NRA", reals(*names.split()), premises, goal)


def _necessity() -> Iterator[Query]:
    """With update(w, g) = w - g: each fault gives another value than the single device."""
    yield _construction(
        "necessity: a wrong coefficient, that contribution 1 and all others 0",
        "w got want new spec",
        ("(not (= got want))", "(= new (- w (* got 1.0)))", "(= spec (- w (* want 1.0)))"),
        "(not (= new spec))",
    )
    yield _construction(
        "necessity: another element mixed in, that element's contribution 1",
        "w mixed new",
        ("(not (= mixed 0.0))", "(= new (- w (* mixed 1.0)))"),
        "(not (= new w))",
    )
    yield _construction(
        "necessity: a stale read, the target 1",
        "old current read",
        ("(= current (- old 1.0))", "(= read old)"),
        "(not (= read current))",
    )
    yield _construction(
        "necessity: two copies that differ are not both the state",
        "here there spec",
        ("(not (= here there))",),
        "(not (and (= here spec) (= there spec)))",
    )
    yield _construction(
        "necessity: a whole-tensor update of a shard, scaled by the sum of squares",
        "w x y new spec",
        (
            "(not (= y 0.0))",
            "(= x 1.0)",
            "(= new (- w (* x (* x x))))",
            "(= spec (- w (* x (+ (* x x) (* y y)))))",
        ),
        "(not (= new spec))",
    )


def queries() -> tuple[Query, ...]:
    """The induction step, and a construction for each way of failing."""
    step = _step("sufficiency: one step", (*_CONSISTENT, *_INTEGRAL))
    return (step, *_necessity())


@cache
def replays_right(point: Point) -> bool:
    """Whether three steps equal one device at 1, 2 and 3 ranks: the replay, not the prover."""
    program = element_program(point)
    return all(not replay(program, {"dp": n, "step": 3}, 1).mismatches for n in (1, 2, 3))


@cache
def conditions(point: Point) -> tuple[bool, bool]:
    """Gradient integrity and state consistency, as the prover decides them for all sizes."""
    result = prove(element_program(point), certify=False, everywhere=False)
    gradient, state = result["gradient_integrity"], result["state_consistency"]
    return gradient.verdict is Verdict.PROVED, state.verdict is Verdict.PROVED


def _space(gradient: bool = True, state: bool = True) -> Iterator[Check]:
    """The named conditions against replays, over the whole space."""
    for point in RUNNABLE:
        found = conditions(point)
        held = (found[0] or not gradient) and (found[1] or not state)
        text = f"{tuple(point)}: conditions {held}, replay {replays_right(point)}"
        yield text, held == replays_right(point)


def right() -> Finding:
    """Both conditions together are necessary and sufficient."""
    return conclude(COVERS, queries(), _space())


EQUIVALENCE = Theorem(
    "equivalence",
    "Gradient integrity and state consistency hold iff every step equals one device's step.",
    right,
    {
        "gradient integrity alone suffices": lambda: conclude(
            COVERS, (_step("one step from gradient integrity", _INTEGRAL),), _space(state=False)
        ),
        "state consistency alone suffices": lambda: conclude(
            COVERS, (_step("one step from state consistency", _CONSISTENT),), _space(gradient=False)
        ),
        "the induction needs no right gradient": lambda: conclude(
            COVERS, (_step("without gradient integrity", _CONSISTENT),)
        ),
        "the induction needs no current reads": lambda: conclude(
            COVERS, (_step("without state consistency", ("(= read spec)", *_INTEGRAL)),)
        ),
    },
)
