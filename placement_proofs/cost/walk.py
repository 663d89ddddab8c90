"""The walk that every cost reads: the steps of a pipeline position, with how often each runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim, IntSizes, Sizes
from placement_proofs.plan import LOOPED, Plan, Position, Stage, Step

N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class Visit(Generic[N]):
    """A step of the walk; ``times`` counts its runs in one training step of one rank."""

    stage: Stage
    section: str
    step: Step
    times: N


def visits(plan: Plan, sizes: Sizes[N], position: Position) -> Iterator[Visit[N]]:
    """Every step of the stages of a position, in program order."""
    for number, count in position.stages:
        stage = plan.stages[number]
        once = sizes.dim(count)
        looped = sizes.product([once, sizes.dim(plan.micro)])
        for section, step in stage.steps():
            turns = looped if section in LOOPED else once
            times = step.where.times
            yield Visit(stage, section, step, turns if times == 1 else _by(sizes, turns, times))


def _by(sizes: Sizes[N], turns: N, times: Dim) -> N:
    return sizes.product([turns, sizes.dim(times)])


def positions_of(plan: Plan, sizes: Sizes[N]) -> tuple[Position, ...]:
    """The positions that exist: with two stages, none is in the middle.

    With symbols the sizes decide nothing: only the first position is a default.
    """
    if not isinstance(sizes, IntSizes):
        return plan.positions[:1]
    if plan.schedule == "none":
        return plan.positions
    last = sizes.axis(plan.pipeline) - 1
    return tuple(p for p in plan.positions if p.index is None or p.index < last)


def named_position(plan: Plan, name: str) -> Position:
    """The position called ``name``.

    Raises:
        IllFormed: the plan has no such position.
    """
    for position in plan.positions:
        if position.name == name:
            return position
    names = ", ".join(p.name for p in plan.positions)
    raise IllFormed("position", repr(name), f"the plan has the positions {names}", "name one")


def position_at(plan: Plan, sizes: IntSizes, coordinates: Mapping[str, int]) -> Position:
    """The position of the rank at ``coordinates``."""
    if plan.schedule == "none":
        return plan.positions[0]
    index = coordinates[plan.pipeline]
    if index == sizes.axis(plan.pipeline) - 1:
        return plan.positions[-1]
    return plan.positions[min(index, len(plan.positions) - 2)]
