"""Hatchings: patterns that are told apart without colour, each with a dark colour of its own."""

from __future__ import annotations

from collections.abc import Mapping

_UP = '<path d="M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4" stroke="{}" stroke-width="1.6"/>'
_DOWN = '<path d="M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4" stroke="{}" stroke-width="1.6"/>'
_DOTS = '<circle cx="2" cy="2" r="1.5" fill="{}"/><circle cx="6" cy="6" r="1.5" fill="{}"/>'
_SPECKS = _DOTS.replace("1.5", "0.7")

_DRAWN: Mapping[str, tuple[str, str, str]] = {
    "up": ("#0b4f8a", "#e6f0fa", _UP),
    "down": ("#8a3b00", "#fdeee0", _DOWN),
    "cross": ("#14532d", "#e4f4e8", _UP + _DOWN),
    "dots": ("#5b1a78", "#f4e9fa", _DOTS),
    "flat": ("#0b4f8a", "#e6f0fa", '<path d="M0,2 h8 M0,6 h8" stroke="{}" stroke-width="1.4"/>'),
    "upright": ("#8a3b00", "#fdeee0", '<path d="M2,0 v8 M6,0 v8" stroke="{}" stroke-width="1.4"/>'),
    "grid": ("#14532d", "#e4f4e8", '<path d="M0,4 h8 M4,0 v8" stroke="{}" stroke-width="1.4"/>'),
    "sparse": ("#0b4f8a", "#ffffff", _SPECKS),
    "solid": ("#3d3d3d", "#3d3d3d", ""),
    "blank": ("#1a1a1a", "#ffffff", ""),
    "wrong": ("#9b1c1c", "#fde8e8", _UP + '<path d="M0,4 h8" stroke="{}" stroke-width="1.2"/>'),
}
"""Name: colour of the strokes, colour of the ground, strokes on a tile of 8 by 8."""

HATCHES = tuple(_DRAWN)
"""Names that a fill may have."""

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


def pattern(name: str, key: str) -> str:
    """The SVG definition of a hatching with the id ``key``."""
    stroke, ground, tile = _DRAWN[name]
    drawn = tile.replace("{}", stroke)
    return (
        f'<pattern id="{key}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8" fill="{ground}"/>{drawn}</pattern>'
    )
