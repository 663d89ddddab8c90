"""Placements: the four training states in five modes on the axes of a mesh (the paper's table)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from placement_proofs.layout import On
from placement_proofs.mesh import Dim


class State(Enum):
    """The training states of the paper (arXiv 2601.02311, section 3)."""

    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"


class Mode(Enum):
    """How a state lies on an axis (arXiv 2601.02311, section 3)."""

    REPLICATED = "R"
    SHARDED = "S"
    SHARDED_WITH_GATHER = "S*"
    MATERIALIZED = "M"
    OFFLOADED = "O"


EVERY = "*"
"""The pattern of a :class:`Place` that means every parameter group."""


@dataclass(frozen=True)
class Place:
    """One cell of a placement table: a state of a parameter group, its mode, the axes.

    ``axes`` is a product: one shard index over all of them. ``dim`` is the tensor dim that is
    sharded. Modes M and O say that a state is rebuilt or stored off the device; they name no axis.
    ``keep_after_forward`` keeps a gathered copy (S*) from the forward to the backward pass.
    """

    state: State
    mode: Mode
    axes: tuple[str, ...] = ()
    group: str = EVERY
    dim: int = 0
    keep_after_forward: bool = False
    where: str = ""


@dataclass(frozen=True)
class Flow:
    """The placement of activations on one axis.

    ``input`` is the layout of the batch as it enters, ``home`` that of the residual stream,
    ``attention`` how attention meets keys of other ranks when the sequence is sharded:
    ``"all-gather"``, ``"ring"`` or ``"heads"`` (exchange of sequence for heads).
    """

    axis: str
    input: On
    home: On
    attention: str | None = None


@dataclass(frozen=True)
class Schedule:
    """Pipeline stages over ``axis`` in the order called ``kind``, with ``chunks`` on each rank."""

    axis: str
    kind: str = "1f1b"
    chunks: int = 1


@dataclass(frozen=True)
class Placement:
    """A placement table, with the flow of activations, the micro-batches and the schedule."""

    places: tuple[Place, ...] = ()
    flows: tuple[Flow, ...] = ()
    micro: Dim = 1
    schedule: Schedule | None = None

    def of(self, group: str, state: State) -> tuple[Place, ...]:
        """The cells that apply to a group: on an axis, a cell that names it replaces all others.

        Of a product for every group, such as ``dp*ep``, the other axes remain.
        """
        here = [p for p in self.places if p.state is state and p.group in (group, EVERY)]
        named = {axis for p in here if p.group == group for axis in p.axes}
        rest = [(p, tuple(a for a in p.axes if a not in named)) for p in here]
        return tuple(
            p if p.group == group else replace(p, axes=axes)
            for p, axes in rest
            if p.group == group or axes or not p.axes
        )
