"""Reductions of gradients: in the loop, after it, across tied stages; then the mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placement_proofs.derive.placed import Move, Placed, by_unit, spans
from placement_proofs.derive.types import MICRO
from placement_proofs.layout import Collective
from placement_proofs.mesh import Dim
from placement_proofs.model import Half
from placement_proofs.plan import (
    Action,
    Buffer,
    Item,
    Local,
    Phase,
    Run,
    Step,
    Transfer,
    What,
    Where,
)
from placement_proofs.profile import Profile


def reduce_in_loop(together: Sequence[list[Placed]], bodies: Sequence[list[Step]]) -> None:
    """After a unit's last backward use: reduce what is stored reduced, add to the step's total.

    ``bodies`` are the backward passes, of inputs and of weights: a gradient is reduced in that in
    which it is made, before another micro-batch makes it again.
    """
    for members in together:
        left = {p.tensor.name: p for p in members}
        for body in reversed(bodies):
            found = spans(body, set(left), backward=True)
            made = _made(body)
            here = [p for name, p in left.items() if name in made]
            left = {name: p for name, p in left.items() if name not in made}
            if body is bodies[0]:
                here += left.values()
            at = found[-1][1] + 1 if found else len(body)
            body[at:at] = _settled(here) if here else []


def _made(body: Sequence[Step]) -> set[str]:
    """The parameters whose gradients a body makes."""
    return {
        name
        for step in body
        if isinstance(step, Run) and step.backward and step.half is not Half.INPUTS
        for name in step.params
    }


def _settled(members: Sequence[Placed]) -> list[Step]:
    reduced = _reductions(members, Buffer.MICRO, Phase.BACKWARD, in_loop=True)
    return [*reduced, _accumulate(members)]


def reduce_after_loop(together: Sequence[list[Placed]], profile: Profile) -> list[Step]:
    """The reductions that wait for the sum over micro-batches."""
    phase = Phase.BACKWARD if profile.hooked_reductions else Phase.REDUCE
    return [
        step
        for members in together
        for step in _reductions(members, Buffer.TOTAL, phase, in_loop=False)
    ]


def buckets(
    placed: Sequence[Placed], profile: Profile, elements: Mapping[str, int]
) -> list[list[Placed]]:
    """What is reduced in one message: a unit, tensors of so many elements, or everything.

    Tensors fill buckets from the last one on, as their gradients become known. Only tensors that
    there are equally many of are together.
    """
    if not profile.one_bucket and not profile.bucket_caps:
        return by_unit(placed)
    groups: dict[Dim, list[Placed]] = {}
    for p in placed:
        groups.setdefault(p.tensor.times, []).append(p)
    if profile.one_bucket:
        return list(groups.values())
    single = groups.pop(1, [])
    folded = [unit for group in groups.values() for unit in by_unit(group)]
    return [*_filled(single[::-1], profile.bucket_caps, elements), *folded]


def _filled(
    placed: Sequence[Placed], caps: Sequence[int], elements: Mapping[str, int]
) -> list[list[Placed]]:
    """Tensors in buckets, each closed by the tensor with which it reaches its size."""
    filled: list[list[Placed]] = [[]]
    size = 0
    for p in placed:
        if filled[-1] and size >= caps[min(len(filled), len(caps)) - 1]:
            filled.append([])
            size = 0
        filled[-1].append(p)
        size += elements[p.tensor.name]
    return [bucket for bucket in filled if bucket]


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
