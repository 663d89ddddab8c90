"""Reductions of gradients: in the loop, after it, across tied stages; then the mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from placement_proofs.derive.placed import Move, Placed, by_unit, spans
from placement_proofs.derive.types import MICRO
from placement_proofs.layout import Collective
from placement_proofs.mesh import Dim
from placement_proofs.plan import Action, Buffer, Item, Local, Phase, Step, Transfer, What, Where
from placement_proofs.profile import Profile


def reduce_in_loop(placed: Sequence[Placed], backward: list[Step], profile: Profile) -> None:
    """After a unit's last backward use: reduce what is stored reduced, add to the step's total."""
    for members in _buckets(placed, profile):
        found = spans(backward, {p.tensor.name for p in members}, backward=True)
        at = found[-1][1] + 1 if found else len(backward)
        backward[at:at] = [
            *_reductions(members, Buffer.MICRO, Phase.BACKWARD, in_loop=True),
            _accumulate(members),
        ]


def reduce_after_loop(placed: Sequence[Placed], profile: Profile) -> list[Step]:
    """The reductions that wait for the sum over micro-batches."""
    phase = Phase.BACKWARD if profile.hooked_reductions else Phase.REDUCE
    return [
        step
        for members in _buckets(placed, profile)
        for step in _reductions(members, Buffer.TOTAL, phase, in_loop=False)
    ]


def _buckets(placed: Sequence[Placed], profile: Profile) -> list[list[Placed]]:
    """What is reduced in one message: a unit, or everything that there are equally many of."""
    if not profile.one_bucket:
        return by_unit(placed)
    groups: dict[Dim, list[Placed]] = {}
    for p in placed:
        groups.setdefault(p.tensor.times, []).append(p)
    return list(groups.values())


def reduce_for_readers(
    placed: Sequence[Placed], phase: Phase, reads: int, *, again: bool = False
) -> list[Step]:
    """The all-reduces that ``reads`` readers of sums that are not kept make, tensor by tensor.

    ``again``: a reader before them has reduced the gradient already; their results are scratch.
    """
    steps: list[Step] = []
    for p in placed:
        for m in (m for m in p.moves if m.late):
            item = p.gradient(m.before, m.after, Buffer.TOTAL)
            if again:
                item = replace(item, out=f"{item.name}:read", what=What.STATISTIC, buffer=None)
            where, why = p.where(phase), "a sum that is not kept"
            step = Transfer(Collective.ALL_REDUCE, m.axes, (item,), where, why, repeats=reads)
            steps.append(step)
    return steps


def _accumulate(members: Sequence[Placed]) -> Step:
    items = tuple(p.gradient(p.summed, p.summed, Buffer.MICRO) for p in members)
    where = members[0].where(Phase.BACKWARD)
    return Local(Action.ACCUMULATE, items, where, "sum over micro-batches")


def _reductions(
    members: Sequence[Placed], buffer: Buffer, phase: Phase, *, in_loop: bool
) -> list[Step]:
    """One step for the tensors of a unit that make the same move, round by round."""
    rounds = [[(p, m) for m in p.moves if m.in_loop is in_loop and not m.late] for p in members]
    steps: list[Step] = []
    for same in _rounds(rounds):
        items = tuple(p.gradient(m.before, m.after, buffer) for p, m in same)
        placed, move = same[0]
        where = placed.where(phase)
        if move.kind is None:
            steps.append(Local(Action.SLICE, items, where, "the optimizer's part"))
        else:
            flat = all(p.tensor.flat for p, _ in same)
            why = "sum of the ranks' parts"
            steps.append(Transfer(move.kind, move.axes, items, where, why, flat=flat))
    return steps


def _rounds(left: list[list[tuple[Placed, Move]]]) -> Iterator[list[tuple[Placed, Move]]]:
    """The next move of those tensors that are furthest behind, grouped by kind and axes.

    Scatters come first, so that a tensor without them joins the others' all-reduces; before them
    only what a later scatter of the same tensor waits for, tensor by tensor.
    """

    def key(pairs: list[tuple[Placed, Move]]) -> tuple[int, tuple[str, ...]]:
        move = pairs[0][1]
        scatters = any(m.kind is Collective.REDUCE_SCATTER for _, m in pairs[1:])
        first = scatters and move.kind is Collective.ALL_REDUCE
        return (-1 if first else _ORDER[move.kind]), move.axes

    while any(left):
        first = min(key(pairs) for pairs in left if pairs)
        same = [pairs for pairs in left if pairs and key(pairs) == first]
        if first[0] < 0:
            yield from ([pairs.pop(0)] for pairs in same)
        else:
            yield [pairs.pop(0) for pairs in same]


_ORDER = {Collective.REDUCE_SCATTER: 0, Collective.ALL_REDUCE: 1, None: 2}


def reduce_ties(placed: Sequence[Placed], axis: str) -> list[Step]:
    """Copies of one tensor on the first and the last stage add up their gradients."""
    tied = [p for p in placed if p.tied]
    items = tuple(p.gradient(p.reduced, p.reduced) for p in tied)
    if not tied:
        return []
    where = tied[0].where(Phase.REDUCE)
    return [Transfer(Collective.ALL_REDUCE, (axis,), items, where, "tied on two stages")]


TOKENS = "tokens"
LOSSES = ("mean", TOKENS, "sum")


def report(axes: tuple[str, ...]) -> list[Step]:
    """The mean loss, for the reader of a log."""
    over = tuple(a for a in axes if a != MICRO)
    loss = Item(TOTAL_LOSS, What.STATISTIC, (), (), (), TOTAL_LOSS)
    where = Where(Phase.REDUCE)
    step = Transfer(Collective.ALL_REDUCE, over, (loss,), where, "the loss that is reported")
    return [step] if over else []


TOTAL_LOSS = "total loss"
"""The name of the loss that is reported."""


def normalise(placed: Sequence[Placed], axes: tuple[str, ...], loss: str) -> list[Step]:
    """Divide by what the loss is a mean over: the ranks and micro-batches, or all their tokens.

    ``axes`` share the batch. A mean over tokens adds the counts of all ranks first; each rank's
    loss is then a sum over its own tokens.
    """
    if not placed or loss == "sum":
        return []
    items = tuple(p.gradient(p.reduced, p.reduced) for p in placed)
    where = Where(Phase.REDUCE)
    if loss == TOKENS:
        count = Item(TOKENS, What.STATISTIC, (), (), (), TOKENS)
        mesh_axes = tuple(a for a in axes if a != MICRO)
        counted = [
            Transfer(Collective.ALL_REDUCE, mesh_axes, (count,), where, "tokens of all ranks")
        ]
        scale = Local(Action.SCALE, items, where, "mean over tokens", f"1/{TOKENS}")
        return [*(counted if mesh_axes else []), scale]
    if not axes:
        return []
    return [Local(Action.SCALE, items, where, "mean over the batch", f"1/({'*'.join(axes)})")]
