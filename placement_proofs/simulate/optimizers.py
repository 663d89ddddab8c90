"""Optimizers: element by element, in any field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from placement_proofs.simulate.field import Array, Field

Moments: TypeAlias = tuple[Array, ...]
Rule: TypeAlias = Callable[[Field, Array, Array, Moments, int], tuple[Array, Moments]]
"""(field, weight, gradient, moments, number of the step from 1) to the new weight and moments."""

RATE = (1, 64)
"""The learning rate, as a ratio."""


def _sgd(f: Field, w: Array, g: Array, moments: Moments, turn: int) -> tuple[Array, Moments]:
    return f.subtract(w, f.multiply(g, f.constant(*RATE))), ()


def _momentum(f: Field, w: Array, g: Array, moments: Moments, turn: int) -> tuple[Array, Moments]:
    """``v = 1/2 v + g``, ``w -= rate v``."""
    v = f.add(f.multiply(moments[0], f.constant(1, 2)), g) if moments else g
    return f.subtract(w, f.multiply(v, f.constant(*RATE))), (v,)


def _averaged(f: Field, old: Array, new: Array, keep: tuple[int, int]) -> Array:
    kept, total = keep
    rest = f.constant(total - kept, total)
    return f.add(f.multiply(old, f.constant(kept, total)), f.multiply(new, rest))


def _adam(f: Field, w: Array, g: Array, moments: Moments, turn: int) -> tuple[Array, Moments]:
    """Adam (arXiv 1412.6980) with decay rates 9/10 and 99/100.

    Exact fields have no square root: there the update divides by the second moment itself.
    """
    m, v = moments or (f.zeros(w.shape), f.zeros(w.shape))
    m = _averaged(f, m, g, (9, 10))
    v = _averaged(f, v, f.multiply(g, g), (99, 100))
    first = f.multiply(m, f.constant(10**turn, 10**turn - 9**turn))
    second = f.multiply(v, f.constant(100**turn, 100**turn - 99**turn))
    floor = f.constant(1) if f.exact else f.constant(1, 10**4)
    change = f.multiply(first, f.inverse(f.add(f.root(second), floor)))
    return f.subtract(w, f.multiply(change, f.constant(*RATE))), (m, v)


OPTIMIZERS: Mapping[str, Rule] = {"sgd": _sgd, "momentum": _momentum, "adam": _adam}
"""The update rules by name."""
