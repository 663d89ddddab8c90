"""The order in which a pipeline position runs forward and backward passes."""

from __future__ import annotations

from dataclasses import dataclass

from placement_proofs.mesh import IntSizes
from placement_proofs.plan import Plan, Position, in_flight


@dataclass(frozen=True)
class Pass:
    """One pass of a micro-batch through a stage."""

    stage: int
    micro: int
    backward: bool


def passes(plan: Plan, position: Position, sizes: IntSizes) -> list[Pass]:
    """All passes of a position in one training step.

    ``in_flight`` forward passes come first, then one backward and one forward in turn, then the
    remaining backward passes. Interleaved stages follow arXiv 2104.04473 where the micro-batches
    divide over the positions; otherwise all forward passes come first.
    """
    micro = sizes.dim(plan.micro)
    stages = [stage for stage, _ in position.stages]
    total = micro * len(stages)
    ahead = min(in_flight(plan, position, sizes), total)
    width = sizes.axis(plan.pipeline) if len(stages) > 1 else micro
    if len(stages) > 1 and micro % width:
        ahead, width = total, micro
    forward = [Pass(stages[c], j, False) for c, j in _turns(len(stages), micro, width)]
    turned = [(len(stages) - 1 - c, j) for c, j in _turns(len(stages), micro, width)]
    backward = [Pass(stages[c], j, True) for c, j in turned]
    order = forward[:ahead]
    for i in range(total):
        order.append(backward[i])
        order += forward[ahead + i : ahead + i + 1]
    return order


def _turns(chunks: int, micro: int, width: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch): every chunk takes ``width`` micro-batches before the next one."""
    return [
        (chunk, first + i)
        for first in range(0, micro, width)
        for chunk in range(chunks)
        for i in range(width)
    ]
