"""The parts of a transformer layer, written as tensors, values and operations in forward order."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement_proofs.mesh import Dim
from placement_proofs.model import MASK, Op, Tensor, Value
from placement_proofs.shape import Shape

TOKENS = ("B", "s", "h")


@dataclass
class Builder:
    """Collects tensors, values and operations of one model in forward order."""

    tensors: list[Tensor] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    block: str = ""
    unit: str = ""

    def tensor(self, name: str, shape: tuple[Dim, ...], group: str) -> str:
        if all(t.name != name for t in self.tensors):
            self.tensors.append(Tensor(name, shape, group, self.unit))
        return name

    def value(self, name: str, shape: tuple[Dim, ...], **flags: bool) -> str:
        self.values.append(Value(name, shape, **flags))
        return name

    def op(
        self,
        kind: str,
        out: str,
        shape: tuple[Dim, ...],
        ins: tuple[str, ...],
        params: tuple[str, ...] = (),
        attrs: tuple[tuple[str, Dim], ...] = (),
        internals: tuple[tuple[str, tuple[Dim, ...]], ...] = (),
        beside: str = "",
    ) -> str:
        residual = kind in ("add", "combine") or (kind == "embedding")
        self.value(out, shape, residual=residual)
        self.ops.append(Op(kind, out, ins, params, self.block, attrs, internals, beside))
        return out

    def linear(
        self, name: str, x: str, dims: tuple[Dim, Dim], group: str, bias: bool, beside: str = ""
    ) -> str:
        """``x W^T (+ bias)``: ``dims`` is (out, in)."""
        out_shape = (*TOKENS[:2], dims[0])
        weight = self.tensor(f"{name}.weight", dims, group)
        y = self.op("linear", f"{name}.out", out_shape, (x,), (weight,), beside=beside)
        if not bias:
            return y
        b = self.tensor(f"{name}.bias", (dims[0],), f"{group}_bias")
        return self.op("bias", f"{name}.biased", out_shape, (y,), (b,))

    def dropped(self, name: str, x: str, shape: Shape) -> str:
        """``x`` after dropout, whose mask stays for the backward pass."""
        if not shape.dropout:
            return x
        mask = ((f"{name}{MASK}", TOKENS),)
        return self.op("dropout", f"{name}.dropped", TOKENS, (x,), internals=mask)

    def norm(self, name: str, x: str, bias: bool = False, width: Dim = "h") -> str:
        shape = (*TOKENS[:2], width)
        weight = self.tensor(f"{name}.weight", (width,), "norm")
        if not bias:
            return self.op("norm", f"{name}.out", shape, (x,), (weight,))
        y = self.op("norm", f"{name}.scaled", shape, (x,), (weight,))
        b = self.tensor(f"{name}.bias", (width,), "norm")
        return self.op("bias", f"{name}.out", shape, (y,), (b,))

    def head_norm(self, name: str, x: str, width: Dim, shape: Shape) -> str:
        """Queries or keys normalised head by head, or all heads of a token as one."""
        if shape.whole_qk_norm:
            return self.norm(name, x, width=width)
        if not shape.qk_norm:
            return x
        weight = self.tensor(f"{name}.weight", ("d",), "norm")
        return self.op("head_norm", f"{name}.out", (*TOKENS[:2], width), (x,), (weight,))


def _scores(name: str, shape: Shape) -> tuple[tuple[str, tuple[Dim, ...]], ...]:
    """What attention keeps: its weights; with dropout also the mask and the weights after it."""
    square = ("B", "a", "s", "s")
    if shape.fused_attention:
        return ()
    more = (f"{name}.weights{MASK}", f"{name}.weights.dropped") if shape.dropout else ()
    return tuple((n, square) for n in (f"{name}.scores", *more))


def _attention(build: Builder, name: str, n: str, shape: Shape) -> str:
    """Attention of queries, keys and values that are projections of ``n``."""
    width, bias = shape.query, shape.bias or shape.qkv_bias
    q = build.linear(f"{name}.q", n, (width, "h"), "column", bias)
    k = build.linear(f"{name}.k", n, ("hkv", "h"), "kv", bias, f"{name}.q.weight")
    v = build.linear(f"{name}.v", n, ("hkv", "h"), "kv", bias, f"{name}.q.weight")
    q = build.head_norm(f"{name}.q_norm", q, width, shape)
    k = build.head_norm(f"{name}.k_norm", k, "hkv", shape)
    o = build.op(
        "attention",
        f"{name}.attention",
        ("B", "s", width),
        (q, k, v),
        attrs=(("heads", "a"), ("kv_heads", "akv")),
        internals=_scores(name, shape),
    )
    return build.linear(f"{name}.o", o, ("h", width), "row", shape.bias)


def _latent_attention(build: Builder, name: str, n: str, shape: Shape) -> str:
    """Multi-head latent attention (arXiv 2405.04434, section 2.1).

    The projections that published checkpoints store as one matrix (latent and rotary key; keys and
    values of a head) are two tensors here, of the same number of elements.
    """
    q = n
    if shape.q_rank:
        q = build.linear(f"{name}.q_down", n, ("rq", "h"), "latent", False)
        q = build.norm(f"{name}.q_norm", q, width="rq")
    q = build.linear(f"{name}.q", q, ("hq", "rq" if shape.q_rank else "h"), "column", False)
    latent = build.linear(f"{name}.kv_down", n, ("rkv", "h"), "latent", False)
    rope = build.linear(f"{name}.k_rope", n, ("dr", "h"), "latent", False)
    latent = build.norm(f"{name}.kv_norm", latent, width="rkv")
    k = build.linear(f"{name}.k", latent, ("hn", "rkv"), "column", False)
    v = build.linear(f"{name}.v", latent, ("hv", "rkv"), "column", False)
    o = build.op(
        "latent_attention",
        f"{name}.attention",
        ("B", "s", "hv"),
        (q, k, rope, v),
        attrs=(("heads", "a"), ("kv_heads", "a")),
        internals=_scores(name, shape),
    )
    return build.linear(f"{name}.o", o, ("h", "hv"), "row", False)


def dense_ffn(build: Builder, name: str, n: str, shape: Shape, width: Dim = "f") -> str:
    """Up, activation (with a gate: times the other projection), down."""
    up = build.linear(f"{name}.up", n, (width, "h"), "column", shape.bias)
    inner = ("B", "s", width)
    if shape.gated:
        gate = build.linear(f"{name}.gate", n, (width, "h"), "column", shape.bias)
        act = build.op("activation", f"{name}.act", inner, (gate,))
        up = build.op("multiply", f"{name}.gated", inner, (act, up))
    else:
        up = build.op("activation", f"{name}.act", inner, (up,))
    return build.linear(f"{name}.down", up, ("h", width), "row", shape.bias)


def _expert_ffn(build: Builder, name: str, n: str, shape: Shape) -> str:
    """Experts with a fixed balanced routing: token s goes to the ``top_k`` experts from s mod E."""
    width = shape.expert_width
    share = "s*k/E" if shape.top_k > 1 else "s/E"
    attrs: tuple[tuple[str, Dim], ...] = (("top_k", "k"),) if shape.top_k > 1 else ()
    router = build.tensor(f"{name}.router.weight", ("E", "h"), "router")
    scores = build.op("linear", f"{name}.scores_e", ("B", "s", "E"), (n,), (router,))
    gates = build.op("activation", f"{name}.gates", ("B", "s", "E"), (scores,))
    tokens = build.op("dispatch", f"{name}.tokens", ("E", "B", share, "h"), (n,), attrs=attrs)
    w1 = build.tensor(f"{name}.experts.up", ("E", width, "h"), "expert_in")
    w2 = build.tensor(f"{name}.experts.down", ("E", "h", width), "expert_out")
    wide = ("E", "B", share, width)
    inner = build.op("expert", f"{name}.e1", wide, (tokens,), (w1,))
    if shape.gated:
        gate = build.tensor(f"{name}.experts.gate", ("E", width, "h"), "expert_in")
        chosen = build.op("expert", f"{name}.eg", wide, (tokens,), (gate,))
        act = build.op("activation", f"{name}.eact", wide, (chosen,))
        act = build.op("multiply", f"{name}.egated", wide, (act, inner))
    else:
        act = build.op("activation", f"{name}.eact", wide, (inner,))
    out = build.op("expert", f"{name}.e2", ("E", "B", share, "h"), (act,), (w2,))
    moe = build.op("combine", f"{name}.moe", TOKENS, (out, gates), attrs=attrs)
    if not shape.shared_ffn:
        return moe
    shared = dense_ffn(build, f"{name}.shared", n, shape, "fs")
    return build.op("add", f"{name}.experts_out", TOKENS, (moe, shared))


def layer(build: Builder, name: str, x: str, shape: Shape, *, dense: bool = False) -> str:
    """Attention and feed-forward part; a ``dense`` layer of a model with experts has none."""
    attention = _latent_attention if shape.kv_rank else _attention
    y = attention(build, name, _before(build, f"{name}.norm1", x, shape), shape)
    y = build.dropped(f"{name}.o", _after(build, f"{name}.post1", y, shape), shape)
    x = build.op("add", f"{name}.mid", TOKENS, (x, y))
    ffn = _expert_ffn if shape.experts and not dense else dense_ffn
    y = ffn(build, name, _before(build, f"{name}.norm2", x, shape), shape)
    y = build.dropped(f"{name}.ffn", _after(build, f"{name}.post2", y, shape), shape)
    return build.op("add", f"{name}.out", TOKENS, (x, y))


def _before(build: Builder, name: str, x: str, shape: Shape) -> str:
    return build.norm(name, x, shape.norm_bias) if shape.pre_norm else x


def _after(build: Builder, name: str, y: str, shape: Shape) -> str:
    return build.norm(name, y, shape.norm_bias) if shape.post_norm else y


def with_positions(build: Builder, x: str) -> str:
    """A learned row for each position; position numbers are an input beside the tokens."""
    numbers = build.value("position_ids", ("B", "s"), integer=True)
    table = build.tensor("positions.weight", ("T", "h"), "positions")
    rows = build.op("embedding", "positions.out", TOKENS, (numbers,), (table,))
    return build.op("add", "positioned", TOKENS, (x, rows))
