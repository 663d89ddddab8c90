"""Coefficients: Laurent polynomials over the rationals, in interned atoms.

An atom is an axis size, a loop length, a token count, a scalar that the program computed, a
clip factor, a sum over ranks or the inverse of a longer polynomial. Atoms that differ from
rank to rank carry a mark per axis: `r` the rank itself, `c` the rank that the contribution
comes from, `@p` the rank at position p. Without a mark the atom is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Number: TypeAlias = int | Fraction
Mono: TypeAlias = tuple[tuple[int, int], ...]
Marks: TypeAlias = tuple[tuple[str, str], ...]
Rename: TypeAlias = Callable[[str, str], str]
"""From axis and mark to the new mark ('' removes it)."""

ROW, COLUMN = "r", "c"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an axis or the length of a loop: an integer >= 1."""

    name: str


@dataclass(frozen=True, slots=True)
class Count:
    """A token count, summed over every axis that has no mark; `turns` per loop.

    With `bit` it is one flag, 0 or 1: its powers are itself.
    """

    family: str
    tick: int
    turns: tuple[tuple[str, str], ...]
    marks: Marks
    bit: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """A scalar known only by how it was computed (`key`); `kind` is 'value' or 'clip'."""

    kind: str
    key: Hashable
    marks: Marks


@dataclass(frozen=True, slots=True)
class RowSum:
    """The sum of a monomial over the ranks of an axis (its `r` marks there are bound)."""

    axis: str
    mono: Mono


@dataclass(frozen=True, slots=True)
class Inverse:
    """One over a polynomial of several terms."""

    poly: Poly


Atom: TypeAlias = Size | Count | Opaque | RowSum | Inverse


class Poly:
    """An immutable Laurent polynomial; the atoms are numbers of one `Atoms` table."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[Mono, Number]) -> None:
        self.terms = terms
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __repr__(self) -> str:
        return f"Poly({self.terms})"

    def __add__(self, other: Poly) -> Poly:
        if not other.terms:
            return self
        if not self.terms:
            return other
        terms = dict(self.terms)
        for mono, number in other.terms.items():
            total = terms.get(mono, 0) + number
            if total:
                terms[mono] = _exact(total)
            else:
                del terms[mono]
        return Poly(terms)

    def __neg__(self) -> Poly:
        return Poly({mono: -number for mono, number in self.terms.items()})

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)

    def __mul__(self, other: Poly) -> Poly:
        if self is ONE:
            return other
        if other is ONE:
            return self
        terms: dict[Mono, Number] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                mono = _times(left, right)
                total = terms.get(mono, 0) + a * b
                if total:
                    terms[mono] = _exact(total)
                else:
                    del terms[mono]
        return Poly(terms)

    def constant(self) -> Number | None:
        """The number that the polynomial is, or None."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None


def _exact(number: Number) -> Number:
    if isinstance(number, Fraction) and number.denominator == 1:
        return number.numerator
    return number


def _times(left: Mono, right: Mono) -> Mono:
    if not left:
        return right
    if not right:
        return left
    powers = dict(left)
    for atom, power in right:
        total = powers.get(atom, 0) + power
        if total:
            powers[atom] = total
        else:
            del powers[atom]
    return tuple(sorted(powers.items()))


def number(value: Number) -> Poly:
    """A constant polynomial."""
    return Poly({(): _exact(value)}) if value else ZERO


ZERO = Poly({})
ONE = Poly({(): 1})


def mono_poly(mono: Mono, value: Number = 1) -> Poly:
    """The polynomial of one monomial."""
    return Poly({mono: value})


class Atoms:
    """The table of atoms of one proof."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._ids: dict[Atom, int] = {}
        self._marks: list[frozenset[tuple[str, str]]] = []

    def id(self, atom: Atom) -> int:
        """The number of an atom."""
        found = self._ids.get(atom)
        if found is None:
            found = self._ids[atom] = len(self.atoms)
            self.atoms.append(atom)
            self._marks.append(frozenset(self._find_marks(atom)))
        return found

    def poly(self, atom: Atom) -> Poly:
        """The polynomial that is just this atom."""
        return Poly({((self.id(atom), 1),): 1})

    def _find_marks(self, atom: Atom) -> Iterable[tuple[str, str]]:
        match atom:
            case Size():
                return ()
            case Count(marks=marks) | Opaque(marks=marks):
                return marks
            case RowSum(axis=axis, mono=mono):
                return (m for m in self.mono_marks(mono) if m != (axis, ROW))
            case Inverse(poly=poly):
                return self.marks(poly)

    def mono_marks(self, mono: Mono) -> set[tuple[str, str]]:
        """The marks of all atoms of a monomial."""
        return {mark for atom, _ in mono for mark in self._marks[atom]}

    def marks(self, poly: Poly) -> set[tuple[str, str]]:
        """The (axis, mark) pairs on which a polynomial depends."""
        found: set[tuple[str, str]] = set()
        for mono in poly.terms:
            for atom, _ in mono:
                found |= self._marks[atom]
        return found

    def rename(self, poly: Poly, axis: str, old: tuple[str, ...], new: str) -> Poly:
        """Replace the marks `old` on an axis by `new`."""
        touched = False
        for mono in poly.terms:
            for atom, _ in mono:
                if self._marks[atom]:
                    touched = touched or any((axis, mark) in self._marks[atom] for mark in old)
        if not touched:
            return poly
        return self.substitute(
            poly, lambda a: self._rename_atom(a, lambda x, m: new if x == axis and m in old else m)
        )

    def rename_all(self, poly: Poly, change: Rename) -> Poly:
        """Replace all marks by `change(axis, mark)`."""
        if not self.marks(poly):
            return poly
        return self.substitute(poly, lambda a: self._rename_atom(a, change))

    def substitute(self, poly: Poly, change: Callable[[int], Poly]) -> Poly:
        """Replace every atom by a polynomial (which must be one monomial if inverted)."""
        total = ZERO
        for mono, value in poly.terms.items():
            product = number(value)
            for atom, power in mono:
                product = product * self.power(change(atom), power)
            total = total + product
        return total

    def power(self, poly: Poly, exponent: int) -> Poly:
        """An integer power."""
        base = poly if exponent > 0 else self.inverse(poly)
        result = ONE
        for _ in range(abs(exponent)):
            result = result * base
        return result

    def _rename_atom(self, index: int, change: Rename) -> Poly:
        atom = self.atoms[index]
        if not self._marks[index]:
            return mono_poly(((index, 1),))
        match atom:
            case Count(family, tick, turns, marks, bit):
                new = _marked(marks, change)
                return self.poly(Count(family, tick, turns, new, bit and len(new) == len(marks)))
            case Opaque(kind, key, marks):
                return self.poly(Opaque(kind, key, _marked(marks, change)))
            case Inverse(poly):
                return self.inverse(self.rename_all(poly, change))
            case RowSum(axis, mono):
                inner = self.rename_all(
                    mono_poly(mono), lambda a, m: m if (a, m) == (axis, ROW) else change(a, m)
                )
                return self.poly(RowSum(axis, next(iter(inner.terms))))
            case Size():
                return mono_poly(((index, 1),))

    def inverse(self, poly: Poly) -> Poly:
        """One over a polynomial, which must not be zero."""
        if not poly.terms:
            raise ZeroDivisionError
        if len(poly.terms) == 1:
            ((mono, value),) = poly.terms.items()
            return Poly({tuple((a, -p) for a, p in mono): _exact(1 / Fraction(value))})
        lead = min(poly.terms)
        scale = 1 / Fraction(poly.terms[lead])
        return number(scale) * self.poly(Inverse(poly * number(scale)))

    def bits(self, poly: Poly) -> set[int]:
        """The flags in a polynomial."""
        found = {atom for mono in poly.terms for atom, _ in mono}
        return {a for a in found if isinstance(c := self.atoms[a], Count) and c.bit}

    def flat(self, poly: Poly) -> Poly:
        """The polynomial with every power of a flag replaced by the flag."""
        bits = self.bits(poly)
        if not bits:
            return poly
        total = ZERO
        for mono, value in poly.terms.items():
            once = tuple((a, 1 if a in bits and p > 1 else p) for a, p in mono)
            total = total + mono_poly(once, value)
        return total

    def cleared(self, poly: Poly) -> Poly:
        """The polynomial times enough powers of its inverted sums to be free of them."""
        for _ in range(64):
            worst: dict[int, int] = {}
            for mono in poly.terms:
                for atom, power in mono:
                    if isinstance(self.atoms[atom], Inverse):
                        worst[atom] = max(worst.get(atom, 0), power)
            if not worst:
                return poly
            index, top = next(iter(worst.items()))
            poly = self._clear_one(poly, index, top)
        return poly

    def _clear_one(self, poly: Poly, index: int, top: int) -> Poly:
        atom = self.atoms[index]
        assert isinstance(atom, Inverse)
        total = ZERO
        for mono, value in poly.terms.items():
            power = dict(mono).get(index, 0)
            rest = tuple(item for item in mono if item[0] != index)
            total = (
                total + mono_poly(rest, value) * self.power(atom.poly, top - power)
                if (top != power)
                else total + mono_poly(rest, value)
            )
        return total

    def row_sum(self, poly: Poly, axis: str, size: Poly) -> Poly:
        """The sum of a coefficient over the ranks of an axis."""
        total = ZERO
        poly = self.flat(poly)
        for mono, value in poly.terms.items():
            bound = [i for i in mono if (axis, ROW) in self._marks[i[0]]]
            if not bound:
                total = total + mono_poly(mono, value) * size
                continue
            free = tuple(i for i in mono if i not in bound)
            total = total + mono_poly(free, value) * self._sum_atom(tuple(bound), axis)
        return total

    def _sum_atom(self, bound: Mono, axis: str) -> Poly:
        (index, power) = bound[0]
        atom = self.atoms[index]
        if len(bound) == 1 and power == 1 and isinstance(atom, Count):
            return self._rename_atom(index, lambda a, m: "" if a == axis and m == ROW else m)
        return self.poly(RowSum(axis, bound))

    def text(self, poly: Poly) -> str:
        """The polynomial as people write it."""
        from placement_proofs.prove.text import poly_text

        return poly_text(self, poly)


def _marked(marks: Marks, change: Rename) -> Marks:
    new = ((axis, change(axis, mark)) for axis, mark in marks)
    return tuple((axis, mark) for axis, mark in new if mark)
