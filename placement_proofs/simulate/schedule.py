"""When each position of a pipeline runs which pass, in units of one forward pass of one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placement_proofs.mesh import IntSizes
from placement_proofs.plan import Plan, Position
from placement_proofs.schedule import Pass, law_of, slots


@dataclass(frozen=True)
class Run:
    """One pass of a micro-batch through a stage; stages are numbered from 0."""

    stage: int
    micro: int
    kind: Pass

    @property
    def backward(self) -> bool:
        """Whether it works out gradients."""
        return self.kind is not Pass.FORWARD


@dataclass(frozen=True)
class Slot:
    """A pass with its time, in units of one forward pass of one stage."""

    run: Run
    start: int
    length: int

    @property
    def stop(self) -> int:
        """When the pass has ended."""
        return self.start + self.length


BACKWARD = 2
"""Forward passes that take as long as one backward pass (arXiv 2104.04473, figure 3). Its halves,
for inputs and for weights, take equally long (2401.10241, section 2.1)."""


def timetable(plan: Plan, sizes: IntSizes, *, backward: int = BACKWARD) -> list[list[Slot]]:
    """When each position of the pipeline runs which pass, if messages took no time.

    Every stage takes equally long. A pass starts when its position is free and the stage before it
    (behind it, on the way back) has ended with the micro-batch.
    """
    ranks, law = sizes.axis(plan.pipeline), law_of(plan)
    half = backward // 2 if law.apart else backward
    lengths = {Pass.FORWARD: 1, Pass.BACKWARD: half, Pass.WEIGHTS: backward - half}
    orders = [
        [Run(s.chunk * ranks + r, s.micro, s.kind) for s in slots(plan, position, sizes)]
        for r, position in enumerate(_unfolded(plan, ranks))
    ]
    last = ranks * plan.chunks - 1
    ends: dict[Run, int] = {}
    rows: list[list[Slot]] = [[] for _ in orders]
    while any(orders):
        moved = False
        for order, row in zip(orders, rows, strict=True):
            while order and (ready := _ready(order[0], last, ends)) is not None:
                run = order.pop(0)
                start = max(ready, row[-1].stop if row else 0)
                row.append(Slot(run, start, lengths[run.kind]))
                ends[run] = row[-1].stop
                moved = True
        assert moved, "a schedule waits for itself"
    return rows


def _unfolded(plan: Plan, ranks: int) -> list[Position]:
    """One position for each rank of the pipeline, with a number for each of its stages."""
    ends = [*range(ranks - 1), None]
    return [
        Position(f"position{r}", end, tuple((k, 1) for k in range(r, ranks * plan.chunks, ranks)))
        for r, end in enumerate(ends)
    ]


def _ready(run: Run, last: int, ends: dict[Run, int]) -> int | None:
    """When the input of a pass is there; ``None`` while that is not known."""
    match run.kind:
        case Pass.FORWARD:
            return 0 if run.stage == 0 else ends.get(replace(run, stage=run.stage - 1))
        case Pass.BACKWARD if run.stage == last:
            return ends.get(replace(run, kind=Pass.FORWARD))
        case Pass.BACKWARD:
            return ends.get(replace(run, stage=run.stage + 1))
        case Pass.WEIGHTS:
            return ends.get(replace(run, kind=Pass.BACKWARD))


def most_in_flight(row: Sequence[Slot]) -> int:
    """Passes forward that a position has not yet run back, at most."""
    changes = {Pass.FORWARD: 1, Pass.BACKWARD: -1, Pass.WEIGHTS: 0}
    most = flying = 0
    for slot in row:
        flying += changes[slot.run.kind]
        most = max(most, flying)
    return most
