"""All placements of one parameter on one axis: 648 points, of which some can run.

A point says how gradients are fed, where parameters, optimizer state and gradients are, how the
gradient is synchronised and scaled, and whether owners publish what they updated. `own` needs
parameters S, `split` and `same` need R or S*. Reduce-scatter needs a full gradient. Publishing
acts only on parameters R.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from placement_proofs.program import (
    Buffer,
    Loop,
    Move,
    Param,
    Program,
    Reduce,
    Scale,
    Slice,
    Source,
    Step,
    Take,
    Term,
    Tick,
    Update,
    Use,
)


class Point(NamedTuple):
    """One point of the space."""

    contribution: str
    parameters: str
    optimizer: str
    gradients: str
    sync: str
    factor: str
    publish: bool

    @property
    def full(self) -> bool:
        """Whether every rank has every element of the gradient after the sync."""
        return self.contribution != "own" and self.sync != "reduce-scatter"


SPACE = tuple(
    Point(*choice)
    for choice in itertools.product(
        ("own", "split", "same"),
        ("R", "S", "S*"),
        ("R", "S"),
        ("R", "S"),
        ("none", "all-reduce", "reduce-scatter"),
        ("1", "N", "1/N"),
        (False, True),
    )
)


def can_run(point: Point) -> bool:
    """Whether the point says anything that ranks can execute."""
    if (point.contribution == "own") != (point.parameters == "S"):
        return False
    if point.contribution == "own" and point.sync == "reduce-scatter":
        return False
    if point.gradients == "R" and not point.full:
        return False
    return point.optimizer == "S" or (point.gradients == "R" and point.parameters == "R")


RUNNABLE = tuple(point for point in SPACE if can_run(point))


def element_program(point: Point) -> Program:
    """What the point means for one generic element."""
    own = (("dp", "p"),)
    over = ("dp",) if point.contribution == "split" else ()
    buffers = [Buffer("w", "W", held=() if point.parameters == "R" else own)]
    if point.parameters == "S*":
        buffers.append(Buffer("view", "W"))
    body = (*_read(point), *_gradient(point, over, own), Update("w", "g"), Tick())
    if point.publish and point.parameters == "R":
        body = (*body, Take("w", "dp", "p"))
    param = Param("W", (Term("c", over),))
    return Program(("dp",), ("step",), (param,), tuple(buffers), (Loop("step", body),))


def _read(point: Point) -> tuple[Step, ...]:
    if point.parameters == "S*":
        return Move("view", "w"), Take("view", "dp", "p"), Use("view")
    return (Use("w"),)


def _gradient(
    point: Point, over: tuple[str, ...], own: tuple[tuple[str, str], ...]
) -> tuple[Step, ...]:
    held = own if point.contribution == "own" else ()
    steps: list[Step] = [Source("g", "c", over, held=held)]
    if point.sync != "none":
        steps.append(Reduce("g", ("dp",), to="p" if point.sync == "reduce-scatter" else None))
    steps.append(Scale("g", point.factor.replace("N", "dp")))
    if point.full and (point.gradients == "S" or point.optimizer == "S"):
        steps.append(Slice("g", "dp", "p"))
    return tuple(steps)
