"""Sizes of parts: what one rank holds of a tensor, for the largest shard or for one given rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from placement_proofs.layout import Kind, Layout, bounds_at, local_shape, positions
from placement_proofs.mesh import Dim, Sizes

N = TypeVar("N")
Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True)
class Measure(Generic[N]):
    """Elements of parts. ``lengths`` gives the shape of a rank's part of a tensor."""

    sizes: Sizes[N]
    lengths: Callable[[Shape, Layout], tuple[N, ...]]
    known: dict[tuple[Shape, Layout], N] = field(default_factory=dict)

    def elements(self, shape: Shape, layout: Layout) -> N:
        """Elements of the part that a rank holds."""
        key = shape, layout
        if key not in self.known:
            self.known[key] = self.sizes.product(self.lengths(shape, layout))
        return self.known[key]

    def padded(
        self,
        shape: Shape,
        whole: Layout,
        parts: Layout,
        axes: tuple[str, ...],
        pad: tuple[str, ...] = (),
    ) -> N:
        """Elements of ``whole``, with the dim that ``parts`` shards on ``axes`` padded.

        The padding makes the dim a multiple of the number of ranks (of those on ``pad``, if given),
        as gathers and scatters of equal parts need.
        """
        lengths = list(self.lengths(shape, whole))
        ranks = positions(pad or axes, self.sizes)
        for entry in parts:
            if entry.axes == axes and entry.on.dim is not None:
                part = self.sizes.cdiv(lengths[entry.on.dim], ranks)
                lengths[entry.on.dim] = self.sizes.product([part, ranks])
        return self.sizes.product(lengths)


def largest(sizes: Sizes[N]) -> Measure[N]:
    """Parts of the rank that holds the largest shard of every tensor."""
    return Measure(sizes, lambda shape, layout: local_shape(shape, layout, sizes))


def at(sizes: Sizes[int], coordinates: Mapping[str, int]) -> Measure[int]:
    """Parts of the rank at ``coordinates`` (of the first micro-batch: all are equal)."""
    here = {"micro": 0, **coordinates}

    def lengths(shape: Shape, layout: Layout) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in bounds_at(shape, layout, sizes, here))

    return Measure(sizes, lengths)


def shards(layout: Layout) -> Layout:
    """The sharded entries of a layout: two layouts with the same ones have parts of one size."""
    return tuple(entry for entry in layout if entry.on.kind is Kind.SHARDED)
