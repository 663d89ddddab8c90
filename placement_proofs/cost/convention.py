"""Conventions: how many bytes each state takes per parameter. Every number says which is in force.

A convention is data with a name. ``optimizer`` is the ``K`` of the ZeRO paper: all bytes per
parameter that the optimizer keeps, a master copy of the parameters included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim

STATISTIC_BYTES = 4
"""Bytes of one element of a statistic (a squared norm, the sums of a loss): always float32."""


FLOAT32_BYTES = 4
"""Bytes of one element of what an eager kernel keeps in float32."""


class Ends(Enum):
    """On which pipeline positions embedding and head count."""

    PLACED = "placed"
    SHARED = "shared"
    AVERAGED = "averaged"
    LEFT_OUT = "left out"


ENDS = {
    Ends.SHARED: "one embedding on every pipeline position, and no head",
    Ends.AVERAGED: "states averaged over pipeline positions",
    Ends.LEFT_OUT: "embedding and head not counted",
}
"""What is counted, where it is not what the plan places."""


@dataclass(frozen=True)
class Convention:
    """Bytes per element (per parameter for ``optimizer``), and what is counted.

    Attributes:
        name: what the texts call it.
        parameter: a stored parameter, and a parameter that is published after an update.
        gathered: a parameter gathered for a use, and a fresh gradient (the compute width).
        gradient: a stored gradient.
        reduction: a gradient while it is reduced over ranks.
        optimizer: all optimizer states of one parameter (``K``); a text is a symbol.
        activation: an activation and its gradient.
        source: where the widths come from.
        mask: an element of a dropout mask.
        logits: an element of what the loss reads; 0 where it is an activation like others.
        ends: on which pipeline positions embedding and head count.
        one_in_flight: activations of one micro-batch count, whatever the schedule.
        fused_gate: the result of the activation function of a gated layer is made again.
        attention_inputs: queries, keys and values count.
        layers_only: activations of embedding and head do not count.
        gather: bytes per element of a buffer for the largest gathered tensor; 0 for none.
        reserve: what activations are multiplied with.
        payload: traffic counts whole payloads, not what a ring sends of them.
    """

    name: str
    parameter: int
    gathered: int
    gradient: int
    reduction: int
    optimizer: Dim
    activation: int
    source: str
    mask: int = 1
    logits: int = 0
    ends: Ends = Ends.PLACED
    one_in_flight: bool = False
    fused_gate: bool = False
    attention_inputs: bool = True
    layers_only: bool = False
    gather: int = 0
    reserve: Fraction = Fraction(1)
    payload: bool = False

    @property
    def counting(self) -> tuple[str, ...]:
        """What is counted otherwise than the plan places it, in words."""
        texts = {
            ENDS.get(self.ends, ""): self.ends is not Ends.PLACED,
            "activations of one micro-batch": self.one_in_flight,
            "gated activation functions made again": self.fused_gate,
            "queries, keys and values not counted": not self.attention_inputs,
            "activations of layers alone": self.layers_only,
            f"a gather buffer of {self.gather} bytes per element": self.gather != 0,
            f"activations times {float(self.reserve):g}": self.reserve != 1,
            "traffic as payloads": self.payload,
        }
        return tuple(text for text, said in texts.items() if said)

    def width(self, mask: bool, logits: bool, wide: bool = False) -> int:
        """Bytes of one element of an activation: a mask, what a loss reads, or another one.

        What a kernel keeps in float32 is ``wide`` whatever the convention.
        """
        if wide:
            return FLOAT32_BYTES
        return self.mask if mask else (self.logits if logits else 0) or self.activation

    @property
    def plain(self) -> bool:
        """Whether memory counts what the plan places."""
        return not [text for text in self.counting if "traffic" not in text]

    def __str__(self) -> str:
        return (
            f"convention {self.name}: {self.parameter}+{self.gradient}+{self.optimizer} bytes per "
            f"parameter (parameter, gradient, optimizer K); gathered {self.gathered}, reduced "
            f"gradient {self.reduction}, activation {self.activation} bytes per element"
            + "".join(f"; {text}" for text in self.counting)
        )

    def to_json(self) -> dict[str, object]:
        """All fields by name (bytes), and what is counted otherwise, in words."""
        return {
            "name": self.name,
            "parameter": self.parameter,
            "gathered": self.gathered,
            "gradient": self.gradient,
            "reduction": self.reduction,
            "optimizer": self.optimizer,
            "activation": self.activation,
            "mask": self.mask,
            "logits": self.logits or self.activation,
            "source": self.source,
            "counting": list(self.counting),
        }


def _estimator(
    name: str, gradient: int, reduction: int, optimizer: int, source: str, **counted: Any
) -> Convention:
    """What an estimator counts: 2 bytes of parameters and activations."""
    return Convention(name, 2, 2, gradient, reduction, optimizer, 2, source, **counted)


ESTIMATORS = (
    _estimator(
        "megatron-report",
        4,
        4,
        12,
        "Megatron-LM, training/theoretical_memory_usage.py, where it has no sequence parallelism "
        "with selective recomputation (else: megatron): activations times 1.05",
        reserve=Fraction(21, 20),
    ),
    _estimator(
        "simumax",
        4,
        4,
        12,
        "SimuMax 1.2: kernels of TransformerEngine, payloads of collectives",
        logits=4,
        fused_gate=True,
        payload=True,
    ),
    _estimator(
        "simumax-sdp",
        4,
        4,
        12,
        "SimuMax 1.2 where attention is recomputed: nothing of it counts but its result",
        logits=4,
        fused_gate=True,
        attention_inputs=False,
        payload=True,
    ),
    _estimator(
        "llm-analysis",
        4,
        4,
        12,
        "llm-analysis: float32 gradients, one embedding on every stage",
        ends=Ends.SHARED,
    ),
    _estimator(
        "mlsysim",
        2,
        2,
        12,
        "mlsysim 0.3: the ZeRO paper's bytes, all by the number of stages, none in flight",
        ends=Ends.AVERAGED,
        one_in_flight=True,
        layers_only=True,
    ),
    _estimator(
        "blocks-only",
        2,
        2,
        12,
        "calculon: fp16 gradients, layers without embedding and head",
        ends=Ends.LEFT_OUT,
    ),
    _estimator(
        "deepspeed-zero2",
        6,
        4,
        12,
        "DeepSpeed, estimate_zero2_model_states_mem_needs: 2 P + 18 P / N",
    ),
    _estimator(
        "deepspeed-zero3",
        4,
        4,
        12,
        "DeepSpeed, estimate_zero3_model_states_mem_needs: 18 P / N and 4 bytes for each element "
        "of the largest layer",
        gather=4,
    ),
    _estimator(
        "primus", 2, 2, 10, "Primus projection: 4 bytes of parameters and gradients, 10 / N"
    ),
)
"""What estimators count (``docs/peers.md``)."""

_ALL = (
    Convention(
        "zero-paper", 2, 2, 2, 2, 12, 2, "arXiv 1910.02054, section 3.1: mixed-precision Adam, K=12"
    ),
    Convention(
        "fp32-gradients",
        2,
        2,
        4,
        4,
        12,
        2,
        "Megatron-LM, SimuMax, llm-analysis: gradients kept and reduced in float32",
    ),
    Convention(
        "megatron",
        2,
        2,
        4,
        4,
        12,
        2,
        "arXiv 2205.05198, section 4: float32 main gradients and logits, masks of one byte",
        logits=4,
    ),
    Convention("fp32", 4, 4, 4, 4, 8, 4, "everything float32: Adam's two moments, no master copy"),
    Convention("bf16-only", 2, 2, 2, 2, 4, 2, "two bfloat16 moments, no master copy"),
    Convention(
        "adam-8bit",
        2,
        2,
        2,
        2,
        6,
        2,
        "arXiv 2110.02861: float32 master and two 8-bit moments; the constants of the blocks "
        "(8 bytes per block of 2048 parameters in the paper) are not counted",
    ),
    Convention(
        "sgd-momentum", 2, 2, 2, 2, 8, 2, "SGD, mixed precision: float32 master and momentum"
    ),
    Convention(
        "cast",
        4,
        2,
        4,
        4,
        8,
        2,
        "torch's fully_shard with MixedPrecisionPolicy(param_dtype=bfloat16), and autocast: all "
        "states in float32, parameters cast to 16 bits when they are used",
    ),
    Convention("cast-reduce-16", 4, 2, 4, 2, 8, 2, "the same, with gradients reduced in 16 bits"),
    *ESTIMATORS,
)

CONVENTIONS: Mapping[str, Convention] = {c.name: c for c in _ALL}
"""The named conventions."""

DEFAULT = CONVENTIONS["zero-paper"]


def convention(name: str | None = None) -> Convention:
    """The convention called ``name``, the ZeRO paper's without one.

    Raises:
        IllFormed: no convention has that name.

    >>> print(convention("fp32").optimizer)
    8
    """
    if name is None:
        return DEFAULT
    if name not in CONVENTIONS:
        raise IllFormed(
            "convention",
            repr(name),
            f"the conventions are {', '.join(CONVENTIONS)}",
            "write --convention zero-paper",
        )
    return CONVENTIONS[name]
