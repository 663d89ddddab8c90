"""Which blocks each pipeline stage runs, and which position runs which stages."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement_proofs.derive.types import Node
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim
from placement_proofs.model import Block, Model
from placement_proofs.placement import Placement
from placement_proofs.plan import Position, Step


@dataclass
class Body:
    """One stage before parameters are placed: blocks with their multiplicity, and its steps.

    ``kept`` names values that a recomputed operation gives again although they were kept.
    """

    name: str
    blocks: tuple[Block, ...]
    nodes: list[Node]
    forward: list[Step] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    backward: list[Step] = field(default_factory=list)
    weights: list[Step] = field(default_factory=list)


def cut(model: Model, placement: Placement, pp: Dim) -> tuple[list[Body], tuple[Position, ...]]:
    """The stages of a model and the pipeline positions that run them."""
    schedule = placement.schedule
    if schedule is None or pp == 1:
        body = Body("only", model.blocks, [])
        return [body], (Position("only", 0, ((0, 1),)),)
    folded = [b for b in model.blocks if b.times != 1]
    if folded:
        return _cut_folded(model, folded[-1], schedule.axis, schedule.chunks)
    if isinstance(pp, str):
        raise IllFormed(
            f"pipeline({schedule.axis}={pp})",
            "a symbolic number of stages",
            "layers written one by one are cut for a known number of stages",
            "use a folded model or give the number",
        )
    return _cut_layers(model, pp, schedule.chunks)


def _cut_folded(
    model: Model, layers: Block, axis: str, chunks: int
) -> tuple[list[Body], tuple[Position, ...]]:
    """First, middle and last stage of identical layers; others before them join the first.

    So it is for a symbolic number of stages; for a known one such layers are cut one by one.
    """
    share = f"{layers.times}/{axis}" + (f"/{chunks}" if chunks > 1 else "")
    part = Block(layers.name, share)
    at = model.blocks.index(layers)
    bodies = [
        Body("first", (*model.blocks[:at], part), []),
        Body("middle", (part,), []),
        Body("last", (part, *model.blocks[at + 1 :]), []),
    ]
    more: tuple[tuple[int, Dim], ...] = ((1, chunks - 1),) if chunks > 1 else ()
    positions = (
        Position("first", 0, ((0, 1), *more)),
        Position("middle", 1, ((1, chunks),)),
        Position("last", None, (*more, (2, 1))),
    )
    return bodies, positions


def _cut_layers(model: Model, pp: int, chunks: int) -> tuple[list[Body], tuple[Position, ...]]:
    """Stages of consecutive blocks; embedding and head go with the outer layers."""
    layers = [b for b in model.blocks if b.name.startswith("layer")]
    stages = pp * chunks
    if len(layers) < stages:
        raise IllFormed(
            f"{stages} pipeline stages",
            f"{len(layers)} layers in model {model.name}",
            "each stage holds at least one layer",
            "use fewer stages or a deeper model",
        )
    at = model.blocks.index(layers[0])
    head, tail = model.blocks[:at], model.blocks[at + len(layers) :]
    bounds = [len(layers) * i // stages for i in range(stages + 1)]
    bodies = []
    for k in range(stages):
        blocks: tuple[Block, ...] = tuple(layers[bounds[k] : bounds[k + 1]])
        blocks = (*(head if k == 0 else ()), *blocks, *(tail if k == stages - 1 else ()))
        bodies.append(Body(f"stage{k}", blocks, []))
    positions = tuple(
        Position(
            f"position{r}",
            r if r < pp - 1 else None,
            tuple((k, 1) for k in range(r, stages, pp)),
        )
        for r in range(pp)
    )
    return bodies, positions
