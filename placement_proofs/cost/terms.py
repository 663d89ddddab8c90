"""Terms: one line of a bill, with the step of the plan that it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

N = TypeVar("N")


OFF = "stored off the device"
"""Why a state is not on the device."""


@dataclass(frozen=True, slots=True)
class Term(Generic[N]):
    """Bytes that a rank holds or sends, and why.

    Attributes:
        what: a state (memory) or a collective (communication).
        axes: the axes of the transfer, or those on which a held tensor is sharded.
        phase: the phase of the training step; empty for states that live on between steps.
        section: the part of the program; ``forward`` and ``backward`` run once a micro-batch.
        unit, block: the gather unit and the block of the model.
        why: the reason that the plan gives.
        names: the tensors or values.
        times: how often in one training step, or how many copies are held.
        payload: bytes of one transfer (the full tensor on ``axes``) or of one copy.
        bytes: all bytes that the rank sends in a training step, or holds.
    """

    what: str
    axes: tuple[str, ...]
    phase: str
    section: str
    unit: str
    block: str
    why: str
    names: tuple[str, ...]
    times: N
    payload: N
    bytes: N | Fraction

    def to_json(self) -> dict[str, object]:
        """Fields by name; a symbolic number becomes its text."""
        return {
            "what": self.what,
            "axes": list(self.axes),
            "phase": self.phase,
            "section": self.section,
            "unit": self.unit,
            "block": self.block,
            "why": self.why,
            "names": list(self.names),
            "times": plain(self.times),
            "payload": plain(self.payload),
            "bytes": plain(self.bytes),
        }


def plain(value: object) -> int | float | str:
    """A number for JSON: an int, a float where bytes are not whole, the text of a formula."""
    if isinstance(value, int):
        return value
    return float(value) if isinstance(value, Fraction) else str(value)
