"""Hatchings: strokes that are told apart without colour, each with a dark colour of its own.

They are drawn line by line, as many viewers of SVG do not know patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Line: TypeAlias = tuple[float, float, float, float]
"""A stroke in a rectangle whose corner is (0, 0): x and y of its ends."""
Strokes: TypeAlias = Callable[[float, float], Iterator[Line]]
"""The strokes in a rectangle of a width and a height."""


def _steps(length: float, step: float) -> Iterator[float]:
    """Equal steps, as many as fit, with half a step before the first."""
    count = max(1, round(length / step))
    return ((i + 0.5) * length / count for i in range(count))


def _up(width: float, height: float) -> Iterator[Line]:
    for c in _steps(width + height, 7):
        yield max(0, c - height), min(c, height), min(c, width), max(0, c - width)


def _down(width: float, height: float) -> Iterator[Line]:
    for x1, y1, x2, y2 in _up(width, height):
        yield width - x1, y1, width - x2, y2


def _flat(width: float, height: float) -> Iterator[Line]:
    for y in _steps(height, 4.5):
        yield 0, y, width, y


def _upright(width: float, height: float) -> Iterator[Line]:
    for x in _steps(width, 4.5):
        yield x, 0, x, height


def _cross(width: float, height: float) -> Iterator[Line]:
    yield from _up(width, height)
    yield from _down(width, height)


def _grid(width: float, height: float) -> Iterator[Line]:
    for y in _steps(height, 8):
        yield 0, y, width, y
    for x in _steps(width, 8):
        yield x, 0, x, height


def _dots(step: float) -> Strokes:
    def strokes(width: float, height: float) -> Iterator[Line]:
        for row, y in enumerate(_steps(height, step)):
            columns = list(_steps(width, step))
            for x in columns[row % 2 :: 2] or columns:
                yield x, y, x, y

    return strokes


@dataclass(frozen=True)
class Hatch:
    """The colours of strokes and ground, the strokes, and their thickness (pixels)."""

    stroke: str
    ground: str
    strokes: Strokes
    thick: float

    def path(self, x: float, y: float, width: float, height: float) -> str:
        """The strokes in a rectangle as data of an SVG path; points are lines of no length."""
        parts = []
        for x1, y1, x2, y2 in self.strokes(width, height):
            parts.append(f"M{x + x1:.1f} {y + y1:.1f}l{x2 - x1:.1f} {y2 - y1:.1f}")
        return "".join(parts).replace(".0", "")


_BLUE, _BROWN, _GREEN, _VIOLET = "#0b4f8a", "#8a3b00", "#14532d", "#5b1a78"

HATCHES: Mapping[str, Hatch] = {
    "up": Hatch(_BLUE, "#e6f0fa", _up, 1.6),
    "down": Hatch(_BROWN, "#fdeee0", _down, 1.6),
    "cross": Hatch(_GREEN, "#e4f4e8", _cross, 1.4),
    "dots": Hatch(_VIOLET, "#f4e9fa", _dots(4), 2.8),
    "flat": Hatch(_BLUE, "#e6f0fa", _flat, 1.4),
    "upright": Hatch(_BROWN, "#fdeee0", _upright, 1.4),
    "grid": Hatch(_GREEN, "#e4f4e8", _grid, 1.4),
    "sparse": Hatch(_BLUE, "#ffffff", _dots(6), 1.4),
    "wrong": Hatch("#9b1c1c", "#fde8e8", _up, 2.2),
}
"""The hatchings by name."""

STATES: Mapping[str, str] = {
    "parameters": "up",
    "gradients": "down",
    "optimizer": "cross",
    "activations": "dots",
    "gathered parameters": "sparse",
    "fresh gradients": "upright",
    "parts of parameters kept for the backward pass": "grid",
}
"""The hatching of what a rank holds."""

COLLECTIVES: Mapping[str, str] = {
    "all-gather": "flat",
    "reduce-scatter": "upright",
    "all-reduce": "grid",
    "all-to-all": "cross",
    "point-to-point": "dots",
    "broadcast": "down",
    "host-link": "sparse",
}
"""The hatching of a kind of traffic."""

PHASES: Mapping[str, str] = {
    "forward": "up",
    "backward": "down",
    "recompute": "dots",
    "reduce": "cross",
    "clip": "grid",
    "update": "flat",
}
"""The hatching of a phase of the step."""
