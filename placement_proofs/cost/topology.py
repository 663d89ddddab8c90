"""Topologies: nodes of ranks with a link inside, one between and one to the host.

A ring over N ranks on k nodes takes N-1 steps, k of them over the link between nodes. Where m of
its ranks share each node, it leaves the node over m links at once (one ring for each), so that a
rank sends at ``min(inside, m * between)``. Ranks of an all-to-all each use their own link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from placement_proofs.errors import IllFormed
from placement_proofs.layout import Collective
from placement_proofs.mesh import IntSizes, parent


@dataclass(frozen=True)
class Link:
    """A link of a rank: ``latency`` in seconds a message, ``bandwidth`` in bytes a second sent."""

    name: str
    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        whole = math.isfinite(self.latency) and math.isfinite(self.bandwidth)
        if not whole or self.latency < 0 or self.bandwidth <= 0:
            raise IllFormed(
                f"link {self.name}",
                f"latency {self.latency}, bandwidth {self.bandwidth}",
                "a latency is at least 0 s, a bandwidth above 0 bytes/s",
                "correct the link",
            )

    def to_json(self) -> dict[str, object]:
        """Fields by name (seconds, bytes a second)."""
        return {"name": self.name, "latency": self.latency, "bandwidth": self.bandwidth}


@dataclass(frozen=True)
class Route:
    """What the messages of a collective go over.

    Attributes:
        link: the name of its slowest link.
        latency: seconds of one step, averaged over the steps of a ring.
        bandwidth: bytes a second that a rank sends.
        together: ranks of the collective on each node.
    """

    link: str
    latency: float
    bandwidth: float
    together: int


@dataclass(frozen=True)
class Topology:
    """Nodes of ``node`` ranks with a link inside and one between nodes, and one to the host.

    Ranks are numbered with the last axis of ``order`` fastest (without it: of the mesh). ``links``
    names the link of an axis that has its own.
    """

    node: int
    inside: Link
    between: Link
    host: Link | None = None
    order: tuple[str, ...] = ()
    links: Mapping[str, Link] = field(default_factory=dict)

    def ordered(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The axes of a mesh as ranks are numbered, the last fastest.

        Raises:
            IllFormed: the order leaves out an axis of the mesh.
        """
        if not self.order:
            return names
        missing = [name for name in names if name not in self.order]
        if missing:
            raise IllFormed(
                "order",
                ", ".join(self.order),
                f"the mesh also has {', '.join(missing)}",
                "name every axis of the mesh, the one whose ranks are neighbours last",
            )
        return tuple(name for name in self.order if name in names)

    def route(
        self, kind: Collective, axes: tuple[str, ...], sizes: IntSizes, names: tuple[str, ...]
    ) -> Route:
        """What a collective over ``axes`` of a mesh of axes ``names`` goes over.

        Raises:
            IllFormed: the order leaves out an axis of the mesh.
        """
        if kind is Collective.HOST or not axes:
            return _alone(self.host or self.between, 1)
        own = [self.links[a] for a in map(parent, axes) if a in self.links]
        if own:
            return _alone(min(own, key=lambda link: link.bandwidth), 1)
        ranks = math.prod(sizes.axis(a) for a in axes)
        m = self._together(axes, sizes, self.ordered(names))
        if m == ranks:
            return _alone(self.inside, m)
        if kind is Collective.POINT_TO_POINT:
            return _alone(self.between, m)
        if kind is Collective.ALL_TO_ALL:
            return self._direct(ranks, m)
        return self._ring(ranks, m)

    def _ring(self, ranks: int, m: int) -> Route:
        outside = min(ranks // m, ranks - 1)
        waited = outside * self.between.latency + (ranks - 1 - outside) * self.inside.latency
        bandwidth = m * self.between.bandwidth
        bandwidth = min(self.inside.bandwidth, bandwidth) if m > 1 else bandwidth
        return Route(self.between.name, waited / (ranks - 1), bandwidth, m)

    def _direct(self, ranks: int, m: int) -> Route:
        """Each rank sends ``ranks - m`` of its ``ranks - 1`` parts over its own link."""
        share = (ranks - m) / (ranks - 1)
        slow = share / self.between.bandwidth
        fast = (1 - share) / self.inside.bandwidth
        waited = share * self.between.latency + (1 - share) * self.inside.latency
        return Route(self.between.name, waited, 1 / max(slow, fast), m)

    def _together(self, axes: tuple[str, ...], sizes: IntSizes, order: tuple[str, ...]) -> int:
        """How many ranks of a collective share a node (1 where nodes cut an axis unevenly)."""
        moved = {parent(a): a for a in axes}
        together, stride = 1, 1
        for name in reversed(order):
            size = sizes.axis(name)
            extent = self._extent(size, stride)
            if name in moved:
                whole = extent == size
                together *= extent if ":" not in moved[name] else (2 if whole else 1)
            if extent < size:
                break
            stride *= size
        return together

    def _extent(self, size: int, stride: int) -> int:
        """Positions of an axis on one node, its neighbours being ``stride`` ranks apart."""
        if self.node % (stride * size) == 0:
            return size
        here = self.node // stride if self.node % stride == 0 else 1
        return here if size % here == 0 else 1

    def to_json(self) -> dict[str, object]:
        """Fields by name (seconds, bytes a second)."""
        return {
            "ranks_per_node": self.node,
            "inside": self.inside.to_json(),
            "between": self.between.to_json(),
            "host": None if self.host is None else self.host.to_json(),
            "order": list(self.order),
            "axes": {axis: link.to_json() for axis, link in self.links.items()},
        }


def _alone(link: Link, together: int) -> Route:
    return Route(link.name, link.latency, link.bandwidth, together)
