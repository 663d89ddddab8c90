"""Equality of values, entry by entry.

An entry of a value is its coefficient for one way in which the rank, the index of the
contribution and the named positions of each axis coincide (a set partition per axis, with
no more blocks than the axis has ranks).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from placement_proofs.prove.algebra import COLUMN, ROW, ZERO, Atoms, Poly
from placement_proofs.prove.forms import (
    Form,
    Layout,
    Positions,
    Symbols,
    Tags,
    known_distinct,
    minus,
)

Blocks: TypeAlias = dict[str, int]
"""Block of the rank (`r`), of the contribution (`c`) and of each position name."""


@dataclass
class Comparer:
    """Compares values in one size class; `sizes` are the fixed sizes and lengths."""

    symbols: Symbols
    positions: Positions
    sizes: Mapping[str, int]
    loops: frozenset[str]
    _blocks: dict[tuple[str, tuple[str, ...], str | None], list[Blocks]] = field(
        default_factory=dict
    )

    @property
    def atoms(self) -> Atoms:
        """The table of atoms."""
        return self.symbols.atoms

    def equal(self, got: Form, want: Form, layout: Layout) -> bool:
        """Whether two values agree on every rank that stores them."""
        if got == want:
            return True
        rest = {key: self.atoms.flat(poly) for key, poly in minus(got, want).items()}
        if not any(self.atoms.cleared(poly) for poly in rest.values()):
            return True
        if not self._small(rest):
            return False
        return not any(self.atoms.cleared(poly) for poly, _ in self.entries(rest, layout))

    def _small(self, form: Form) -> bool:
        """Whether some condition may follow from others because an axis is short."""
        return any(axis in self.sizes for (_, tags) in form for axis, _, _ in tags)

    def entries(self, form: Form, layout: Layout) -> Iterator[tuple[Poly, dict[str, Blocks]]]:
        """All entries of a value."""
        for _, poly, where in self.symbol_entries(form, layout):
            yield poly, where

    def symbol_entries(
        self, form: Form, layout: Layout
    ) -> Iterator[tuple[int, Poly, dict[str, Blocks]]]:
        """All entries, with their symbol."""
        groups: dict[int, list[tuple[Tags, Poly]]] = {}
        for (symbol, tags), poly in form.items():
            groups.setdefault(symbol, []).append((tags, poly))
        for symbol, terms in groups.items():
            for where in self._places(terms, layout):
                yield symbol, self._entry(terms, where), where

    def pairs(
        self, got: Form, want: Form, layout: Layout
    ) -> Iterator[tuple[int, Poly, Poly, dict[str, Blocks]]]:
        """Entries of two values side by side."""
        groups: dict[int, tuple[list[tuple[Tags, Poly]], list[tuple[Tags, Poly]]]] = {}
        for side, form in enumerate((got, want)):
            for (symbol, tags), poly in form.items():
                groups.setdefault(symbol, ([], []))[side].append((tags, poly))
        for symbol, (left, right) in groups.items():
            for where in self._places(left + right, layout):
                yield symbol, self._entry(left, where), self._entry(right, where), where

    def _places(
        self, terms: list[tuple[Tags, Poly]], layout: Layout
    ) -> Iterator[dict[str, Blocks]]:
        names: dict[str, set[str]] = {}
        for tags, poly in terms:
            for axis, row, column in tags:
                names.setdefault(axis, set()).update({row, column} - {"", "="})
            for axis, mark in self.atoms.marks(poly):
                here = names.setdefault(axis, set())
                if mark.startswith("@"):
                    here.add(mark[1:])
        axes = sorted(names)
        choices = [
            self._partitions(axis, tuple(sorted(names[axis])), layout.get(axis)) for axis in axes
        ]
        for choice in itertools.product(*choices):
            yield dict(zip(axes, choice, strict=True))

    def _entry(self, terms: list[tuple[Tags, Poly]], where: dict[str, Blocks]) -> Poly:
        total = ZERO
        for tags, poly in terms:
            if all(_holds(where[axis], row, column) for axis, row, column in tags):
                total = total + self._unmarked(poly, where)
        return total

    def _unmarked(self, poly: Poly, where: dict[str, Blocks]) -> Poly:
        if not self.atoms.marks(poly):
            return poly

        def change(axis: str, mark: str) -> str:
            blocks = where[axis]
            return f"@{blocks[mark.removeprefix('@')]}"

        return self.atoms.flat(self.atoms.rename_all(poly, change))

    def _partitions(self, axis: str, names: tuple[str, ...], owner: str | None) -> list[Blocks]:
        key = (axis, names, owner)
        found = self._blocks.get(key)
        if found is None:
            found = self._blocks[key] = list(self._make(axis, names, owner))
        return found

    def _make(self, axis: str, names: tuple[str, ...], owner: str | None) -> Iterator[Blocks]:
        items = [COLUMN, *names]
        if axis not in self.loops:
            if owner is not None and owner not in names:
                items.append(owner)
            items.append(ROW)
        limit = self.sizes.get(axis)
        for blocks in _assign(items, limit or len(items)):
            if owner is not None and ROW in blocks and blocks[ROW] != blocks[owner]:
                continue
            clash = any(
                blocks[a] == blocks[b] and known_distinct(self.positions, axis, a, b)
                for a, b in itertools.combinations(names, 2)
            )
            if not clash:
                yield blocks


def _holds(blocks: Blocks, row: str, column: str) -> bool:
    if row == "=":
        return blocks[ROW] == blocks[COLUMN]
    if row and blocks[ROW] != blocks[row]:
        return False
    return not column or blocks[COLUMN] == blocks[column]


def _assign(items: list[str], limit: int) -> Iterator[Blocks]:
    """All set partitions of the items into at most `limit` blocks."""

    def grow(index: int, used: int, blocks: Blocks) -> Iterator[Blocks]:
        if index == len(items):
            yield dict(blocks)
            return
        for block in range(min(used + 1, limit)):
            blocks[items[index]] = block
            yield from grow(index + 1, max(used, block + 1), blocks)
        del blocks[items[index]]

    yield from grow(0, 0, {})
