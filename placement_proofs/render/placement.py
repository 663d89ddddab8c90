"""The placement table of a composition: the mode of each state on each axis."""

from __future__ import annotations

from collections.abc import Iterator

from placement_proofs.composition import Composition, Strategy
from placement_proofs.layout import INVARIANT, On
from placement_proofs.placement import EVERY, Mode, Placement, State
from placement_proofs.render.table import columns

STORED = (State.PARAMETERS, State.OPTIMIZER, State.GRADIENTS)


def placement_text(what: Composition | Strategy, *, group: str = EVERY) -> str:
    """States by axes, for one group of parameters; activations as they enter and as they live.

    A mode is R, S, S* (gathered before a use), with the tensor dim that is cut, or ``stage`` on the
    axis of a pipeline; M and O name no axis and stand behind. Activations are cut along a dim, or
    whole (R).
    """
    composition = Composition((what,)) if isinstance(what, Strategy) else what
    axes = composition.mesh.names or ("one rank",)
    placement = composition.placement
    rows = [(state.value, *_modes(placement, group, state, axes)) for state in STORED]
    flows = (
        "activations",
        *_flows(placement, axes),
        _anywhere(placement, EVERY, State.ACTIVATIONS),
    )
    return columns([("", *axes), *rows, flows])


def _modes(placement: Placement, group: str, state: State, axes: tuple[str, ...]) -> Iterator[str]:
    places = placement.of(group, state)
    for axis in axes:
        here = [p for p in places if axis in p.axes]
        yield " ".join(f"{p.mode.value}({p.dim})" for p in here) or _uncut(placement, axis)
    yield _anywhere(placement, group, state)


def _anywhere(placement: Placement, group: str, state: State) -> str:
    """Modes that name no axis: rebuilt, or stored off the device."""
    named = {Mode.MATERIALIZED: "M: rebuilt", Mode.OFFLOADED: "O: on"}
    places = [p for p in placement.places if p.state is state and p.group in (group, EVERY)]
    if state is State.ACTIVATIONS:
        places = [p for p in placement.places if p.state is state]
    found = [p for p in places if p.mode in named]
    return ", ".join(f"{named[p.mode]} {p.where or p.group}" for p in found)


def _flows(placement: Placement, axes: tuple[str, ...]) -> Iterator[str]:
    flows = {flow.axis: flow for flow in placement.flows}
    for axis in axes:
        flow = flows.get(axis)
        yield _through(flow.input, flow.home) if flow else _uncut(placement, axis)


def _uncut(placement: Placement, axis: str) -> str:
    return "stage" if placement.schedule and placement.schedule.axis == axis else "R"


def _through(enter: On, home: On) -> str:
    texts = ["R" if on == INVARIANT else str(on) for on in (enter, home)]
    return texts[0] if enter == home else f"{texts[0]}, inside {texts[1]}"
