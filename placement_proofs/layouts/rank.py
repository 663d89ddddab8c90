"""Ranking of what fits, the front of memory and time, and what separates two layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from placement_proofs.layouts.bill import Bill, Item, bill
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.prepared import prepared
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.table import Table

Order: TypeAlias = NDArray[np.int64]

SAME = 1e-9
"""Relative difference of step times below which two layouts are as fast as each other."""


def ranked(table: Table, limit: float) -> Order:
    """The rows whose fullest rank needs at most ``limit`` bytes, fastest first, then fullest last.

    Step times are compared to nine digits, so that rounding does not decide between equal ones.
    """
    fits = np.flatnonzero(table.peak <= limit)
    rounded = _rounded(table.step[fits])
    return fits[np.lexsort((table.peak[fits], rounded))]


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    scale: NDArray[np.float64] = 10.0 ** (8 - np.floor(np.log10(values)))
    return np.round(values * scale) / scale


def runner_up(table: Table, order: Order) -> int | None:
    """The first row after the fastest ones that is slower than they are."""
    if not len(order):
        return None
    slower = table.step[order] > table.step[order[0]] * (1 + SAME)
    return int(order[np.argmax(slower)]) if slower.any() else None


def pareto(table: Table) -> Order:
    """The rows that no other row beats in memory and in time at once, from the smallest memory."""
    order = np.lexsort((table.step, table.peak))
    best = np.minimum.accumulate(table.step[order])
    before = np.concatenate(([np.inf], best[:-1]))
    return order[table.step[order] < before * (1 - SAME)]


@dataclass(frozen=True)
class Difference:
    """One term in two layouts (seconds or bytes); a term that one lacks has no item there."""

    name: str
    first: Item | None
    second: Item | None

    @property
    def value(self) -> float:
        """By how much the term of the second exceeds that of the first."""
        return _value(self.second) - _value(self.first)

    def to_json(self) -> dict[str, object]:
        """Values and formulas."""
        items = (self.first, self.second)
        return {
            "term": self.name,
            "values": [_value(item) for item in items],
            "formulas": [str(item.here) if item else "0" for item in items],
        }


def _value(item: Item | None) -> float:
    return item.value if item else 0.0


def differences(first: tuple[Item, ...], second: tuple[Item, ...]) -> tuple[Difference, ...]:
    """The terms in which two bills differ, the largest difference first."""
    a, b = ({item.name: item for item in items} for items in (first, second))
    found = [Difference(name, a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b])]
    return tuple(sorted((d for d in found if d.value), key=lambda d: -abs(d.value)))


@dataclass(frozen=True)
class Change:
    """A figure that, moved far enough, makes the second layout the faster of the two.

    Attributes:
        name, unit: of the figure.
        now, then: its value, and the value at which the two are equally fast.
    """

    name: str
    unit: str
    now: float
    then: float

    def to_json(self) -> dict[str, object]:
        """Fields by name."""
        return vars(self)


FIGURES = {
    "between": ("bandwidth between nodes", "bytes/s"),
    "inside": ("bandwidth inside a node", "bytes/s"),
    "between_latency": ("latency between nodes", "s"),
    "inside_latency": ("latency inside a node", "s"),
    "flops": ("arithmetic of the device", "FLOP/s"),
    "bandwidth": ("bandwidth of the device's memory", "bytes/s"),
    "launch": ("time of a kernel launch", "s"),
    "m": ("global batch", "sequences"),
}
"""What is tried, by symbol; ``m`` is the number of micro-batches of both layouts."""

REACH = 1000.0
"""A figure is moved by at most this factor, up and down."""
POINTS, REFINED = 1001, 4
"""Values of a figure that are tried between two bounds, and how often the bounds are drawn in."""


@dataclass(frozen=True)
class Comparison:
    """Why one layout is faster than another.

    Attributes:
        first, second: the bills of the two.
        time, memory: the terms that differ, the largest first.
        changes: figures that would have to change for the second to win, the nearest first.
        less_memory: bytes of a device on which only the second still fits, if there are such.
    """

    first: Bill
    second: Bill
    time: tuple[Difference, ...]
    memory: tuple[Difference, ...]
    changes: tuple[Change, ...]
    less_memory: float | None

    def to_json(self) -> dict[str, object]:
        """Layouts, differences and changes."""
        return {
            "first": str(self.first.layout),
            "second": str(self.second.layout),
            "time": [d.to_json() for d in self.time],
            "memory": [d.to_json() for d in self.memory],
            "changes": [c.to_json() for c in self.changes],
            "less_memory": self.less_memory,
        }


def compared(first: Layout, second: Layout, job: Job, constants: Constants) -> Comparison:
    """Why ``first`` is faster than ``second``, and what would make it slower.

    Raises:
        IllFormed: a layout does not fit the job.
    """
    bills = (bill(first, job, constants), bill(second, job, constants))
    a, b = bills
    return Comparison(
        a,
        b,
        differences(a.time, b.time),
        differences(a.memory, b.memory),
        tuple(_changes(first, second, job, constants)),
        b.peak if b.peak < a.peak else None,
    )


def _changes(first: Layout, second: Layout, job: Job, constants: Constants) -> Iterator[Change]:
    race = _Race(first, second, job, constants)
    crossings = {name: race.crossing(name) for name in FIGURES}
    found = {name: x for name, x in crossings.items() if x is not None}
    for name, factor in sorted(found.items(), key=lambda pair: abs(np.log(pair[1]))):
        words, unit = FIGURES[name]
        now = job.global_batch if name == "m" else race.given[name]
        yield Change(words, unit, now, now * factor)


class _Race:
    """The step times of two layouts as a figure moves."""

    def __init__(self, first: Layout, second: Layout, job: Job, constants: Constants) -> None:
        self.given: Mapping[str, float] = {**job.symbols, **constants.symbols}
        self.sides = [(prepared(x.kind, job).formulas, job.columns(x)) for x in (first, second)]

    def behind(self, name: str, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """By how much the second is slower (seconds), with a figure times each factor."""
        times = []
        for formulas, columns in self.sides:
            assert formulas is not None, "only proved layouts are compared"
            values: dict[str, float | NDArray[np.float64]] = {**self.given, **columns}
            values[name] = values[name] * factors
            times.append(formulas(values)["step"])
        gap: NDArray[np.float64] = times[1] - times[0]
        return gap

    def crossing(self, name: str) -> float | None:
        """The factor nearest to 1 at which the second catches up."""
        if not self.given.get(name, 1.0):
            return None
        low, high = 1 / REACH, REACH
        for _ in range(REFINED):
            grid = np.geomspace(low, high, POINTS)
            ahead = self.behind(name, grid) < 0
            flips = np.flatnonzero(ahead[1:] != ahead[:-1])
            if not len(flips):
                return None
            nearest = flips[np.argmin(np.abs(np.log(grid[flips])))]
            low, high = float(grid[nearest]), float(grid[nearest + 1])
        return high


@dataclass(frozen=True)
class OutOfReach:
    """A faster layout that does not fit, and the bytes of a device on which it would."""

    layout: Layout
    step: float
    peak: float

    def to_json(self) -> dict[str, object]:
        """The layout, seconds and bytes."""
        return {"layout": vars(self.layout), "step_seconds": self.step, "peak_bytes": self.peak}


def faster_with_more(table: Table, limit: float) -> OutOfReach | None:
    """Of the layouts that need more than ``limit`` bytes and beat all that fit: the smallest."""
    fits = table.peak <= limit
    best = table.step[fits].min() if fits.any() else np.inf
    faster = np.flatnonzero(~fits & (table.step < best * (1 - SAME)))
    if not len(faster):
        return None
    row = int(faster[np.lexsort((table.step[faster], table.peak[faster]))[0]])
    layout, _ = table.at(row)
    return OutOfReach(layout, float(table.step[row]), float(table.peak[row]))


def smallest(table: Table) -> OutOfReach | None:
    """The layout that needs the fewest bytes."""
    if not len(table):
        return None
    row = int(np.argmin(table.peak))
    layout, _ = table.at(row)
    return OutOfReach(layout, float(table.step[row]), float(table.peak[row]))
