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

    It is several elements in a row, one for each term of a sum, so that a line can break between
    them. The alternatives of a maximum stand below each other.

    Raises:
        ValueError: the formula has anything but what formulas have.
    """
    return "<wbr>".join(_element(piece) for piece in _pieces(expression))


def alternatives(expression: Expr) -> tuple[Expr, tuple[Expr, ...]] | None:
    """A sum with one maximum, taken apart: the other terms, and what the maximum is of."""
    terms = expression.args if kind(expression) == "Add" else (expression,)
    most = [term for term in terms if kind(term) == "Max"]
    return (expression - most[0], most[0].args) if len(most) == 1 else None


def _element(inside: str) -> str:
    return f'<math displaystyle="true">{_row([inside])}</math>'


def _pieces(expression: Expr) -> list[str]:
    """The parts of a formula between which a line may break."""
    match kind(expression):
        case "Add":
            return [piece for term in _signed(expression) for piece in _term_pieces(*term)]
        case "Mul" if all(f.as_base_exp()[1] == 1 for f in expression.as_ordered_factors()):
            return _factor_pieces(expression)
        case _:
            return [_shown(expression)]


def _term_pieces(sign: str, term: Expr) -> list[str]:
    first, *rest = _pieces(term)
    return [_row([sign, first]), *rest]


def _factor_pieces(expression: Expr) -> list[str]:
    """A product whose last factor is a sum breaks inside of its brackets."""
    *ahead, last = expression.as_ordered_factors()
    if kind(last) != "Add" or any(factor.is_Rational and factor.q != 1 for factor in ahead):
        return [_shown(expression)]
    head = [_times([_factor(f) for f in ahead]), _TIMES, '<mo form="prefix">(</mo>']
    pieces = _pieces(last)
    pieces[0] = _row([*head, pieces[0]])
    pieces[-1] = _row([pieces[-1], '<mo form="postfix">)</mo>'])
    return pieces


def _factor(expression: Expr) -> str:
    shown = _shown(expression)
    return _fenced(shown) if kind(expression) == "Add" else shown


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
    return _row([part for sign, term in _signed(expression) for part in (sign, _shown(term))])


def _signed(expression: Expr) -> list[tuple[str, Expr]]:
    """The terms of a sum with the signs before them."""
    terms: list[tuple[str, Expr]] = []
    for term in expression.as_ordered_terms():
        negative = term.could_extract_minus_sign()
        form = "infix" if terms else "prefix"
        sign = "\u2212" if negative else "+" if terms else ""
        marked = f'<mo form="{form}">{sign}</mo>' if sign else ""
        terms.append((marked, -term if negative else term))
    return terms


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
