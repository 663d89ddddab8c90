"""Conventions: how many bytes each state takes per parameter. Every number says which is in force.

A convention is data with a name. ``optimizer`` is the ``K`` of the ZeRO paper: all bytes per
parameter that the optimizer keeps, a master copy of the parameters included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim

STATISTIC_BYTES = 4
"""Bytes of one element of a statistic (a squared norm, the sums of a loss): always float32."""


@dataclass(frozen=True)
class Convention:
    """Bytes per element (per parameter for ``optimizer``).

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

    def __str__(self) -> str:
        return (
            f"convention {self.name}: {self.parameter}+{self.gradient}+{self.optimizer} bytes per "
            f"parameter (parameter, gradient, optimizer K); gathered {self.gathered}, reduced "
            f"gradient {self.reduction}, activation {self.activation} bytes per element"
        )

    def to_json(self) -> dict[str, Dim]:
        """All fields by name (bytes)."""
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
        }


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
