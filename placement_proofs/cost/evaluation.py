"""Values of formulas by plain arithmetic, on exact numbers or, element by element, on arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from placement_proofs.cost.symbols import Expr


def evaluate(expression: Expr, values: Mapping[str, Any]) -> Any:
    """The value of a formula by plain arithmetic, on numbers or, element by element, on arrays.

    Quotients are true divisions; a maximum is taken without comparing.

    Raises:
        KeyError: a symbol has no value.
    """
    return compiled(expression)(values)


def compiled(expression: Expr) -> Callable[[Mapping[str, Any]], Any]:
    """A function that evaluates a formula as :func:`evaluate` does, taken apart once."""
    if expression.is_Symbol:
        return operator.itemgetter(expression.name)
    if expression.is_Integer:
        number = int(expression)
        return lambda values: number
    above, below = expression.as_numer_denom()
    if below != 1 and expression.func.__name__ not in ("Add", "Max", "Min"):
        a, b = compiled(above), compiled(below)
        return lambda values: a(values) / b(values)
    parts = [compiled(part) for part in expression.args]
    if len(parts) == 1:
        return lambda values: _up(parts[0](values))
    combine = _COMBINE[expression.func.__name__]
    return lambda values: reduce(combine, [part(values) for part in parts])


def _up(value: Any) -> Any:
    return -(-value // 1)


_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "Max": lambda a, b: (a + b + abs(a - b)) / 2,
    "Min": lambda a, b: (a + b - abs(a - b)) / 2,
}
