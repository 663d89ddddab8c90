"""The queries of a theorem that are identities of polynomials, as certificates for the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from placement_proofs.prove.kernel.identities import SCHEMA, tabulated
from placement_proofs.theorems import Query

Made: TypeAlias = dict[str, Any]
BOUNDS = (">=", ">")
"""Premises that only bound a variable may be left out: what is shown is more."""


def certificate(claim: str, queries: Iterable[Query]) -> Made | None:
    """A certificate of the queries that are identities; None if there are none.

    Raises:
        Rejected: the sides of one differ.
    """
    found = [one for query in queries for one in identities(query)]
    return {"schema": SCHEMA, "claim": claim, "identities": found} if found else None


def identities(query: Query) -> Iterator[Made]:
    """The equations that a query claims, if it claims nothing else, with degrees and tables."""
    premises = [_parsed(text) for text in query.premises]
    goal = _parsed(query.goal)
    equations = [part for part in goal[1:] if part != "true"] if goal[0] == "and" else [goal]
    known = {p[1]: p[2] for p in premises if p[0] == "=" and isinstance(p[1], str)}
    plain = all(p[0] in BOUNDS or (p[0] == "=" and isinstance(p[1], str)) for p in premises)
    if query.logic != "QF_NRA" or not plain or any(part[0] != "=" for part in equations):
        return
    for number, (_, left, right) in enumerate(equations, 1):
        name = query.name if len(equations) == 1 else f"{query.name} ({number})"
        yield _tabulated(name, _put(left, known), _put(right, known))


def _tabulated(name: str, left: Any, right: Any) -> Made:
    one: Made = {"name": name, "names": sorted(_names([left, right])), "left": left, "right": right}
    degree, found = -1, 0
    table: list[str] = []
    while degree != found:
        degree = found
        found, table = tabulated(one, degree)
    return {**one, "degree": degree, "table": table}


def _names(tree: Any) -> set[str]:
    if isinstance(tree, list):
        return {name for part in tree for name in _names(part)} - {"+", "-", "*", "/"}
    return {tree} if isinstance(tree, str) else set()


def _put(tree: Any, known: Mapping[str, Any]) -> Any:
    """A tree with what is known of its variables in their place."""
    if isinstance(tree, list):
        return [tree[0], *(_put(part, known) for part in tree[1:])]
    return _put(known[tree], known) if isinstance(tree, str) and tree in known else tree


def _parsed(text: str) -> Any:
    """An SMT-LIB term as nested lists, with numbers as integers or quotients."""
    words = iter(text.replace("(", " ( ").replace(")", " ) ").split())

    def tree(word: str) -> Any:
        if word != "(":
            return _atom(word)
        parts = []
        while (inner := next(words)) != ")":
            parts.append(tree(inner))
        return parts

    return tree(next(words))


def _atom(word: str) -> Any:
    if not word[0].isdigit():
        return word
    number = Fraction(word)
    plain = number.denominator == 1
    return number.numerator if plain else ["/", number.numerator, number.denominator]
