"""Formulas as straight-line code: one operation a step, equal subexpressions once, plain data.

A tape needs no sympy to run, can be sent to another process, and is the same for numbers and for
arrays: a runner brings the six operations.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from placement_proofs.cost.symbols import Expr

Step = tuple[str, int, int]
"""An operation and the slots that it reads; an operation on one value names its slot twice."""


@dataclass(frozen=True)
class Tape:
    """Code for several formulas.

    The slots are the inputs, then the constants, then the result of each step.

    Attributes:
        inputs: the names of the values to give.
        constants: numbers of the formulas.
        steps: operations in order: add, subtract, multiply, divide, maximum, minimum, ceil, power.
        outputs: the slot of each formula by its name.
    """

    inputs: tuple[str, ...]
    constants: tuple[float, ...]
    steps: tuple[Step, ...]
    outputs: Mapping[str, int]

    def run(self, values: Mapping[str, float]) -> dict[str, float]:
        """The formulas at one point, in floating point.

        Raises:
            KeyError: an input has no value.
        """
        slots = [values[name] for name in self.inputs] + list(self.constants)
        for name, a, b in self.steps:
            slots.append(OPERATIONS[name](slots[a], slots[b]))
        return {name: slots[slot] for name, slot in self.outputs.items()}


ROUNDING = 1e-6
"""Taken away before rounding up: a quotient of whole numbers may come out a little above one."""

OPERATIONS: Mapping[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "maximum": max,
    "minimum": min,
    "power": operator.pow,
    "ceil": lambda a, _: math.ceil(a - ROUNDING),
}
"""The operations of a tape on numbers."""


def tape(expressions: Mapping[str, Expr], varying: frozenset[str] = frozenset()) -> Tape:
    """The tape of formulas by name.

    In sums and products, what does not depend on the symbols of ``varying`` is combined first: for
    arrays of those and numbers for the others it is computed once.
    """
    writer = _Writer(varying)
    return writer.tape({name: writer.write(e) for name, e in expressions.items()})


@dataclass
class _Writer:
    """Numbers values as it writes: equal operations on equal slots are one step."""

    varying: frozenset[str]
    known: dict[Expr, int] = field(default_factory=dict)
    slots: dict[object, int] = field(default_factory=dict)
    varies: list[bool] = field(default_factory=list)

    def tape(self, outputs: Mapping[str, int]) -> Tape:
        """The finished tape: inputs first, then constants, then steps."""
        keys = list(self.slots)
        order = [k for kind in (str, float, tuple) for k in keys if isinstance(k, kind)]
        at = {self.slots[key]: i for i, key in enumerate(order)}
        return Tape(
            tuple(k for k in keys if isinstance(k, str)),
            tuple(k for k in keys if isinstance(k, float)),
            tuple((k[0], at[k[1]], at[k[2]]) for k in keys if isinstance(k, tuple)),
            {name: at[slot] for name, slot in outputs.items()},
        )

    def write(self, expression: Expr) -> int:
        """The slot of an expression."""
        if expression not in self.known:
            self.known[expression] = self._written(expression)
        return self.known[expression]

    def _written(self, expression: Expr) -> int:
        if expression.is_Symbol:
            return self._slot(expression.name, expression.name in self.varying)
        if expression.is_number:
            return self._number(float(expression))
        kind = expression.func.__name__
        if kind == "Pow":
            return self._power(*expression.args)
        if kind == "Mul":
            return self._product(expression)
        if kind == "Add":
            return self._sum(expression)
        if kind == "ceiling":
            inner = self.write(expression.args[0])
            return self._step("ceil", inner, inner)
        name = {"Max": "maximum", "Min": "minimum"}[kind]
        return self._fold(name, [self.write(a) for a in expression.args])

    def _slot(self, key: object, varies: bool) -> int:
        if key not in self.slots:
            self.slots[key] = len(self.varies)
            self.varies.append(varies)
        return self.slots[key]

    def _number(self, value: float) -> int:
        return self._slot(value, False)

    def _step(self, name: str, a: int, b: int) -> int:
        if name in ("add", "multiply", "maximum", "minimum") and a > b:
            a, b = b, a
        return self._slot((name, a, b), self.varies[a] or self.varies[b])

    def _fold(self, name: str, slots: list[int]) -> int:
        """All slots combined, those that do not vary first."""
        first, *rest = sorted(slots, key=lambda slot: (self.varies[slot], slot))
        for slot in rest:
            first = self._step(name, first, slot)
        return first

    def _power(self, base: Expr, exponent: Expr) -> int:
        if exponent == -1:
            return self._step("divide", self._number(1.0), self.write(base))
        slot = self.write(base)
        if exponent == 2:
            return self._step("multiply", slot, slot)
        return self._step("power", slot, self.write(exponent))

    def _product(self, product: Expr) -> int:
        above = [a for a in product.args if not _is_divisor(a)]
        below = [1 / a for a in product.args if _is_divisor(a)]
        top = self._fold("multiply", [self.write(a) for a in above]) if above else None
        if not below:
            assert top is not None
            return top
        bottom = self._fold("multiply", [self.write(b) for b in below])
        return self._step("divide", self._number(1.0) if top is None else top, bottom)

    def _sum(self, total: Expr) -> int:
        plus = [a for a in total.args if not a.could_extract_minus_sign()]
        minus = [-a for a in total.args if a.could_extract_minus_sign()]
        if not plus:
            plus, minus = [-minus[0]], minus[1:]
        result = self._fold("add", [self.write(a) for a in plus])
        if not minus:
            return result
        return self._step("subtract", result, self._fold("add", [self.write(a) for a in minus]))


def _is_divisor(factor: Expr) -> bool:
    """Whether a factor of a product is a power with a negative exponent."""
    return bool(factor.is_Pow and factor.args[1].is_number and factor.args[1] < 0)
