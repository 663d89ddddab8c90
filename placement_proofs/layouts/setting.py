"""Jobs and layouts: the numbers that a planner chooses, and the class of plans they belong to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placement_proofs.composition import Composition
from placement_proofs.cost.convention import DEFAULT, Convention
from placement_proofs.errors import IllFormed
from placement_proofs.layouts.devices import Machine
from placement_proofs.layouts.kernels import ATTENTION, NORM
from placement_proofs.mesh import Dim, IntSizes
from placement_proofs.models import Shape, transformer
from placement_proofs.strategies import (
    accumulate,
    context,
    data,
    expert,
    pipeline,
    recompute,
    tensor,
    zero1,
    zero2,
    zero3,
)

Number = TypeVar("Number", float, NDArray[np.float64])

RECOMPUTE = ("none", "selective", "full")

STAGES = 4
"""Pipeline stages of the plan of a class: a first, a last, and middle ones."""


@dataclass(frozen=True)
class Kind:
    """What is not a number in a layout: all layouts of a kind have one plan and one set of forms.

    Attributes:
        pipeline, tensor, context, expert: whether the degree is above 1. Data parallelism is in
            every kind: with one rank it costs nothing.
        chunks: chunks of layers on a pipeline rank (above 1: interleaved 1F1B).
        zero: what is sharded over data (and context) ranks: 0 nothing, 1 optimizer, 2 gradients
            too, 3 parameters too.
        sequence: sequence parallelism over the tensor ranks (arXiv 2205.05198).
        recompute: ``none``, ``selective`` (attention) or ``full`` (every layer).
        attention, norm: kernels by name (:mod:`placement_proofs.layouts.kernels`).
    """

    pipeline: bool = False
    tensor: bool = False
    context: bool = False
    expert: bool = False
    chunks: int = 1
    zero: int = 1
    sequence: bool = False
    recompute: str = "none"
    attention: str = "flash-2"
    norm: str = "fused"

    @property
    def schedule(self) -> str:
        """``none``, ``1f1b`` or ``interleaved``."""
        if not self.pipeline:
            return "none"
        return "1f1b" if self.chunks == 1 else "interleaved"

    def composition(self, *, vocabulary: bool = True, stages: Dim = STAGES) -> Composition:
        """The composition of the kind, with symbols t, d, c, e, m for sizes.

        ``vocabulary`` says that embedding and head are cut over the tensor ranks.
        """
        pp = (
            pipeline(pp=stages, microbatches="m", schedule=self.schedule, chunks=self.chunks)
            if self.pipeline
            else accumulate(micro="m")
        )
        parts = [pp]
        if self.tensor:
            parts.append(tensor(tp="t", sequence=self.sequence, vocabulary=vocabulary))
        if self.context:
            parts.append(context(cp="c"))
        if self.expert:
            parts.append(expert(ep="e"))
        over = ("dp", "cp") if self.context else None
        zero = {1: zero1, 2: zero2, 3: zero3}
        parts.append(zero[self.zero](dp="d", shard_over=over) if self.zero else data(dp="d"))
        if self.recompute != "none":
            parts.append(recompute(self.recompute))
        return Composition(tuple(parts))


@dataclass(frozen=True)
class Layout:
    """One layout of a job: sequences of a micro-batch, degrees (ranks), and switches.

    ``chunks`` is the number of chunks of layers on a pipeline rank (interleaving); ``context``
    ranks share a sequence; ``expert`` ranks are data-parallel for what is not an expert.

    Raises:
        IllFormed: a degree below 1, or a word that means nothing.
    """

    micro_batch: int = 1
    tensor: int = 1
    pipeline: int = 1
    chunks: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    zero: int = 1
    sequence: bool = False
    recompute: str = "none"
    attention: str = "flash-2"
    norm: str = "fused"

    def __post_init__(self) -> None:
        names = ("micro_batch", "tensor", "pipeline", "chunks", "data", "context", "expert")
        for name in names:
            if getattr(self, name) < 1:
                raise IllFormed(
                    f"layout: {name}",
                    str(getattr(self, name)),
                    "a whole number from 1",
                    "write 1 to leave it out",
                )
        words = {
            "zero": (0, 1, 2, 3),
            "recompute": RECOMPUTE,
            "attention": tuple(ATTENTION),
            "norm": tuple(NORM),
        }
        for name, known in words.items():
            if getattr(self, name) not in known:
                raise IllFormed(
                    f"layout: {name}",
                    repr(getattr(self, name)),
                    f"it is one of {', '.join(map(str, known))}",
                    "choose one of them",
                )

    @property
    def world(self) -> int:
        """Ranks: the product of all degrees."""
        degrees = (self.tensor, self.pipeline, self.data, self.context, self.expert)
        return math.prod(degrees)

    @property
    def kind(self) -> Kind:
        """The class of plans."""
        tensor = self.tensor > 1
        return Kind(
            self.pipeline > 1,
            tensor,
            self.context > 1,
            self.expert > 1,
            self.chunks,
            self.zero,
            self.sequence and tensor,
            self.recompute,
            self.attention,
            self.norm,
        )

    def __str__(self) -> str:
        degrees = f"b={self.micro_batch} t={self.tensor} p={self.pipeline} d={self.data}"
        more = [f"v={self.chunks}"] if self.chunks > 1 else []
        more += [f"c={self.context}"] if self.context > 1 else []
        more += [f"e={self.expert}"] if self.expert > 1 else []
        more += [f"zero-{self.zero}"] if self.zero != 1 else []
        more += ["sequence-parallel"] if self.sequence else []
        more += [f"recompute={self.recompute}"] if self.recompute != "none" else []
        return " ".join([degrees, *more, f"attention={self.attention}", f"norm={self.norm}"])


@dataclass(frozen=True)
class Job:
    """What is given: a model, a batch, and the machine that trains it.

    Attributes:
        name: what the texts call the model.
        shape: of the model; ``shape.sequence`` is the number of tokens of a sequence.
        global_batch: sequences of one training step over all ranks.
        gpus: ranks.
        machine: the device and the cluster.
        convention: bytes per element of each state.
        vocabulary: whether embedding and head are cut over the tensor ranks.
        whole_logits: whether each tensor rank then gathers all logits for the loss.
        repeats: whether recomputation repeats all of a layer, also what backward does not read.
    """

    name: str
    shape: Shape
    global_batch: int
    gpus: int
    machine: Machine
    convention: Convention = field(default=DEFAULT)
    vocabulary: bool = True
    whole_logits: bool = False
    repeats: bool = False

    def microbatches(self, layout: Layout) -> int:
        """Micro-batches of one data-parallel rank in a training step.

        Raises:
            IllFormed: the layout does not divide the batch, or has another number of ranks.
        """
        if layout.world != self.gpus:
            raise IllFormed(
                f"layout {layout}",
                f"{layout.world} ranks",
                f"the job has {self.gpus}",
                "choose degrees whose product is the number of ranks",
            )
        each = layout.micro_batch * layout.data * layout.expert
        if self.global_batch % each:
            raise IllFormed(
                f"layout {layout}",
                f"{each} sequences a pass of all ranks",
                f"they divide the global batch of {self.global_batch}",
                "choose another micro-batch or data-parallel degree",
            )
        return self.global_batch // each

    @property
    def flops(self) -> int:
        """Model FLOPs of a training step: ``B s (6 Psi + 12 L h s)``, the definition of MFU.

        Recomputation and the skipped half of the scores are not counted; of experts, those that a
        token visits are (arXiv 2311.05610, section 3; 2204.02311, appendix B).
        """
        shape = self.shape
        width = shape.heads * (shape.head_dim or shape.hidden // shape.heads)
        scores = 12 * shape.layers * width * shape.sequence
        return self.global_batch * shape.sequence * (6 * visited(shape) + scores)

    def mfu(self, seconds: Number) -> Number:
        """Model FLOPs utilisation of a step of so many seconds (a number or an array)."""
        return self.flops / (seconds * self.gpus * self.machine.device.flops)

    @property
    def symbols(self) -> dict[str, float]:
        """Numbers for the symbols of the model and of the machine in the forms."""
        device, cluster = self.machine.device, self.machine.cluster
        return {
            **self.shape.dims,
            "flops": device.flops,
            "bandwidth": device.bandwidth,
            "node": cluster.node,
            "inside": cluster.inside.bandwidth,
            "inside_latency": cluster.inside.latency,
            "between": cluster.between.bandwidth,
            "between_latency": cluster.between.latency,
        }

    def columns(self, layout: Layout) -> dict[str, int]:
        """Numbers for the symbols of the layout in the forms.

        Raises:
            IllFormed: the layout does not fit the job.
        """
        return {
            "t": layout.tensor,
            "p": layout.pipeline,
            "d": layout.data,
            "c": layout.context,
            "e": layout.expert,
            "b": layout.micro_batch,
            "m": self.microbatches(layout),
        }


def visited(shape: Shape) -> int:
    """Parameters that a token meets: all of a dense model; of experts, those it is sent to."""
    model = transformer(shape, folded=True)
    sizes = IntSizes({}, {**shape.dims, "B": 1})
    times = {block.name: sizes.dim(block.times) for block in model.blocks}
    blocks = {name: op.block for op in model.ops for name in op.params}
    total = 0
    for weight in model.tensors:
        count = math.prod(sizes.dim(d) for d in weight.shape)
        if weight.group.startswith("expert"):
            count = count // shape.experts * shape.top_k
        total += count * times[blocks[weight.name]]
    return total
