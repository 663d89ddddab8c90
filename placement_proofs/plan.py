"""Plans: what the ranks do, as data. Every byte of traffic is one :class:`Transfer`.

A plan has one program per pipeline stage (one program for all ranks of a stage). The stage's
``forward`` and ``backward`` run once per micro-batch, ``before`` and ``after`` once per step. All
layouts in a plan are final: readers (cost, simulation, projection) trust them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

from placement_proofs.layout import Collective, Layout
from placement_proofs.mesh import Dim, Mesh, Sizes

N = TypeVar("N")


class What(Enum):
    """What an item of a step is."""

    PARAMETER = "parameter"
    GRADIENT = "gradient"
    ACTIVATION = "activation"
    COTANGENT = "activation gradient"
    STATISTIC = "statistic"


class Phase(Enum):
    """When in a training step something happens."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    REDUCE = "reduce"
    CLIP = "clip"
    UPDATE = "update"


class Buffer(Enum):
    """Which copy of a parameter or of a gradient."""

    STORED = "stored"
    GATHERED = "gathered"
    MASTER = "master"
    MICRO = "micro"
    TOTAL = "total"


@dataclass(frozen=True)
class Item:
    """A tensor or value in a step: global shape in elements, its layout before and after.

    ``out`` is the name of the result where it differs from ``name`` (a converted activation).
    """

    name: str
    what: What
    shape: tuple[Dim, ...]
    before: Layout
    after: Layout
    out: str
    buffer: Buffer | None = None


@dataclass(frozen=True)
class Where:
    """The place of a step in the program: phase, gather unit, block and its multiplicity."""

    phase: Phase
    block: str = ""
    unit: str = ""
    times: Dim = 1


@dataclass(frozen=True)
class Transfer:
    """Traffic: one collective over a product of axes. ``shift`` is the stage a message goes to.

    A host-link transfer has no axes; ``shift`` is +1 to the device, -1 to the host. ``flat``: the
    items move as one flat tensor, padded once. ``pad``: the axes to a multiple of whose positions
    parts are padded, where they are more than ``axes``. ``repeats``: how often it is made because
    nobody keeps the result.
    """

    kind: Collective
    axes: tuple[str, ...]
    items: tuple[Item, ...]
    where: Where
    why: str
    shift: int = 0
    flat: bool = False
    pad: tuple[str, ...] = ()
    repeats: int = 1


class Action(Enum):
    """Steps that move no bytes."""

    ALIAS = "alias"
    SLICE = "slice"
    RECEIVE = "receive"
    RELEASE = "release"
    DROP = "drop"
    ACCUMULATE = "accumulate"
    SCALE = "scale"
    SQUARE = "square"
    CLIP = "clip"
    UPDATE = "update"
    TICK = "tick"


@dataclass(frozen=True)
class Local:
    """A step without traffic. ``factor`` is the text of a scale, such as ``1/(dp*micro)``.

    ``accumulate`` with ``overwrite`` false adds from the first micro-batch on; normally the first
    micro-batch overwrites and the others add.
    """

    action: Action
    items: tuple[Item, ...]
    where: Where
    why: str = ""
    factor: str = "1"
    overwrite: bool = False


LOSS_STATISTICS = ("maximum", "sum", "target")
"""What a cross-entropy over vocabulary shards exchanges for each token."""


@dataclass(frozen=True)
class Run:
    """An operation run forward or backward, with its inputs as they are after conversions.

    ``uses`` gives, per parameter, the layout at this use: S own part, R part of the sum, absent
    (invariant) the whole sum on every rank. ``statistics`` are the axes over which a loss on
    vocabulary shards exchanges its sums. ``scratch`` is held while a backward run goes on.
    """

    kind: str
    out: str
    ins: tuple[str, ...]
    params: tuple[str, ...]
    uses: tuple[Layout, ...]
    where: Where
    backward: bool = False
    attrs: tuple[tuple[str, Dim], ...] = ()
    internals: tuple[tuple[str, tuple[Dim, ...]], ...] = ()
    statistics: tuple[str, ...] = ()
    scratch: tuple[tuple[str, tuple[Dim, ...]], ...] = ()


Step: TypeAlias = Run | Transfer | Local


@dataclass(frozen=True)
class PlanTensor:
    """A parameter in a plan: the layout of each stored state, and its layout at the use.

    ``offloaded`` names the states stored off the device. ``padded``: gathered copies keep the
    padding of the wire. ``flat``: its unit is stored as one flat tensor.
    """

    name: str
    shape: tuple[Dim, ...]
    group: str
    unit: str
    stored: Layout
    gradient: Layout
    optimizer: Layout
    use: Layout
    trainable: bool = True
    times: Dim = 1
    offloaded: tuple[str, ...] = ()
    padded: bool = False
    flat: bool = False


@dataclass(frozen=True)
class PlanValue:
    """An activation in a plan: global shape and layout; a dropout mask, or what a loss reads."""

    name: str
    shape: tuple[Dim, ...]
    layout: Layout
    integer: bool = False
    needs_gradient: bool = True
    mask: bool = False
    logits: bool = False


@dataclass(frozen=True)
class Stage:
    """The program of one (virtual) pipeline stage."""

    name: str
    tensors: tuple[PlanTensor, ...]
    before: tuple[Step, ...]
    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    after: tuple[Step, ...]

    def steps(self) -> Iterator[tuple[str, Step]]:
        """Every step with the name of its section, in program order."""
        for section in ("before", "forward", "backward", "after"):
            for step in getattr(self, section):
                yield section, step


@dataclass(frozen=True)
class Position:
    """A position on the pipeline axis: which stages it runs and how many micro-batches it keeps.

    ``index`` counts from the first position; ``None`` is the last. ``stages`` pairs a stage number
    with how many such stages the position runs (more than one when interleaved).
    """

    name: str
    index: int | None
    stages: tuple[tuple[int, Dim], ...]


@dataclass(frozen=True)
class Plan:
    """A training step as data (the semantics page, section 3).

    ``mean_axes`` are the axes (and the loop ``micro``) whose turns share the loss; ``batch_axes``
    those that split the batch; ``loss`` says what the specification divides the sum by.
    """

    mesh: Mesh
    values: Mapping[str, PlanValue]
    stages: tuple[Stage, ...]
    positions: tuple[Position, ...]
    micro: Dim = 1
    schedule: str = "none"
    pipeline: str = ""
    chunks: int = 1
    mean_axes: tuple[str, ...] = ()
    batch_axes: tuple[str, ...] = ()
    loss: str = "mean"

    def steps(self) -> Iterator[tuple[Stage, str, Step]]:
        for stage in self.stages:
            for section, step in stage.steps():
                yield stage, section, step

    def tied(self, name: str) -> tuple[Stage, ...]:
        """The stages that each have a copy of a tensor, where there are several; else none."""
        having = (
            stage
            for stage in self.stages
            if any(t.name == name and t.times == 1 for t in stage.tensors)
        )
        found = tuple(having)
        return found if len(found) > 1 else ()

    def transfers(self) -> Iterator[Transfer]:
        return (step for _, _, step in self.steps() if isinstance(step, Transfer))


def in_flight(plan: Plan, position: Position, sizes: Sizes[N]) -> N:
    """How many micro-batches (of one chunk) a position keeps at most.

    gpipe m; 1f1b ``min(p - k, m)`` (arXiv 2104.04473); interleaved, in chunks,
    ``min(2 (p - k - 1) + (v - 1) p + 1, m v)`` divided over the position's ``v`` chunks by the
    reader.
    """
    micro = sizes.dim(plan.micro)
    if plan.schedule in ("none", "gpipe"):
        return sizes.dim(1) if plan.schedule == "none" else micro
    pp = sizes.axis(plan.pipeline)
    behind = (
        sizes.dim(1) if position.index is None else sizes.difference(pp, sizes.dim(position.index))
    )
    if plan.schedule == "1f1b":
        return sizes.least([behind, micro])
    more = sizes.product([sizes.dim(plan.chunks - 1), pp])
    warm = sizes.difference(sizes.product([sizes.dim(2), behind]), sizes.dim(1))
    return sizes.least([sizes.total([warm, more]), sizes.product([micro, sizes.dim(plan.chunks)])])


RING: Mapping[Collective, tuple[int, bool]] = {
    Collective.ALL_REDUCE: (2, True),
    Collective.ALL_GATHER: (1, True),
    Collective.REDUCE_SCATTER: (1, True),
    Collective.ALL_TO_ALL: (1, True),
    Collective.BROADCAST: (1, True),
    Collective.POINT_TO_POINT: (1, False),
    Collective.HOST: (1, False),
}
"""Bytes a rank sends per byte of payload, as (factor, whether times (N-1)/N) (semantics page, 6).

The payload is the full tensor on the axes of the transfer; for all-to-all it is the rank's part.
"""
