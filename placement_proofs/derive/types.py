"""First pass: layouts of all values, with conversions inserted where needed and actual differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from placement_proofs.errors import IllFormed
from placement_proofs.layout import (
    INVARIANT,
    PARTIAL,
    Entry,
    Kind,
    Layout,
    On,
    conversion,
    on_axis,
    replace,
    shard_axes,
    sharded,
    without,
)
from placement_proofs.model import RULES, Model, Op, Rule, Seen
from placement_proofs.placement import Flow, Mode, Placement, State
from placement_proofs.plan import PlanValue
from placement_proofs.profile import Profile

MICRO = "micro"


@dataclass(frozen=True)
class Convert:
    """A conversion of one value on one axis, from one layout to another."""

    source: str
    out: str
    axis: str
    before: On
    after: On
    block: str


@dataclass(frozen=True)
class Apply:
    """An operation on converted inputs; ``uses`` is the layout of each parameter at this use."""

    op: Op
    ins: tuple[str, ...]
    uses: tuple[Layout, ...]
    statistics: tuple[str, ...]


Node: TypeAlias = Convert | Apply


@dataclass
class Typed:
    """The forward pass with layouts: nodes in order, values by name, how parameters are used."""

    nodes: list[Node] = field(default_factory=list)
    values: dict[str, PlanValue] = field(default_factory=dict)
    uses: dict[str, Layout] = field(default_factory=dict)
    mean_axes: tuple[str, ...] = ()


def own_shards(placement: Placement, group: str, state: State) -> Layout:
    """The shards that a group keeps while it is used (mode S of the parameters)."""
    return tuple(
        Entry(p.axes, On(Kind.SHARDED, p.dim))
        for p in placement.of(group, state)
        if p.mode is Mode.SHARDED
    )


def ordered_flows(placement: Placement) -> tuple[Flow, ...]:
    """Flows in the nesting order of their shards, outermost first.

    An axis whose shards move during the step must be the innermost of its dim: heads exchanged for
    sequence, tokens exchanged for experts. ``own`` axes are those on which a group stays sharded.
    """
    own = {a for p in placement.places if p.mode is Mode.SHARDED for a in p.axes}
    own -= {a for p in placement.places if p.group == "*" for a in p.axes}
    return tuple(sorted(placement.flows, key=lambda f: (f.attention == "heads", f.axis in own)))


class _Typing:
    """Walks a model once and assigns layouts."""

    def __init__(self, model: Model, placement: Placement, profile: Profile) -> None:
        self.model = model
        self.placement = placement
        self.profile = profile
        self.flows = {flow.axis: flow for flow in ordered_flows(placement)}
        self.groups = {t.name: t.group for t in model.tensors}
        self.trainable = {t.name for t in model.tensors if t.trainable}
        self.typed = Typed()
        self.converted: dict[tuple[str, str, On], str] = {}
        self.settled: dict[str, str] = {}
        self.block = ""

    def home(self, axis: str) -> On:
        return self.flows[axis].home

    def run(self) -> Typed:
        produced = {op.out for op in self.model.ops}
        for value in self.model.values:
            if value.name not in produced:
                self.define(value.name, self.input_layout(), needs_gradient=False)
        for op in self.model.ops:
            self.apply(op)
        return self.typed

    def input_layout(self) -> Layout:
        micro = () if self.placement.micro == 1 else (Entry((MICRO,), On(Kind.SHARDED, 0)),)
        flows = [f for f in self.flows.values() if f.input != INVARIANT]
        return (*micro, *(Entry((f.axis,), f.input) for f in flows))

    def define(
        self, name: str, layout: Layout, source: str = "", needs_gradient: bool = True
    ) -> None:
        value = self.model.value(source or name)
        self.typed.values[name] = PlanValue(
            name, value.shape, layout, value.integer, needs_gradient
        )

    def apply(self, op: Op) -> None:
        self.block = op.block
        rules = {axis: self.rule(op, axis) for axis in self.flows}
        ins = tuple(
            self.converted_to(name, {a: r.needs[i] for a, r in rules.items()}, op)
            for i, name in enumerate(op.ins)
        )
        if "heads" in dict(op.attrs):
            self.check_heads(op, ins)
        uses = tuple(self.use(op, i, rules) for i in range(len(op.params)))
        statistics = tuple(a for a, r in rules.items() if r.statistics)
        self.typed.nodes.append(Apply(op, ins, uses, statistics))
        trained = any(p in self.trainable for p in op.params)
        needs = trained or any(self.typed.values[i].needs_gradient for i in ins)
        self.define(op.out, self.out_layout(op, ins, rules), needs_gradient=needs)
        self.finish(op, rules)

    def check_heads(self, op: Op, ins: tuple[str, ...]) -> None:
        """A rank's queries meet their keys: key heads are cut as query heads, or less finely."""
        cuts = [[e.axes for e in self.typed.values[i].layout if e.on == sharded(2)] for i in ins]
        for keys in cuts[1:]:  # a key that all heads share is not cut at all
            if keys != cuts[0][: len(keys)]:
                raise IllFormed(
                    f"attention {op.out}",
                    f"query heads on {_axes(cuts[0])}, key-value heads on {_axes(keys)}",
                    "the heads of a rank's queries need the key-value heads of the same rank",
                    "cut both alike: without replicate_kv, or without the exchange of heads",
                )

    def finish(self, op: Op, rules: Mapping[str, Rule]) -> None:
        """Bring residual values home; note over which axes the loss is a mean."""
        if op.kind == "loss":
            pending = tuple(a for a, r in rules.items() if r.out == PARTIAL)
            micro = () if self.placement.micro == 1 else (MICRO,)
            self.typed.mean_axes = pending + micro
        elif self.model.value(op.out).residual:
            homes = {axis: self.home(axis) for axis in self.flows}
            name = self.converted_to(op.out, homes, op)
            if name != op.out:
                self.rename(op.out, name)

    def rename(self, name: str, settled: str) -> None:
        """Later readers of a residual value read its settled form."""
        for axis in self.flows:
            layout = self.typed.values[settled].layout
            self.converted[(name, axis, on_axis(layout, axis))] = settled
        self.settled[name] = settled

    def now(self, name: str) -> str:
        return self.settled.get(name, name)

    def rule(self, op: Op, axis: str) -> Rule:
        flow = self.flows[axis]
        ins = tuple(on_axis(self.typed.values[self.now(n)].layout, axis) for n in op.ins)
        ndims = tuple(len(self.model.value(n).shape) for n in op.ins)
        params = tuple(self.own_on(p, axis) for p in op.params)
        beside = self.own_on(op.beside, axis) if op.beside else INVARIANT
        ends = op.block in (self.model.blocks[0].name, self.model.blocks[-1].name)
        whole = self.profile.whole_ends and ends and flow.input == INVARIANT
        pending = self.profile.bias_on_partial
        seen = Seen(ins, ndims, params, flow.home, flow.attention, beside, whole, pending)
        return RULES[op.kind](seen)

    def own_on(self, parameter: str, axis: str) -> On:
        own = own_shards(self.placement, self.groups[parameter], State.PARAMETERS)
        return on_axis(own, axis)

    def use(self, op: Op, index: int, rules: Mapping[str, Rule]) -> Layout:
        """How the parameter is fed here; all uses of one parameter must agree on every axis."""
        name = op.params[index]
        own = own_shards(self.placement, self.groups[name], State.PARAMETERS)
        for axis in shard_axes(own):
            if rules[axis].uses[index].kind is not Kind.SHARDED:
                raise IllFormed(
                    f"parameter {name} on axis {axis}",
                    f"sharded while used by {op.kind} ({_text(own)})",
                    f"{op.kind} has no layout rule for such a shard",
                    "gather it before the use (mode S*) or keep the group replicated (mode R)",
                )
        fed = tuple(
            Entry((axis,), rule.uses[index])
            for axis, rule in rules.items()
            if rule.uses[index].kind is Kind.REPLICATED
        )
        layout = (*own, *fed)
        before = self.typed.uses.setdefault(name, layout)
        if before != layout:
            raise IllFormed(
                f"parameter {name}",
                f"used as {_text(before)} and, by {op.out}, as {_text(layout)}",
                "all uses of a tensor feed its gradient alike",
                "give both uses the same placement (for tied embeddings: shard the vocabulary)",
            )
        return layout

    def out_layout(self, op: Op, ins: tuple[str, ...], rules: Mapping[str, Rule]) -> Layout:
        """The output's entries: those of the first input in their order, then new ones."""
        first = self.typed.values[ins[0]].layout
        layout: Layout = ()
        for entry in first:
            axis = entry.axes[0]
            on = entry.on if axis == MICRO else rules[axis].out
            moved = _dispatched_loop(op, entry) if axis == MICRO else Entry((axis,), on)
            layout = (*layout, moved) if moved.on != INVARIANT else layout
        present = {a for entry in first for a in entry.axes}
        new = [Entry((a,), r.out) for a, r in rules.items() if a not in present]
        layout = (*layout, *(e for e in new if e.on != INVARIANT))
        return layout if op.kind != "loss" else without(layout, (MICRO,))

    def converted_to(self, name: str, needs: Mapping[str, On], op: Op) -> str:
        """The value ``name`` with the needed layout on every axis, converting axis by axis.

        A shard that lies inside another one is opened before it.
        """
        current = self.now(name)
        left = list(needs)[::-1]
        while left:
            layout = self.typed.values[current].layout
            axis = next((a for a in left if _innermost(layout, a)), left[0])
            left.remove(axis)
            current = self.convert(current, axis, needs[axis], op)
        return current

    def convert(self, name: str, axis: str, target: On, op: Op) -> str:
        layout = self.typed.values[name].layout
        source = on_axis(layout, axis)
        if source == target:
            return name
        known = self.converted.get((name, axis, target))
        if known and self.profile.share_inputs:
            return known
        if conversion(source, target) is None:
            return self.via(name, axis, source, target, op)
        out = self.fresh(f"{name}@{axis}:{target}")
        _check_innermost(layout, axis, source, op)
        moved = replace(without(layout, (axis,)), axis, target)
        needs = self.typed.values[name].needs_gradient
        self.define(out, moved, _original(name), needs)
        self.typed.nodes.append(Convert(name, out, axis, source, target, self.block))
        self.converted[(name, axis, target)] = out
        return out

    def via(self, name: str, axis: str, source: On, target: On, op: Op) -> str:
        """Two conversions through the invariant layout (a partial value used replicated)."""
        if conversion(source, INVARIANT) is None or conversion(INVARIANT, target) is None:
            raise IllFormed(
                f"operation {op.out} on axis {axis}",
                f"a {source} value where {target} is needed",
                "no conversion keeps both the value and its gradient right",
                f"change how {name} or the parameters of {op.out} are placed on {axis}",
            )
        middle = self.convert(name, axis, INVARIANT, op)
        return self.convert(middle, axis, target, op)

    def fresh(self, name: str) -> str:
        count, candidate = 1, name
        while candidate in self.typed.values:
            count += 1
            candidate = f"{name}#{count}"
        return candidate


def _dispatched_loop(op: Op, entry: Entry) -> Entry:
    """The batch dim of a micro-batch moves when an operation reorders dims."""
    shift = {"dispatch": 1, "combine": -1}.get(op.kind, 0)
    return Entry(entry.axes, On(Kind.SHARDED, (entry.on.dim or 0) + shift))


def _original(name: str) -> str:
    return name.partition("@")[0]


def _axes(cuts: Sequence[tuple[str, ...]]) -> str:
    return " then ".join("*".join(axes) for axes in cuts) or "no axis"


def _text(layout: Layout) -> str:
    return ", ".join(map(str, layout)) or "invariant"


def _innermost(layout: Layout, axis: str) -> bool:
    """Whether an axis shards nothing, or is the innermost shard of its dim."""
    dim = on_axis(layout, axis).dim
    return dim is None or [e for e in layout if e.on.dim == dim][-1].axes == (axis,)


def _check_innermost(layout: Layout, axis: str, source: On, op: Op) -> None:
    """Only the innermost shard of a dim can be gathered or exchanged and leave a layout."""
    if not _innermost(layout, axis):
        raise IllFormed(
            f"operation {op.out}",
            f"axis {axis} is not the innermost shard of dim {source.dim} ({_text(layout)})",
            "a shard inside another one must be gathered first",
            f"write the strategy of {axis} later in the composition",
        )


def assign_layouts(model: Model, placement: Placement, profile: Profile) -> Typed:
    """Layouts of all values and uses of all parameters.

    Raises:
        IllFormed: no conversion reaches the layout that an operation needs, or two uses of one
            parameter disagree.
    """
    return _Typing(model, placement, profile).run()
