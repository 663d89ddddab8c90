"""The normal form: the tags of an axis are closed under every step (semantics page, section 4).

The coefficient that rank `i` holds of the contribution of rank `j` is a condition on the row,
`i = p`, and on the column, `j = q`, at named positions, or none, or `i = j`. With one position
these are the five tags J, I, O, R and P; two positions p and q stand for any number, as no step
looks at more than two at once. A sum over the ranks meets the orbits of the ranks that fix j, p
and q: each of these ranks, and all others, N less their number. What it gives is compared with
the claimed normal form for every N, in each way in which j, p and q coincide. The same tables
are then compared with what the prover's algebra does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from placement_proofs.prove.algebra import ONE, Atoms, Size, number
from placement_proofs.prove.forms import Algebra, Form, Positions, Symbol, Symbols
from placement_proofs.theorems.finding import Check, Finding, Query, Theorem, conclude, reals

Tag: TypeAlias = tuple[str, str]
"""Conditions on row and column, as the prover writes them: '' is none, '=' in both is i = j."""
Place: TypeAlias = Mapping[str, int]
"""Which of i, j, p, q are the same rank."""
Table: TypeAlias = Callable[[Tag], Tag | None]

OWN: Tag = ("=", "=")
_NAMES = ("", "p", "q")
TAGS: tuple[Tag, ...] = (OWN, *((row, column) for row in _NAMES for column in _NAMES))
COVERS = "every N >= 1; every rank, column and pair of named positions"


def summed(tag: Tag) -> tuple[str, Tag]:
    """The sum over the ranks: a factor and a tag without a row."""
    if tag == OWN:
        return "1.0", ("", "")
    return ("1.0" if tag[0] else "N"), ("", tag[1])


def taken(tag: Tag) -> Tag | None:
    """What all ranks have after a broadcast from p; None is zero."""
    if tag == OWN:
        return "", "p"
    return ("", tag[1]) if tag[0] in ("", "p") else None


def guarded(tag: Tag) -> Tag | None:
    """What is left if only the ranks at p keep it."""
    if tag == OWN:
        return "p", "p"
    return ("p", tag[1]) if tag[0] in ("", "p") else None


def turned(tag: Tag) -> Tag:
    """The adjoint: row and column change places."""
    return tag[1], tag[0]


def holds(tag: Tag | None, place: Place) -> bool:
    """Whether a condition is met."""
    if tag is None:
        return False
    if tag == OWN:
        return place["i"] == place["j"]
    row, column = tag
    return (not row or place["i"] == place[row]) and (not column or place["j"] == place[column])


def places(names: str) -> Iterator[dict[str, int]]:
    """The ways in which the names coincide: set partitions."""
    for choice in itertools.product(range(len(names)), repeat=len(names)):
        seen: dict[int, int] = {}
        if all(seen.setdefault(b, len(seen)) == b for b in choice):
            yield dict(zip(names, choice, strict=True))


def _sums(table: Callable[[Tag], tuple[str, Tag]]) -> Iterator[Query]:
    """One query for each tag and place: the count over orbits is the claimed multiple."""
    for tag, place in itertools.product(TAGS, places("jpq")):
        ranks = sorted(set(place.values()))
        orbits = [("1.0", rank) for rank in ranks] + [(f"(- N {len(ranks)}.0)", -1)]
        parts = [size for size, rank in orbits if holds(tag, {**place, "i": rank})]
        factor, result = table(tag)
        value = "1.0" if holds(result, {**place, "i": -1}) else "0.0"
        goal = f"(= (* a (+ 0.0 0.0 {' '.join(parts)})) (* a (* {factor} {value})))"
        premise = (f"(>= N {len(ranks)}.0)",)
        name = f"sum of {_text(tag)} where {_where(place)}"
        yield Query(name, "QF_NRA", reals("N", "a"), premise, goal)


def _text(tag: Tag | None) -> str:
    if tag is None:
        return "0"
    row, column = ("i = j", "") if tag == OWN else (f"i = {tag[0]}", f"j = {tag[1]}")
    return f"[{', '.join(t for t in (row, column) if t and not t.endswith(' '))}]"


def _where(place: Place) -> str:
    blocks = [[n for n, b in place.items() if b == block] for block in set(place.values())]
    return ", ".join(" = ".join(block) for block in blocks)


_RANKS = "(declare-sort Rank 0)\n" + "".join(
    f"(declare-const {name} Rank)\n" for name in ("i", "j", "p", "q")
)
_APART = ("(not (= p q))",)


def _smt(tag: Tag | None, row: str = "i", column: str = "j") -> str:
    """A condition as a formula over ranks."""
    if tag is None:
        return "false"
    if tag == OWN:
        return f"(= {row} {column})"
    where, whose = tag
    tests = ([f"(= {row} {where})"] if where else []) + ([f"(= {column} {whose})"] if whose else [])
    return f"(and true {' '.join(tests)})"


def _pointwise(take: Table = taken, guard: Table = guarded) -> Iterator[Query]:
    """Take, guard and adjoint do not sum: they are formulas over ranks, p and q apart."""
    for tag in TAGS:
        for name, left, right in (
            ("take", _smt(tag, row="p"), _smt(take(tag))),
            ("guard", f"(and (= i p) {_smt(tag)})", _smt(guard(tag))),
            ("adjoint", _smt(tag, row="j", column="i"), _smt(turned(tag))),
        ):
            yield Query(f"{name} of {_text(tag)}", "QF_UF", _RANKS, _APART, f"(= {left} {right})")


def _algebra() -> Iterator[Check]:
    """The prover's own operations are these tables, and its size-one case has no tags."""
    atoms = Atoms()
    symbols = Symbols(atoms)
    algebra = Algebra(symbols, Positions(frozenset(), frozenset({("a", "p", "q")}), ()))
    symbol = symbols.id(Symbol("contribution", "c", 0, ("a",)))
    size = atoms.poly(Size("a"))

    def form(tag: Tag | None) -> Form:
        if tag is None:
            return {}
        return {(symbol, ((("a", *tag),) if any(tag) else ())): ONE}

    for tag in TAGS:
        factor, result = summed(tag)
        want = {key: size if factor == "N" else ONE for key in form(result)}
        yield f"the prover's sum of {_text(tag)}", algebra.sum(form(tag), "a", size) == want
        yield (
            f"the prover's take of {_text(tag)}",
            algebra.take(form(tag), "a", "p") == form(taken(tag)),
        )
        yield (
            f"the prover's guard of {_text(tag)}",
            algebra.at(form(tag), "a", "p") == form(guarded(tag)),
        )
    alone = Algebra(symbols, Positions(frozenset({"a"}), frozenset(), ()))
    one = form(("", ""))
    yield "a sum at size one", alone.sum(one, "a", number(1)) == one
    yield "first is last at size one", alone.positions.same("a", "first", "last")


def right() -> Finding:
    """Every table holds at every place, for every N."""
    return conclude(COVERS, (*_sums(summed), *_pointwise()), _algebra())


def _wrong_sum() -> Finding:
    def table(tag: Tag) -> tuple[str, Tag]:
        return ("N", ("", "")) if tag == OWN else summed(tag)

    return conclude(COVERS, tuple(_sums(table)))


def _wrong_take() -> Finding:
    queries = _pointwise(take=lambda tag: OWN if tag == OWN else taken(tag))
    return conclude(COVERS, tuple(queries))


def _wrong_guard() -> Finding:
    def table(tag: Tag) -> Tag | None:
        return ("p", "") if tag == OWN else guarded(tag)

    return conclude(COVERS, tuple(_pointwise(guard=table)))


def _wrong_positions() -> Finding:
    """What q holds, seen at another position p, is zero, not what q has."""

    def table(tag: Tag) -> Tag | None:
        return ("", tag[1]) if tag[0] == "q" else taken(tag)

    return conclude(COVERS, tuple(_pointwise(take=table)))


NORMAL_FORM = Theorem(
    "normal form",
    "The five tags are closed under sum, mean, scale, take, guard and adjoint.",
    right,
    {
        "a sum of own contributions is N times all": _wrong_sum,
        "a broadcast keeps own contributions": _wrong_take,
        "a guard turns own contributions into all": _wrong_guard,
        "a broadcast from p gives what another position holds": _wrong_positions,
    },
)
