"""Layouts: how a value lies on the axes of a mesh, and the conversions between layouts.

The four layouts and the table of conversions are those of the semantics page, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

from placement_proofs.mesh import Dim, Sizes

N = TypeVar("N")


class Kind(Enum):
    """The layout of a value on one axis, and with it the layout of its gradient."""

    INVARIANT = "I"
    """Same value on every rank, same gradient on every rank."""
    REPLICATED = "R"
    """Same value on every rank; each rank holds its own part of the gradient's sum."""
    PARTIAL = "P"
    """The sum over the ranks is the value; same gradient on every rank."""
    SHARDED = "S"
    """Each rank holds its own part of one tensor dim; the gradient is sharded alike."""


@dataclass(frozen=True)
class On:
    """The layout on one axis: a kind, and the tensor dim when sharded.

    With an ``owner`` that position holds the whole tensor as its part, and the others none of it.
    """

    kind: Kind
    dim: int | None = None
    owner: int | None = None

    def __str__(self) -> str:
        if self.owner is not None:
            return f"S(owner {self.owner})"
        return f"S({self.dim})" if self.kind is Kind.SHARDED else self.kind.value


INVARIANT = On(Kind.INVARIANT)
REPLICATED = On(Kind.REPLICATED)
PARTIAL = On(Kind.PARTIAL)


def sharded(dim: int) -> On:
    """Sharded on tensor dim ``dim``."""
    return On(Kind.SHARDED, dim)


@dataclass(frozen=True)
class Entry:
    """The layout on a product of axes; one shard index runs over the whole product."""

    axes: tuple[str, ...]
    on: On

    def __str__(self) -> str:
        return f"{'*'.join(self.axes)}:{self.on}"


Layout: TypeAlias = tuple[Entry, ...]
"""Entries in nesting order, outermost shard first; an axis that is not named is invariant."""


def on_axis(layout: Layout, axis: str) -> On:
    """The layout of a value on ``axis``."""
    return next((entry.on for entry in layout if axis in entry.axes), INVARIANT)


def shard_axes(layout: Layout) -> tuple[str, ...]:
    """The axes on which a layout is sharded, in nesting order."""
    return tuple(a for entry in layout if entry.on.kind is Kind.SHARDED for a in entry.axes)


def without(layout: Layout, axes: tuple[str, ...]) -> Layout:
    """The layout on the other axes."""
    return tuple(entry for entry in layout if not set(entry.axes) & set(axes))


def replace(layout: Layout, axis: str, on: On) -> Layout:
    """``layout`` with another layout on ``axis``; an entry that is new becomes the innermost."""
    if on == INVARIANT:
        return without(layout, (axis,))
    if any(entry.axes == (axis,) for entry in layout):
        return tuple(Entry((axis,), on) if e.axes == (axis,) else e for e in layout)
    return (*without(layout, (axis,)), Entry((axis,), on))


class Collective(Enum):
    """The kinds of traffic; payload and ring bytes of each are in :mod:`placement_proofs.plan`."""

    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_REDUCE = "all-reduce"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point-to-point"
    HOST = "host-link"


class Local(Enum):
    """A conversion that moves no bytes."""

    NOTHING = "nothing"
    SLICE = "slice"


Movement: TypeAlias = Collective | Local

_TABLE: dict[tuple[str, str], tuple[Movement, Movement]] = {
    ("I", "R"): (Local.NOTHING, Collective.ALL_REDUCE),
    ("S", "R"): (Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
    ("P", "I"): (Collective.ALL_REDUCE, Local.NOTHING),
    ("P", "S"): (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
    ("I", "S"): (Local.SLICE, Collective.ALL_GATHER),
    ("S", "I"): (Collective.ALL_GATHER, Local.SLICE),
    ("S", "S"): (Collective.ALL_TO_ALL, Collective.ALL_TO_ALL),
}


def conversion(source: On, target: On) -> tuple[Movement, Movement] | None:
    """What converts ``source`` to ``target``: (forward, its adjoint for the gradient).

    ``None`` where no conversion of the table exists, such as replicated to invariant.

    >>> conversion(PARTIAL, INVARIANT)
    (<Collective.ALL_REDUCE: 'all-reduce'>, <Local.NOTHING: 'nothing'>)
    """
    if source == target:
        return (Local.NOTHING, Local.NOTHING)
    return _TABLE.get((source.kind.value, target.kind.value))


_DUAL = {"I": INVARIANT, "R": PARTIAL, "P": INVARIANT}


def dual(on: On) -> On:
    """The layout of the gradient of a value with layout ``on``."""
    return on if on.kind is Kind.SHARDED else _DUAL[on.kind.value]


def dual_layout(layout: Layout) -> Layout:
    """The layout of the gradient of a value: the dual on every axis, in the same nesting."""
    duals = (Entry(entry.axes, dual(entry.on)) for entry in layout)
    return tuple(entry for entry in duals if entry.on != INVARIANT)


def chunk(length: int, parts: int, index: int) -> tuple[int, int]:
    """Start and stop of part ``index``: parts of ``ceil(length / parts)``, the last ones shorter.

    >>> [chunk(7, 4, i) for i in range(4)]
    [(0, 2), (2, 4), (4, 6), (6, 7)]
    """
    width = -(-length // parts)
    return min(length, index * width), min(length, (index + 1) * width)


def positions(axes: tuple[str, ...], sizes: Sizes[N]) -> N:
    """The number of positions of a product of axes."""
    return sizes.product([sizes.axis(axis) for axis in axes])


def local_shape(shape: tuple[Dim, ...], layout: Layout, sizes: Sizes[N]) -> tuple[N, ...]:
    """The shape of the largest shard (every rank's, where all sizes divide).

    Shards of one dim nest in the order of the entries; an entry with several axes is one shard
    index over their product, which differs from nested shards when sizes do not divide.
    """
    dims = [sizes.dim(d) for d in shape]
    for entry in layout:
        if entry.on.dim is not None and entry.on.owner is None:
            dims[entry.on.dim] = sizes.cdiv(dims[entry.on.dim], positions(entry.axes, sizes))
    return tuple(dims)


def shard_index(axes: tuple[str, ...], sizes: Sizes[int], coordinates: Mapping[str, int]) -> int:
    """The shard index of a rank on a product of axes (the first axis varies slowest)."""
    index = 0
    for axis in axes:
        index = index * sizes.axis(axis) + coordinates[axis]
    return index


def bounds_at(
    shape: tuple[Dim, ...], layout: Layout, sizes: Sizes[int], coordinates: Mapping[str, int]
) -> tuple[tuple[int, int], ...]:
    """Start and stop, per tensor dim, of the part that the rank at ``coordinates`` holds."""
    bounds = [(0, sizes.dim(d)) for d in shape]
    for entry in layout:
        if entry.on.dim is not None:
            start, stop = bounds[entry.on.dim]
            parts = positions(entry.axes, sizes)
            index = shard_index(entry.axes, sizes, coordinates)
            low, high = chunk(stop - start, parts, index)
            if entry.on.owner is not None:
                low, high = (0, stop - start) if index == entry.on.owner else (0, 0)
            bounds[entry.on.dim] = (start + low, start + high)
    return tuple(bounds)
