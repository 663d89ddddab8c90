"""The end of a step: the global norm, the update, and publication of the new parameters."""

from __future__ import annotations

from collections.abc import Sequence

from placement_proofs.derive.placed import Placed, by_shard, by_unit, unshared
from placement_proofs.layout import Collective, Layout, on_axis, shard_axes, without
from placement_proofs.placement import State
from placement_proofs.plan import (
    Action,
    Buffer,
    Item,
    Local,
    Phase,
    Step,
    Transfer,
    What,
    Where,
)

SCALAR: tuple[int, ...] = ()


def clip(
    placed: Sequence[Placed],
    sharings: Sequence[tuple[str, ...]],
    pipeline: tuple[str, ...],
    *,
    tied_here: bool,
    vector: bool = False,
) -> list[Step]:
    """One norm of all gradients: squares are summed over the axes that shard a group and stages.

    ``sharings`` are the axis sets of all stages; a tensor tied on two stages counts on one of them
    (``tied_here``). With ``vector``, one number per tensor travels, over one axis after the other.
    """
    steps: list[Step] = []
    where = Where(Phase.CLIP)
    for axes in sharings:
        counted = [p for p in placed if shard_set(p) == axes and (tied_here or not p.tied)]
        items = tuple(p.gradient(p.tensor.optimizer, p.tensor.optimizer) for p in counted)
        name = f"squares:{'*'.join(axes)}"
        steps.append(Local(Action.SQUARE, items, where, name))
        if axes + pipeline and not vector:
            scalar = Item(name, What.STATISTIC, SCALAR, (), (), name)
            reduction = Transfer(
                Collective.ALL_REDUCE, axes + pipeline, (scalar,), where, "global norm"
            )
            steps.append(reduction)
    if vector:
        steps += _vectors(len(placed), sharings, pipeline)
    items = tuple(p.gradient(p.tensor.optimizer, p.tensor.optimizer) for p in placed)
    return [*steps, Local(Action.CLIP, items, where, "global norm")]


def _vectors(
    tensors: int, sharings: Sequence[tuple[str, ...]], pipeline: tuple[str, ...]
) -> list[Step]:
    """For each axis one all-reduce of a number per tensor: the sums that it shards, and the rest.

    The numbers of tensors that an axis does not shard travel too; they are in the first item. Over
    pipeline stages, whose tensors differ, the sums alone travel.
    """
    steps: list[Step] = []
    for axis in dict.fromkeys((*(a for axes in sharings for a in axes), *pipeline)):
        over = [axes for axes in sharings if axis in axes or axis in pipeline]
        rest: tuple[int, ...] = SCALAR if axis in pipeline else (tensors - len(over) + 1,)
        items = []
        for i, axes in enumerate(over):
            name = f"squares:{'*'.join(axes)}"
            items.append(Item(name, What.STATISTIC, SCALAR if i else rest, (), (), name))
        where = Where(Phase.CLIP)
        steps.append(Transfer(Collective.ALL_REDUCE, (axis,), tuple(items), where, "global norm"))
    return steps


def shard_set(placed: Placed) -> tuple[str, ...]:
    """The axes on which the optimizer's part of a gradient is sharded."""
    return tuple(sorted(shard_axes(placed.tensor.optimizer)))


def update(placed: Sequence[Placed], *, together: bool = False) -> list[Step]:
    """Update each unit where its optimizer state is, then bring the result to every reader.

    With ``together`` the tensors of all units are updated first, and published in one message for
    each owner or axis.
    """
    units = [list(placed)] if together and placed else by_unit(placed)
    steps = [step for members in units for step in _update_unit(members, together)]
    return [*steps, Local(Action.TICK, (), Where(Phase.UPDATE))]


def _update_unit(members: Sequence[Placed], together: bool) -> list[Step]:
    where = members[0].where(Phase.UPDATE)
    hosted = [p for p in members if State.OPTIMIZER.value in p.tensor.offloaded]
    down = tuple(p.gradient(p.tensor.optimizer, p.tensor.optimizer) for p in hosted)
    up = tuple(_master(p) for p in hosted if not p.fetched)
    steps: list[Step] = []
    if down:
        steps.append(Transfer(Collective.HOST, (), down, where, "gradients to the optimizer", -1))
    items = tuple(_master(p) for p in members)
    steps.append(Local(Action.UPDATE, items, where, "optimizer"))
    if up:
        steps.append(Transfer(Collective.HOST, (), up, where, "parameters back", 1))
    stored = tuple(_master(p) for p in members if p.fetched and p not in hosted)
    if stored:
        steps.append(Transfer(Collective.HOST, (), stored, where, "store parameters", -1))
    return steps + _publish(members, together)


def _master(placed: Placed) -> Item:
    layout = placed.tensor.optimizer
    return placed.parameter(layout, layout, Buffer.MASTER)


def _published(placed: Placed) -> Layout:
    return unshared(placed.tensor.optimizer, placed.tensor.stored)


def _publish(members: Sequence[Placed], together: bool) -> list[Step]:
    """All-gather what the optimizer shards and the stored parameter does not."""
    layouts = {p.tensor.name: p.tensor.optimizer for p in members}
    steps: list[Step] = []
    for axes, group in by_shard(members, _published):
        items = []
        for p in group:
            before = layouts[p.tensor.name]
            after = layouts[p.tensor.name] = without(before, axes)
            items.append(p.parameter(before, after, Buffer.STORED))
        where = group[0].where(Phase.UPDATE)
        owned = [i for i in items if on_axis(i.before, axes[0]).owner is not None]
        for sent in _messages(owned, axes, together):
            steps.append(Transfer(Collective.BROADCAST, axes, sent, where, "publish"))
        parts = tuple(i for i in items if i not in owned)
        if parts:
            flat = all(p.tensor.flat for p in group)
            steps.append(Transfer(Collective.ALL_GATHER, axes, parts, where, "publish", flat=flat))
    return steps


def _messages(
    owned: Sequence[Item], axes: tuple[str, ...], together: bool
) -> list[tuple[Item, ...]]:
    """Whole tensors one by one, or all those of an owner."""
    if not together:
        return [(item,) for item in owned]
    by_owner: dict[int | None, list[Item]] = {}
    for item in owned:
        by_owner.setdefault(on_axis(item.before, axes[0]).owner, []).append(item)
    return [tuple(items) for items in by_owner.values()]
