"""Virtual ranks: all coordinates of a mesh, their groups, and which part of a tensor each holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeAlias

from placement_proofs.errors import IllFormed
from placement_proofs.layout import Layout, bounds_at, shard_index
from placement_proofs.mesh import Dim, IntSizes, parent
from placement_proofs.model import Model
from placement_proofs.plan import Plan

Bounds: TypeAlias = tuple[tuple[int, int], ...]
"""Start and stop per tensor dim."""

MAX_RANKS = 4096
MAX_ELEMENTS = 2**24
MICRO = "micro"


@dataclass(frozen=True)
class _Known:
    """Bounds that were worked out; it keeps alive the objects whose identities are their key."""

    bounds: Bounds
    shape: tuple[Dim, ...]
    layout: Layout


@dataclass
class World:
    """All ranks of a mesh with concrete sizes; a rank is its number in row-major order."""

    plan: Plan
    sizes: IntSizes
    ranks: tuple[Mapping[str, int], ...]
    _bounds: dict[tuple[int, int, int, int], _Known] = field(default_factory=dict)
    _groups: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def shape(self, shape: Iterable[Dim]) -> tuple[int, ...]:
        """A global shape in elements."""
        return tuple(self.sizes.dim(d) for d in shape)

    def bounds(self, shape: tuple[Dim, ...], layout: Layout, rank: int, micro: int = 0) -> Bounds:
        """The part of a tensor that a rank holds in a micro-batch."""
        key = (id(shape), id(layout), rank, micro)
        found = self._bounds.get(key)
        if found is None:
            coordinates = {**self.ranks[rank], MICRO: micro}
            bounds = bounds_at(shape, layout, self.sizes, coordinates)
            found = self._bounds[key] = _Known(bounds, shape, layout)
        return found.bounds

    def members(self, rank: int, axes: tuple[str, ...]) -> tuple[int, ...]:
        """The ranks that communicate with a rank over a product of axes, in shard order."""
        return self.groups(axes)[rank]

    def groups(self, axes: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """For every rank, the members of its group over a product of axes."""
        found = self._groups.get(axes)
        if found is None:
            found = self._groups[axes] = self._grouped(axes)
        return found

    def _grouped(self, axes: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        parents = {parent(a) for a in axes}
        plain = tuple(parent(a) for a in axes)
        by_rest: dict[tuple[tuple[str, int], ...], list[int]] = {}
        rests = []
        for rank, at in enumerate(self.ranks):
            rest = tuple((a, i) for a, i in at.items() if a not in parents)
            rests.append(rest)
            if all(self.takes_part(rank, a) for a in axes):
                by_rest.setdefault(rest, []).append(rank)
        ordered = {
            rest: tuple(sorted(m, key=lambda r: shard_index(plain, self.sizes, self.ranks[r])))
            for rest, m in by_rest.items()
        }
        return tuple(ordered.get(rest, ()) for rest in rests)

    def takes_part(self, rank: int, axis: str) -> bool:
        """Whether a rank is on an axis; a subset such as ``pp:tied`` is the first and the last."""
        name = parent(axis)
        return name == axis or self.ranks[rank][name] in (0, self.sizes.axis(name) - 1)

    def at(self, position: int) -> tuple[int, ...]:
        """The ranks of a pipeline position."""
        axis = self.plan.pipeline
        everyone = range(len(self.ranks))
        return tuple(r for r in everyone if not axis or self.ranks[r][axis] == position)


def extents(bounds: Bounds) -> tuple[int, ...]:
    """The shape of a part."""
    return tuple(stop - start for start, stop in bounds)


def inside(part: Bounds, whole: Bounds) -> tuple[slice, ...] | None:
    """Where ``part`` lies in an array that holds ``whole``; ``None`` if it sticks out."""
    pairs = list(zip(part, whole, strict=True))
    if any(stop > start and (start < a or stop > b) for (start, stop), (a, b) in pairs):
        return None
    return tuple(
        slice(start - a, stop - a) if stop > start else slice(0, 0)
        for (start, stop), (a, _) in pairs
    )


def overlap(a: Bounds, b: Bounds) -> Bounds:
    """The common part of two parts (empty dims have equal start and stop)."""
    starts = [(max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True)]
    return tuple((start, max(start, stop)) for start, stop in starts)


def world(plan: Plan, model: Model, sizes: Mapping[str, int]) -> World:
    """The ranks of a plan; ``sizes`` gives symbols (or axes, or ``micro``) their integers.

    Raises:
        IllFormed: a size has no value, or the mesh has more ranks than can be simulated.
    """
    named = {**model.dims, **sizes}
    axes = {a.name: _value(sizes.get(a.name, a.size), named, a.name) for a in plan.mesh.axes}
    axes[MICRO] = _value(sizes.get(MICRO, plan.micro), named, MICRO)
    batch = model.micro_batch * math.prod(axes[a] for a in plan.batch_axes) * axes[MICRO]
    names = [a.name for a in plan.mesh.axes]
    count = math.prod(axes[n] for n in names)
    if count > MAX_RANKS:
        raise IllFormed(
            "simulate", f"{count:,} ranks", f"at most {MAX_RANKS:,}", "give smaller sizes"
        )
    symbols = {"B": batch, **named}
    _check_small(model, IntSizes(axes, symbols))
    everyone = product(*(range(axes[n]) for n in names))
    ranks = tuple(dict(zip(names, at, strict=True)) for at in everyone)
    return World(replace(plan, micro=axes[MICRO]), IntSizes(axes, symbols), ranks)


def _check_small(model: Model, sizes: IntSizes) -> None:
    """A simulation holds every parameter and value of the model."""
    shapes = [t.shape for t in model.tensors] + [v.shape for v in model.values]
    elements = sum(sizes.product([sizes.dim(d) for d in shape]) for shape in shapes)
    if elements > MAX_ELEMENTS:
        raise IllFormed(
            "simulate",
            f"model {model.name} with {elements:,} elements of parameters and values",
            f"a simulation takes at most {MAX_ELEMENTS:,}",
            "choose a smaller model: a plan's steps do not depend on its dims",
        )


def _value(size: Dim, named: Mapping[str, int], name: str) -> int:
    if isinstance(size, int):
        return size
    if size not in named:
        raise IllFormed(
            "simulate",
            f"{name} = {size}, which has no value",
            "a simulation runs on a mesh with concrete sizes",
            f"give sizes={{{name!r}: 2}}",
        )
    return named[size]


def factor_words(text: str) -> list[tuple[str, bool]]:
    """The words of a factor such as ``1/(dp*micro)``, and whether each is below the line."""
    return [
        (word.strip(), below > 0)
        for below, part in enumerate(text.split("/", 1))
        for word in part.strip().strip("()").split("*")
    ]
