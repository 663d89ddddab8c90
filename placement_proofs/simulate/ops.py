"""Operations forward and backward on local parts, with hand-derived adjoints.

Every function is rational, so that it means the same in floats, modulo a prime and in fractions:
a norm divides by the mean square without a root, attention weighs by normalised squared scores,
the non-linearity is ``x^2 + x``. Shapes are those of the parts that a rank holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from placement_proofs.simulate.attention import (
    attention,
    attention_back,
    latent_attention,
    latent_attention_back,
)
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.loss import loss, loss_back
from placement_proofs.simulate.site import Back, Given, Made, Site


def _rows(x: Array) -> Array:
    """All dims but the last as one."""
    return x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1])


def _leading(x: Array, keep: int) -> tuple[int, ...]:
    return tuple(range(x.ndim - keep))


def _linear(site: Site, given: Given) -> Made:
    """``y = x W^T``, W of shape (out, in)."""
    x, w = given.value(0), given.params[0]
    y = site.field.matmul(_rows(x), w.T)
    return y.reshape(*x.shape[:-1], w.shape[0]), {}


def _linear_inputs(site: Site, dy: Array, given: Given) -> list[Array]:
    w = given.params[0]
    return [site.field.matmul(_rows(dy), w).reshape(*dy.shape[:-1], w.shape[1])]


def _linear_weights(site: Site, dy: Array, given: Given) -> list[Array]:
    return [site.field.matmul(_rows(dy).T, _rows(given.value(0)))]


def _linear_back(site: Site, dy: Array, given: Given) -> Back:
    return _linear_inputs(site, dy, given), _linear_weights(site, dy, given)


def _bias(site: Site, given: Given) -> Made:
    """The bias, or the rank's equal part of it where it is added to a pending sum."""
    f, bias = site.field, given.params[0]
    parts = site.attrs.get("parts", 1)
    if parts > 1:
        bias = f.multiply(bias, f.constant(1, parts))
    return f.add(given.value(0), bias), {}


def _bias_back(site: Site, dy: Array, given: Given) -> Back:
    return [dy], [site.field.sum(dy, _leading(dy, 1))]


def _scale(f: Field, x: Array) -> Array:
    """``1 / (mean of squares + 1)``, shape (..., 1)."""
    squares = f.sum(f.multiply(x, x), -1)
    mean = f.multiply(squares, f.constant(1, max(1, x.shape[-1])))
    return f.inverse(f.add(mean, f.constant(1)))[..., None]


def _kept(site: Site, *arrays: Array) -> dict[str, Array]:
    """What an eager kernel keeps, by the names that the plan has for it; a fused one nothing."""
    names = (name for name, _ in site.run.internals)
    return dict(zip(names, arrays, strict=False))


def _norm(site: Site, given: Given) -> Made:
    """``y = w x r`` with ``r = 1 / (mean(x^2) + 1)``."""
    f, x = site.field, given.value(0)
    normed = f.multiply(x, _scale(f, x))
    return f.multiply(normed, given.params[0]), _kept(site, x, normed)


def _norm_back(site: Site, dy: Array, given: Given) -> Back:
    f, x, w = site.field, given.value(0), given.params[0]
    r = _scale(f, x)
    normed = f.multiply(x, r)
    dw = f.sum(f.multiply(dy, normed), _leading(dy, 1))
    g = f.multiply(dy, w)
    inner = f.multiply(f.sum(f.multiply(g, normed), -1)[..., None], r)
    pull = f.multiply(f.multiply(x, inner), f.constant(2, max(1, x.shape[-1])))
    return [f.subtract(f.multiply(g, r), pull)], [dw]


def _by_head(x: Array, size: int) -> Array:
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def _head_norm(site: Site, given: Given) -> Made:
    """The norm of each head of (B, s, heads * size); all heads have the same weight."""
    x, w = given.value(0), given.params[0]
    heads = Given([_by_head(x, w.shape[0])], given.params, {})
    y, kept = _norm(site, heads)
    return y.reshape(x.shape), {name: array.reshape(x.shape) for name, array in kept.items()}


def _head_norm_back(site: Site, dy: Array, given: Given) -> Back:
    x, w = given.value(0), given.params[0]
    heads = Given([_by_head(x, w.shape[0])], given.params, {})
    (dx,), dw = _norm_back(site, _by_head(dy, w.shape[0]), heads)
    return [dx.reshape(x.shape)], dw


def _activation(site: Site, given: Given) -> Made:
    """``x^2 + x``."""
    f, x = site.field, given.value(0)
    return f.multiply(x, f.add(x, f.constant(1))), {}


def _activation_back(site: Site, dy: Array, given: Given) -> Back:
    f, x = site.field, given.value(0)
    return [f.multiply(dy, f.add(f.add(x, x), f.constant(1)))], []


def _multiply(site: Site, given: Given) -> Made:
    return site.field.multiply(given.value(0), given.value(1)), {}


def _multiply_back(site: Site, dy: Array, given: Given) -> Back:
    f = site.field
    return [f.multiply(dy, given.value(1)), f.multiply(dy, given.value(0))], []


def _dropout(site: Site, given: Given) -> Made:
    """Dropout that drops nothing, with the mask that it would keep."""
    x = given.value(0)
    ones = site.field.add(site.field.zeros(x.shape), site.field.constant(1))
    return x, {name: ones for name, _ in site.run.internals}


def _dropout_back(site: Site, dy: Array, given: Given) -> Back:
    mask = given.internal(site.run.internals[0][0])
    return [site.field.multiply(dy, mask)], []


def _add(site: Site, given: Given) -> Made:
    total = given.value(0)
    for i in range(1, len(given.ins)):
        total = site.field.add(total, given.value(i))
    return total, {}


def _add_back(site: Site, dy: Array, given: Given) -> Back:
    return [dy] * len(given.ins), []


def _picked(site: Site, ids: Array) -> tuple[Array, Array]:
    """Rows of a part of a table that token ids pick, and which ids fall into that part."""
    start, stop = site.params[0][0]
    ids = ids % site.attrs["rows"]
    here = (ids >= start) & (ids < stop)
    return np.where(here, ids - start, 0), here


def _embedding(site: Site, given: Given) -> Made:
    """Rows of a table (vocabulary, hidden); zeros where another rank has the row."""
    ids, table = given.value(0), given.params[0]
    rows, here = _picked(site, ids)
    out = site.field.zeros((*ids.shape, table.shape[1]))
    if table.shape[0]:
        out[here] = table[rows[here]]
    return out, {}


def _embedding_back(site: Site, dy: Array, given: Given) -> Back:
    ids, table = given.value(0), given.params[0]
    rows, here = _picked(site, ids)
    dtable = site.field.zeros(table.shape)
    np.add.at(dtable, rows[here], dy[here])
    return [dy], [site.field.reduced(dtable)]


def _experts(site: Site, tokens: int) -> int:
    experts = site.attrs["out"]
    if tokens % experts:
        raise CannotRun(
            f"{site.run.out}: {tokens} tokens a rank do not divide over {experts} experts"
        )
    return experts


def _copies(site: Site) -> int:
    """How many experts each token goes to."""
    return site.attrs.get("top_k", 1)


def _dispatched(copies: list[Array], experts: int) -> Array:
    """Copies (B, s, h) of the tokens to (E, B, k s/E, h): copy j of token s to (s + j) mod E."""
    batch, tokens, hidden = copies[0].shape
    blocks = [x.reshape(batch, tokens // experts, experts, hidden) for x in copies]
    rolled = np.stack([np.roll(x, j, axis=2) for j, x in enumerate(blocks)], axis=2)
    share = tokens // experts * len(copies)
    return rolled.transpose(3, 0, 1, 2, 4).reshape(experts, batch, share, hidden)


def _undispatched(y: Array, copies: int) -> list[Array]:
    """(E, B, k s/E, h) to the copies (B, s, h)."""
    experts, batch, share, hidden = y.shape
    blocks = y.reshape(experts, batch, share // copies, copies, hidden).transpose(3, 1, 2, 0, 4)
    shape = (batch, share // copies * experts, hidden)
    return [np.roll(x, -j, axis=2).reshape(shape) for j, x in enumerate(blocks)]


def _dispatch(site: Site, given: Given) -> Made:
    x = given.value(0)
    return _dispatched([x] * _copies(site), _experts(site, x.shape[1])), {}


def _dispatch_back(site: Site, dy: Array, given: Given) -> Back:
    first, *more = _undispatched(dy, _copies(site))
    for copy in more:
        first = site.field.add(first, copy)
    return [first], []


def _gates(site: Site, gates: Array, copy: int) -> tuple[Array, Array]:
    """The gate of each token for an expert of it, shape (B, s, 1), and the one-hot choice."""
    experts = gates.shape[-1]
    start = site.positions(2, of=1)[1][0] if gates.shape[1] else 0
    choice = start + copy + np.arange(gates.shape[1])
    hot = (choice[:, None] % experts == np.arange(experts)).astype(np.int64)
    return site.field.sum(site.field.multiply(gates, hot), -1)[..., None], hot


def _combine(site: Site, given: Given) -> Made:
    """Expert outputs (E, B, k s/E, h) times the gates (B, s, E) of their tokens: (B, s, h)."""
    f = site.field
    parts = [
        f.multiply(y, _gates(site, given.value(1), j)[0])
        for j, y in enumerate(_undispatched(given.value(0), _copies(site)))
    ]
    total, *more = parts
    for part in more:
        total = f.add(total, part)
    return total, {}


def _combine_back(site: Site, dy: Array, given: Given) -> Back:
    f, y = site.field, given.value(0)
    weighted, slopes = [], f.zeros(given.value(1).shape)
    for j, copy in enumerate(_undispatched(y, _copies(site))):
        gate, hot = _gates(site, given.value(1), j)
        weighted.append(f.multiply(dy, gate))
        slope = f.sum(f.multiply(dy, copy), -1)[..., None]
        slopes = f.add(slopes, f.multiply(slope, hot))
    return [_dispatched(weighted, y.shape[0]), slopes], []


def _by_expert(x: Array) -> Array:
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], x.shape[3])


def _expert(site: Site, given: Given) -> Made:
    """``y[e] = x[e] W[e]^T``, W of shape (experts, out, in)."""
    x, w = given.value(0), given.params[0]
    y = site.field.matmul(_by_expert(x), w.transpose(0, 2, 1))
    return y.reshape(*x.shape[:-1], w.shape[1]), {}


def _expert_inputs(site: Site, dy: Array, given: Given) -> list[Array]:
    w = given.params[0]
    return [site.field.matmul(_by_expert(dy), w).reshape(*dy.shape[:-1], w.shape[2])]


def _expert_weights(site: Site, dy: Array, given: Given) -> list[Array]:
    turned = _by_expert(dy).transpose(0, 2, 1)
    return [site.field.matmul(turned, _by_expert(given.value(0)))]


def _expert_back(site: Site, dy: Array, given: Given) -> Back:
    return _expert_inputs(site, dy, given), _expert_weights(site, dy, given)


def _weights(site: Site, w: Array) -> tuple[Array, Array, Array]:
    """The constants c of elements, and the sums of ``c w`` and of ``w^2``."""
    f = site.field
    start, stop = site.params[0][0]
    c = f.add(f.zeros(w.shape), np.arange(start + 1, stop + 1))
    return c, f.sum(f.multiply(c, w)), f.sum(f.multiply(w, w))


def _opaque(site: Site, given: Given) -> Made:
    """``y = x sum(c w) + x^2 sum(w^2)``: a sum over the elements of w, so its parts add up."""
    f, x = site.field, given.value(0)
    _, first, second = _weights(site, given.params[0])
    return f.add(f.multiply(x, first), f.multiply(f.multiply(x, x), second)), {}


def _opaque_back(site: Site, dy: Array, given: Given) -> Back:
    f, x, w = site.field, given.value(0), given.params[0]
    c, first, second = _weights(site, w)
    slope = f.add(f.multiply(f.add(x, x), second), first)
    linear = f.sum(f.multiply(x, dy))
    square = f.sum(f.multiply(f.multiply(x, x), dy))
    dw = f.add(f.multiply(c, linear), f.multiply(f.add(w, w), square))
    return [f.multiply(dy, slope)], [dw]


FORWARD: Mapping[str, Callable[[Site, Given], Made]] = {
    "embedding": _embedding,
    "norm": _norm,
    "linear": _linear,
    "bias": _bias,
    "activation": _activation,
    "multiply": _multiply,
    "dropout": _dropout,
    "attention": attention,
    "head_norm": _head_norm,
    "latent_attention": latent_attention,
    "add": _add,
    "dispatch": _dispatch,
    "combine": _combine,
    "expert": _expert,
    "loss": loss,
    "opaque": _opaque,
}
"""The operations by kind, forward."""

BACKWARD: Mapping[str, Callable[[Site, Array, Given], Back]] = {
    "embedding": _embedding_back,
    "norm": _norm_back,
    "linear": _linear_back,
    "bias": _bias_back,
    "activation": _activation_back,
    "multiply": _multiply_back,
    "dropout": _dropout_back,
    "attention": attention_back,
    "head_norm": _head_norm_back,
    "latent_attention": latent_attention_back,
    "add": _add_back,
    "dispatch": _dispatch_back,
    "combine": _combine_back,
    "expert": _expert_back,
    "loss": loss_back,
    "opaque": _opaque_back,
}
"""Their adjoints: gradients of inputs and of parameters from the gradient of the output."""

INPUTS: Mapping[str, Callable[[Site, Array, Given], list[Array]]] = {
    "linear": _linear_inputs,
    "expert": _expert_inputs,
}
"""The half of an adjoint that gives gradients of inputs."""

WEIGHTS: Mapping[str, Callable[[Site, Array, Given], list[Array]]] = {
    "linear": _linear_weights,
    "expert": _expert_weights,
}
"""The half that gives gradients of parameters; it does not read them."""
