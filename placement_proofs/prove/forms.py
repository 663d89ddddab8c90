"""Values of the abstract run: linear forms over indexed symbols, for every mesh size at once.

A symbol stands for a family with one member per index (`dims`: mesh axes and loops). In a
form each symbol carries, per axis, the condition under which it takes part: `i` is the rank
that holds the value, `j` the index of the member (the semantics page, section 4):

    J  always (no tag)      I  i = j        O:q  j = q
    R:p  i = p              P:p  i = j = p  and, more generally, i = p and j = q

A tag is (axis, row, column); `=` in both places is I, an empty place is no condition.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from placement_proofs.prove.algebra import COLUMN, ONE, ROW, Atoms, Poly, number

Tag: TypeAlias = tuple[str, str, str]
Tags: TypeAlias = tuple[Tag, ...]
Key: TypeAlias = tuple[int, Tags]
Form: TypeAlias = dict[Key, Poly]
Frozen: TypeAlias = frozenset[tuple[Key, Poly]]
Layout: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A family of unknown values. `kind` tells where it comes from, `data` which it is."""

    kind: str
    data: Hashable
    tick: int
    dims: tuple[str, ...]


class NeedCase(Exception):
    """The run must be repeated: are these two positions of an axis the same rank?"""

    def __init__(self, axis: str, left: str, right: str) -> None:
        super().__init__(axis, left, right)
        self.axis, self.left, self.right = axis, left, right


class Symbols:
    """The table of symbols of one proof, and the operations on forms."""

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.symbols: list[Symbol] = []
        self._ids: dict[Symbol, int] = {}

    def id(self, symbol: Symbol) -> int:
        """The number of a symbol."""
        found = self._ids.get(symbol)
        if found is None:
            found = self._ids[symbol] = len(self.symbols)
            self.symbols.append(symbol)
        return found


def freeze(form: Form) -> Frozen:
    """A hashable copy of a form."""
    return frozenset(form.items())


def plus(left: Form, right: Form) -> Form:
    """The sum of two forms."""
    if not left:
        return right
    result = dict(left)
    for key, poly in right.items():
        old = result.get(key)
        total = poly if old is None else old + poly
        if total:
            result[key] = total
        else:
            result.pop(key, None)
    return result


def times(form: Form, by: Poly) -> Form:
    """A form times a coefficient."""
    if by is ONE or by == ONE:
        return form
    if not by:
        return {}
    return {key: product for key, poly in form.items() if (product := poly * by)}


def minus(left: Form, right: Form) -> Form:
    """The difference of two forms."""
    return plus(left, times(right, MINUS))


MINUS = number(-1)


def tag_of(tags: Tags, axis: str) -> tuple[str, str]:
    """Row and column condition on an axis."""
    for name, row, column in tags:
        if name == axis:
            return row, column
    return "", ""


def with_tag(tags: Tags, axis: str, row: str, column: str) -> Tags:
    """The tags with the condition on one axis replaced."""
    rest = tuple(tag for tag in tags if tag[0] != axis)
    if not row and not column:
        return rest
    return tuple(sorted((*rest, (axis, row, column))))


@dataclass(frozen=True, slots=True)
class Positions:
    """What a size class knows about positions: which coincide, which never do."""

    ones: frozenset[str]
    distinct: frozenset[tuple[str, str, str]]
    alias: tuple[tuple[tuple[str, str], str], ...] = ()

    def name(self, axis: str, position: str) -> str:
        """The canonical name of a position."""
        for (where, old), new in self.alias:
            if where == axis and old == position:
                return self.name(axis, new)
        return position

    def same(self, axis: str, left: str, right: str) -> bool:
        """Whether two positions are one rank; raises `NeedCase` if that is open."""
        if left == right or axis in self.ones:
            return True
        if known_distinct(self, axis, left, right):
            return False
        raise NeedCase(axis, left, right)


def known_distinct(positions: Positions, axis: str, left: str, right: str) -> bool:
    """Whether two positions are certainly different ranks (or turns)."""
    if left == right:
        return False
    if {left, right} == {"first", "last"}:
        return True
    if left.startswith("#") and right.startswith("#"):
        return True
    return (axis, *sorted((left, right))) in positions.distinct


class Algebra:
    """The operations of ranks on forms, in one size class."""

    def __init__(self, symbols: Symbols, positions: Positions) -> None:
        self.symbols = symbols
        self.atoms = symbols.atoms
        self.positions = positions

    def _put(self, result: Form, symbol: int, tags: Tags, poly: Poly) -> None:
        key = (symbol, tags)
        old = result.get(key)
        total = poly if old is None else old + poly
        if total:
            result[key] = total
        else:
            result.pop(key, None)

    def _set(self, result: Form, key: Key, axis: str, row: str, column: str, poly: Poly) -> None:
        """Add a term with a new condition on an axis, its marks in normal form."""
        if row == "=":
            poly = self.atoms.rename(poly, axis, (ROW,), COLUMN)
        else:
            if row:
                poly = self.atoms.rename(poly, axis, (ROW,), f"@{row}")
            if column:
                poly = self.atoms.rename(poly, axis, (COLUMN,), f"@{column}")
        symbol, tags = key
        self._put(result, symbol, with_tag(tags, axis, row, column), poly)

    def sum(self, form: Form, axis: str, size: Poly) -> Form:
        """The sum over all ranks of an axis, known to all of them."""
        if axis in self.positions.ones:
            return form
        result: Form = {}
        for key, poly in form.items():
            row, column = tag_of(key[1], axis)
            if row == "=":
                summed = self.atoms.rename(poly, axis, (ROW,), COLUMN)
                self._put_sum(result, key, axis, summed)
            elif row:
                self._set(result, key, axis, "", column, poly)
            else:
                self._set(result, key, axis, "", column, self.atoms.row_sum(poly, axis, size))
        return result

    def _put_sum(self, result: Form, key: Key, axis: str, poly: Poly) -> None:
        """All members of a family: the sum of all shards of a norm is one symbol."""
        symbol = self.symbols.symbols[key[0]]
        tags = with_tag(key[1], axis, "", "")
        if symbol.kind == "square" and (axis, COLUMN) not in self.atoms.marks(poly):
            dims = tuple(d for d in symbol.dims if d != axis)
            data = symbol.data
            assert isinstance(data, tuple)
            value, shards = data
            if axis in dict(shards):
                kept = tuple(s for s in shards if s[0] != axis)
                merged = self.symbols.id(Symbol("square", (value, kept), symbol.tick, dims))
                self._put(result, merged, tags, poly)
                return
        self._put(result, key[0], tags, poly)

    def take(self, form: Form, axis: str, position: str) -> Form:
        """The value at a position, known to all ranks of the axis."""
        if axis in self.positions.ones:
            return form
        result: Form = {}
        for key, poly in form.items():
            row, column = tag_of(key[1], axis)
            if row == "=":
                self._set(result, key, axis, "", position, self._at_row(poly, axis, position))
            elif not row or self.positions.same(axis, row, position):
                self._set(result, key, axis, "", column, self._at_row(poly, axis, position))
        return result

    def _at_row(self, poly: Poly, axis: str, position: str) -> Poly:
        return self.atoms.rename(poly, axis, (ROW,), f"@{position}")

    def at(self, form: Form, axis: str, position: str) -> Form:
        """The value on the ranks at a position, zero elsewhere."""
        if axis in self.positions.ones:
            return form
        result: Form = {}
        for key, poly in form.items():
            row, column = tag_of(key[1], axis)
            if row == "=":
                self._set(result, key, axis, position, position, poly)
            elif not row or self.positions.same(axis, row, position):
                self._set(result, key, axis, position, column, poly)
        return result

    def settle(self, form: Form, layout: Layout) -> Form:
        """The value where it is stored: only the owner's rank matters on held axes."""
        for axis, owner in layout.items():
            if any(tag_of(key[1], axis)[0] for key in form) or self._marked(form, axis):
                form = self._settle_axis(form, axis, owner)
        return form

    def _marked(self, form: Form, axis: str) -> bool:
        return any((axis, ROW) in self.atoms.marks(poly) for poly in form.values())

    def _settle_axis(self, form: Form, axis: str, owner: str) -> Form:
        result: Form = {}
        for key, poly in form.items():
            row, column = tag_of(key[1], axis)
            poly = self._at_row(poly, axis, owner)
            if row == "=":
                self._set(result, key, axis, "", owner, poly)
            elif not row or row == owner:
                self._set(result, key, axis, "", column, poly)
            elif not known_distinct(self.positions, axis, row, owner):
                self._set(result, key, axis, row, column, poly)
        return result

    def varying(self, form: Form) -> set[str]:
        """The axes on which the value differs from rank to rank."""
        axes: set[str] = set()
        for (_, tags), poly in form.items():
            axes.update(axis for axis, row, _ in tags if row)
            axes.update(axis for axis, mark in self.atoms.marks(poly) if mark == ROW)
        return axes

    def own_frame(self, form: Form, layout: Layout) -> Form:
        """A stored value seen from its owner, so that equal computations look alike."""
        for axis, owner in layout.items():
            result: Form = {}
            for key, poly in form.items():
                row, column = tag_of(key[1], axis)
                if not row and column == owner:
                    poly = self.atoms.rename(poly, axis, (f"@{owner}",), COLUMN)
                    self._set(result, key, axis, "=", "=", poly)
                else:
                    poly = self.atoms.rename(poly, axis, (f"@{owner}",), ROW)
                    self._put(result, *key, poly)
            form = result
        return form

    def opaque(self, kind: str, data: Hashable, tick: int, axes: Iterable[str]) -> Form:
        """A new unknown value that differs on the given axes."""
        dims = tuple(sorted(axes))
        symbol = self.symbols.id(Symbol(kind, data, tick, dims))
        return {(symbol, tuple((axis, "=", "=") for axis in dims)): ONE}
