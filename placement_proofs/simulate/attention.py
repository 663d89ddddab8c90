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


def _scores(site: Site, q: Array, k: Array) -> Array:
    """Queries times the keys that they see."""
    f = site.field
    return f.multiply(f.matmul(q, k.transpose(0, 1, 3, 2)), _seen(site))


def _parts(given: Given, heads: _Heads) -> tuple[Array, Array, Array]:
    q = _split(given.value(0), heads.count, heads.size)
    k = _split(given.value(1), heads.kv_count, heads.size)
    v = _split(given.value(2), heads.kv_count, heads.size)
    partner = list(heads.partner)
    return q, k[:, partner], v[:, partner]


def attend(site: Site, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Outputs and scores of queries, keys and values (B, heads, s, size), a head each."""
    scores = _scores(site, q, k)
    weights, _ = _weights(site.field, scores)
    return site.field.matmul(weights, v), scores


def attend_back(
    site: Site, given: Given, parts: tuple[Array, Array, Array], dout: Array
) -> tuple[Array, Array, Array]:
    """The adjoint, from the kept scores; a fused kernel keeps none and works them out again."""
    f, (q, k, v) = site.field, parts
    kept = [given.internal(name) for name, _ in site.run.internals[:1]]
    scores = kept[0] if kept else _scores(site, q, k)
    weights, r = _weights(f, scores)
    dweights = f.matmul(dout, v.transpose(0, 1, 3, 2))
    dv = f.matmul(weights.transpose(0, 1, 3, 2), dout)
    mean = f.sum(f.multiply(dweights, weights), -1)[..., None]
    dsquares = f.multiply(f.subtract(dweights, mean), r)
    dscores = f.multiply(f.multiply(dsquares, f.add(scores, scores)), _seen(site))
    return f.matmul(dscores, k), f.matmul(dscores.transpose(0, 1, 3, 2), q), dv


def attention(site: Site, given: Given) -> Made:
    """Queries, keys and values (B, s, heads * size) to outputs (B, s, heads * size)."""
    out, scores = attend(site, *_parts(given, _heads(site)))
    return _merged(out), {name: scores for name, _ in site.run.internals}


def attention_back(site: Site, dy: Array, given: Given) -> Back:
    """Its adjoint; gradients of keys and values are summed over the queries that share them."""
    f, heads = site.field, _heads(site)
    dout = _split(dy, heads.count, heads.size)
    dq, dk, dv = attend_back(site, given, _parts(given, heads), dout)
    return [_merged(dq), _merged(_gathered(f, dk, heads)), _merged(_gathered(f, dv, heads))], []


def _latent_parts(site: Site, given: Given) -> tuple[Array, Array, Array]:
    """Queries, keys (the part of a head, and the rotary part that all heads share), values."""
    heads, headed = site.attrs["heads"], (0, 1, 3)
    sizes = [site.widths[i] // heads for i in headed]
    pairs = list(zip(headed, sizes, strict=True))
    ends = {tuple(divmod(n, size) for n in site.ins[i][2]) for i, size in pairs}
    (start, odd), (stop, more) = next(iter(ends))
    if len(ends) > 1 or odd or more:
        raise CannotRun(f"{site.run.out}: a rank's heads need parts of other heads")
    q, k, v = (_split(given.value(i), stop - start, size) for i, size in pairs)
    shared = given.value(2)[:, None]
    rotary = np.broadcast_to(shared, (*k.shape[:3], shared.shape[-1]))
    return q, np.concatenate([k, rotary], -1), v


def latent_attention(site: Site, given: Given) -> Made:
    """Queries, keys, the rotary key of all heads, and values: (B, s, heads * size of a value)."""
    out, scores = attend(site, *_latent_parts(site, given))
    return _merged(out), {name: scores for name, _ in site.run.internals}


def latent_attention_back(site: Site, dy: Array, given: Given) -> Back:
    """Its adjoint; the gradient of the rotary key is a sum over heads."""
    parts = _latent_parts(site, given)
    dout = _split(dy, parts[2].shape[1], parts[2].shape[3])
    dq, dk, dv = attend_back(site, given, parts, dout)
    own = site.widths[1] // site.attrs["heads"]
    rotary = site.field.sum(dk[..., own:], 1)
    return [_merged(dq), _merged(dk[..., :own]), rotary, _merged(dv)], []
