"""Identities of rational functions: equal at the points of a simplex, so equal everywhere.

A polynomial in n variables of total degree d that is zero at all points of n numbers >= 0 whose sum
is at most d is zero. Numbers carry the bound on the total degree of what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from placement_proofs.prove.kernel.numbers import Num, Rejected
from placement_proofs.prove.kernel.points import simplex

SCHEMA = "placement-proofs/identities/1"


def check_identities(cert: Mapping[str, Any]) -> dict[str, Any]:
    """Check every identity of a certificate.

    Raises:
        Rejected: the sides of one differ at a point, or its degree or table is not what it says.
    """
    points = 0
    for one in cert["identities"]:
        degree, table = tabulated(one, one["degree"])
        if degree != one["degree"] or table != one["table"]:
            raise Rejected(f"{one['name']}: the degree is {degree}, or the table is another")
        points += len(table)
    if not points:
        raise Rejected("nothing is compared")
    most = max(one["degree"] for one in cert["identities"])
    return {"points": points, "compared": points, "degrees": {"total": most}}


def tabulated(one: Mapping[str, Any], degree: int) -> tuple[int, list[str]]:
    """The degree of an identity, as far as points for a degree show it; the values there.

    Raises:
        Rejected: the sides differ.
    """
    bound, table = 0, []
    for point in simplex(len(one["names"]), degree):
        at = {n: Num(Fraction(1 + v), (1,)) for n, v in zip(one["names"], point, strict=True)}
        left, right = value(one["left"], at), value(one["right"], at)
        if left.at != right.at:
            shown = {name: str(number.at) for name, number in at.items()}
            raise Rejected(f"{one['name']}: {left.at} is not {right.at} at {shown}")
        both = left + right
        bound = max(bound, both.top[0], *(degrees[0] for _, degrees in both.under), 0)
        table.append(str(left.at))
    return bound, table


def value(tree: Any, at: Mapping[str, Num]) -> Num:
    """A number, the name of a variable, or [operator, operand, ...]."""
    if isinstance(tree, str):
        return at[tree]
    if isinstance(tree, int):
        return Num(Fraction(tree), (0,))
    first, *rest = (value(part, at) for part in tree[1:])
    for other in rest:
        match tree[0]:
            case "+":
                first = first + other
            case "*":
                first = first * other
            case "-":
                first = first + other * Num(Fraction(-1), (0,))
            case "/":
                first = first / other
            case _:
                raise ValueError(tree[0])
    return first
