"""A parameter with its placement: stored layouts, what is gathered, how its gradient is reduced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from placement_proofs.errors import IllFormed
from placement_proofs.layout import (
    PARTIAL,
    Collective,
    Entry,
    Kind,
    Layout,
    On,
    sharded,
    without,
)
from placement_proofs.mesh import Dim
from placement_proofs.model import Tensor
from placement_proofs.placement import Mode, Place, Placement, State
from placement_proofs.plan import Buffer, Item, Phase, PlanTensor, Run, Step, What, Where
from placement_proofs.profile import Profile


@dataclass(frozen=True)
class Move:
    """One reduction of a gradient, or a slice; ``in_loop`` ones run in every micro-batch.

    ``late`` ones are not kept: each reader of the gradient makes them again.
    """

    kind: Collective | None
    axes: tuple[str, ...]
    before: Layout
    after: Layout
    in_loop: bool
    late: bool = False


@dataclass(frozen=True)
class Placed:
    """A tensor, the layout in which it is used, and the reductions of its gradient in order."""

    tensor: PlanTensor
    block: str
    own: Layout
    keep: bool
    partial: Layout
    moves: tuple[Move, ...]
    tied: bool = False

    @property
    def gather(self) -> Layout:
        """The shards that are gathered before use."""
        return unshared(self.tensor.stored, self.own)

    @property
    def fetched(self) -> bool:
        """Whether the parameter is stored off the device."""
        return State.PARAMETERS.value in self.tensor.offloaded

    @property
    def summed(self) -> Layout:
        """The layout of the gradient as micro-batches are added up."""
        early = [move.after for move in self.moves if move.in_loop]
        return early[-1] if early else self.partial

    @property
    def reduced(self) -> Layout:
        """The layout of the gradient after all its reductions."""
        return self.moves[-1].after if self.moves else self.partial

    def where(self, phase: Phase) -> Where:
        return Where(phase, self.block, self.tensor.unit, self.tensor.times)

    def parameter(self, before: Layout, after: Layout, buffer: Buffer) -> Item:
        """This parameter as an item of a step."""
        t = self.tensor
        return Item(t.name, What.PARAMETER, t.shape, before, after, t.name, buffer)

    def gradient(self, before: Layout, after: Layout, buffer: Buffer = Buffer.TOTAL) -> Item:
        """This parameter's gradient as an item of a step."""
        t = self.tensor
        return Item(t.name, What.GRADIENT, t.shape, before, after, t.name, buffer)


@dataclass(frozen=True)
class Context:
    """Where a tensor stands in a stage: how it is used, its block, multiplicity, tie, owner.

    A ``persistent`` parameter is stored whole where others are gathered before their use.
    """

    use: Layout
    block: str
    times: Dim
    tied: bool
    owner: int | None = None
    persistent: bool = False


def place_tensor(
    tensor: Tensor, placement: Placement, context: Context, profile: Profile
) -> Placed:
    """The stored layouts of a tensor's states, from its group's cells of the table.

    Raises:
        IllFormed: the parameter is sharded where its optimizer state is not.
    """
    parameters = placement.of(tensor.group, State.PARAMETERS)
    if context.persistent:
        parameters = tuple(p for p in parameters if p.mode is not Mode.SHARDED_WITH_GATHER)
    own = tuple(entry(p) for p in parameters if p.mode is Mode.SHARDED)
    stored, gradient, optimizer = _ordered(
        (
            parameters,
            placement.of(tensor.group, State.GRADIENTS),
            placement.of(tensor.group, State.OPTIMIZER),
        ),
        own,
    )
    if tensor.trainable:
        _check_update(tensor, stored, optimizer)
    if context.owner is not None:
        optimizer = _owned(optimizer, stored, context.owner)
    alone = not unshared(optimizer, own)
    if tensor.group in profile.whole_gradients and alone:
        gradient = unshared(gradient, own)
    offloaded = tuple(p.state.value for p in placement.places if p.mode is Mode.OFFLOADED)
    plan_tensor = PlanTensor(
        tensor.name,
        tensor.shape,
        tensor.group,
        tensor.unit,
        stored,
        gradient,
        optimizer,
        context.use,
        tensor.trainable,
        context.times,
        offloaded,
        profile.padded_copies,
        profile.flat_units and bool(optimizer) and not own,
        profile.bucket_copies and tensor.trainable,
        profile.adds_in_place,
    )
    model_axes = {f.axis for f in placement.flows if f.input != sharded(0)}
    partial, moves = _reductions(plan_tensor, own, profile, model_axes)
    keep = any(p.keep_after_forward for p in parameters)
    return Placed(plan_tensor, context.block, own, keep, partial, moves, context.tied)


def _owned(optimizer: Layout, stored: Layout, owner: int) -> Layout:
    """The optimizer's own shards as whole tensors at one position."""
    whole = On(Kind.SHARDED, 0, owner)
    return tuple(e if e in stored else Entry(e.axes, whole) for e in optimizer)


def entry(place: Place) -> Entry:
    """The shard that a cell of the placement table describes."""
    return Entry(place.axes, sharded(place.dim))


def _ordered(states: Sequence[tuple[Place, ...]], own: Layout) -> list[Layout]:
    """Shards of each state in one nesting order, outermost first.

    Shards in which the tensor is used come first, then those of the stored parameter (what
    publication opens lies inside of them), then those of the stored gradient (reduced in the loop,
    before others).
    """
    layouts = [
        [entry(p) for p in places if p.mode in (Mode.SHARDED, Mode.SHARDED_WITH_GATHER)]
        for places in states
    ]
    parameter, gradient, _ = layouts
    own_index = {e: i for i, e in enumerate(own)}

    def place(e: Entry) -> tuple[bool, int, bool, bool, tuple[str, ...]]:
        return (e not in own, own_index.get(e, 0), e not in parameter, e not in gradient, e.axes)

    return [tuple(sorted(layout, key=place)) for layout in layouts]


def _check_update(tensor: Tensor, stored: Layout, optimizer: Layout) -> None:
    missing = unshared(stored, optimizer)
    if missing:
        raise IllFormed(
            f"group {tensor.group}",
            f"parameters sharded on {missing[0]}, optimizer state not",
            "an update needs the parameter where its optimizer state is",
            f"shard the optimizer state of {tensor.group} on {'*'.join(missing[0].axes)} too",
        )


def _reductions(
    tensor: PlanTensor, own: Layout, profile: Profile, model_axes: set[str]
) -> tuple[Layout, tuple[Move, ...]]:
    """A fresh gradient's layout, and the cheapest way to where it is consumed.

    A shard of the optimizer state takes a reduce-scatter, any other pending axis an all-reduce; a
    shard of a gradient that is whole is a slice. What the stored mode of the gradient asks for, and
    what lies outside of it, runs in the loop.
    """
    pending = {a for e in tensor.use if e.on.kind is Kind.REPLICATED for a in e.axes}
    partial = (*own, *(Entry((a,), PARTIAL) for a in sorted(pending)))
    if not tensor.trainable:
        return partial, ()
    shards = unshared(tensor.optimizer, own)
    looped = [i for i, shard in enumerate(shards) if shard in tensor.gradient]
    inside = len(shards) if profile.sync_each_micro else max(looped, default=-1) + 1
    inside = 0 if profile.defer_reductions else inside
    moves: list[Move] = []
    whole: list[tuple[Entry, bool]] = []
    if profile.resolve_first and shards:
        for axis in sorted(pending & model_axes):
            _add(moves, partial, Collective.ALL_REDUCE, (axis,), (), inside > 0)
        pending -= model_axes
    for i, shard in enumerate(shards):
        if profile.scatter_gradients and set(shard.axes) <= pending and not whole:
            _add(moves, partial, Collective.REDUCE_SCATTER, shard.axes, (shard,), i < inside)
            pending -= set(shard.axes)
        else:
            whole.append((shard, i < inside))
    for axis in sorted(pending):
        early = profile.sync_each_micro or any(axis in s.axes and e for s, e in whole)
        late = profile.optimizer_reads > 0 and axis in model_axes and not shards
        _add(moves, partial, Collective.ALL_REDUCE, (axis,), (), early and not late, late)
    for shard, _ in whole:
        _add(moves, partial, None, shard.axes, (shard,), False)
    return partial, tuple(sorted(moves, key=lambda move: not move.in_loop))


def _add(
    moves: list[Move],
    start: Layout,
    kind: Collective | None,
    axes: tuple[str, ...],
    shards: Layout,
    in_loop: bool,
    late: bool = False,
) -> None:
    """Append a move that starts where the last one ended; shards stay in front of partial axes."""
    before = moves[-1].after if moves else start
    rest = without(before, axes)
    inner = [e for e in rest if e.on.kind is Kind.SHARDED]
    after = (*inner, *shards, *(e for e in rest if e not in inner))
    moves.append(Move(kind, axes, before, after, in_loop, late))


def unshared(layout: Layout, other: Layout) -> Layout:
    """The entries of ``layout`` that ``other`` does not have."""
    return tuple(e for e in layout if e not in other)


def by_unit(placed: Iterable[Placed]) -> list[list[Placed]]:
    """Tensors by gather unit, in order of first appearance."""
    units: dict[str, list[Placed]] = {}
    for p in placed:
        units.setdefault(p.tensor.unit, []).append(p)
    return list(units.values())


def by_shard(
    members: Iterable[Placed], of: Callable[[Placed], Layout]
) -> list[tuple[tuple[str, ...], list[Placed]]]:
    """Tensors by the axes of each of their shards: the innermost shard of all in a first round."""
    rounds = [(p, list(of(p))) for p in members]
    groups: list[tuple[tuple[str, ...], list[Placed]]] = []
    while any(left for _, left in rounds):
        now: dict[tuple[str, ...], list[Placed]] = {}
        for p, left in rounds:
            if left:
                now.setdefault(left.pop().axes, []).append(p)
        groups += now.items()
    return groups


def spans(
    steps: Sequence[Step], names: set[str], *, backward: bool = False
) -> list[tuple[int, int]]:
    """First and last use of some tensors, one span for each block."""
    found: dict[str, tuple[int, int]] = {}
    for i, step in enumerate(steps):
        if isinstance(step, Run) and set(step.params) & names and (step.backward or not backward):
            first, _ = found.get(step.where.block, (i, i))
            found[step.where.block] = (first, i)
    return list(found.values())
