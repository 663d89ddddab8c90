"""Formulas without maxima, ceilings and quotients: polynomials in whole sizes, case by case.

A formula with maxima and minima has a case for each choice of their arguments, guarded by what
makes that argument the chosen one. A ceiling ``c`` of ``x`` is a new whole number with ``x <= c <
x + 1``. A quotient ``a / b`` has the sign of ``a * b``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TypeAlias

from placement_proofs.cost import symbols
from placement_proofs.cost.symbols import Expr

Polynomial: TypeAlias = Mapping[tuple[tuple[str, int], ...], int]
"""Whole coefficients by monomial; a monomial is its names with their powers."""

MANY = 64
"""Cases of a formula at most."""


class TooManyCases(Exception):
    """A formula has more cases than are tried."""


@dataclass(frozen=True)
class Case:
    """A case of a formula.

    Attributes:
        sign: a polynomial with the sign of the formula.
        below: the denominators, which are not zero.
        guards: polynomials that are at least 0 (``True``: above 0) in this case.
        whole: names of ceilings, whole numbers.
    """

    sign: Polynomial
    below: tuple[Polynomial, ...]
    guards: tuple[tuple[Polynomial, bool], ...]
    whole: tuple[str, ...]


def cleared(expression: Expr) -> list[Case]:
    """The cases of a formula.

    Raises:
        TooManyCases: there are more than ``MANY``.
    """
    found: list[Case] = []
    for plain, guards, whole in _unfolded(expression, (), ()):
        if len(found) == MANY:
            raise TooManyCases
        found.append(_case(plain, guards, whole))
    return found


_Guards: TypeAlias = tuple[tuple[Expr, bool], ...]


def _unfolded(
    expression: Expr, guards: _Guards, whole: tuple[str, ...]
) -> Iterator[tuple[Expr, _Guards, tuple[str, ...]]]:
    node = next((n for e in (expression, *(g for g, _ in guards)) if (n := _innermost(e))), None)
    if node is None:
        yield expression, guards, whole
        return
    if node.func.__name__ == "ceiling":
        name = f"up{len(whole)}"
        up, inside = symbols.whole(name), node.args[0]
        choices: list[tuple[Expr, _Guards]] = [
            (up, ((up - inside, False), (inside + 1 - up, True))),
        ]
        whole = (*whole, name)
    else:
        sense = 1 if node.func.__name__ == "Max" else -1
        choices = [
            (one, tuple((sense * (one - other), False) for other in node.args if other is not one))
            for one in node.args
        ]
    for value, more in choices:
        known = tuple((_put(g, node, value), strict) for g, strict in guards)
        yield from _unfolded(_put(expression, node, value), known + more, whole)


def _put(expression: Expr, node: Expr, value: Expr) -> Expr:
    return expression.xreplace({node: value})


def _innermost(expression: Expr) -> Expr | None:
    """A maximum, minimum or ceiling with none of them inside."""
    for part in expression.args:
        found = _innermost(part)
        if found is not None:
            return found
    return expression if expression.func.__name__ in ("Max", "Min", "ceiling") else None


def _case(expression: Expr, guards: _Guards, whole: tuple[str, ...]) -> Case:
    sign, below = _sign(expression)
    signs = [(*_sign(guard), strict) for guard, strict in guards]
    denominators = [below, *(b for _, b, _ in signs)]
    return Case(
        sign,
        tuple(d for d in denominators if not _positive(d)),
        tuple((s, strict) for s, _, strict in signs),
        whole,
    )


def _sign(expression: Expr) -> tuple[Polynomial, Polynomial]:
    """A polynomial with the sign of a quotient, and its denominator."""
    above, below = expression.together().as_numer_denom()
    divisor = polynomial(below)
    return polynomial(above if _positive(divisor) else above * below), divisor


def _positive(divisor: Polynomial) -> bool:
    """Whether it is plain that a polynomial in sizes from 1 is above 0."""
    return bool(divisor) and all(c > 0 for c in divisor.values())


def polynomial(expression: Expr) -> Polynomial:
    """A formula without quotients as a polynomial, times a positive number if need be."""
    names = symbols.symbols_of(expression)
    if not names:
        value = Fraction(symbols.number(expression, {}))
        return {(): value.numerator} if value else {}
    order = sorted(expression.free_symbols, key=lambda s: s.name)
    terms = [(m, Fraction(int(c.p), int(c.q))) for m, c in expression.as_poly(*order).terms()]
    scale = lcm(*(c.denominator for _, c in terms))
    return {
        tuple((n, p) for n, p in zip(names, powers, strict=True) if p): int(c * scale)
        for powers, c in terms
        if c
    }
