"""Amounts of bytes and of time: bytes, GB (1e9), GiB (2**30), seconds."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

GB = 10**9
GIB = 2**30


@dataclass(frozen=True)
class Amount:
    """A number of bytes, exact; a fraction where a ring splits a payload unevenly."""

    bytes: int | Fraction

    @property
    def gb(self) -> float:
        """In GB (1e9 bytes)."""
        return float(self.bytes / Fraction(GB))

    @property
    def gib(self) -> float:
        """In GiB (2**30 bytes)."""
        return float(self.bytes / Fraction(GIB))

    def __str__(self) -> str:
        if self.bytes < 10**6:
            return f"{_whole(self.bytes)} bytes"
        return f"{_whole(self.bytes)} bytes ({self.gb:,.4g} GB, {self.gib:,.4g} GiB)"

    def to_json(self) -> dict[str, int | float]:
        """Bytes, GB and GiB."""
        exact = self.bytes if isinstance(self.bytes, int) else float(self.bytes)
        return {"bytes": exact, "GB": self.gb, "GiB": self.gib}


@dataclass(frozen=True)
class Seconds:
    """A time in seconds."""

    seconds: float

    def to_json(self) -> dict[str, float]:
        """Seconds."""
        return {"seconds": self.seconds}


def _whole(value: int | Fraction) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{float(value):,.2f}"
