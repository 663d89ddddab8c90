"""Second pass: the forward pass, its adjoint, recomputation, and lifetimes of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from placement_proofs.derive.lifetimes import Held, reads, writes
from placement_proofs.derive.stages import Body
from placement_proofs.derive.types import Apply, Convert, Node, Typed
from placement_proofs.layout import (
    PARTIAL,
    REPLICATED,
    Collective,
    Entry,
    Layout,
    Local,
    On,
    conversion,
    dual_layout,
)
from placement_proofs.mesh import Dim
from placement_proofs.model import (
    BACKWARD_READS,
    FLOAT32,
    MASK,
    WEIGHTS_READ,
    Block,
    Half,
    Model,
)
from placement_proofs.placement import Mode, Placement, State
from placement_proofs.plan import (
    LOSS_STATISTICS,
    Action,
    Item,
    Phase,
    PlanValue,
    Run,
    Step,
    Transfer,
    What,
    Where,
)
from placement_proofs.plan import Local as LocalStep
from placement_proofs.profile import Profile
from placement_proofs.schedule import LAWS


class _Program:
    """Writes the forward and backward steps of every stage."""

    def __init__(
        self,
        model: Model,
        placement: Placement,
        profile: Profile,
        typed: Typed,
        values: Mapping[str, PlanValue],
        bodies: Sequence[Body],
    ) -> None:
        self.model = model
        self.placement = placement
        self.profile = profile
        self.values = values
        self.typed = typed
        self.bodies = bodies
        self.times: Mapping[str, Dim] = {}
        self.kept: set[str] = set()
        schedule = placement.schedule
        self.apart = len(bodies) > 1 and schedule is not None and LAWS[schedule.kind].apart
        self.trainable = {t.name for t in model.tensors if t.trainable}

    def run(self) -> None:
        for k, body in enumerate(self.bodies):
            names = {b.name for b in body.blocks}
            body.nodes = [n for n in self.typed.nodes if _block(n) in names]
            self.times = {b.name: b.times for b in body.blocks}
            self.kept = body.kept
            self.stage(k, body)

    def stage(self, k: int, body: Body) -> None:
        produced = {_out(n) for n in body.nodes}
        received = self.received(k, body, produced)
        forward: list[Step] = []
        backward: list[Step] = []
        weights: list[Step] = []
        for block in body.blocks:
            nodes = [n for n in body.nodes if _block(n) == block.name]
            again = self.block_backward(nodes)
            late = self.late(nodes)
            away = self.away(block, [*again, *late])
            forward += [step for n in nodes for step in self.forward(n, Phase.FORWARD)]
            forward += away[:1]
            backward = [*away[1:], *again, *backward]
            weights = [*late, *weights]
        if received:
            forward.insert(0, self.message(received, 1, arriving=True))
            if self.values[self.sent(self.bodies[k - 1])].needs_gradient:
                backward.append(self.message(received, -1, arriving=False))
        if k < len(self.bodies) - 1:
            sent = self.sent(body)
            forward.append(self.message(sent, 1, arriving=False))
            if self.values[sent].needs_gradient:
                backward.insert(0, self.message(sent, -1, arriving=True))
        body.forward, body.backward, body.weights = forward, backward, weights

    def away(self, block: Block, backward: Sequence[Step]) -> list[Step]:
        """What the backward pass of a block needs goes to the host and comes back (mode O)."""
        offloaded = {p.state for p in self.placement.places if p.mode is Mode.OFFLOADED}
        if State.ACTIVATIONS not in offloaded:
            return []
        made: set[Held] = set()
        needed: dict[str, None] = {}
        for step in backward:
            fresh = [h for h in reads(step) if h[1] is What.ACTIVATION and h not in made]
            needed |= dict.fromkeys(n for n, _ in fresh if not self.values[n].integer)
            made |= set(writes(step))
        items = tuple(self.item(name, What.ACTIVATION) for name in needed)
        return [
            Transfer(Collective.HOST, (), items, Where(phase, block.name, "", block.times), why, to)
            for phase, why, to in (
                (Phase.FORWARD, "offload activations", -1),
                (Phase.BACKWARD, "fetch activations", 1),
            )
            if items
        ]

    def received(self, k: int, body: Body, produced: set[str]) -> str:
        if k == 0:
            return ""
        reads = {name for n in body.nodes for name in _reads(n)}
        (value,) = (n for n in sorted(reads - produced) if not self.values[n].integer)
        return value

    def sent(self, body: Body) -> str:
        """The residual value that leaves a stage: what its last node gives."""
        return _out(body.nodes[-1])

    def message(self, name: str, shift: int, *, arriving: bool) -> Step:
        schedule = self.placement.schedule
        assert schedule is not None
        what = What.ACTIVATION if shift == 1 else What.COTANGENT
        item = self.item(name, what)
        phase = Phase.FORWARD if shift == 1 else Phase.BACKWARD
        where = Where(phase, "boundary")
        if arriving:
            return LocalStep(Action.RECEIVE, (item,), where, "stage boundary")
        return Transfer(
            Collective.POINT_TO_POINT, (schedule.axis,), (item,), where, "stage boundary", shift
        )

    # forward

    def where(self, node: Node, phase: Phase) -> Where:
        block = _block(node)
        return Where(phase, block, times=self.times[block])

    def forward(self, node: Node, phase: Phase) -> list[Step]:
        where = self.where(node, phase)
        if isinstance(node, Convert):
            return [self.convert(node, where, What.ACTIVATION)]
        op = node.op
        return [
            Run(
                op.kind,
                op.out,
                node.ins,
                op.params,
                node.uses,
                where,
                attrs=self.attrs(node),
                internals=op.internals,
                statistics=node.statistics,
            ),
            *self.statistics(node, where),
        ]

    def attrs(self, node: Apply) -> tuple[tuple[str, Dim], ...]:
        """The operation's sizes; for a bias on a pending sum, the number of ranks that add it."""
        pending = [e.axes for e in self.values[node.ins[0]].layout if e.on == PARTIAL]
        if node.op.kind != "bias" or not pending:
            return node.op.attrs
        return (*node.op.attrs, ("parts", "*".join(a for axes in pending for a in axes)))

    def statistics(self, node: Apply, where: Where) -> list[Step]:
        """A loss on vocabulary shards: maximum, sum and target logit of each token, all-reduced."""
        if not node.statistics:
            return []
        shape = self.values[node.ins[0]].shape[:2]
        tokens = tuple(
            e for e in self.values[node.ins[0]].layout if e.axes[0] not in node.statistics
        )
        items = tuple(
            Item(f"{node.op.out}.{n}", What.STATISTIC, shape, tokens, tokens, f"{node.op.out}.{n}")
            for n in LOSS_STATISTICS
        )
        return [
            Transfer(
                Collective.ALL_REDUCE, node.statistics, (i,), where, "loss over vocabulary shards"
            )
            for i in items
        ]

    def item(self, name: str, what: What, after: Layout | None = None, out: str = "") -> Item:
        value = self.values[name]
        layout = value.layout if what is What.ACTIVATION else dual_layout(value.layout)
        return Item(
            name, what, value.shape, layout, layout if after is None else after, out or name
        )

    def convert(self, node: Convert, where: Where, what: What) -> Step:
        moves = conversion(node.before, node.after)
        assert moves is not None
        backward = what is What.COTANGENT
        source, out = (node.out, node.source) if backward else (node.source, node.out)
        before = self.values[source].layout
        after = self.values[out].layout
        if backward:
            before, after = dual_layout(before), dual_layout(after)
        item = Item(source, what, self.values[source].shape, before, after, out)
        move = moves[1] if backward else moves[0]
        why = f"{node.after} from {node.before}" if not backward else f"adjoint of {node.after}"
        if move is Local.NOTHING:
            return LocalStep(Action.ALIAS, (item,), where, why)
        if move is Local.SLICE:
            return LocalStep(Action.SLICE, (item,), where, why)
        assert isinstance(move, Collective)
        return Transfer(move, (node.axis,), (item,), where, self.label(node, why))

    def label(self, node: Convert, why: str) -> str:
        return f"ring attention: {why}" if self.passes_by(node) else why

    def passes(self, node: Convert) -> bool:
        """What is gathered for the forward pass alone, and again for the backward pass."""
        again = self.profile.regather_inputs and node.before.dim == 1 and node.after == REPLICATED
        return again or self.passes_by(node)

    def passes_by(self, node: Convert) -> bool:
        """Keys and values that go round a ring: no rank keeps them, backward sends them again."""
        flow = next(f for f in self.placement.flows if f.axis == node.axis)
        return flow.attention == "ring" and node.after == REPLICATED

    # backward

    def block_backward(self, nodes: list[Node]) -> list[Step]:
        steps: list[Step] = list(self.recomputed(nodes))
        for node in reversed(nodes):
            where = self.where(node, Phase.BACKWARD)
            if isinstance(node, Convert):
                if self.values[node.source].needs_gradient:
                    steps.append(self.convert(node, where, What.COTANGENT))
                continue
            if not self.values[node.op.out].needs_gradient:
                continue
            if not self.halved(node):
                steps.append(self.backward(node, Half.BOTH))
            elif self.values[node.ins[0]].needs_gradient:
                steps.append(self.backward(node, Half.INPUTS))
        return steps

    def late(self, nodes: list[Node]) -> list[Step]:
        """The gradients of weights that wait for a pass of their own."""
        return [
            self.backward(n, Half.WEIGHTS)
            for n in reversed(nodes)
            if isinstance(n, Apply) and self.halved(n)
        ]

    def halved(self, node: Apply) -> bool:
        """Whether the gradient of a node's weight is worked out apart from that of its input."""
        trained = any(p in self.trainable for p in node.op.params)
        return self.apart and trained and node.op.kind in WEIGHTS_READ

    def backward(self, node: Apply, half: Half) -> Run:
        op = node.op
        return Run(
            op.kind,
            op.out,
            node.ins,
            op.params,
            node.uses,
            self.where(node, Phase.BACKWARD),
            backward=True,
            attrs=self.attrs(node),
            internals=op.internals,
            statistics=node.statistics,
            scratch=() if half is Half.WEIGHTS else op.scratch,
            half=half,
        )

    def recomputed(self, nodes: list[Node]) -> Iterable[Step]:
        """Forward steps again for what backward reads and was not kept, without dead code."""
        rebuilt = self.rebuilt(nodes)
        needed = {name for n in nodes for name in saved_by(n)} & rebuilt
        kept: list[Node] = []
        for node in reversed(nodes):
            makes = {_out(node), *_internals(node)}
            if makes & (rebuilt if self.profile.recompute_all else needed):
                kept.append(node)
                needed |= set(_reads(node)) & rebuilt
        self.kept |= {_out(n) for n in kept} - rebuilt
        for node in reversed(kept):
            yield from self.forward(node, Phase.RECOMPUTE)

    def rebuilt(self, nodes: list[Node]) -> set[str]:
        """The values of a block that are rebuilt in backward instead of kept (mode M)."""
        groups = {
            p.group
            for p in self.placement.places
            if p.state is State.ACTIVATIONS and p.mode is Mode.MATERIALIZED
        }
        if "block" in groups and nodes and _block(nodes[0]).startswith("layer"):
            inside = {_out(n) for n in nodes[:-1]}
            return inside | {name for n in nodes for name in _internals(n)}
        passing = {n.out for n in nodes if isinstance(n, Convert) and self.passes(n)}
        return passing | {
            name
            for n in nodes
            if isinstance(n, Apply) and n.op.kind in groups
            for name in _internals(n)
        }


def _block(node: Node) -> str:
    return node.block if isinstance(node, Convert) else node.op.block


def _out(node: Node) -> str:
    return node.out if isinstance(node, Convert) else node.op.out


def _reads(node: Node) -> tuple[str, ...]:
    return (node.source,) if isinstance(node, Convert) else node.ins


def _internals(node: Node) -> tuple[str, ...]:
    return () if isinstance(node, Convert) else tuple(name for name, _ in node.op.internals)


def saved_by(node: Node) -> tuple[str, ...]:
    """What the backward step of a node reads from the forward pass."""
    if isinstance(node, Convert):
        return ()
    read = tuple(node.ins[i] for i in BACKWARD_READS[node.op.kind])
    return (*read, *_internals(node))


def write_program(
    model: Model,
    placement: Placement,
    profile: Profile,
    typed: Typed,
    values: Mapping[str, PlanValue],
    bodies: Sequence[Body],
) -> None:
    """Fill ``forward`` and ``backward`` of every body."""
    _Program(model, placement, profile, typed, values, bodies).run()


def values_with_internals(model: Model, typed: Typed) -> dict[str, PlanValue]:
    """All values of the plan, with what operations keep for themselves (attention scores)."""
    values = dict(typed.values)
    for node in typed.nodes:
        if isinstance(node, Apply) and node.op.kind == "loss":
            name = node.ins[0]
            values[name] = replace(values[name], logits=True)
    for node in typed.nodes:
        if isinstance(node, Apply):
            for name, shape in (*node.op.internals, *node.op.scratch):
                here = _internal_layout(typed, node, shape)
                mask, wide = name.endswith(MASK), name.endswith(FLOAT32)
                values[name] = PlanValue(name, shape, here, False, False, mask, wide=wide)
    return values


def _internal_layout(typed: Typed, node: Apply, shape: tuple[Dim, ...]) -> Layout:
    """What an operation keeps lies as its result or its input of that shape, or as scores do."""
    for name in (node.op.out, *node.ins):
        if typed.values[name].shape == shape:
            return typed.values[name].layout
    return _scores(typed.values[node.op.out].layout)


def _scores(layout: Layout) -> Layout:
    """Scores (batch, heads, queries, keys) lie as the output (batch, sequence, heads * size)."""
    other = {1: 2, 2: 1}
    return tuple(Entry(e.axes, On(e.on.kind, other.get(e.on.dim or 0, e.on.dim))) for e in layout)
