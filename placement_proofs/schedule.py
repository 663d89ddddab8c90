"""Pipeline schedules as data: the slots of every position, and what is held at each of them.

A law says, for a position with ``behind = p - k`` positions from itself to the last, how many
forward passes come before the first backward pass, and how many backward passes the pass for the
gradients of the weights stays behind. Everything else follows from the law: after the first
forward passes one backward pass (then, if it is apart, one pass for weights) and one forward pass
take turns; what is left comes last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Generic, TypeVar

from placement_proofs.errors import IllFormed
from placement_proofs.mesh import IntSizes, Sizes
from placement_proofs.plan import Plan, Position

N = TypeVar("N")


class Pass(Enum):
    """What a slot runs; ``BACKWARD`` is of inputs alone where weights have a pass of their own."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHTS = "weights"


@dataclass(frozen=True)
class Slot:
    """One pass of a micro-batch through one of the position's chunks of layers."""

    kind: Pass
    chunk: int
    micro: int


@dataclass(frozen=True)
class Law:
    """A schedule of ``p`` positions, position ``k`` with ``v`` chunks, in rounds of ``g``.

    Attributes:
        ahead: forward passes before the first backward pass, as coefficients of ``p - k``, of
            ``(v - 1) g`` and of one; ``None`` is all of them. There are never more than exist.
        apart: the backward pass leaves the gradients of weights to a pass of its own.
        lag: how many backward passes that pass stays behind, in units of ``k``.
        idle: idle time over ``p - 1``, as coefficients of the time of a forward pass, of a backward
            pass for inputs, and of one for weights.
        source: where the law is from.
    """

    ahead: tuple[int, int, int] | None
    idle: tuple[int, int, int]
    source: str
    apart: bool = False
    lag: int = 0

    @property
    def chunked(self) -> bool:
        """Whether a position has several chunks of layers."""
        return self.ahead is not None and self.ahead[1] > 0


LAWS: Mapping[str, Law] = {
    "gpipe": Law(None, (1, 1, 1), "arXiv 1811.06965"),
    "1f1b": Law((1, 0, 0), (1, 1, 1), "arXiv 2104.04473, section 2.2.1"),
    "interleaved": Law((2, 1, -1), (1, 1, 1), "arXiv 2104.04473, section 2.2.2"),
    "zb-h1": Law((1, 0, 0), (1, 1, -1), "arXiv 2401.10241, section 2.3", apart=True, lag=1),
    "zb-h2": Law((2, 0, -1), (1, 1, -2), "arXiv 2401.10241, section 2.3", apart=True, lag=2),
}
"""Schedules by name. ``zb-h2`` idles nowhere if no position waits for others at the update."""

ALONE = Law((0, 0, 1), (0, 0, 0), "no pipeline")
"""One micro-batch after another."""


def law_of(plan: Plan) -> Law:
    """The law of a plan's schedule."""
    return LAWS.get(plan.schedule, ALONE)


def bubble(law: Law) -> Fraction:
    """Idle time over ``(p - 1) / m`` of the work of a micro-batch, all three passes equally long.

    >>> bubble(LAWS["zb-h1"])
    Fraction(1, 3)
    """
    return Fraction(sum(law.idle), 3)


# counts that hold for numbers and for symbols


def _behind(plan: Plan, position: Position, sizes: Sizes[N]) -> N:
    """Positions from this one to the last, itself included."""
    if position.index is None or not plan.pipeline:
        return sizes.dim(1)
    return sizes.difference(sizes.axis(plan.pipeline), sizes.dim(position.index))


def passes(plan: Plan, sizes: Sizes[N]) -> N:
    """Forward passes of a position in a step: micro-batches times chunks."""
    return sizes.product([sizes.dim(plan.micro), sizes.dim(plan.chunks)])


def in_flight(plan: Plan, position: Position, sizes: Sizes[N]) -> N:
    """How many forward passes wait for their backward pass at most, that one included.

    gpipe ``m``; 1f1b and zb-h1 ``min(p - k, m)``; zb-h2 ``min(2 (p - k) - 1, m)``; interleaved, in
    chunks, ``min(2 (p - k) - 1 + (v - 1) g, m v)`` with rounds of ``g`` micro-batches, ``p`` of
    them where the sizes are symbols.
    """
    law = law_of(plan)
    everything = passes(plan, sizes)
    if law.ahead is None:
        return everything
    per_behind, per_round, constant = law.ahead
    parts = []
    if per_behind:
        behind = _behind(plan, position, sizes)
        parts.append(behind if per_behind == 1 else sizes.product([sizes.dim(2), behind]))
    if per_round:
        parts.append(sizes.product([sizes.dim(plan.chunks - 1), _round(plan, sizes)]))
    ahead = sizes.total(parts) if parts else sizes.dim(constant)
    if parts and constant:
        ahead = sizes.difference(ahead, sizes.dim(-constant))
    return ahead if law is ALONE else sizes.least([ahead, everything])


def lag_of(plan: Plan, position: Position, sizes: Sizes[N]) -> N:
    """How many backward passes the pass for weights stays behind, if all of them are there."""
    law = law_of(plan)
    if not law.lag:
        return sizes.dim(0)
    before = sizes.difference(sizes.axis(plan.pipeline), _behind(plan, position, sizes))
    return before if law.lag == 1 else sizes.product([sizes.dim(law.lag), before])


def _round(plan: Plan, sizes: Sizes[N]) -> N:
    """Micro-batches that a chunk takes before the next chunk: ``p``, a little more if need be."""
    depth = sizes.axis(plan.pipeline)
    if not isinstance(sizes, IntSizes):
        return depth
    micro = sizes.dim(plan.micro)
    return sizes.dim(micro // max(1, micro // sizes.axis(plan.pipeline)))


# slots


def slots(plan: Plan, position: Position, sizes: IntSizes) -> list[Slot]:
    """All passes of a position in one training step, in order.

    Raises:
        IllFormed: the micro-batches of an interleaved schedule do not divide into equal rounds.
    """
    check_rounds(plan, sizes)
    law, chunks, micro = law_of(plan), plan.chunks, sizes.dim(plan.micro)
    width = micro if chunks == 1 else _round(plan, sizes)
    forward = list(_turns(chunks, micro, width))
    back = [(chunks - 1 - c, j) for c, j in forward]
    ahead = in_flight(plan, position, sizes)
    lag = lag_of(plan, position, sizes)
    order = [Slot(Pass.FORWARD, c, j) for c, j in forward[:ahead]]
    for i, (chunk, j) in enumerate(back):
        order.append(Slot(Pass.BACKWARD, chunk, j))
        if law.apart and i >= lag:
            order.append(Slot(Pass.WEIGHTS, *back[i - lag]))
        order += [Slot(Pass.FORWARD, c, j) for c, j in forward[ahead + i : ahead + i + 1]]
    if law.apart:
        order += [Slot(Pass.WEIGHTS, c, j) for c, j in back[max(0, len(back) - lag) :]]
    return order


def _turns(chunks: int, micro: int, width: int) -> Iterator[tuple[int, int]]:
    """(chunk, micro-batch): every chunk takes ``width`` micro-batches before the next one."""
    for first in range(0, micro, width):
        for chunk in range(chunks):
            for i in range(width):
                yield chunk, first + i


def check_rounds(plan: Plan, sizes: IntSizes) -> None:
    """Rounds of an interleaved schedule are equally long.

    Raises:
        IllFormed: they are not.
    """
    if plan.chunks == 1:
        return
    depth, micro = sizes.axis(plan.pipeline), sizes.dim(plan.micro)
    if micro % _round(plan, sizes):
        raise IllFormed(
            f"pipeline(microbatches={micro}, schedule={plan.schedule!r})",
            f"{micro} micro-batches on {depth} positions",
            "every chunk takes equally many micro-batches in each round, at least one a position",
            f"write microbatches={depth * max(1, round(micro / depth))}",
        )


def fault(orders: Sequence[Sequence[Slot]], chunks: int, micro: int, *, apart: bool) -> str:
    """Why the slots of all positions are no schedule; empty where they are one.

    Every pass is there once, and in an order in which no position waits for ever: a pass needs the
    same pass of the neighbour (forward from before, backward from behind), a backward pass its own
    forward pass, one for weights its own backward pass.
    """
    kinds = list(Pass) if apart else [Pass.FORWARD, Pass.BACKWARD]
    whole = Counter(Slot(k, c, j) for k in kinds for c in range(chunks) for j in range(micro))
    for k, order in enumerate(orders):
        if Counter(order) != whole:
            odd = next(iter((Counter(order) - whole) + (whole - Counter(order))))
            return f"position {k} has not each pass once: {odd}"
    done: set[tuple[int, Slot]] = set()
    at = [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for k, order in enumerate(orders):
            while at[k] < len(order) and _needs(k, order[at[k]], len(orders), chunks) <= done:
                done.add((k, order[at[k]]))
                at[k] += 1
                moved = True
    stuck = [
        f"position {k} waits at {o[i]}"
        for k, (o, i) in enumerate(zip(orders, at, strict=True))
        if i < len(o)
    ]
    return "; ".join(stuck)


def _needs(k: int, slot: Slot, depth: int, chunks: int) -> set[tuple[int, Slot]]:
    """The passes that a pass waits for."""
    stage = slot.chunk * depth + k
    own = {Pass.BACKWARD: Pass.FORWARD, Pass.WEIGHTS: Pass.BACKWARD}
    needed = {(k, Slot(own[slot.kind], slot.chunk, slot.micro))} if slot.kind in own else set()
    shift = {Pass.FORWARD: -1, Pass.BACKWARD: 1}.get(slot.kind, 0)
    other = stage + shift
    if shift and 0 <= other < depth * chunks:
        needed.add((other % depth, Slot(slot.kind, other // depth, slot.micro)))
    return needed


# what is held


@dataclass(frozen=True)
class Moment(Generic[N]):
    """What other passes hold while one runs.

    Attributes:
        running: which of the position's stages runs, by its place in ``Position.stages``.
        kind: the pass that runs.
        full: forward passes of the others that wait for their backward pass, by stage.
        waiting: backward passes of the others that wait for their pass for weights, by stage.
    """

    running: int
    kind: Pass
    full: tuple[N, ...]
    waiting: tuple[N, ...]


def moments(plan: Plan, position: Position, sizes: Sizes[N]) -> list[Moment[N]]:
    """Every state of a position that may be its fullest; the first has most in flight."""
    if plan.chunks == 1:
        return _one_chunk(plan, position, sizes)
    if isinstance(sizes, IntSizes):
        return counted(plan, position, sizes)
    if len(plan.stages) == 3:
        return _folded(plan, position, sizes)
    found = counted(plan, position, _rounds_of(plan))
    return [
        Moment(m.running, m.kind, *(tuple(map(sizes.dim, n)) for n in (m.full, m.waiting)))
        for m in found
    ]


def _rounds_of(plan: Plan) -> IntSizes:
    """The sizes of a plan written stage by stage; three rounds stand for any larger number."""
    depth = plan.mesh.size(plan.pipeline)
    assert isinstance(depth, int)
    micro = plan.micro if isinstance(plan.micro, int) else 3 * depth
    symbols = {} if isinstance(plan.micro, int) else {plan.micro: micro}
    return IntSizes({plan.pipeline: depth}, symbols)


def _one_chunk(plan: Plan, position: Position, sizes: Sizes[N]) -> list[Moment[N]]:
    """With ``a`` ahead and a lag ``l``: others wait at the last forward pass, and at pass ``l``.

    While forward passes remain, ``a - 1`` others are in flight and ever more wait for weights, up
    to ``min(m - a, l)``; after that those in flight become fewer, and up to ``l`` wait.
    """
    law, micro = law_of(plan), sizes.dim(plan.micro)
    one, none = sizes.dim(1), sizes.dim(0)
    ahead = in_flight(plan, position, sizes)
    others = sizes.difference(ahead, one)
    if not law.apart:
        kinds = (Pass.FORWARD, Pass.BACKWARD)
        return [Moment(0, kind, (others,), (none,)) for kind in kinds]
    most = sizes.difference(micro, one)
    lag = sizes.least([lag_of(plan, position, sizes), most]) if law.lag else none
    late = sizes.least([sizes.difference(micro, ahead), lag])
    full = sizes.least([others, sizes.difference(most, lag)])
    return [
        Moment(0, Pass.FORWARD, (others,), (late,)),
        Moment(0, Pass.BACKWARD, (others,), (late,)),
        Moment(0, Pass.BACKWARD, (full,), (lag,)),
        Moment(0, Pass.WEIGHTS, (full,), (lag,)),
    ]


def _folded(plan: Plan, position: Position, sizes: Sizes[N]) -> list[Moment[N]]:
    """Interleaved chunks of equal layers but the first of all (``p`` divides ``m``).

    On the first position at most ``min(2 p, m)`` passes of the first chunk are in flight, on the
    last position one of the last chunk: it is followed by its backward pass at once.
    """
    minus, total, times = sizes.difference, sizes.total, sizes.product
    one, none = sizes.dim(1), sizes.dim(0)
    micro, depth = sizes.dim(plan.micro), sizes.axis(plan.pipeline)
    others = minus(in_flight(plan, position, sizes), one)
    more = sizes.dim(plan.chunks - 1)
    behind = times([more, depth])
    later = minus(micro, depth)
    cases: list[tuple[int, tuple[N, ...]]]
    if len(position.stages) == 1:
        cases = [(0, (others,))]
    elif position.index is None:
        rest = sizes.least([behind, total([minus(behind, one), later])])
        cases = [(1, (behind, none)), (0, (rest, none))]
    else:
        first = sizes.least([times([sizes.dim(2), depth]), micro])
        rest = sizes.least([minus(behind, one), times([more, later])])
        cases = [(1, (first, minus(others, first))), (0, (minus(first, one), rest))]
    return [
        Moment(running, kind, full, (none,) * len(full))
        for running, full in cases
        for kind in (Pass.FORWARD, Pass.BACKWARD)
    ]


def counted(plan: Plan, position: Position, sizes: IntSizes) -> list[Moment[int]]:
    """The same by counting through the slots; the first moment has most in flight."""
    stage_of = [i for i, (_, n) in enumerate(position.stages) for _ in range(sizes.dim(n))]
    law = law_of(plan)
    full, waiting = Counter[int](), Counter[int]()
    found: dict[Moment[int], None] = {}
    places = range(len(position.stages))
    for slot in slots(plan, position, sizes):
        here = stage_of[slot.chunk]
        if slot.kind is Pass.BACKWARD:
            full[here] -= 1
        elif slot.kind is Pass.WEIGHTS:
            waiting[here] -= 1
        counts = (tuple(c[i] for i in places) for c in (full, waiting))
        found[Moment(here, slot.kind, *counts)] = None
        if slot.kind is Pass.FORWARD:
            full[here] += 1
        elif slot.kind is Pass.BACKWARD and law.apart:
            waiting[here] += 1
    return sorted(found, key=lambda m: (-sum(m.full), -sum(m.waiting)))
