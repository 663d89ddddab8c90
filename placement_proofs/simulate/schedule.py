"""The order in which a pipeline position runs forward and backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Slot:
    """A pass with its time, in units of one forward pass of one stage."""

    run: Pass
    start: int
    length: int

    @property
    def stop(self) -> int:
        """When the pass has ended."""
        return self.start + self.length


BACKWARD = 2
"""Forward passes that take as long as one backward pass (arXiv 2104.04473, figure 3)."""


def timetable(plan: Plan, sizes: IntSizes, *, backward: int = BACKWARD) -> list[list[Slot]]:
    """When each position of the pipeline runs which pass, if messages took no time.

    Every stage takes equally long. A pass starts when its position is free and the stage before it
    (behind it, on the way back) has ended with the micro-batch. Stages are numbered from 0.
    """
    ranks = _unfolded(plan, sizes)
    orders = [passes(ranks, position, sizes) for position in ranks.positions]
    last = sizes.axis(plan.pipeline) * plan.chunks - 1
    ends: dict[Pass, int] = {}
    slots: list[list[Slot]] = [[] for _ in orders]
    while any(orders):
        moved = False
        for order, row in zip(orders, slots, strict=True):
            while order and (ready := _ready(order[0], last, ends)) is not None:
                run = order.pop(0)
                start = max(ready, row[-1].stop if row else 0)
                row.append(Slot(run, start, backward if run.backward else 1))
                ends[run] = row[-1].stop
                moved = True
        assert moved, "a schedule waits for itself"
    return slots


def _unfolded(plan: Plan, sizes: IntSizes) -> Plan:
    """The plan with one position for each rank of the pipeline, and a number for each stage."""
    ranks = sizes.axis(plan.pipeline)
    numbers = [tuple((k, 1) for k in range(r, ranks * plan.chunks, ranks)) for r in range(ranks)]
    ends = [*range(ranks - 1), None]
    positions = tuple(
        Position(f"position{r}", end, own)
        for r, (end, own) in enumerate(zip(ends, numbers, strict=True))
    )
    return replace(plan, positions=positions)


def _ready(run: Pass, last: int, ends: dict[Pass, int]) -> int | None:
    """When the input of a pass is there; ``None`` while that is not known."""
    if not run.backward:
        return 0 if run.stage == 0 else ends.get(replace(run, stage=run.stage - 1))
    if run.stage == last:
        return ends.get(replace(run, backward=False))
    return ends.get(replace(run, stage=run.stage + 1))


def most_in_flight(row: Sequence[Slot]) -> int:
    """Passes forward that a position has not yet run back, at most."""
    most = flying = 0
    for slot in row:
        flying += -1 if slot.run.backward else 1
        most = max(most, flying)
    return most
