"""The cut-off theorem: agreement at few sizes is agreement at all.

A coefficient of a program with D sums, means and factors on an axis is, in the size of that axis
and up to a power of it, a polynomial of degree at most D, for all sizes >= 2 at which the named
positions are as distinct as the entry says. Two that agree at D + 1 such sizes agree at all:
the sample points fix the coefficients, as their matrix is regular. Size 1 is looked at by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from placement_proofs.program import (
    Buffer,
    Param,
    Program,
    Reduce,
    Scale,
    Source,
    Step,
    Take,
    Term,
    Tick,
    Update,
    Use,
)
from placement_proofs.prove import prove
from placement_proofs.prove.sizes import MAX_CUT, cut_offs
from placement_proofs.replay import replay
from placement_proofs.theorems.finding import Check, Finding, Query, Theorem, conclude, reals
from placement_proofs.verdict import Verdict

COVERS = "degrees 1 to 6 by linear arithmetic; random programs within their bound"
PROGRAMS = 120
SEED = 2601


def _polynomial(degree: int, at: int) -> str:
    terms = " ".join(f"(* {at**k}.0 c{k})" for k in range(degree + 1))
    return f"(+ 0.0 {terms})"


def _query(degree: int, points: int) -> Query:
    names = [f"c{k}" for k in range(degree + 1)]
    zeros = tuple(f"(= 0.0 {_polynomial(degree, at)})" for at in range(2, 2 + points))
    goal = f"(and true {' '.join(f'(= {name} 0.0)' for name in names)})"
    return Query(f"degree {degree}, {points} points", "QF_LRA", reals(*names), zeros, goal)


def _pick(choose: random.Random) -> Step:
    match choose.randrange(5):
        case 0:
            return Reduce("g", ("a",), mean=False)
        case 1:
            return Reduce("g", ("a",), mean=True)
        case 2:
            return Scale("g", choose.choice(("a", "1/a", "2", "1/a")))
        case 3:
            return Take("g", "a", "p")
    return Scale("g", choose.choice(("1", "1/2", "(a-1)/a", "(a+1)/a")))


def random_program(choose: random.Random) -> Program:
    """A few sums, means, factors and broadcasts on one axis, towards a simple target."""
    steps = [_pick(choose) for _ in range(choose.randrange(4))]
    over = choose.choice((("a",), ("a",), ()))
    target = Param("W", (Term("c", over, choose.choice(("1", "1/a", "1/a", "a"))),))
    body = (Use("w"), Source("g", "c", over), *steps, Update("w", "g"), Tick())
    return Program(("a",), (), (target,), (Buffer("w", "W"),), body)


def agrees_up_to(program: Program, top: int) -> bool:
    """Whether replays find nothing at sizes 1 to `top`."""
    return all(not replay(program, {"a": size}, 3).mismatches for size in range(1, top + 1))


def sampled(count: int = PROGRAMS, seed: int = SEED) -> Iterator[Check]:
    """Random programs: the symbolic verdict, and replays up to the printed bound."""
    choose = random.Random(seed)
    done = 0
    while done < count:
        program = random_program(choose)
        bound = cut_offs(program)["a"]
        if bound >= MAX_CUT:
            continue
        done += 1
        proved = prove(program, certify=False, everywhere=False).verdict is Verdict.PROVED
        text = f"bound {bound}: {[type(s).__name__ for s in program.steps]}"
        yield text, proved == agrees_up_to(program, bound)


def right() -> Finding:
    """The bound holds for each degree, and for random programs."""
    queries = tuple(_query(degree, degree + 1) for degree in range(1, 7))
    return conclude(COVERS, queries, sampled(), f"{PROGRAMS} random programs")


def _too_few() -> Finding:
    return conclude(COVERS, tuple(_query(degree, degree) for degree in range(1, 7)))


def _up_to_three() -> Finding:
    """(6a^2 - 11a + 6)/a^3 is 1 at 1, 2 and 3: the only such quadratic over a^3."""

    def agrees(a: int) -> str:
        return f"(= {a**3}.0 {_polynomial(2, a)})"

    names = reals(*(f"c{k}" for k in range(3)))
    premises = tuple(agrees(a) for a in (1, 2, 3))
    query = Query("(c2 a^2 + c1 a + c0)/a^3 at 4", "QF_LRA", names, premises, agrees(4))
    factor = Fraction(6 * 4 * 4 - 11 * 4 + 6, 4**3)
    text = f"(6a^2-11a+6)/a^3 is 1 at 1, 2 and 3, but {factor} at 4"
    return replace(conclude(COVERS, (query,)), evidence=text)


CUT_OFF = Theorem(
    "cut-off",
    "Agreement at D + 1 sizes >= 2 and at 1 is agreement at all sizes.",
    right,
    {
        "agreement at D sizes suffices": _too_few,
        "agreement at sizes 1, 2 and 3 suffices": _up_to_three,
    },
)
