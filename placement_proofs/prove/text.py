"""Polynomials as people write them."""

from __future__ import annotations

from fractions import Fraction

from placement_proofs.prove.algebra import (
    Atoms,
    Count,
    Inverse,
    Mono,
    Number,
    Opaque,
    Poly,
    RowSum,
    Size,
)


def poly_text(atoms: Atoms, poly: Poly) -> str:
    """Text such as `tp/(dp*mb) - 1`."""
    if not poly.terms:
        return "0"
    ordered = sorted(poly.terms.items(), key=lambda item: (-sum(p for _, p in item[0]), item[0]))
    text = ""
    for mono, value in ordered:
        piece = mono_text(atoms, mono, value if value > 0 else -value)
        sign = "-" if value < 0 else "+"
        text = f"{text} {sign} {piece}" if text else ("-" if value < 0 else "") + piece
    return text


def mono_text(atoms: Atoms, mono: Mono, value: Number) -> str:
    """One product of atoms."""
    value = Fraction(value)
    above = [power_text(atoms, a, p) for a, p in mono if p > 0]
    below = [power_text(atoms, a, -p) for a, p in mono if p < 0]
    if value.numerator != 1 or not above:
        above.insert(0, str(value.numerator))
    if value.denominator != 1:
        below.insert(0, str(value.denominator))
    top = "*".join(above)
    if not below:
        return top
    bottom = "*".join(below)
    return f"{top}/({bottom})" if len(below) > 1 or "*" in bottom else f"{top}/{bottom}"


def power_text(atoms: Atoms, index: int, power: int) -> str:
    """An atom to a power, as a product."""
    return "*".join([atom_text(atoms, index)] * power)


def atom_text(atoms: Atoms, index: int) -> str:
    """The name of an atom."""
    atom = atoms.atoms[index]
    match atom:
        case Size(name):
            return name
        case Count(family, _, turns, marks):
            own = [f"{loop}={turn.lstrip('#')}" for loop, turn in turns if turn != "*"]
            own += [_mark_text(axis, mark) for axis, mark in marks]
            return f"{family}[{', '.join(own)}]" if own else family
        case Opaque(kind, _, marks):
            own = [_mark_text(axis, mark) for axis, mark in marks]
            return f"{kind}{index}[{', '.join(own)}]" if own else f"{kind}{index}"
        case RowSum(axis, mono):
            return f"sum_{axis}({mono_text(atoms, mono, 1)})"
        case Inverse(poly):
            return f"(1/({poly_text(atoms, poly)}))"


def _mark_text(axis: str, mark: str) -> str:
    names = {"r": "own rank", "c": "contributing rank"}
    return f"{axis}={names.get(mark, mark.lstrip('@'))}"
