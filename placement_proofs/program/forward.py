"""How the activations of a flow lie on the axes, and by which factor they are right.

On an axis (or loop) a value is the same on all ranks, every rank has its own part, or the ranks'
values are parts of a sum. It consists of additive parts, each with the factor that one device
would not have: a bias that every rank adds before a sum comes out as often as there are ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from placement_proofs.program import Buffer, Program
from placement_proofs.program.flow import Flow, flow_text
from placement_proofs.program.print import expr_text
from placement_proofs.program.rules import check_names, known, require

OWN, PARTIAL = "own", "partial"
States = Mapping[str, str]
"""Axis or loop: own part, or part of a sum; an axis that is not named has the same everywhere."""


@dataclass(frozen=True)
class Part:
    """A summand of a value: whose it is, its factor, and how it lies on the axes."""

    name: str
    factor: str
    on: States


@dataclass(frozen=True)
class Value:
    """A value of the forward pass."""

    on: States
    parts: tuple[Part, ...] = field(default=())

    @property
    def doubtful(self) -> bool:
        """Whether it may be another value than one device has."""
        return any(part.factor != "1" for part in self.parts)


def product(*factors: str) -> str:
    """The product of expressions."""
    shown = [f for f in factors if f != "1"]
    if "0" in shown:
        return "0"
    return expr_text("*".join(f"({f})" for f in shown)) if shown else "1"


def values(program: Program) -> dict[str, Value]:
    """Every value of a flow and every copy that it reads; raises `IllFormed`."""
    copies = {b.name: b for b in program.buffers if b.of}
    names = tuple(flow.out for flow in program.flow)
    check_names((*names, *copies), "flow")
    found = {name: _copy(copy) for name, copy in copies.items()}
    for flow in program.flow:
        place = flow_text(flow)
        known(flow.args, tuple(found), place, "activation or copy")
        known((axis for axis, _ in flow.only), program.axes, place, "axis")
        loops = program.loops if flow.kind == "input" else ()
        known(flow.axes, program.axes + loops, place, "axis")
        found[flow.out] = _value(flow, [found[name] for name in flow.args], place)
    return found


def _copy(copy: Buffer) -> Value:
    on = {axis: OWN for axis, _ in copy.held}
    return Value(on, (Part(copy.name, "1", on),))


def _value(flow: Flow, args: list[Value], place: str) -> Value:
    match flow.kind:
        case "input":
            return _fresh(flow, dict.fromkeys(flow.axes, OWN))
        case "layer" | "linear":
            return _layer(flow, args, place)
        case "join":
            parts = tuple(part for value in args for part in value.parts)
            return Value(_joined(args, place), parts)
        case _:
            value = args[0]
            for axis in flow.axes:
                value = _moved(flow, value, axis, place)
            return value


def _fresh(flow: Flow, on: States) -> Value:
    return Value(on, (Part(flow.out, flow.factor, on),))


def _layer(flow: Flow, args: list[Value], place: str) -> Value:
    on = {axis: OWN for value in args for axis, state in value.on.items() if state == OWN}
    cut = set(flow.axes) - set(on)
    require(
        not cut,
        place,
        f"a sum over {', '.join(sorted(cut))} of which every rank has the same",
        "a layer gives parts of a sum where an argument is cut",
        "leave 'partial' out, or cut the weight with shard=",
    )
    on |= dict.fromkeys(flow.axes, PARTIAL)
    if flow.kind == "layer":
        return _fresh(flow, on)
    pending = {a for value in args for a, state in value.on.items() if state == PARTIAL}
    require(
        not pending & set(on),
        place,
        f"a part of a sum over {', '.join(sorted(pending & set(on)))} times an own part",
        "the sum of products is not the product of sums",
        "reduce it first",
    )
    return _fresh(flow, on | dict.fromkeys(pending, PARTIAL))


def _joined(args: list[Value], place: str) -> States:
    """Parts of a sum and whole values add up to parts of a sum."""
    on: dict[str, str] = {}
    for value in args:
        for axis, state in value.on.items():
            require(
                on.setdefault(axis, state) == state,
                place,
                f"an own part and a part of a sum on {axis}",
                "what is added has the same elements",
                "reduce one or slice the other first",
            )
    return on


RESULTS = {
    ("pass", ""): "",
    ("pass", OWN): OWN,
    ("pass", PARTIAL): PARTIAL,
    ("sum", ""): "",
    ("sum", OWN): "",
    ("sum", PARTIAL): "",
    ("mean", ""): "",
    ("mean", OWN): "",
    ("mean", PARTIAL): "",
    ("scatter", ""): OWN,
    ("scatter", PARTIAL): OWN,
    ("gather", OWN): "",
    ("slice", ""): OWN,
    ("exchange", OWN): OWN,
}
"""The state after a collective, by the state before it."""


def _moved(flow: Flow, value: Value, axis: str, place: str) -> Value:
    before = value.on.get(axis, "")
    after = RESULTS.get((flow.kind, before))
    require(
        after is not None,
        place,
        f"{flow.kind} of what is {before or 'the same on every rank'} on {axis}",
        "gather and exchange take own parts, scatter and slice whole values",
        "correct the collective, or say own= or partial= above",
    )
    assert after is not None
    if flow.kind in ("sum", "mean") and before == OWN:
        return _fresh(flow, _put(value.on, axis, after))
    parts = tuple(
        Part(
            part.name,
            product(part.factor, _factor(flow, before, part.on.get(axis, ""), axis)),
            _put(part.on, axis, after),
        )
        for part in value.parts
    )
    return replace(value, on=_put(value.on, axis, after), parts=parts)


def _factor(flow: Flow, value: str, part: str, axis: str) -> str:
    """What a reduction makes of a summand: one that is whole counts once for every rank."""
    times = axis if flow.kind in ("sum", "scatter", "mean") and part == "" else "1"
    mean = f"1/{axis}" if flow.kind == "mean" else "1"
    if times == axis and mean != "1":
        return "1"
    return product(times, mean)


def _put(on: States, axis: str, state: str) -> States:
    rest = {a: s for a, s in on.items() if a != axis}
    return rest | ({axis: state} if state else {})
