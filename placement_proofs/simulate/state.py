"""What the ranks hold: parameters, gradients and optimizer state of a stage; values of a pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement_proofs.layout import Layout
from placement_proofs.plan import Buffer, Item, What
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array
from placement_proofs.simulate.meters import Held, HeldMeter


@dataclass
class _Hold:
    """The elements of an array on a shelf, and how many names share it."""

    size: int
    names: int = 1


@dataclass
class Shelf:
    """Arrays by name that one rank holds, counted by a meter.

    Those that are ``away`` are off the device; ``silent`` ones are not counted (the batch).
    """

    meter: HeldMeter
    rank: int
    state: Held
    away: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    arrays: dict[str, Array] = field(default_factory=dict)
    _holds: dict[str, _Hold] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._gauges = self.meter.gauges(self.rank, self.state)
        self._host = self.meter.gauges(self.rank, Held.HOST)

    def put(self, name: str, array: Array) -> None:
        """Hold an array in place of one of the same name."""
        self.arrays[name] = array
        hold = self._holds.setdefault(name, _Hold(0))
        if array.size != hold.size:
            self._count(name, array.size - hold.size)
            hold.size = array.size

    def share(self, name: str, source: str) -> None:
        """Give what is held by the name ``source`` another name: no elements of its own."""
        self.drop(name)
        self.arrays[name] = self.get(source)
        self._holds[name] = self._holds[source]
        self._holds[name].names += 1

    def get(self, name: str) -> Array:
        """The array of a name.

        Raises:
            CannotRun: the rank does not hold it.
        """
        found = self.arrays.get(name)
        if found is None:
            raise CannotRun(f"{name}: rank {self.rank} holds no {self.state.value} of it")
        return found

    def drop(self, name: str) -> None:
        """Stop holding a name; nothing happens if it is not held."""
        hold = self._holds.pop(name, None)
        if hold is None:
            return
        del self.arrays[name]
        hold.names -= 1
        if not hold.names:
            self._count(name, -hold.size)

    def clear(self) -> None:
        """Stop holding everything."""
        for name in list(self.arrays):
            self.drop(name)

    def _count(self, name: str, elements: int) -> None:
        if name in self.silent:
            return
        for gauge in self._host if name in self.away else self._gauges:
            gauge.change(elements)


@dataclass
class Store:
    """What one rank holds of one stage from step to step."""

    stored: Shelf
    master: Shelf
    gathered: Shelf
    micro: Shelf
    total: Shelf
    host: Shelf
    """Gradients that crossed the link to the host and wait for the optimizer there."""
    layouts: dict[str, Layout] = field(default_factory=dict)
    """The layouts of gathered copies."""
    moments: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    scalars: dict[str, Array] = field(default_factory=dict)
    """Squared norms of the step, and the count of the rank's tokens."""

    def gradients(self, buffer: Buffer | None) -> Shelf:
        """The gradients of the micro-batch, or those of the step."""
        return self.micro if buffer is Buffer.MICRO else self.total


def new_store(meter: HeldMeter, rank: int) -> Store:
    """An empty store."""
    states = (Held.PARAMETERS, Held.OPTIMIZER, Held.GATHERED, Held.MICRO, Held.TOTAL, Held.HOST)
    stored, master, gathered, micro, total, host = (Shelf(meter, rank, s) for s in states)
    return Store(stored, master, gathered, micro, total, host)


@dataclass
class Frame:
    """What one rank holds of one micro-batch in one stage."""

    micro: int
    values: Shelf
    cotangents: Shelf
    statistics: dict[str, Array] = field(default_factory=dict)
    away: dict[str, Array] = field(default_factory=dict)
    """Values that wait on the host for the backward pass."""

    def of(self, item: Item) -> Shelf:
        """The shelf of an activation or of its gradient."""
        return self.values if item.what is What.ACTIVATION else self.cotangents

    def close(self) -> None:
        """The pass is over."""
        self.values.clear()
        self.cotangents.clear()


def new_frame(meter: HeldMeter, rank: int, micro: int, silent: set[str]) -> Frame:
    """An empty frame; values named in ``silent`` are not counted."""
    values = Shelf(meter, rank, Held.ACTIVATIONS, silent=silent)
    return Frame(micro, values, Shelf(meter, rank, Held.COTANGENTS))
