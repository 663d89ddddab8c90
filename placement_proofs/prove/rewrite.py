"""Renaming of turns and steps inside values, also inside what opaque symbols were made of."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from placement_proofs.prove.algebra import (
    Count,
    Inverse,
    Mono,
    Opaque,
    Poly,
    RowSum,
    Size,
    mono_poly,
)
from placement_proofs.prove.forms import Form, Key, Symbol, Symbols, Tags


class Rewriter:
    """Rename turns of loops (`(loop, old) -> new`) and move ticks by `shift`."""

    def __init__(
        self, symbols: Symbols, turns: Mapping[tuple[str, str], str], shift: int = 0
    ) -> None:
        self.symbols = symbols
        self.atoms = symbols.atoms
        self.turns = turns
        self.shift = shift
        self._symbol: dict[int, int] = {}
        self._atom: dict[int, Poly] = {}

    def form(self, form: Form) -> Form:
        """The renamed form."""
        result: Form = {}
        for key, poly in form.items():
            new = self.key(key)
            old = result.get(new)
            moved = self.poly(poly)
            result[new] = moved if old is None else old + moved
        return {key: poly for key, poly in result.items() if poly}

    def key(self, key: Key) -> Key:
        """The renamed symbol and tags."""
        return self.symbol(key[0]), self._tags(key[1])

    def _tags(self, tags: Tags) -> Tags:
        if not self.turns or not tags:
            return tags
        return tuple(
            (axis, row, self.turns.get((axis, column), column)) for axis, row, column in tags
        )

    def symbol(self, index: int) -> int:
        """The renamed symbol."""
        found = self._symbol.get(index)
        if found is None:
            old = self.symbols.symbols[index]
            new = Symbol(old.kind, self._data(old.data), self._ticked(old), old.dims)
            found = self._symbol[index] = self.symbols.id(new)
        return found

    def _ticked(self, symbol: Symbol) -> int:
        return symbol.tick if symbol.tick < 0 else symbol.tick + self.shift

    def _data(self, data: Hashable) -> Hashable:
        if isinstance(data, frozenset):
            return frozenset(self.form(dict(data)).items())
        if isinstance(data, tuple):
            return tuple(self._data(part) for part in data)
        return data

    def poly(self, poly: Poly) -> Poly:
        """The renamed coefficient."""
        if not poly.terms or (len(poly.terms) == 1 and () in poly.terms):
            return poly
        return self.atoms.substitute(poly, self.atom)

    def atom(self, index: int) -> Poly:
        """The renamed atom."""
        found = self._atom.get(index)
        if found is None:
            found = self._atom[index] = self._new_atom(index)
        return found

    def _new_atom(self, index: int) -> Poly:
        atom = self.atoms.atoms[index]
        match atom:
            case Size():
                return mono_poly(((index, 1),))
            case Count(turns=turns, tick=tick):
                moved = tuple((loop, self.turns.get((loop, t), t)) for loop, t in turns)
                return self.atoms.poly(replace(atom, turns=moved, tick=tick + self.shift))
            case Opaque(key=key):
                return self.atoms.poly(replace(atom, key=self._data(key)))
            case Inverse(poly=poly):
                return self.atoms.inverse(self.poly(poly))
            case RowSum(axis=axis, mono=mono):
                inner = self.poly(mono_poly(mono))
                return self.atoms.poly(RowSum(axis, next(iter(inner.terms))))


class Mentions:
    """Which turns of one loop a value depends on."""

    def __init__(self, symbols: Symbols, loop: str) -> None:
        self.symbols = symbols
        self.atoms = symbols.atoms
        self.loop = loop
        self._symbol: dict[int, frozenset[str]] = {}
        self._atom: dict[int, frozenset[str]] = {}

    def of(self, key: Key, poly: Poly) -> frozenset[str]:
        """The turns that a term of a form depends on."""
        found = self.symbol(key[0]) | self._poly(poly)
        for axis, _, column in key[1]:
            if axis == self.loop and column.startswith("#"):
                found = found | {column}
        return found

    def symbol(self, index: int) -> frozenset[str]:
        """The turns inside what an opaque symbol was made of."""
        found = self._symbol.get(index)
        if found is None:
            found = self._symbol[index] = self._data(self.symbols.symbols[index].data)
        return found

    def _data(self, data: Hashable) -> frozenset[str]:
        empty: frozenset[str] = frozenset()
        if isinstance(data, frozenset):
            return empty.union(*(self.of(key, poly) for key, poly in data))
        if isinstance(data, tuple):
            return empty.union(*(self._data(part) for part in data))
        return empty

    def _poly(self, poly: Poly) -> frozenset[str]:
        empty: frozenset[str] = frozenset()
        return empty.union(*(self._mono(mono) for mono in poly.terms))

    def _mono(self, mono: Mono) -> frozenset[str]:
        empty: frozenset[str] = frozenset()
        return empty.union(*(self._of_atom(index) for index, _ in mono))

    def _of_atom(self, index: int) -> frozenset[str]:
        found = self._atom.get(index)
        if found is None:
            found = self._atom[index] = self._find(index)
        return found

    def _find(self, index: int) -> frozenset[str]:
        atom = self.atoms.atoms[index]
        match atom:
            case Size():
                return frozenset()
            case Count(turns=turns):
                return frozenset(t for loop, t in turns if loop == self.loop and t.startswith("#"))
            case Opaque(key=key):
                return self._data(key)
            case Inverse(poly=poly):
                return self._poly(poly)
            case RowSum(mono=mono):
                return self._mono(mono)
