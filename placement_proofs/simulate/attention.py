"""Attention with rational weights: squared scores, normalised over the keys that a query sees.

``w_ij = s_ij^2 / (1 + sum_j s_ij^2)`` with ``s_ij = q_i . k_j`` for keys not after the query.
Queries may be a shard of the sequence or of the heads while keys and values are whole; which heads
and positions a rank holds follows from the bounds of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.site import Back, Given, Made, Site


@dataclass(frozen=True)
class _Heads:
    """A rank's heads: their size, how many, and the key-value head of each (local numbers)."""

    size: int
    count: int
    kv_count: int
    partner: tuple[int, ...]


def _heads(site: Site) -> _Heads:
    heads, kv_heads = site.attrs["heads"], site.attrs["kv_heads"]
    size = site.widths[0] // heads
    (start, stop), (kv_start, kv_stop) = site.ins[0][2], site.ins[1][2]
    if any(n % size for n in (start, stop, kv_start, kv_stop)) or heads % kv_heads:
        raise CannotRun(f"{site.run.out}: a rank would hold a part of a head")
    partner = tuple(
        head * kv_heads // heads - kv_start // size for head in range(start // size, stop // size)
    )
    kv_count = (kv_stop - kv_start) // size
    if any(not 0 <= p < kv_count for p in partner):
        raise CannotRun(f"{site.run.out}: a rank's heads need keys of another rank")
    return _Heads(size, (stop - start) // size, kv_count, partner)


def _split(x: Array, heads: int, size: int) -> Array:
    """(B, s, heads * size) to (B, heads, s, size)."""
    return x.reshape(x.shape[0], x.shape[1], heads, size).transpose(0, 2, 1, 3)


def _merged(x: Array) -> Array:
    """(B, heads, s, size) to (B, s, heads * size)."""
    b, heads, s, size = x.shape
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(b, s, heads * size)


def _gathered(field: Field, x: Array, heads: _Heads) -> Array:
    """Gradients by query head summed to those by key-value head."""
    result = field.zeros((x.shape[0], heads.kv_count, *x.shape[2:]))
    for head, partner in enumerate(heads.partner):
        result[:, partner] = field.add(result[:, partner], x[:, head])
    return result


def _seen(site: Site) -> Array:
    """Which keys (columns) each query (row) sees: those not after it."""
    queries, keys = site.positions(2)[1], site.positions(2, of=1)[1]
    seen: Array = (np.array(keys)[None, :] <= np.array(queries)[:, None]).astype(np.int64)
    return seen


def _weights(field: Field, scores: Array) -> tuple[Array, Array]:
    """Attention weights, and one over the normaliser of each query."""
    squares = field.multiply(scores, scores)
    r = field.inverse(field.add(field.sum(squares, -1), field.constant(1)))[..., None]
    return field.multiply(squares, r), r


def _parts(given: Given, heads: _Heads) -> tuple[Array, Array, Array]:
    q = _split(given.value(0), heads.count, heads.size)
    k = _split(given.value(1), heads.kv_count, heads.size)
    v = _split(given.value(2), heads.kv_count, heads.size)
    partner = list(heads.partner)
    return q, k[:, partner], v[:, partner]


def attention(site: Site, given: Given) -> Made:
    """Queries, keys and values (B, s, heads * size) to outputs (B, s, heads * size)."""
    f, heads = site.field, _heads(site)
    q, k, v = _parts(given, heads)
    scores = f.multiply(f.matmul(q, k.transpose(0, 1, 3, 2)), _seen(site))
    weights, _ = _weights(f, scores)
    out = _merged(f.matmul(weights, v))
    return out, {name: scores for name, _ in site.run.internals}


def attention_back(site: Site, dy: Array, given: Given) -> Back:
    """The adjoint, from the kept scores."""
    f, heads = site.field, _heads(site)
    q, k, v = _parts(given, heads)
    scores = given.internal(site.run.internals[0][0])
    weights, r = _weights(f, scores)
    dout = _split(dy, heads.count, heads.size)
    dweights = f.matmul(dout, v.transpose(0, 1, 3, 2))
    dv = f.matmul(weights.transpose(0, 1, 3, 2), dout)
    mean = f.sum(f.multiply(dweights, weights), -1)[..., None]
    dsquares = f.multiply(f.subtract(dweights, mean), r)
    dscores = f.multiply(f.multiply(dsquares, f.add(scores, scores)), _seen(site))
    dq = f.matmul(dscores, k)
    dk = f.matmul(dscores.transpose(0, 1, 3, 2), q)
    return [_merged(dq), _merged(_gathered(f, dk, heads)), _merged(_gathered(f, dv, heads))], []
