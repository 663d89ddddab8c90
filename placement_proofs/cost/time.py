"""Time of traffic on a described topology: a latency and a bandwidth for each link.

A ring of N ranks takes N-1 steps for a gather, a scatter, an all-to-all or a broadcast and 2(N-1)
for an all-reduce; every step waits once for the latency, all steps together send the ring bytes
(the model of Hockney, 1994, and of rings in arXiv 1810.11112).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from placement_proofs.cost.communication import communication_terms, ring
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.terms import Term
from placement_proofs.cost.topology import Link, Route, Topology
from placement_proofs.layout import Collective, positions
from placement_proofs.mesh import IntSizes, Sizes
from placement_proofs.plan import RING, Plan, Transfer, What

__all__ = ["Line", "Link", "Route", "Topology", "TrafficTime", "steps_of", "traffic_time", "waits"]


@dataclass(frozen=True)
class Line:
    """Time of one collective over some axes in one phase, over a training step of a rank.

    ``waits`` says that computation waits for it: it moves activations or their gradients.
    ``latency`` is the part of ``seconds`` that does not depend on the bytes.
    """

    collective: str
    axes: tuple[str, ...]
    phase: str
    link: str
    count: int
    bytes: float
    latency: float
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
        order: the axes as ranks are numbered, the last fastest.
    """

    lines: tuple[Line, ...]
    total: float
    waiting: float
    order: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Lines and bounds (seconds)."""
        return {
            "lines": [line.to_json() for line in self.lines],
            "exposed_at_most": self.total,
            "exposed_at_least": self.waiting,
            "order": list(self.order),
        }


def ring_bytes(step: Transfer, term: Term[int], sizes: Sizes[int]) -> int | Fraction:
    """Bytes that a rank sends, whatever a convention counts as traffic."""
    return ring(step.kind, step.axes, term.payload * term.times, sizes)


def steps_of(kind: Collective, ranks: int) -> int:
    """How often a collective waits for the latency of its link."""
    factor, cyclic = RING[kind]
    return factor * (ranks - 1) if cyclic else 1


def waits(step: Transfer) -> bool:
    """Whether computation waits for a transfer: it moves activations or their gradients."""
    return step.items[0].what in (What.ACTIVATION, What.COTANGENT)


def traffic_time(
    plan: Plan,
    sizes: IntSizes,
    convention: Convention,
    topology: Topology,
    position: str | None = None,
) -> TrafficTime:
    """The time of the traffic of the ranks of a pipeline position (default: the largest).

    Raises:
        IllFormed: the plan has no position of that name, or the topology's order leaves out an
            axis of the mesh.
    """
    names = plan.mesh.names
    sums: dict[tuple[str, tuple[str, ...], str, bool], list[float]] = {}
    routes: dict[tuple[Collective, tuple[str, ...]], Route] = {}
    for step, term in communication_terms(plan, sizes, convention, position):
        ranks = positions(step.axes, sizes)
        if ranks == 1 and step.axes:
            continue
        key = step.kind, step.axes
        if key not in routes:
            routes[key] = topology.route(*key, sizes, names)
        late = term.times * steps_of(step.kind, ranks) * routes[key].latency
        sent = float(ring_bytes(step, term, sizes))
        seconds = late + sent / routes[key].bandwidth
        line = sums.setdefault((term.what, term.axes, term.phase, waits(step)), [0, 0, 0, 0])
        for i, value in enumerate((term.times, sent, late, seconds)):
            line[i] += value
    lines = tuple(
        Line(kind, axes, phase, routes[Collective(kind), axes].link, int(n), sent, late, s, waiting)
        for (kind, axes, phase, waiting), (n, sent, late, s) in sums.items()
    )
    waiting = sum(line.seconds for line in lines if line.waits)
    total = sum(line.seconds for line in lines)
    return TrafficTime(lines, total, waiting, topology.ordered(names))
