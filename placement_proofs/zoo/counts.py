"""How many parameters a model has, and how many of them a token uses."""

from __future__ import annotations

import math
from fractions import Fraction

from placement_proofs.mesh import IntSizes
from placement_proofs.model import Model

ROUTED = "expert"
"""The start of the names of the groups of routed experts."""


def elements(model: Model) -> int:
    """Parameters of a model (elements), blocks counted as often as they repeat."""
    return int(_count(model, Fraction(1)))


def active(model: Model) -> int:
    """Parameters that one token uses: of the routed experts, those that it goes to.

    >>> from placement_proofs.zoo import named
    >>> f"{active(named('mixtral-8x7b')):,}"
    '12,879,925,248'
    """
    share = Fraction(model.dims.get("k", 1), model.dims.get("E", 1))
    return int(_count(model, share))


def _count(model: Model, share: Fraction) -> Fraction:
    sizes = IntSizes({}, model.dims)
    times = {b.name: sizes.dim(b.times) for b in model.blocks}
    users = {p: times[op.block] for op in model.ops for p in op.params}
    total = Fraction(0)
    for tensor in model.tensors:
        count = math.prod(sizes.dim(d) for d in tensor.shape) * users[tensor.name]
        total += count * (share if tensor.group.startswith(ROUTED) else 1)
    return total
