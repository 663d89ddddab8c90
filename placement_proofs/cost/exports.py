"""Formulas in other languages: MathML to be read, JavaScript to be run. Nothing here calculates.

A formula has symbols, numbers, sums, products, whole powers, maxima, minima, floors and ceilings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

Expr: TypeAlias = Any
"""A formula of :mod:`placement_proofs.cost.symbols`."""

GREEK = {"Psi": "\u03a8", "alpha": "\u03b1", "beta": "\u03b2"}
_FENCES = {"ceiling": ("\u2308", "\u2309"), "floor": ("\u230a", "\u230b")}
_TIMES = '<mo>\u2062</mo><mspace width="0.17em"/>'


def kind(expression: Expr) -> str:
    """What a formula is at its top: ``Symbol``, ``Number``, ``Add``, ``Mul``, ``Pow`` and so on."""
    if expression.is_Symbol:
        return "Symbol"
    return "Number" if expression.is_Rational else str(expression.func.__name__)


# --- JavaScript ----------------------------------------------------------------------

_CALLS: Mapping[str, str] = {
    "Add": "add",
    "Mul": "mul",
    "Max": "max",
    "Min": "min",
    "ceiling": "ceil",
    "floor": "floor",
}


def javascript(expression: Expr) -> str:
    """A JavaScript expression that computes a formula exactly.

    It calls ``add``, ``mul``, ``max``, ``min``, ``ceil``, ``floor`` and ``pow`` (with a whole
    exponent) on fractions, which ``q`` makes of one or two BigInts and ``v`` of a symbol's name.

    Raises:
        ValueError: the formula has anything else.
    """
    match kind(expression):
        case "Symbol":
            return f"v({json.dumps(expression.name)})"
        case "Number":
            below = "" if expression.q == 1 else f", {expression.q}n"
            return f"q({expression.p}n{below})"
        case "Pow" if expression.exp.is_Integer:
            return f"pow({javascript(expression.base)}, {int(expression.exp)})"
        case name if name in _CALLS:
            return f"{_CALLS[name]}({', '.join(map(javascript, expression.args))})"
        case name:
            raise ValueError(f"{name} in a formula")


# --- MathML --------------------------------------------------------------------------


def mathml(expression: Expr) -> str:
    """A formula as presentation MathML of the core that browsers show without a library.

    The alternatives of a maximum stand below each other.

    Raises:
        ValueError: the formula has anything but what formulas have.
    """
    return f'<math displaystyle="true">{_row([_shown(expression)])}</math>'


def _row(parts: Sequence[str]) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def _fenced(inside: str, left: str = "(", right: str = ")") -> str:
    return _row([f'<mo fence="true">{left}</mo>', inside, f'<mo fence="true">{right}</mo>'])


def _shown(expression: Expr) -> str:
    match kind(expression):
        case "Symbol":
            return _name(expression.name)
        case "Number" | "Mul" | "Pow":
            return _product(expression)
        case "Add":
            return _sum(expression)
        case "Max" | "Min" as name:
            return _most(name.lower(), expression.args)
        case name if name in _FENCES:
            return _fenced(_shown(expression.args[0]), *_FENCES[name])
        case name:
            raise ValueError(f"{name} in a formula")


def _name(name: str) -> str:
    """``N_dp`` with a subscript; Greek letters by their names."""
    head, _, tail = name.partition("_")
    if head and tail:
        return f"<msub><mi>{escape(GREEK.get(head, head))}</mi><mi>{escape(tail)}</mi></msub>"
    return f"<mi>{escape(GREEK.get(name, name))}</mi>"


def _sum(expression: Expr) -> str:
    parts: list[str] = []
    for term in expression.as_ordered_terms():
        negative = term.could_extract_minus_sign()
        sign = "<mo>\u2212</mo>" if negative else "<mo>+</mo>" if parts else ""
        parts.append(sign + _shown(-term if negative else term))
    return _row(parts)


def _product(expression: Expr) -> str:
    """Factors over factors: those with negative powers stand below."""
    above: list[str] = []
    below: list[str] = []
    sign = ""
    for factor in expression.as_ordered_factors():
        if factor.is_Rational:
            sign = "<mo>\u2212</mo>" if factor.p < 0 else sign
            above += [f"<mn>{abs(factor.p)}</mn>"] if abs(factor.p) != 1 else []
            below += [f"<mn>{factor.q}</mn>"] if factor.q != 1 else []
        else:
            base, power = factor.as_base_exp()
            (below if power < 0 else above).append(_power(base, abs(power)))
    top = _times(above) if above else "<mn>1</mn>"
    whole = f"<mfrac>{top}{_times(below)}</mfrac>" if below else top
    return _row([sign, whole]) if sign else whole


def _times(factors: Sequence[str]) -> str:
    return _row([_TIMES.join(factors)])


def _power(base: Expr, power: Expr) -> str:
    shown = _shown(base)
    shown = _fenced(shown) if kind(base) == "Add" else shown
    return shown if power == 1 else f"<msup>{_row([shown])}<mn>{int(power)}</mn></msup>"


def _most(word: str, values: Sequence[Expr]) -> str:
    """Each alternative in a row of its own, behind a line (braces need a font to grow)."""
    rows = "".join(
        f'<mtr><mtd style="text-align: left">{_shown(value)}</mtd></mtr>' for value in values
    )
    line = "border-left: 1.5px solid; padding-left: 0.4em; margin-left: 0.3em"
    return _row([f"<mo>{word}</mo>", f'<mtable style="{line}">{rows}</mtable>'])
