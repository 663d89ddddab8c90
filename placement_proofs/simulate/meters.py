"""Meters: what each rank sends, by collective, axes and phase, and what it holds, by state."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from placement_proofs.layout import Collective
from placement_proofs.plan import RING, Buffer, Item, Phase, Transfer, What
from placement_proofs.simulate.ranks import World, extents


class Held(Enum):
    """What a rank holds: the states that the meters tell apart."""

    PARAMETERS = "parameters"
    GATHERED = "gathered"
    MICRO = "gradients of a micro-batch"
    TOTAL = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    COTANGENTS = "activation gradients"
    FLOWING = "activations and their gradients"
    HOST = "host"


@dataclass(frozen=True)
class Line:
    """What is told apart in a rank's traffic."""

    collective: Collective
    axes: tuple[str, ...]
    phase: Phase
    what: What
    buffer: Buffer | None = None


@dataclass(frozen=True)
class Traffic:
    """Traffic of one rank in one training step on one line (elements).

    ``payload`` is the full tensor on the axes of the transfer, padded to equal parts (for an
    all-to-all the rank's part); ``ring`` is what the rank sends in a ring algorithm. A host-link
    transfer and a message count at their sender.
    """

    count: int = 0
    payload: int = 0
    ring: Fraction = Fraction(0)

    def plus(self, payload: int, ring: Fraction) -> Traffic:
        """One transfer more."""
        return Traffic(self.count + 1, self.payload + payload, self.ring + ring)


@dataclass
class TrafficMeter:
    """Counts transfers by rank while it is ``running``."""

    world: World
    running: bool = True
    lines: dict[int, dict[Line, Traffic]] = field(default_factory=dict)
    _payloads: dict[tuple[int, int], tuple[int, Fraction]] = field(default_factory=dict)

    def count(self, transfer: Transfer, rank: int) -> None:
        """A rank takes part in a transfer; its items are of one kind and count as one."""
        if not self.running or not transfer.items:
            return
        first = transfer.items[0]
        line = Line(transfer.kind, transfer.axes, transfer.where.phase, first.what, first.buffer)
        mine = self.lines.setdefault(rank, {})
        mine[line] = mine.get(line, Traffic()).plus(*self._sent(transfer, rank))

    def _sent(self, transfer: Transfer, rank: int) -> tuple[int, Fraction]:
        key = (id(transfer), rank)
        found = self._payloads.get(key)
        if found is None:
            total = total_payload(transfer, self.world, rank)
            total *= transfer.repeats
            share = ring_share(transfer, self.world)
            found = self._payloads[key] = total, total * share
        return found


def ring_share(transfer: Transfer, world: World) -> Fraction:
    """What a rank sends per element of payload in a ring algorithm (the table in the plan)."""
    factor, shared = RING[transfer.kind]
    if not shared:
        return Fraction(factor)
    n = math.prod(world.sizes.axis(a) for a in transfer.axes)
    return Fraction(factor * (n - 1), n)


def total_payload(transfer: Transfer, world: World, rank: int) -> int:
    """Elements of all items on the wire; flat ones are padded once, together."""
    if not transfer.flat:
        return sum(payload(transfer, item, world, rank) for item in transfer.items)
    gathers = transfer.kind is Collective.ALL_GATHER
    wholes = [(i.shape, i.after if gathers else i.before) for i in transfer.items]
    elements = sum(math.prod(extents(world.bounds(*whole, rank))) for whole in wholes)
    ranks = math.prod(world.sizes.axis(a) for a in transfer.axes)
    return -(-elements // ranks) * ranks


def payload(transfer: Transfer, item: Item, world: World, rank: int) -> int:
    """Elements of an item on the wire: a gather or scatter moves equal parts, padded."""
    layouts = {
        Collective.ALL_GATHER: (item.after, item.before),
        Collective.REDUCE_SCATTER: (item.before, item.after),
        Collective.BROADCAST: (item.after, ()),
    }
    whole, parts = layouts.get(transfer.kind, (item.before, ()))
    dims = list(extents(world.bounds(item.shape, whole, rank)))
    for entry in parts:
        if entry.axes == transfer.axes and entry.on.dim is not None:
            ranks = math.prod(world.sizes.axis(a) for a in transfer.pad or entry.axes)
            dims[entry.on.dim] = -(-dims[entry.on.dim] // ranks) * ranks
    return math.prod(dims)


@dataclass
class Gauge:
    """Elements held: now and at the most."""

    now: int = 0
    peak: int = 0

    def change(self, elements: int) -> None:
        """Take elements (or drop them, below zero)."""
        self.now += elements
        self.peak = max(self.peak, self.now)


@dataclass
class HeldMeter:
    """Elements that each rank holds by state, and on the device in all."""

    states: dict[tuple[int, Held], Gauge] = field(default_factory=dict)
    device: dict[int, Gauge] = field(default_factory=dict)

    def gauges(self, rank: int, state: Held) -> tuple[Gauge, ...]:
        """The gauges that a change of a state moves."""
        one = self.states.setdefault((rank, state), Gauge())
        if state is Held.HOST:
            return (one,)
        device = self.device.setdefault(rank, Gauge())
        if state in (Held.ACTIVATIONS, Held.COTANGENTS):
            return one, device, self.states.setdefault((rank, Held.FLOWING), Gauge())
        return one, device
