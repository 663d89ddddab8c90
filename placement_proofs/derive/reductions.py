"""Reductions of gradients: in the loop, after it, across tied stages; then the mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement_proofs.derive.placed import Move, Placed, by_unit, spans
from placement_proofs.derive.types import MICRO
from placement_proofs.layout import Collective
from placement_proofs.plan import Action, Buffer, Item, Local, Phase, Step, Transfer, What, Where


def reduce_in_loop(placed: Sequence[Placed], backward: list[Step]) -> None:
    """After a unit's last backward use: reduce what is stored reduced, add to the step's total."""
    for members in by_unit(placed):
        found = spans(backward, {p.tensor.name for p in members}, backward=True)
        at = found[-1][1] + 1 if found else len(backward)
        backward[at:at] = [
            *_reductions(members, Buffer.MICRO, Phase.BACKWARD, in_loop=True),
            _accumulate(members),
        ]


def reduce_after_loop(placed: Sequence[Placed]) -> list[Step]:
    """The reductions that wait for the sum over micro-batches."""
    return [
        step
        for members in by_unit(placed)
        for step in _reductions(members, Buffer.TOTAL, Phase.REDUCE, in_loop=False)
    ]


def _accumulate(members: Sequence[Placed]) -> Step:
    items = tuple(p.gradient(p.summed, p.summed, Buffer.MICRO) for p in members)
    where = members[0].where(Phase.BACKWARD)
    return Local(Action.ACCUMULATE, items, where, "sum over micro-batches")


def _reductions(
    members: Sequence[Placed], buffer: Buffer, phase: Phase, *, in_loop: bool
) -> list[Step]:
    """One step for the tensors of a unit that make the same move, round by round."""
    rounds = [[(p, m) for m in p.moves if m.in_loop is in_loop] for p in members]
    steps: list[Step] = []
    for same in _rounds(rounds):
        items = tuple(p.gradient(m.before, m.after, buffer) for p, m in same)
        placed, move = same[0]
        where = placed.where(phase)
        if move.kind is None:
            steps.append(Local(Action.SLICE, items, where, "the optimizer's part"))
        else:
            steps.append(Transfer(move.kind, move.axes, items, where, "sum of the ranks' parts"))
    return steps


def _rounds(left: list[list[tuple[Placed, Move]]]) -> Iterator[list[tuple[Placed, Move]]]:
    """The next move of those tensors that are furthest behind, grouped by kind and axes.

    Scatters come first, so that a tensor without them joins the others' all-reduces.
    """

    def key(move: Move) -> tuple[int, tuple[str, ...]]:
        return _ORDER[move.kind], move.axes

    while any(left):
        first = min(key(pairs[0][1]) for pairs in left if pairs)
        yield [pairs.pop(0) for pairs in left if pairs and key(pairs[0][1]) == first]


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
