"""Exact numbers of a replay: integers where possible, else fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from placement_proofs.errors import IllFormed
from placement_proofs.program.expr import Bin, Name, Num, Tree
from placement_proofs.replay.result import Path, step_name
from placement_proofs.replay.world import Number


def exact(value: Number) -> Number:
    """A whole fraction as an integer."""
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    return value


def evaluate(tree: Tree, look: Callable[[str], Number], path: Path) -> Number:
    """The value of an expression; raises `IllFormed` on a division by zero."""
    match tree:
        case Num(value):
            return exact(value)
        case Name(name):
            return look(name)
        case Bin(op, left, right):
            a, b = evaluate(left, look, path), evaluate(right, look, path)
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
    if b == 0:
        raise IllFormed(
            f"step {step_name(path)}",
            "a division by zero",
            "a divisor is never zero",
            "divide by a size or a count",
        )
    return exact(Fraction(a) / Fraction(b))
