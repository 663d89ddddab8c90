"""Built-in models: an abstract one, a multilayer perceptron, and decoder-only transformers."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement_proofs.mesh import Dim
from placement_proofs.model import Block, Model, Op, Tensor, Value

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

    def norm(self, name: str, x: str) -> str:
        weight = self.tensor(f"{name}.weight", ("h",), "norm")
        return self.op("norm", f"{name}.out", TOKENS, (x,), (weight,))


@dataclass(frozen=True)
class Shape:
    """The shape of a decoder-only transformer (elements).

    ``experts`` is 0 for a dense model; ``kv_heads`` below ``heads`` is grouped-query attention.
    With ``fused_attention`` (arXiv 2205.14135) no scores are kept for the backward pass.
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

    @property
    def dims(self) -> dict[str, int]:
        head = self.hidden // self.heads
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
        return named | ({"E": self.experts} if self.experts else {})


def _attention_block(build: _Builder, name: str, x: str, shape: Shape) -> str:
    n = build.norm(f"{name}.norm1", x)
    q = build.linear(f"{name}.q", n, ("h", "h"), "column", shape.bias)
    k = build.linear(f"{name}.k", n, ("hkv", "h"), "kv", shape.bias, f"{name}.q.weight")
    v = build.linear(f"{name}.v", n, ("hkv", "h"), "kv", shape.bias, f"{name}.q.weight")
    o = build.op(
        "attention",
        f"{name}.attention",
        TOKENS,
        (q, k, v),
        attrs=(("heads", "a"), ("kv_heads", "akv")),
        internals=() if shape.fused_attention else ((f"{name}.scores", ("B", "a", "s", "s")),),
    )
    y = build.linear(f"{name}.o", o, ("h", "h"), "row", shape.bias)
    return build.op("add", f"{name}.mid", TOKENS, (x, y))


def _dense_ffn(build: _Builder, name: str, n: str, shape: Shape) -> str:
    up = build.linear(f"{name}.up", n, ("f", "h"), "column", shape.bias)
    inner = ("B", "s", "f")
    if shape.gated:
        gate = build.linear(f"{name}.gate", n, ("f", "h"), "column", shape.bias)
        act = build.op("activation", f"{name}.act", inner, (gate,))
        up = build.op("multiply", f"{name}.gated", inner, (act, up))
    else:
        up = build.op("activation", f"{name}.act", inner, (up,))
    return build.linear(f"{name}.down", up, ("h", "f"), "row", shape.bias)


def _expert_ffn(build: _Builder, name: str, n: str) -> str:
    """Top-1 experts with a fixed balanced routing: token s of a sequence goes to expert s mod E."""
    router = build.tensor(f"{name}.router.weight", ("E", "h"), "router")
    scores = build.op("linear", f"{name}.scores_e", ("B", "s", "E"), (n,), (router,))
    gates = build.op("activation", f"{name}.gates", ("B", "s", "E"), (scores,))
    tokens = build.op("dispatch", f"{name}.tokens", ("E", "B", "s/E", "h"), (n,))
    w1 = build.tensor(f"{name}.experts.up", ("E", "f", "h"), "expert_in")
    w2 = build.tensor(f"{name}.experts.down", ("E", "h", "f"), "expert_out")
    inner = build.op("expert", f"{name}.e1", ("E", "B", "s/E", "f"), (tokens,), (w1,))
    act = build.op("activation", f"{name}.eact", ("E", "B", "s/E", "f"), (inner,))
    out = build.op("expert", f"{name}.e2", ("E", "B", "s/E", "h"), (act,), (w2,))
    return build.op("combine", f"{name}.moe", TOKENS, (out, gates))


def _layer(build: _Builder, name: str, x: str, shape: Shape) -> str:
    x = _attention_block(build, name, x, shape)
    n = build.norm(f"{name}.norm2", x)
    y = _expert_ffn(build, name, n) if shape.experts else _dense_ffn(build, name, n, shape)
    return build.op("add", f"{name}.out", TOKENS, (x, y))


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
    for layer in layers:
        build.block = build.unit = layer
        x = _layer(build, layer, x, shape)
    build.block, build.unit = "head", ROOT
    x = build.norm("final_norm", x)
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
