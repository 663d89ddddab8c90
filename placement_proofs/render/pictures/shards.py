"""Who holds what: the modes of every state on every axis, and the slice of each rank."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement_proofs.cost.walk import position_at
from placement_proofs.errors import IllFormed
from placement_proofs.layout import Kind, Layout, bounds_at, on_axis
from placement_proofs.mesh import IntSizes
from placement_proofs.placement import Mode, Place, Placement, State
from placement_proofs.plan import Plan, PlanTensor, PlanValue
from placement_proofs.render.pictures.drawn import Drawn

Row = dict[str, Any]
STORED = (State.PARAMETERS, State.GRADIENTS, State.OPTIMIZER)
MOST_RANKS = 16
"""Ranks that are drawn; of more, some stand for the others."""
MOST_TENSORS = 2
STAGES = "stage"
"""What stands in the table for the pipeline's axis: each rank has layers of its own."""


def mesh_data(drawn: Drawn, tensors: Sequence[str] = ()) -> Row:
    """The placement table, and for each rank the slices of some tensors and of the activations.

    A slice is ``[start, stop]`` for each tensor dim (elements). Without ``tensors``: the largest
    matrix of each of at most two classes of parameter groups that are placed alike.

    Raises:
        IllFormed: no tensor of the model has that name.
    """
    plan, sizes = drawn.plan, drawn.sizes
    classes = list(_classes(drawn))
    named = _named(plan, tensors) if tensors else _chosen(plan, sizes, classes)
    shown = _shown(plan, sizes)
    ranks = list(itertools.product(*shown.values()))
    value = _residual(drawn)
    header = drawn.header("mesh")
    return header | {
        "notes": [*header["notes"], *_flat(named)],
        "axes": {name: sizes.axis(name) for name in plan.mesh.names},
        "table": [*classes, _activation_row(drawn, value)],
        "tensors": [{"name": t.name, "shape": [sizes.dim(d) for d in t.shape]} for t in named],
        "activation": {"name": value.name, "shape": [sizes.dim(d) for d in value.shape]},
        "shown": {name: list(at) for name, at in shown.items()},
        "world": math.prod(sizes.axis(name) for name in plan.mesh.names),
        "ranks": [_rank(drawn, named, value, dict(zip(shown, at, strict=True))) for at in ranks],
    }


def _flat(tensors: Sequence[PlanTensor]) -> list[str]:
    names = [t.name for t in tensors if t.flat]
    said = "is stored inside of one flat tensor of its unit: the borders of its parts lie elsewhere"
    return [f"{', '.join(names)} {said}"] if names else []


# --- the placement table -------------------------------------------------------------


def _classes(drawn: Drawn) -> Iterator[Row]:
    """Parameter groups with equal cells, in the order of the model."""
    placement, axes = drawn.composition.placement, drawn.plan.mesh.names
    staged = drawn.plan.pipeline
    found: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    groups = dict.fromkeys(t.group for s in drawn.plan.stages for t in s.tensors)
    for group in groups:
        modes = tuple(tuple(_mode(placement, group, s, a, staged) for a in axes) for s in STORED)
        found.setdefault(modes, []).append(group)
    kept = {k: v for k, v in _elsewhere(placement).items() if k != State.ACTIVATIONS.value}
    for modes, names in found.items():
        rows = zip(STORED, modes, strict=True)
        states = {s.value: dict(zip(axes, row, strict=True)) for s, row in rows}
        yield {"groups": names, "states": states, "elsewhere": kept}


def _mode(placement: Placement, group: str, state: State, axis: str, staged: str) -> str:
    if axis == staged:
        return STAGES
    cells = (p for p in placement.of(group, state) if axis in p.axes)
    return next((p.mode.value for p in cells), Mode.REPLICATED.value)


def _elsewhere(placement: Placement) -> dict[str, str]:
    """States that are off the device or rebuilt (modes O and M)."""
    cells = [p for p in placement.places if p.mode in (Mode.OFFLOADED, Mode.MATERIALIZED)]
    return {p.state.value: _where(p) for p in cells}


def _where(place: Place) -> str:
    if place.mode is Mode.OFFLOADED:
        return f"O: on the {place.where}" if place.where == "host" else f"O: on {place.where}"
    return f"M: rebuilt for the backward pass ({place.group})"


def _activation_row(drawn: Drawn, value: PlanValue) -> Row:
    axes, staged = drawn.plan.mesh.names, drawn.plan.pipeline
    state = State.ACTIVATIONS.value
    modes = {a: STAGES if a == staged else _activation_mode(value.layout, a) for a in axes}
    kept = {k: v for k, v in _elsewhere(drawn.composition.placement).items() if k == state}
    return {"groups": [value.name], "states": {state: modes}, "elsewhere": kept}


def _activation_mode(layout: Layout, axis: str) -> str:
    kind = on_axis(layout, axis).kind
    return Mode.SHARDED.value if kind is Kind.SHARDED else Mode.REPLICATED.value


# --- what is shown -------------------------------------------------------------------


def _named(plan: Plan, names: Sequence[str]) -> list[PlanTensor]:
    known = {t.name: t for s in plan.stages for t in s.tensors}
    for name in names:
        if name not in known:
            raise IllFormed(
                "tensor",
                repr(name),
                f"the tensors are {', '.join(known)}",
                "name one of them",
            )
    return [known[name] for name in names]


def _chosen(plan: Plan, sizes: IntSizes, classes: Sequence[Row]) -> list[PlanTensor]:
    tensors = {t.name: t for s in plan.stages for t in s.tensors}.values()
    best: list[PlanTensor] = []
    for row in classes:
        own = [t for t in tensors if t.group in row["groups"]]
        best.append(max(own, key=lambda t: _weight(t, sizes)))
    best.sort(key=lambda t: _weight(t, sizes), reverse=True)
    matrices = [t for t in best if len(t.shape) > 1]
    return (matrices or best)[:MOST_TENSORS]


def _weight(tensor: PlanTensor, sizes: IntSizes) -> tuple[bool, int]:
    """Tensors of repeated layers first, then by elements."""
    repeated = isinstance(tensor.times, str) or tensor.times > 1
    return repeated, math.prod(sizes.dim(d) for d in tensor.shape)


def _residual(drawn: Drawn) -> PlanValue:
    """The activation that is drawn: one that flows between the layers, whole sequences of it."""
    model, values = drawn.made[1], drawn.plan.values
    homes = [v.name for v in model.values if v.residual and not v.integer and v.name in values]
    names = homes or [n for n, v in values.items() if not v.integer]
    return values[names[-1]]


def _shown(plan: Plan, sizes: IntSizes) -> dict[str, tuple[int, ...]]:
    """The positions of every axis that are drawn: all, or some from both ends."""
    shown = {name: tuple(range(sizes.axis(name))) for name in plan.mesh.names}
    while math.prod(map(len, shown.values())) > MOST_RANKS:
        longest = max(shown, key=lambda name: len(shown[name]))
        shown[longest] = _fewer(shown[longest])
    return shown


def _fewer(at: tuple[int, ...]) -> tuple[int, ...]:
    if len(at) > MOST_RANKS:
        return (*at[: MOST_RANKS // 2 - 1], at[-1])
    return (*at[: (len(at) + 1) // 2 - 1], at[-1]) if len(at) > 2 else at[:1]


# --- one rank ------------------------------------------------------------------------


def _rank(
    drawn: Drawn, tensors: Sequence[PlanTensor], value: PlanValue, at: Mapping[str, int]
) -> Row:
    plan, sizes = drawn.plan, drawn.sizes
    stages = [plan.stages[k] for k, _ in position_at(plan, sizes, at).stages]
    parts: list[Row] = []
    for tensor in tensors:
        here = next((t for s in stages for t in s.tensors if t.name == tensor.name), None)
        parts += _states(here, drawn, at) if here else [_absent(tensor)]
    return {
        "rank": _index(sizes, at),
        "coordinates": dict(at),
        "stages": [s.name for s in stages],
        "parts": [*parts, _activation(drawn, value, at)],
    }


def _index(sizes: IntSizes, at: Mapping[str, int]) -> int:
    index = 0
    for axis, position in at.items():
        index = index * sizes.axis(axis) + position
    return index


def _states(tensor: PlanTensor, drawn: Drawn, at: Mapping[str, int]) -> Iterator[Row]:
    sizes, elsewhere = drawn.sizes, _elsewhere(drawn.composition.placement)
    layouts = {
        State.PARAMETERS: tensor.stored,
        State.GRADIENTS: tensor.gradient,
        State.OPTIMIZER: tensor.optimizer,
    }
    whole = [[0, sizes.dim(d)] for d in tensor.shape]
    for state, layout in layouts.items():
        if state is not State.PARAMETERS and not tensor.trainable:
            continue
        held = _slice(tensor.shape, layout, sizes, at)
        off = elsewhere.get(state.value, "")
        yield _part(state.value, tensor.name, whole, held, off)
        if state is State.PARAMETERS:
            used = _slice(tensor.shape, tensor.use, sizes, at)
            if used != held or off:
                yield _part("gathered parameters", tensor.name, whole, used)


def _part(
    state: str, name: str, whole: Sequence[Any], held: Sequence[Any], elsewhere: str = ""
) -> Row:
    return {"state": state, "of": name, "whole": whole, "slice": held, "elsewhere": elsewhere}


def _absent(tensor: PlanTensor) -> Row:
    return _part("", tensor.name, [], [])


def _slice(
    shape: tuple[Any, ...], layout: Layout, sizes: IntSizes, at: Mapping[str, int]
) -> list[list[int]]:
    return [list(bounds) for bounds in bounds_at(shape, layout, sizes, at)]


def _activation(drawn: Drawn, value: PlanValue, at: Mapping[str, int]) -> Row:
    """The part of a rank, in the first micro-batch."""
    sizes = drawn.sizes
    held = _slice(value.shape, value.layout, sizes, {**at, "micro": 0})
    whole = [[0, sizes.dim(d)] for d in value.shape]
    off = _elsewhere(drawn.composition.placement).get(State.ACTIVATIONS.value, "")
    return _part(State.ACTIVATIONS.value, value.name, whole, held, off)
