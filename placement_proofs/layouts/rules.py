"""The recommendations of arXiv 2311.05610 as inequalities, and measured pairs as their test.

Each compares a layout with one that differs in one choice. With all micro-batches of a rank going
through the slowest stage, a step takes ``(m + p - 1) S``: ``m`` micro-batches, ``p`` stages, ``S``
seconds of one micro-batch on a stage. The difference of two such steps is the gain; the
recommendation holds where it is positive. The symbols have values from the forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from placement_proofs.cost import symbols
from placement_proofs.cost.symbols import Expr, symbol
from placement_proofs.layouts.setting import Layout

Pair = tuple[Layout, Layout]
"""The layout that is recommended, and the one that it is compared with."""


@dataclass(frozen=True)
class Rule:
    """A recommendation.

    Attributes:
        name: a short name; ``advice`` is the recommendation in words.
        gain: seconds that a step is shorter with it.
        meaning: of the symbols of the gain.
        follows: whether a layout is as recommended.
        others: the layouts that a recommended one is compared with.
        toward: the recommended layouts that one which is not as recommended is compared with.
        values: numbers for the symbols from those of the pair: seconds of a micro-batch on the
            slowest stage of both, and micro-batches and stages of both.
    """

    name: str
    advice: str
    gain: Expr
    meaning: Mapping[str, str]
    follows: Callable[[Layout], bool]
    others: Callable[[Layout], Iterator[Layout]]
    toward: Callable[[Layout], Iterator[Layout]]
    values: Callable[[Side, Side], dict[str, float]]


@dataclass(frozen=True)
class Side:
    """One layout of a pair: seconds of a micro-batch on the slowest stage, micro-batches, stages.

    ``step`` is the whole step by the forms (seconds), ``peak`` bytes of the fullest rank.
    """

    slot: float
    micro: int
    stages: int
    step: float
    peak: float


M, P, S = symbol("m"), symbol("p"), symbol("S")
STANDARD = {
    "m": "micro-batches of a rank",
    "p": "pipeline stages",
    "S": "seconds of a micro-batch on the slowest stage",
}


def _step(micro: Expr, stages: Expr, slot: Expr) -> Expr:
    """Seconds of a step."""
    return (micro + stages - 1) * slot


def _smaller_batches() -> Rule:
    """Sequences cost ``c`` each and a micro-batch ``o`` beside: ``S = c b + o``."""
    c, o = symbol("c"), symbol("o")
    gain = _step(M / 2, P, 2 * c + o) - _step(M, P, c + o)

    def others(one: Layout) -> Iterator[Layout]:
        if one.micro_batch == 1:
            yield replace(one, micro_batch=2)

    def toward(two: Layout) -> Iterator[Layout]:
        if two.micro_batch == 2:
            yield replace(two, micro_batch=1)

    def values(one: Side, two: Side) -> dict[str, float]:
        each = two.slot - one.slot
        return {"m": one.micro, "p": one.stages, "c": each, "o": one.slot - each}

    return Rule(
        "micro-batch 1",
        "use micro-batches of one sequence",
        symbols.collected(gain, (c, o)),
        {
            **STANDARD,
            "c": "seconds that a sequence adds to a micro-batch",
            "o": "seconds of a micro-batch beside its sequences: launches, latencies",
        },
        lambda one: one.micro_batch == 1,
        others,
        toward,
        values,
    )


def _no_recomputation() -> Rule:
    """Twice the model-parallel ranks keep what half of them recompute; each has two times m."""
    stages, added, again = symbol("q"), symbol("D"), symbol("R")
    gain = _step(M, P, S + again) - _step(2 * M, stages, S / 2 + added)

    def others(one: Layout) -> Iterator[Layout]:
        if one.recompute != "none":
            return
        for name in ("tensor", "pipeline"):
            if getattr(one, name) % 2 == 0:
                half = {name: getattr(one, name) // 2, "data": one.data * 2}
                yield replace(one, recompute="full", **half)

    def toward(two: Layout) -> Iterator[Layout]:
        if two.recompute == "full" and two.data % 2 == 0:
            for name in ("tensor", "pipeline"):
                double = {name: getattr(two, name) * 2, "data": two.data // 2}
                yield replace(two, recompute="none", **double)

    def values(one: Side, two: Side) -> dict[str, float]:
        kept = two.slot / RECOMPUTED
        return {
            "m": two.micro,
            "p": two.stages,
            "q": one.stages,
            "S": kept,
            "R": two.slot - kept,
            "D": one.slot - kept / 2,
        }

    return Rule(
        "no recomputation",
        "raise the model-parallel degree rather than recompute activations",
        symbols.collected(gain, (again, added, S)),
        {
            **STANDARD,
            "q": "pipeline stages with twice the model-parallel ranks",
            "R": "seconds that recomputing adds to a micro-batch",
            "D": "seconds by which a stage of half the work takes more than half",
        },
        lambda one: one.recompute == "none",
        others,
        toward,
        values,
    )


RECOMPUTED = 4 / 3
"""A recomputed micro-batch by one that is not: three passes of equal work become four."""


def _pipeline_first() -> Rule:
    """Half the tensor ranks and twice the stages: the same work of a rank, less traffic ``C``."""
    saved = symbol("C")
    gain = _step(M, P, S + saved) - _step(M, 2 * P, S)

    def others(one: Layout) -> Iterator[Layout]:
        if one.pipeline % 2 == 0:
            yield replace(one, tensor=one.tensor * 2, pipeline=one.pipeline // 2)

    def toward(two: Layout) -> Iterator[Layout]:
        if two.tensor % 2 == 0:
            ranks = two.tensor // 2
            split = two.sequence and ranks > 1
            yield replace(two, tensor=ranks, pipeline=two.pipeline * 2, sequence=split)

    def values(one: Side, two: Side) -> dict[str, float]:
        return {"m": one.micro, "p": two.stages, "S": one.slot, "C": two.slot - one.slot}

    return Rule(
        "pipeline before tensor",
        "prefer pipeline stages to tensor-parallel ranks",
        symbols.collected(gain, (saved, S)),
        {
            **STANDARD,
            "p": "pipeline stages with more tensor-parallel ranks; half of the others'",
            "C": "seconds that half the tensor ranks and twice the stages save in a micro-batch",
        },
        lambda one: one.pipeline >= one.tensor,
        others,
        toward,
        values,
    )


def _sequence_parallel() -> Rule:
    """The same bytes on the wire; norms and residuals are split over the tensor ranks too."""
    saved = symbol("E")
    gain = _step(M, P, S + saved) - _step(M, P, S)

    def others(one: Layout) -> Iterator[Layout]:
        if one.sequence and one.tensor > 1:
            yield replace(one, sequence=False)

    def toward(two: Layout) -> Iterator[Layout]:
        if not two.sequence and two.tensor > 1:
            yield replace(two, sequence=True)

    return Rule(
        "sequence parallelism",
        "use sequence parallelism with tensor parallelism, for large models and long sequences",
        symbols.collected(gain, (saved, S)),
        {**STANDARD, "E": "seconds of norms and residuals that it splits, of a micro-batch"},
        lambda one: one.sequence,
        others,
        toward,
        lambda one, two: _saved("E", one, two),
    )


def _kernels() -> Rule:
    """Kernels that read and write less."""
    saved = symbol("N")
    gain = _step(M, P, S + saved) - _step(M, P, S)

    def others(one: Layout) -> Iterator[Layout]:
        if (one.attention, one.norm) != ("flash-2", "fused"):
            return
        for attention in ("flash-2", "flash-1", "fused-softmax", "eager"):
            yield replace(one, attention=attention, norm="eager")

    def toward(two: Layout) -> Iterator[Layout]:
        if (two.attention, two.norm) != ("flash-2", "fused"):
            yield replace(two, attention="flash-2", norm="fused")

    return Rule(
        "kernels",
        "use flash-attention 2 and the kernel of norms",
        symbols.collected(gain, (saved, S)),
        {**STANDARD, "N": "seconds of attention and norms that the kernels save in a micro-batch"},
        lambda one: (one.attention, one.norm) == ("flash-2", "fused"),
        others,
        toward,
        lambda one, two: _saved("N", one, two),
    )


def _saved(name: str, one: Side, two: Side) -> dict[str, float]:
    return {"m": one.micro, "p": one.stages, "S": one.slot, name: two.slot - one.slot}


RULES = (
    _smaller_batches(),
    _no_recomputation(),
    _pipeline_first(),
    _sequence_parallel(),
    _kernels(),
)
"""In the order of the paper's section 5."""
