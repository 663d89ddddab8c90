"""Whether the sizes of a shape fit each other."""

from __future__ import annotations

from collections.abc import Iterator

from placement_proofs.errors import IllFormed
from placement_proofs.shape import Shape


def check_shape(place: str, shape: Shape) -> None:
    """Refuse a shape that no model has.

    Raises:
        IllFormed: the sizes do not fit each other; the message says which.
    """
    for wrong, found, rule, remedy in (*_heads(shape), *_experts(shape), *_more(shape)):
        if wrong:
            raise IllFormed(place, found, rule, remedy)


Check = tuple[bool, str, str, str]
"""Whether it fails, what was found, the rule, the remedy."""


def _heads(shape: Shape) -> Iterator[Check]:
    counts = (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.sequence)
    whole = shape.head_dim > 0 or shape.kv_rank > 0
    yield (
        min(counts) < 1
        or not (whole or shape.hidden % shape.heads == 0)
        or shape.heads % shape.kv_heads > 0,
        f"hidden {shape.hidden}, heads {shape.heads}, kv_heads {shape.kv_heads}",
        "heads divide the hidden size and key-value heads divide heads; all are at least 1",
        "correct the shape",
    )
    sizes = (shape.nope_dim, shape.rope_dim, shape.value_dim)
    found = f"kv_rank {shape.kv_rank}, q_rank {shape.q_rank}, nope_dim, rope_dim, value_dim {sizes}"
    yield (
        len({n > 0 for n in (shape.kv_rank, *sizes)}) > 1
        or (shape.q_rank > 0 and not shape.kv_rank),
        found,
        "latent attention has kv_rank, nope_dim, rope_dim and value_dim, other attention none",
        "give all of them or none",
    )
    yield (
        shape.kv_rank > 0
        and (shape.bias or shape.qkv_bias or shape.qk_norm or shape.whole_qk_norm),
        "kv_rank with bias, qkv_bias, qk_norm or whole_qk_norm",
        "latent attention has norms of its own and no biases",
        "leave them out",
    )
    yield (
        shape.qk_norm and shape.whole_qk_norm,
        "qk_norm and whole_qk_norm",
        "queries and keys are normalised head by head or all heads as one",
        "keep one",
    )


def _experts(shape: Shape) -> Iterator[Check]:
    yield (
        shape.experts > 0 and not 1 <= shape.top_k <= shape.experts,
        f"top_k {shape.top_k}, experts {shape.experts}",
        "a token goes to at least one expert and to each at most once",
        "correct top_k",
    )
    yield (
        shape.dense_layers > 0 and not (shape.experts and shape.dense_layers < shape.layers),
        f"dense_layers {shape.dense_layers} of {shape.layers}, experts {shape.experts}",
        "the first layers of a model with experts may be dense, not all of them",
        "write dense_layers = 0 for a model without experts",
    )


def _more(shape: Shape) -> Iterator[Check]:
    yield (
        0 < shape.positions < shape.sequence,
        f"positions {shape.positions}, sequence {shape.sequence}",
        "the table of positions has a row for each token of a sequence",
        f"write positions = {shape.sequence} or a shorter sequence",
    )
