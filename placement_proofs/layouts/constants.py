"""Constants of memory and time: few, named, and with a statement of where they come from."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Constants:
    """What a plan does not say about a device and its libraries.

    Attributes:
        logit: bytes per logit that the loss holds at its fullest.
        allocator: bytes that the allocator takes from the device per byte of activations.
        reserve: bytes taken by drivers, communicators and libraries.
        matrix: fraction of the peak FLOP/s that matrix products reach.
        memory: fraction of the memory bandwidth that element-wise operations reach.
        link: fraction of the bandwidth of links that collectives reach.
        layer: seconds that a pass through a layer takes beside its work.
        fitted: on what they were fitted; empty where they were not.
    """

    logit: float = 18.0
    allocator: float = 1.0
    reserve: float = 2.0 * 2**30
    matrix: float = 0.7
    memory: float = 0.8
    link: float = 0.7
    layer: float = 0.0
    fitted: str = ""

    @property
    def symbols(self) -> dict[str, float]:
        """By the names of the symbols in the forms."""
        return {SYMBOLS[f.name]: getattr(self, f.name) for f in fields(self) if f.name != "fitted"}


SYMBOLS = {
    "logit": "y",
    "allocator": "allocator",
    "reserve": "reserve",
    "matrix": "matrix",
    "memory": "memory",
    "link": "link",
    "layer": "layer",
}
"""The symbol of each constant."""
