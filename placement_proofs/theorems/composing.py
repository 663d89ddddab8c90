"""The composition rules: sound, complete and independent over all placements of one axis.

The rules are data: a sentence, a test of a point, and the same in SMT-LIB. What they are
compared with is not written in terms of them: the coefficient with which a rank's gradient
contains its own and another rank's contribution, whether other elements are mixed in, and
whether what a rank reads was updated. z3 decides for symbolic modes and every N >= 2 (at N = 1
every placement that can run is right) that rules and meaning are equivalent, and that no rule
follows from the others. The prover of element programs then decides every point by itself.

Lifting to several axes: coefficients of orthogonal axes multiply, so right on every axis is
right on all. Conversely a plan that is right at all sizes is right with every other axis at
size 1, where the other coefficients are 1: so it is right on each axis alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from placement_proofs.prove import prove
from placement_proofs.theorems.finding import Check, Finding, Query, Theorem, conclude, reals
from placement_proofs.theorems.placements import RUNNABLE, Point, element_program
from placement_proofs.verdict import Verdict

COVERS = "all 648 placements of one axis, every N >= 1; any number of orthogonal axes"


@dataclass(frozen=True)
class Rule:
    """One composition rule: a sentence, a test of a point, the same in SMT-LIB."""

    name: str
    test: Callable[[Point], bool]
    smt: str


RULES = (
    Rule(
        "a split gradient is summed over its axis",
        lambda p: p.contribution != "split" or p.sync != "none",
        "(=> split (not none))",
    ),
    Rule(
        "the sum of a split gradient is not rescaled",
        lambda p: p.contribution != "split" or p.factor == "1",
        "(=> split one)",
    ),
    Rule(
        "a gradient that every rank has whole is left alone, or averaged",
        lambda p: p.contribution != "same" or p.factor == ("1" if p.sync == "none" else "1/N"),
        "(=> same (ite none one inverse))",
    ),
    Rule(
        "the gradient of an own part is left alone",
        lambda p: p.contribution != "own" or (p.sync == "none" and p.factor == "1"),
        "(=> own (and none one))",
    ),
    Rule(
        "what only owners update is published to those who store it",
        lambda p: p.parameters != "R" or p.optimizer == "R" or p.publish,
        "(=> (and stored (not everyone)) publish)",
    ),
)
"""For a target that is a plain sum; a mean has its 1/N in the contributions."""

_MODES = "own split same stored shard gathered everyone full"
_FLAGS = f"{_MODES} none reduce scatter one many inverse publish"

_EXACTLY_ONE = (
    "own split same",
    "stored shard gathered",
    "none reduce scatter",
    "one many inverse",
)


def _declarations() -> str:
    flags = "".join(f"(declare-const {name} Bool)\n" for name in _FLAGS.split())
    return flags + reals("N", "f")


def _modes() -> Iterator[str]:
    """The modes exclude each other; the factor is 1, N or 1/N; the point can run."""
    for group in _EXACTLY_ONE:
        a, b, c = group.split()
        yield f"(or {a} {b} {c})"
        yield f"(not (or (and {a} {b}) (and {a} {c}) (and {b} {c})))"
    yield "(>= N 2.0)"
    yield "(=> one (= f 1.0))"
    yield "(=> many (= f N))"
    yield "(=> inverse (= (* f N) 1.0))"
    yield "(= own shard)"
    yield "(not (and own scatter))"
    yield "(=> full (not (or own scatter)))"
    yield "(=> everyone (and full stored))"


GRADIENT = """(and
  (=> split (= f 1.0))
  (=> split (= (ite none 0.0 f) 1.0))
  (=> same (= (ite none f (* N f)) 1.0))
  (=> own (and (= f 1.0) (not reduce))))"""
"""Coefficients of own and other contributions; a sum of own parts mixes other elements in."""

STATE = "(=> stored (or everyone publish))"
"""A rank that stores the element updates it, or receives it from its owner."""

MEANING = f"(and {GRADIENT} {STATE})"


def _query(name: str, goal: str, expected: str = "unsat") -> Query:
    return Query(name, "QF_NRA", _declarations(), tuple(_modes()), goal, expected)


def _all(rules: Sequence[Rule]) -> str:
    return f"(and true {' '.join(rule.smt for rule in rules)})"


def queries(rules: Sequence[Rule] = RULES) -> Iterator[Query]:
    """Soundness, completeness, and the independence of each rule."""
    yield _query("sound", f"(=> {_all(rules)} {MEANING})")
    yield _query("complete", f"(=> {MEANING} {_all(rules)})")
    for rule in rules:
        rest = [other for other in rules if other is not rule]
        yield _query(f"independent: {rule.name}", f"(=> {_all(rest)} {MEANING})", "sat")
    yield Query(
        "lifting: right on each axis is right on both",
        "QF_NRA",
        reals("a", "b"),
        ("(= a 1.0)", "(= b 1.0)"),
        "(= (* a b) 1.0)",
    )
    yield Query(
        "lifting: right at all sizes is right with the other axis at size one",
        "QF_NRA",
        reals("a", "b1"),
        ("(= b1 1.0)", "(= (* a b1) 1.0)"),
        "(= a 1.0)",
    )


@cache
def proved(point: Point) -> bool:
    """The prover's own verdict on a point, for all N."""
    return prove(element_program(point), certify=False, everywhere=False).verdict is Verdict.PROVED


def _agreement(rules: Sequence[Rule] = RULES) -> Iterator[Check]:
    """The rules and the prover of element programs, point by point."""
    for point in RUNNABLE:
        ruled = all(rule.test(point) for rule in rules)
        yield f"{tuple(point)}: rules {ruled}, prover {proved(point)}", ruled == proved(point)


def removed(rule: Rule) -> tuple[Point, str]:
    """A point that only this rule forbids, and the counterexample to it."""
    others = [other for other in RULES if other is not rule]
    point = next(p for p in RUNNABLE if all(o.test(p) for o in others) and not rule.test(p))
    found = prove(element_program(point), certify=False, everywhere=False).counterexample
    told = f"{found.got}, not {found.expected}, at {dict(found.sizes)}" if found else "none"
    return point, told


def _removals() -> Iterator[Check]:
    for rule in RULES:
        told = removed(rule)[1]
        yield f"without the rule '{rule.name}': no counterexample", told != "none"


def right() -> Finding:
    """Rules and meaning are equivalent; each rule is needed; the prover agrees everywhere."""
    note = f"{sum(proved(p) for p in RUNNABLE)} of {len(RUNNABLE)} that can run are right"
    return conclude(COVERS, tuple(queries()), [*_agreement(), *_removals()], note)


def _without(index: int) -> Finding:
    """The rules without one: z3 finds modes that are wrong, the prover a mesh."""
    rest = [rule for i, rule in enumerate(RULES) if i != index]
    found = conclude(COVERS, (_query("sound", f"(=> {_all(rest)} {MEANING})"),))
    point, told = removed(RULES[index])
    return replace(found, evidence=f"{' '.join(map(str, point[:-1]))}: {told}")


def _with(name: str, smt: str) -> Finding:
    more = (*RULES, Rule(name, lambda _: True, smt))
    return conclude(COVERS, (_query("complete", f"(=> {MEANING} {_all(more)})"),))


COMPOSING = Theorem(
    "composition rules",
    "The composition rules are sound, complete and independent.",
    right,
    {f"sound without the rule: {rule.name}": partial(_without, i) for i, rule in enumerate(RULES)}
    | {
        "complete if a stored gradient had to be whole": lambda: _with("whole", "full"),
        "complete if a whole gradient must not be averaged": lambda: _with(
            "alone", "(=> same none)"
        ),
    },
)
