"""Transfers executed on the parts that ranks hold, from nothing but the layouts of their items."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement_proofs.layout import Collective
from placement_proofs.plan import Item
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.ranks import Bounds, World, extents, inside, overlap

SUMS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)

Copy = tuple[int, tuple[slice, ...], tuple[slice, ...]]
"""A copy into a result: the rank it comes from, where it is there, where it goes."""


@dataclass(frozen=True)
class Assembly:
    """How a rank's result is put together from the parts of its group."""

    shape: tuple[int, ...]
    copies: tuple[Copy, ...]


@dataclass
class Exchange:
    """Executes collectives; what to copy where is worked out once for each item."""

    world: World
    field: Field
    _assemblies: dict[tuple[int, tuple[str, ...], int], Assembly] = dataclasses.field(
        default_factory=dict
    )

    def collective(
        self,
        kind: Collective,
        axes: tuple[str, ...],
        item: Item,
        parts: Mapping[int, Array],
        root: int = 0,
    ) -> dict[int, Array]:
        """The results of one item of a transfer by rank.

        ``parts`` holds what each rank gives; the ranks of every group must all be there. A
        broadcast sends what the member number ``root`` of a group holds.

        Raises:
            CannotRun: parts have other shapes than their layouts say, or leave a hole.
        """
        if kind in SUMS:
            return self._summed(kind, axes, item, parts)
        if kind is Collective.BROADCAST and item.before == item.after:
            return {r: parts[self.world.members(r, axes)[root]] for r in parts}
        for rank, part in parts.items():
            self._check(item, rank, part)
        return {rank: self._assembled(axes, item, rank, parts) for rank in parts}

    def _summed(
        self, kind: Collective, axes: tuple[str, ...], item: Item, parts: Mapping[int, Array]
    ) -> dict[int, Array]:
        totals: dict[tuple[int, ...], Array] = {}
        results: dict[int, Array] = {}
        for rank in parts:
            group = self.world.members(rank, axes)
            total = totals.get(group)
            if total is None:
                total = totals[group] = self._total(item, [parts[r] for r in group])
            cut = kind is Collective.REDUCE_SCATTER
            results[rank] = self.cut(item, rank, total) if cut else total
        return results

    def _total(self, item: Item, parts: Sequence[Array]) -> Array:
        if any(part.shape != parts[0].shape for part in parts):
            raise CannotRun(f"{item.name}: the ranks sum parts of different shapes")
        total = parts[0]
        for part in parts[1:]:
            total = self.field.add(total, part)
        return total

    def cut(self, item: Item, rank: int, whole: Array) -> Array:
        """A rank's own part (the layout after) of what it holds (the layout before)."""
        self._check(item, rank, whole)
        where = inside(self._bounds(item, rank, after=True), self._bounds(item, rank))
        if where is None:
            raise CannotRun(f"{item.name}: the part to take is not on the rank")
        return whole[where]

    def _bounds(self, item: Item, rank: int, *, after: bool = False) -> Bounds:
        return self.world.bounds(item.shape, item.after if after else item.before, rank)

    def _check(self, item: Item, rank: int, part: Array) -> None:
        expected = extents(self._bounds(item, rank))
        if part.shape != expected:
            raise CannotRun(f"{item.name}: a part of shape {part.shape}, not {expected}")

    def _assembled(
        self, axes: tuple[str, ...], item: Item, rank: int, parts: Mapping[int, Array]
    ) -> Array:
        assembly = self._assembly(axes, item, rank)
        result = self.field.zeros(assembly.shape)
        for source, where, target in assembly.copies:
            result[target] = parts[source][where]
        return result

    def _assembly(self, axes: tuple[str, ...], item: Item, rank: int) -> Assembly:
        key = (id(item), axes, rank)
        found = self._assemblies.get(key)
        if found is None:
            found = self._assemblies[key] = self._work_out(axes, item, rank)
        return found

    def _work_out(self, axes: tuple[str, ...], item: Item, rank: int) -> Assembly:
        wanted = self._bounds(item, rank, after=True)
        copies: dict[Bounds, Copy] = {}
        for source in self.world.members(rank, axes):
            held = self._bounds(item, source)
            common = overlap(held, wanted)
            here, there = inside(common, held), inside(common, wanted)
            if here is not None and there is not None and 0 not in extents(common):
                copies[common] = (source, here, there)
        covered = sum(_volume(common) for common in copies)
        if covered != _volume(wanted):
            raise CannotRun(f"{item.name}: {covered} of {_volume(wanted)} elements arrive")
        return Assembly(extents(wanted), tuple(copies.values()))


def _volume(bounds: Bounds) -> int:
    return math.prod(extents(bounds))
