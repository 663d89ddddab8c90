"""Whole tensors dealt to ranks: the largest first, each to the rank that has the least so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from placement_proofs.mesh import IntSizes
from placement_proofs.model import Model, Tensor
from placement_proofs.placement import Mode, Placement, State


def owners(
    tensors: Sequence[Tensor], model: Model, placement: Placement, sizes: Mapping[str, object]
) -> dict[str, int]:
    """The position that owns the optimizer state of each tensor (torch's ZeRO-1).

    Empty where a size is a symbol: equal parts then stand for the whole tensors.
    """
    dealt: dict[str, int] = {}
    loads: dict[tuple[str, ...], list[int]] = {}
    counts = IntSizes({}, model.dims)
    for tensor in sorted(tensors, key=lambda t: -_elements(t, counts)):
        axes = _axes(tensor, placement)
        ranks = [size for a in axes if isinstance(size := sizes[a], int)]
        if not axes or len(ranks) < len(axes):
            continue
        load = loads.setdefault(axes, [0] * math.prod(ranks))
        rank = load.index(min(load))
        load[rank] += _elements(tensor, counts)
        dealt[tensor.name] = rank
    return dealt


def elements(tensor: Tensor, model: Model) -> int:
    """The elements of a whole tensor."""
    return _elements(tensor, IntSizes({}, model.dims))


def _elements(tensor: Tensor, sizes: IntSizes) -> int:
    return math.prod(sizes.dim(d) for d in tensor.shape)


def _axes(tensor: Tensor, placement: Placement) -> tuple[str, ...]:
    """The axes on which only the optimizer state is sharded."""
    others = {
        a
        for state in (State.PARAMETERS, State.GRADIENTS)
        for p in placement.of(tensor.group, state)
        for a in p.axes
    }
    cells = [
        p.axes
        for p in placement.of(tensor.group, State.OPTIMIZER)
        if p.mode is Mode.SHARDED and not set(p.axes) & others
    ]
    return cells[0] if cells and tensor.trainable else ()
