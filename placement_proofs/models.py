"""Built-in models: an abstract one, a multilayer perceptron, and decoder-only transformers."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement_proofs.mesh import Dim
from placement_proofs.model import MASK, Block, Model, Op, Tensor, Value

TOKENS = ("B", "s", "h")
ROOT = "root"


def abstract(psi: int = 7_500_000_000) -> Model:
    """One tensor of ``Psi`` elements and nothing known inside: the paper's case."""
    return Model(
        "abstract",
        (Tensor("w", ("Psi",), "matrix", "model"),),
        (Value("x", ("B", "A")), Value("y", ("B", "A"), residual=True), Value("loss", ())),
        (
            Op("opaque", "y", ("x",), ("w",), "model"),
            Op("loss", "loss", ("y",), (), "model"),
        ),
        (Block("model"),),
        {"Psi": psi, "A": 1},
    )


@dataclass
class _Builder:
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

    def norm(self, name: str, x: str, bias: bool = False) -> str:
        weight = self.tensor(f"{name}.weight", ("h",), "norm")
        if not bias:
            return self.op("norm", f"{name}.out", TOKENS, (x,), (weight,))
        y = self.op("norm", f"{name}.scaled", TOKENS, (x,), (weight,))
        b = self.tensor(f"{name}.bias", ("h",), "norm")
        return self.op("bias", f"{name}.out", TOKENS, (y,), (b,))


@dataclass(frozen=True)
class Shape:
    """The shape of a decoder-only transformer (elements).

    ``experts`` is 0 for a dense model; ``kv_heads`` below ``heads`` is grouped-query attention.
    With ``fused_attention`` (arXiv 2205.14135) no scores are kept for the backward pass.
    ``bias`` is of all projections of a layer, ``qkv_bias`` of queries, keys and values alone.
    ``head_dim`` is the size of a head where it is not ``hidden / heads``. Each token goes to
    ``top_k`` of the experts and, with ``shared_ffn`` > 0, to a shared expert of that width.
    ``positions`` is the number of rows of a learned table of positions, 0 for none. ``dropout`` is
    that of GPT: after the embedding, of attention weights, before each residual sum.
    """

    layers: int = 2
    hidden: int = 8
    heads: int = 4
    kv_heads: int = 4
    ffn: int = 16
    vocabulary: int = 16
    sequence: int = 4
    gated: bool = True
    bias: bool = False
    tied: bool = False
    experts: int = 0
    fused_attention: bool = False
    micro_batch: int = 1
    head_dim: int = 0
    qkv_bias: bool = False
    norm_bias: bool = False
    positions: int = 0
    top_k: int = 1
    shared_ffn: int = 0
    dropout: bool = False

    @property
    def query(self) -> Dim:
        """The width of all query heads: the hidden size, or a size of its own."""
        own = self.head_dim and self.head_dim * self.heads != self.hidden
        return "ha" if own else "h"

    @property
    def dims(self) -> dict[str, int]:
        """The symbols of the shape (elements or counts)."""
        head = self.head_dim or self.hidden // self.heads
        named = {
            "h": self.hidden,
            "f": self.ffn,
            "V": self.vocabulary,
            "s": self.sequence,
            "L": self.layers,
            "a": self.heads,
            "akv": self.kv_heads,
            "hkv": self.kv_heads * head,
        }
        more = {
            "E": self.experts,
            "k": self.top_k if self.experts and self.top_k > 1 else 0,
            "fs": self.shared_ffn if self.experts else 0,
            "T": self.positions,
            "ha": self.heads * head if self.query == "ha" else 0,
        }
        return named | {name: size for name, size in more.items() if size}


def _scores(name: str, shape: Shape) -> tuple[tuple[str, tuple[Dim, ...]], ...]:
    """What attention keeps: its weights; with dropout also the mask and the weights after it."""
    square = ("B", "a", "s", "s")
    if shape.fused_attention:
        return ()
    more = (f"{name}.weights{MASK}", f"{name}.weights.dropped") if shape.dropout else ()
    return tuple((n, square) for n in (f"{name}.scores", *more))


def _attention_block(build: _Builder, name: str, x: str, shape: Shape) -> str:
    n = build.norm(f"{name}.norm1", x, shape.norm_bias)
    width, bias = shape.query, shape.bias or shape.qkv_bias
    q = build.linear(f"{name}.q", n, (width, "h"), "column", bias)
    k = build.linear(f"{name}.k", n, ("hkv", "h"), "kv", bias, f"{name}.q.weight")
    v = build.linear(f"{name}.v", n, ("hkv", "h"), "kv", bias, f"{name}.q.weight")
    o = build.op(
        "attention",
        f"{name}.attention",
        ("B", "s", width),
        (q, k, v),
        attrs=(("heads", "a"), ("kv_heads", "akv")),
        internals=_scores(name, shape),
    )
    y = build.linear(f"{name}.o", o, ("h", width), "row", shape.bias)
    y = build.dropped(f"{name}.o", y, shape)
    return build.op("add", f"{name}.mid", TOKENS, (x, y))


def _dense_ffn(build: _Builder, name: str, n: str, shape: Shape, width: Dim = "f") -> str:
    up = build.linear(f"{name}.up", n, (width, "h"), "column", shape.bias)
    inner = ("B", "s", width)
    if shape.gated:
        gate = build.linear(f"{name}.gate", n, (width, "h"), "column", shape.bias)
        act = build.op("activation", f"{name}.act", inner, (gate,))
        up = build.op("multiply", f"{name}.gated", inner, (act, up))
    else:
        up = build.op("activation", f"{name}.act", inner, (up,))
    return build.linear(f"{name}.down", up, ("h", width), "row", shape.bias)


def _expert_ffn(build: _Builder, name: str, n: str, shape: Shape) -> str:
    """Experts with a fixed balanced routing: token s goes to the ``top_k`` experts from s mod E."""
    share = "s*k/E" if shape.top_k > 1 else "s/E"
    attrs: tuple[tuple[str, Dim], ...] = (("top_k", "k"),) if shape.top_k > 1 else ()
    router = build.tensor(f"{name}.router.weight", ("E", "h"), "router")
    scores = build.op("linear", f"{name}.scores_e", ("B", "s", "E"), (n,), (router,))
    gates = build.op("activation", f"{name}.gates", ("B", "s", "E"), (scores,))
    tokens = build.op("dispatch", f"{name}.tokens", ("E", "B", share, "h"), (n,), attrs=attrs)
    w1 = build.tensor(f"{name}.experts.up", ("E", "f", "h"), "expert_in")
    w2 = build.tensor(f"{name}.experts.down", ("E", "h", "f"), "expert_out")
    wide = ("E", "B", share, "f")
    inner = build.op("expert", f"{name}.e1", wide, (tokens,), (w1,))
    if shape.gated:
        gate = build.tensor(f"{name}.experts.gate", ("E", "f", "h"), "expert_in")
        chosen = build.op("expert", f"{name}.eg", wide, (tokens,), (gate,))
        act = build.op("activation", f"{name}.eact", wide, (chosen,))
        act = build.op("multiply", f"{name}.egated", wide, (act, inner))
    else:
        act = build.op("activation", f"{name}.eact", wide, (inner,))
    out = build.op("expert", f"{name}.e2", ("E", "B", share, "h"), (act,), (w2,))
    moe = build.op("combine", f"{name}.moe", TOKENS, (out, gates), attrs=attrs)
    if not shape.shared_ffn:
        return moe
    shared = _dense_ffn(build, f"{name}.shared", n, shape, "fs")
    return build.op("add", f"{name}.experts_out", TOKENS, (moe, shared))


def _layer(build: _Builder, name: str, x: str, shape: Shape) -> str:
    x = _attention_block(build, name, x, shape)
    n = build.norm(f"{name}.norm2", x, shape.norm_bias)
    ffn = _expert_ffn if shape.experts else _dense_ffn
    y = build.dropped(f"{name}.ffn", ffn(build, name, n, shape), shape)
    return build.op("add", f"{name}.out", TOKENS, (x, y))


def _with_positions(build: _Builder, x: str) -> str:
    """A learned row for each position; position numbers are an input beside the tokens."""
    numbers = build.value("position_ids", ("B", "s"), integer=True)
    table = build.tensor("positions.weight", ("T", "h"), "positions")
    rows = build.op("embedding", "positions.out", TOKENS, (numbers,), (table,))
    return build.op("add", "positioned", TOKENS, (x, rows))


def transformer(shape: Shape, *, name: str = "transformer", folded: bool = False) -> Model:
    """A decoder-only transformer.

    ``folded`` keeps one layer that stands for all ``L`` of them, for costs whose work does not
    depend on the depth; the simulator needs the layers one by one.
    """
    build = _Builder()
    layers = ["layers"] if folded else [f"layer{i}" for i in range(shape.layers)]
    blocks = [Block("embedding"), *(Block(n, "L" if folded else 1) for n in layers), Block("head")]
    build.block, build.unit = "embedding", ROOT
    ids = build.value("ids", ("B", "s"), integer=True)
    table = build.tensor("embedding.weight", ("V", "h"), "embedding")
    x = build.op("embedding", "embedding.out", TOKENS, (ids,), (table,))
    x = _with_positions(build, x) if shape.positions else x
    x = build.dropped("embedding", x, shape)
    for layer in layers:
        build.block = build.unit = layer
        x = _layer(build, layer, x, shape)
    build.block, build.unit = "head", ROOT
    x = build.norm("final_norm", x, shape.norm_bias)
    head = table if shape.tied else build.tensor("head.weight", ("V", "h"), "head")
    logits = build.op("linear", "logits", ("B", "s", "V"), (x,), (head,))
    build.op("loss", "loss", (), (logits,))
    return Model(
        name,
        tuple(build.tensors),
        tuple(build.values),
        tuple(build.ops),
        tuple(blocks),
        shape.dims,
        shape.micro_batch,
    )


def perceptron(layers: int = 2, hidden: int = 8, ffn: int = 16, *, bias: bool = True) -> Model:
    """Residual blocks norm, up, activation, down on inputs of shape (batch, 1, hidden)."""
    build = _Builder()
    shape = Shape(layers=layers, hidden=hidden, ffn=ffn, gated=False, bias=bias)
    x = build.value("inputs", TOKENS)
    for i in range(layers):
        build.block = build.unit = f"layer{i}"
        n = build.norm(f"layer{i}.norm", x)
        y = _dense_ffn(build, f"layer{i}", n, shape)
        x = build.op("add", f"layer{i}.out", TOKENS, (x, y))
    build.block, build.unit = "head", ROOT
    logits = build.linear("head", x, ("V", "h"), "head", bias=False)
    build.op("loss", "loss", (), (logits,))
    dims = {"h": hidden, "f": ffn, "V": hidden, "s": 4}
    blocks = tuple(Block(f"layer{i}") for i in range(layers))
    return Model(
        "perceptron",
        tuple(build.tensors),
        tuple(build.values),
        tuple(build.ops),
        (*blocks, Block("head")),
        dims,
    )
