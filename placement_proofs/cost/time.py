"""Time of traffic on a described topology: a latency and a bandwidth for each link.

A ring of N ranks takes N-1 steps for a gather, a scatter, an all-to-all or a broadcast and 2(N-1)
for an all-reduce; every step waits once for the latency, all steps together send the ring bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placement_proofs.cost.communication import communication_terms
from placement_proofs.cost.convention import Convention
from placement_proofs.errors import IllFormed
from placement_proofs.layout import Collective, positions
from placement_proofs.mesh import IntSizes, parent
from placement_proofs.plan import RING, Plan, What


@dataclass(frozen=True)
class Link:
    """A link of a rank: ``latency`` in seconds a message, ``bandwidth`` in bytes a second sent."""

    name: str
    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if self.latency < 0 or self.bandwidth <= 0:
            raise IllFormed(
                f"link {self.name}",
                f"latency {self.latency}, bandwidth {self.bandwidth}",
                "a latency is at least 0 s, a bandwidth above 0 bytes/s",
                "correct the link",
            )


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

    def link(self, axes: tuple[str, ...], sizes: IntSizes, names: tuple[str, ...]) -> Link:
        """The slowest link that a ring over ``axes`` needs."""
        if not axes:
            return self.host or self.between
        own = [self.links[a] for a in map(parent, axes) if a in self.links]
        if own:
            return min(own, key=lambda link: link.bandwidth)
        order = self.order or names
        return self.inside if self._together(axes, sizes, order) else self.between

    def _together(self, axes: tuple[str, ...], sizes: IntSizes, order: tuple[str, ...]) -> bool:
        """Whether all ranks of a ring are on one node: its outermost axis ends within it."""
        first = min(order.index(parent(a)) for a in axes)
        ranks = sizes.product([sizes.axis(a) for a in order[first:]])
        return ranks <= self.node and self.node % ranks == 0


@dataclass(frozen=True)
class Line:
    """Time of one collective over some axes in one phase, over a training step of a rank.

    ``waits`` says that computation waits for it: it moves activations or their gradients.
    """

    collective: str
    axes: tuple[str, ...]
    phase: str
    link: str
    count: int
    bytes: float
    seconds: float
    waits: bool

    def to_json(self) -> dict[str, object]:
        """Fields by name (bytes, seconds)."""
        return vars(self) | {"axes": list(self.axes)}


@dataclass(frozen=True)
class TrafficTime:
    """Seconds of a rank's traffic in a training step, and how much of them computation can hide.

    Attributes:
        lines: by collective, axes and phase.
        total: all of it, one after the other: the exposed time at most.
        waiting: the part that computation waits for: the exposed time at least, where gathers of
            parameters and reductions of gradients are hidden altogether.
    """

    lines: tuple[Line, ...]
    total: float
    waiting: float

    def to_json(self) -> dict[str, object]:
        """Lines and bounds (seconds)."""
        lines = [line.to_json() for line in self.lines]
        return {"lines": lines, "exposed_at_most": self.total, "exposed_at_least": self.waiting}


def steps_of(kind: Collective, ranks: int) -> int:
    """How often a collective waits for the latency of its link."""
    factor, cyclic = RING[kind]
    return factor * (ranks - 1) if cyclic else 1


def traffic_time(
    plan: Plan,
    sizes: IntSizes,
    convention: Convention,
    topology: Topology,
    position: str | None = None,
) -> TrafficTime:
    """The time of the traffic of the ranks of a pipeline position (default: the largest).

    Raises:
        IllFormed: the plan has no position of that name.
    """
    sums: dict[tuple[str, tuple[str, ...], str, bool], list[float]] = {}
    links: dict[tuple[str, ...], Link] = {}
    for step, term in communication_terms(plan, sizes, convention, position):
        link = links.setdefault(step.axes, topology.link(step.axes, sizes, plan.mesh.names))
        ranks = positions(step.axes, sizes)
        if ranks == 1 and step.axes:
            continue
        waits = step.items[0].what in (What.ACTIVATION, What.COTANGENT)
        seconds = term.times * steps_of(step.kind, ranks) * link.latency
        seconds += float(term.bytes) / link.bandwidth
        line = sums.setdefault((term.what, term.axes, term.phase, waits), [0, 0, 0])
        for i, value in enumerate((term.times, float(term.bytes), seconds)):
            line[i] += value
    lines = tuple(
        Line(kind, axes, phase, links[axes].name, int(count), sent, seconds, waits)
        for (kind, axes, phase, waits), (count, sent, seconds) in sums.items()
    )
    waiting = sum(line.seconds for line in lines if line.waits)
    return TrafficTime(lines, sum(line.seconds for line in lines), waiting)
