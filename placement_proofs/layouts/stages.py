"""Layers of pipeline stages where stages do not divide them."""

from __future__ import annotations

from collections.abc import Mapping

from placement_proofs.cost import symbols
from placement_proofs.cost.symbols import Expr, symbol
from placement_proofs.layouts.setting import Kind

OF_STAGE = symbol("layers")
"""Layers of a stage (of one of its chunks), while formulas are made."""


def staged(form: Expr, kind: Kind, name: str) -> Expr:
    """A formula with the layers of the stage: the last one has fewer where they do not divide."""
    stages = symbol("p") * kind.chunks
    above = symbol("L") - (stages - 1 if name.startswith("last ") else 0)
    return substituted(form, {OF_STAGE: symbols.rounded_up(above / stages)})


def substituted(expression: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """``expression`` with symbols replaced by formulas; maxima stay as they stand."""
    known: dict[Expr, Expr] = dict(values)

    def put(part: Expr) -> Expr:
        if part not in known:
            changed = part.free_symbols & values.keys()
            known[part] = rebuilt(part) if changed else part
        return known[part]

    def rebuilt(part: Expr) -> Expr:
        arguments = [put(a) for a in part.args]
        if part.func.__name__ in ("Max", "Min"):
            return part.func(*arguments, evaluate=False)
        return part.func(*arguments)

    return put(expression)
