"""Compositions that are right and probably not what was meant."""

from __future__ import annotations

from collections.abc import Iterator

from placement_proofs.composition import Composition
from placement_proofs.layout import Kind
from placement_proofs.placement import EVERY, Mode, Placement, State
from placement_proofs.schedule import LAWS, bubble


def advice(composition: Composition) -> tuple[str, ...]:
    """Warnings about parts of a placement that have no effect."""
    return tuple(_warnings(composition))


def _warnings(composition: Composition) -> Iterator[str]:
    placement = composition.placement
    for axis in composition.mesh.axes:
        if axis.size == 1:
            yield f"axis {axis.name} has size 1: nothing is split or saved on it"
    yield from _offload(placement)
    yield from _one_micro_batch(composition)
    for flow in placement.flows:
        home_only = flow.home.kind is Kind.SHARDED and flow.home != flow.input
        if home_only and composition.mesh.size(flow.axis) == 1:
            yield f"sequence sharding on {flow.axis} has no effect at size 1"


def _offload(placement: Placement) -> Iterator[str]:
    states = {p.state for p in placement.places if p.mode is Mode.OFFLOADED}
    gathered = any(
        p.mode is Mode.SHARDED_WITH_GATHER and p.state is State.PARAMETERS and p.group == EVERY
        for p in placement.places
    )
    if State.PARAMETERS in states and not gathered:
        yield (
            "parameters are offloaded but not sharded with gather: each use fetches all of them "
            "from the host (DeepSpeed ignores offload_param below stage 3)"
        )
    if State.PARAMETERS in states and State.OPTIMIZER not in states:
        yield "parameters are offloaded, the larger optimizer state is not"


def _one_micro_batch(composition: Composition) -> Iterator[str]:
    placement = composition.placement
    schedule = placement.schedule
    if schedule is None:
        return
    depth = composition.mesh.size(schedule.axis)
    micro = placement.micro
    if isinstance(depth, int) and isinstance(micro, int) and depth > 1 and micro < depth:
        idle = bubble(LAWS[schedule.kind]) * (depth - 1) / schedule.chunks
        if idle:
            yield (
                f"{micro} micro-batches on {depth} stages: at least "
                f"{int(100 * idle / (micro + idle))}% of the time is pipeline bubble"
            )
