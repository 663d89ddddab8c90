"""What kernels keep for their backward step: eager ones intermediate results, fused ones none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from placement_proofs.mesh import Dim
from placement_proofs.model import FLOAT32, Model, Op
from placement_proofs.profile import Profile

Internals: TypeAlias = tuple[tuple[str, tuple[Dim, ...]], ...]


def _normed(op: Op, given: tuple[Dim, ...]) -> Internals:
    """The input in float32, and the normalised value before its weight."""
    return ((f"{op.out}{FLOAT32}", given), (f"{op.out}.normed", given))


def _scores(op: Op, given: tuple[Dim, ...]) -> Internals:
    """The weights of all heads."""
    return ((f"{op.out}.scores", (given[0], dict(op.attrs)["heads"], given[1], given[1])),)


def _logits(op: Op, given: tuple[Dim, ...]) -> Internals:
    """The logits in float32, and their log-probabilities in float32."""
    return tuple((f"{op.out}.{name}{FLOAT32}", given) for name in ("logits", "probabilities"))


EAGER: Mapping[str, Callable[[Op, tuple[Dim, ...]], Internals]] = {
    "norm": _normed,
    "head_norm": _normed,
    "attention": _scores,
    "latent_attention": _scores,
    "loss": _logits,
}
"""What an eager kernel of each kind keeps, from the operation and the shape of its first input."""


def with_kernels(model: Model, profile: Profile) -> Model:
    """The model with the kernels of a profile; what a model says of others stays."""
    if not profile.eager and not profile.fused:
        return model
    shapes = {value.name: value.shape for value in model.values}

    def kept(op: Op) -> Internals:
        if op.kind in profile.eager and not op.internals:
            return EAGER[op.kind](op, shapes[op.ins[0]])
        return () if op.kind in profile.fused else op.internals

    return replace(model, ops=tuple(replace(op, internals=kept(op)) for op in model.ops))
