"""What a simulation found: equality with one device, traffic and memory of every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement_proofs.simulate.meters import Held, Line, Traffic


@dataclass(frozen=True)
class Difference:
    """The first parameter that differs from one device: tensor, rank (coordinates), step from 1."""

    tensor: str
    rank: Mapping[str, int]
    step: int

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return {"tensor": self.tensor, "rank": dict(self.rank), "step": self.step}


@dataclass(frozen=True)
class RankMeters:
    """One rank: traffic of one training step by line, and elements held at the most by state.

    ``peak`` is the most that was held on the device at one time, all states together; the elements
    of optimizer state are those of its parameters (times K bytes).
    """

    coordinates: Mapping[str, int]
    traffic: Mapping[Line, Traffic]
    held: Mapping[Held, int]
    peak: int

    def to_json(self) -> dict[str, Any]:
        """Elements; ring traffic as a float where it is not whole."""
        return {
            "coordinates": dict(self.coordinates),
            "traffic": [_line(line, traffic) for line, traffic in self.traffic.items()],
            "held": {state.value: elements for state, elements in self.held.items()},
            "peak": self.peak,
        }


def _line(line: Line, traffic: Traffic) -> dict[str, Any]:
    whole = traffic.ring.denominator == 1
    return {
        "collective": line.collective.value,
        "axes": list(line.axes),
        "phase": line.phase.value,
        "what": line.what.value,
        "count": traffic.count,
        "payload": traffic.payload,
        "ring": int(traffic.ring) if whole else float(traffic.ring),
    }


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation.

    ``equal`` says that every copy of every parameter equalled one device after every step;
    ``difference`` is the first that did not; ``failure`` says why the plan cannot run at all (empty
    if it ran). ``ranks`` are in row-major order of their coordinates.
    """

    equal: bool
    steps: int
    arithmetic: str
    difference: Difference | None
    failure: str
    ranks: tuple[RankMeters, ...]

    def __str__(self) -> str:
        if self.failure:
            return f"cannot run: {self.failure}"
        if self.difference is None:
            return f"equal to one device after each of {self.steps} steps ({self.arithmetic})"
        at = ", ".join(f"{axis}={i}" for axis, i in self.difference.rank.items())
        where = f"{self.difference.tensor} on rank ({at}) after step {self.difference.step}"
        return f"different from one device: {where} ({self.arithmetic})"

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return {
            "equal": self.equal,
            "steps": self.steps,
            "arithmetic": self.arithmetic,
            "difference": self.difference.to_json() if self.difference else None,
            "failure": self.failure,
            "ranks": [rank.to_json() for rank in self.ranks],
        }
