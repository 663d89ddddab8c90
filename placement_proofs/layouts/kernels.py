"""Kernels of attention and norms: what they keep beside the plan's values, and how they run.

A kernel changes the model before it is derived: what it keeps for the backward pass is an internal
value of its operation, so that the plan shards it, drops it and recomputes it like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from placement_proofs.mesh import Dim
from placement_proofs.model import MASK, Model, Op

Internal = tuple[str, tuple[Dim, ...]]


@dataclass(frozen=True)
class Attention:
    """A kernel of attention.

    Attributes:
        scores: copies of the scores kept for the backward pass (elements of the activation width).
        masks: masks of one byte a score kept for the backward pass.
        scratch: copies of the scores and their gradients that the backward pass holds beside.
        traffic: bytes read and written for each score, in the forward and in the backward pass.
        launches: kernels launched in the forward and in the backward pass.
        efficiency: the fraction of peak FLOP/s that it reaches on the work that it does.
        skips: whether it leaves out the half of the scores above the diagonal.
        again: forward work that its backward pass repeats (the product of queries and keys).
        group: the number of sequences times heads of a rank is a multiple of this, or the kernel
            is not available.
        source: where the figures come from.
    """

    scores: int
    masks: int
    scratch: int
    traffic: tuple[int, int]
    launches: tuple[int, int]
    efficiency: float
    skips: bool
    again: float
    group: int
    source: str


@dataclass(frozen=True)
class Norm:
    """A kernel of norms.

    Attributes:
        copies: values of the activation width kept beside the input, for each norm.
        traffic: bytes read and written for each element, in the forward and the backward pass.
        launches: kernels launched in the forward and the backward pass.
        source: where the figures come from.
    """

    copies: int
    traffic: tuple[int, int]
    launches: tuple[int, int]
    source: str


ATTENTION: Mapping[str, Attention] = {
    "flash-2": Attention(
        0,
        0,
        0,
        (0, 0),
        (3, 6),
        0.58,
        True,
        0.5,
        1,
        "arXiv 2307.08691, figure 4 and section 4.1: 50-73% of peak on A100",
    ),
    "flash-1": Attention(
        0,
        0,
        0,
        (0, 0),
        (3, 6),
        0.33,
        True,
        0.5,
        1,
        "arXiv 2307.08691, section 1: flash-attention 1 reaches 25-40% of peak",
    ),
    "fused-softmax": Attention(
        2,
        1,
        2,
        (8, 12),
        (6, 8),
        0.45,
        False,
        0.0,
        4,
        "Megatron-LM's fused softmax: scores in and out of one kernel, four of them a block",
    ),
    "eager": Attention(
        2,
        1,
        2,
        (26, 34),
        (9, 12),
        0.45,
        False,
        0.0,
        1,
        "operations of a tensor library: scale, mask, softmax in float32, cast",
    ),
}
"""Kernels of attention by name."""

NORM: Mapping[str, Norm] = {
    "fused": Norm(0, (4, 8), (1, 2), "one kernel that reads its input once"),
    "eager": Norm(
        3,
        (36, 86),
        (8, 14),
        "x.float(), its square, mean, product, cast and scale: float32 and normalised copies kept; "
        "each operand of each operation and of its gradient once",
    ),
}
"""Kernels of norms by name."""

ROTATED = 2
"""Copies that rotary embedding keeps: queries and keys after the rotation."""

POSITIONS = "positions"
"""The group of a learned table of positions: models that have one rotate nothing."""

ROTARY_LAUNCHES = (5, 6)
"""Kernels that a rotation launches, forward and backward."""

ROTARY_TRAFFIC = (20, 20)
"""Bytes that a rotation reads and writes for each element, forward and backward: halves, products
and their sum, each an operation."""


def with_kernels(model: Model, attention: str, norm: str) -> Model:
    """``model`` with what its kernels keep for the backward pass; operations keep their names.

    Raises:
        KeyError: no kernel has that name.
    """
    widths = {value.name: value.shape for value in model.values}
    rotates = not any(tensor.group == POSITIONS for tensor in model.tensors)
    ops = tuple(
        replace(
            op, internals=_kept(op, widths, attention, norm, rotates), scratch=_held(op, attention)
        )
        for op in model.ops
    )
    return replace(model, ops=ops)


def _kept(
    op: Op,
    shapes: Mapping[str, tuple[Dim, ...]],
    attention: str,
    norm: str,
    rotates: bool,
) -> tuple[Internal, ...]:
    if op.kind == "norm":
        return tuple((f"{op.out}.copy{i}", shapes[op.out]) for i in range(NORM[norm].copies))
    if op.kind != "attention":
        return op.internals
    kernel = ATTENTION[attention]
    rotated = tuple((f"{name}.rotated", shapes[name]) for name in op.ins[: ROTATED * rotates])
    scores = tuple((f"{op.out}.scores{i}", _square(op)) for i in range(kernel.scores))
    masks = tuple((f"{op.out}.scores{i}{MASK}", _square(op)) for i in range(kernel.masks))
    return (*rotated, *scores, *masks)


def _held(op: Op, attention: str) -> tuple[Internal, ...]:
    """What the backward pass of an operation holds for itself."""
    if op.kind != "attention":
        return op.scratch
    count = ATTENTION[attention].scratch
    return tuple((f"{op.out}.scratch{i}", _square(op)) for i in range(count))


def _square(op: Op) -> tuple[Dim, ...]:
    return ("B", dict(op.attrs)["heads"], "s", "s")


def available(attention: str, heads: int, micro_batch: int, tensor: int) -> bool:
    """Whether a kernel of attention runs on that many heads and sequences of a rank."""
    return micro_batch * heads % (tensor * ATTENTION[attention].group) == 0
