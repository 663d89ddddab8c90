"""Every valid layout of a job, in blocks of one kind, and why the others are not valid."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from placement_proofs.composition import Composition, compose
from placement_proofs.layouts.kernels import ATTENTION
from placement_proofs.layouts.setting import RECOMPUTE, Job, Kind, Layout

Columns: TypeAlias = Mapping[str, NDArray[np.int64]]
"""Degrees of layouts by symbol: b, t, p, c, e, d (and m, micro-batches, where they are valid)."""

T = TypeVar("T")

Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Choices:
    """The values that are considered; an empty tuple is every one that divides.

    Attributes:
        micro_batch: sequences of a micro-batch.
        tensor, pipeline, context, expert, data: degrees (ranks).
        chunks: chunks of layers on a pipeline rank.
        zero: 0 to 3; 3 is fully sharded data parallelism.
        sequence, recompute, attention, norm: as in :class:`Layout`.
    """

    micro_batch: tuple[int, ...] = ()
    tensor: tuple[int, ...] = ()
    pipeline: tuple[int, ...] = ()
    context: tuple[int, ...] = ()
    expert: tuple[int, ...] = ()
    data: tuple[int, ...] = ()
    chunks: tuple[int, ...] = (1, 2, 4)
    zero: tuple[int, ...] = (0, 1, 2, 3)
    sequence: tuple[bool, ...] = (False, True)
    recompute: tuple[str, ...] = RECOMPUTE
    attention: tuple[str, ...] = ("flash-2",)
    norm: tuple[str, ...] = ("fused",)


@dataclass(frozen=True)
class Rule:
    """A rule of valid layouts.

    Attributes:
        name: a word for it.
        source: ``composition`` where composing or deriving refuses what breaks it, ``schedule``
            and ``kernel`` where those do, ``same`` where a layout equals another one.
        holds: whether it holds, by row.
        text: the rule in words, for a job.
    """

    name: str
    source: str
    holds: Callable[[Columns, Kind, Job], Mask]
    text: Callable[[Job], str]


def _ones(columns: Columns) -> Mask:
    return np.ones(len(columns["t"]), dtype=bool)


def _tokens(columns: Columns, kind: Kind, job: Job) -> Mask:
    parts = columns["c"] * columns["t"] if kind.sequence else columns["c"]
    mask: Mask = job.shape.sequence % parts == 0
    return mask


def _experts(columns: Columns, kind: Kind, job: Job) -> Mask:
    if not job.shape.experts:
        return _ones(columns)
    mask: Mask = job.shape.experts % columns["e"] == 0
    return mask


def _dense(columns: Columns, kind: Kind, job: Job) -> Mask:
    one: Mask = columns["e"] == 1
    return _ones(columns) if job.shape.experts else one


def _routed(columns: Columns, kind: Kind, job: Job) -> Mask:
    """The tokens of an expert divide over the ranks of a sequence."""
    shape = job.shape
    if not shape.experts:
        return _ones(columns)
    each, rest = divmod(shape.sequence * shape.top_k, shape.experts)
    mask: Mask = (each % columns["c"] == 0) & (rest == 0)
    return mask


def _turns(columns: Columns, kind: Kind, job: Job) -> Mask:
    if kind.chunks == 1:
        return _ones(columns)
    each = columns["b"] * columns["d"] * columns["e"] * columns["p"]
    mask: Mask = job.global_batch % each == 0
    return mask


def _sharing(columns: Columns, kind: Kind, job: Job) -> Mask:
    ranks: Mask = columns["d"] * columns["c"] > 1
    return ranks if kind.zero else _ones(columns)


def _kernel(columns: Columns, kind: Kind, job: Job) -> Mask:
    group = columns["t"] * ATTENTION[kind.attention].group
    mask: Mask = columns["b"] * job.shape.heads % group == 0
    return mask


RULES = (
    Rule(
        "ranks",
        "composition",
        lambda x, _, job: x["t"] * x["p"] * x["c"] * x["e"] * x["d"] == job.gpus,
        lambda job: f"the degrees multiply to {job.gpus} ranks",
    ),
    Rule(
        "heads",
        "composition",
        lambda x, _, job: job.shape.heads % x["t"] == 0,
        lambda job: f"the tensor degree divides {job.shape.heads} heads",
    ),
    Rule(
        "kv-heads",
        "composition",
        lambda x, _, job: job.shape.kv_heads % x["t"] == 0,
        lambda job: f"the tensor degree divides {job.shape.kv_heads} key-value heads",
    ),
    Rule(
        "layers",
        "composition",
        lambda x, kind, job: job.shape.layers % (x["p"] * kind.chunks) == 0,
        lambda job: f"stages times chunks divide {job.shape.layers} layers",
    ),
    Rule(
        "sequence",
        "composition",
        _tokens,
        lambda job: (
            f"the context degree, with sequence parallelism times the tensor degree, "
            f"divides {job.shape.sequence} tokens"
        ),
    ),
    Rule(
        "experts",
        "composition",
        _experts,
        lambda job: f"the expert degree divides {job.shape.experts} experts",
    ),
    Rule(
        "routing",
        "composition",
        _routed,
        lambda job: (
            f"{job.shape.sequence} tokens times {job.shape.top_k} divide over "
            f"{job.shape.experts} experts, and each share over the context degree"
        ),
    ),
    Rule(
        "batch",
        "composition",
        lambda x, _, job: job.global_batch % (x["b"] * x["d"] * x["e"]) == 0,
        lambda job: f"micro-batch times data-parallel ranks divide {job.global_batch} sequences",
    ),
    Rule(
        "interleaving",
        "schedule",
        _turns,
        lambda _: (
            "interleaved 1F1B takes micro-batches in groups of the number of stages "
            "(arXiv 2104.04473, section 2.2)"
        ),
    ),
    Rule(
        "kernel",
        "kernel",
        _kernel,
        lambda _: "the attention kernel wants sequences times heads of a rank in groups",
    ),
    Rule(
        "dense",
        "same",
        _dense,
        lambda _: "a dense model has no experts: expert ranks are data-parallel ranks",
    ),
    Rule(
        "sharding",
        "same",
        _sharing,
        lambda _: "with one data-parallel rank ZeRO shards nothing: the layout is that of zero=0",
    ),
)
"""In the order in which they are tried: a layout counts for the first rule that it breaks."""


@dataclass(frozen=True)
class Block:
    """Valid layouts of one kind; ``columns`` has an array for each of b, t, p, c, e, d, m."""

    kind: Kind
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["t"])

    def layout(self, row: int) -> Layout:
        """The layout of a row."""
        at = {name: int(column[row]) for name, column in self.columns.items()}
        kind = self.kind
        return Layout(
            at["b"],
            at["t"],
            at["p"],
            kind.chunks,
            at["d"],
            at["c"],
            at["e"],
            kind.zero,
            kind.sequence,
            kind.recompute,
            kind.attention,
            kind.norm,
        )


@dataclass(frozen=True)
class Space:
    """The valid layouts of a job, and the counts of the others by the first rule they break."""

    job: Job
    blocks: tuple[Block, ...]
    rejected: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def reasons(self) -> Iterator[tuple[int, str]]:
        """Counts of layouts that are not valid, with the rule in words, the largest first."""
        text = {rule.name: rule.text(self.job) for rule in RULES}
        for name, count in sorted(self.rejected.items(), key=lambda pair: -pair[1]):
            yield count, text[name]


def space(job: Job, choices: Choices | None = None) -> Space:
    """All valid layouts of ``job`` among ``choices``."""
    chosen = choices or Choices()
    blocks: list[Block] = []
    rejected: Counter[str] = Counter()
    for present, columns in _degrees(job, chosen).items():
        for kind in _kinds(present, chosen):
            valid = _ones(columns)
            for rule in RULES:
                holds = rule.holds(columns, kind, job)
                rejected[rule.name] += int(np.count_nonzero(valid & ~holds))
                valid &= holds
            if valid.any():
                rows = {name: column[valid] for name, column in columns.items()}
                each = rows["b"] * rows["d"] * rows["e"]
                blocks.append(Block(kind, rows | {"m": job.global_batch // each}))
    return Space(job, tuple(blocks), +rejected)


Present: TypeAlias = tuple[bool, bool, bool, bool]
"""Whether the tensor, pipeline, context and expert degrees are above 1."""


def _degrees(job: Job, choices: Choices) -> dict[Present, Columns]:
    """All combinations of degrees and micro-batches, by the degrees that are above 1."""
    ranks = divisors(job.gpus)
    experts = ranks if job.shape.experts else (1,)
    axes = (
        choices.tensor or ranks,
        choices.pipeline or ranks,
        choices.context or ranks,
        choices.expert or experts,
    )
    found: dict[Present, list[tuple[int, ...]]] = {}
    for t, p, c, e in itertools.product(*axes):
        for d in choices.data or (max(1, job.gpus // (t * p * c * e)),):
            if t * p * c * e * d != job.gpus and not _told(job, choices, (t, p, c, e, d)):
                continue
            present = (t > 1, p > 1, c > 1, e > 1)
            for b in choices.micro_batch or divisors(max(1, job.global_batch // (d * e))):
                found.setdefault(present, []).append((b, t, p, c, e, d))
    return {
        present: dict(zip("btpced", np.array(rows, dtype=np.int64).T, strict=True))
        for present, rows in found.items()
    }


def _told(job: Job, choices: Choices, degrees: tuple[int, int, int, int, int]) -> bool:
    """Whether degrees of another number of ranks are the fault of the choices, told once."""
    names = ("tensor", "pipeline", "context", "expert", "data")
    given = [bool(getattr(choices, name)) for name in names]
    fixed = math.prod(d for d, told in zip(degrees, given, strict=True) if told)
    others = [d for d, told in zip(degrees[:4], given, strict=False) if not told]
    return all(d == 1 for d in others) and (job.gpus % fixed > 0 or (not others and given[4]))


def _kinds(present: Present, choices: Choices) -> Iterator[Kind]:
    tensor, pipeline, context, expert = present
    sequence = choices.sequence if tensor else _only(choices.sequence, False)
    chunks = choices.chunks if pipeline else _only(choices.chunks, 1)
    flags = itertools.product(
        chunks, choices.zero, sequence, choices.recompute, choices.attention, choices.norm
    )
    for values in flags:
        yield Kind(pipeline, tensor, context, expert, *values)


def _only(values: tuple[T, ...], value: T) -> tuple[T, ...]:
    """What remains of a choice that has one meaning without its axis."""
    return (value,) if value in values else ()


@cache
def divisors(number: int) -> tuple[int, ...]:
    """The divisors of a number, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def concrete(layout: Layout, job: Job) -> Composition:
    """The composition of one layout, with numbers for all sizes.

    Raises:
        IllFormed: the layout does not divide the batch or has another number of ranks.
    """
    sizes = {
        "tp": layout.tensor,
        "pp": layout.pipeline,
        "cp": layout.context,
        "ep": layout.expert,
        "dp": layout.data,
        "micro": job.microbatches(layout),
    }
    symbolic = layout.kind.composition(vocabulary=job.vocabulary, stages=layout.pipeline)
    return compose(*symbolic.resized(sizes).strategies)
