"""Built-in models: an abstract one, a multilayer perceptron, and decoder-only transformers."""

from __future__ import annotations

from placement_proofs.layers import TOKENS, Builder, dense_ffn, layer, with_positions
from placement_proofs.model import Block, Model, Op, Tensor, Value
from placement_proofs.shape import Shape

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


def _single_layers(shape: Shape) -> list[tuple[Block, bool]]:
    """A block for each layer, and whether it is a dense one among layers with experts."""
    return [(Block(f"layer{i}"), i < shape.dense_layers) for i in range(shape.layers)]


def _folded_layers(shape: Shape) -> list[tuple[Block, bool]]:
    if not (shape.experts and shape.dense_layers):
        return [(Block("layers", "L"), False)]
    return [(Block("layers_dense", "Ld"), True), (Block("layers", "Lm"), False)]


def transformer(shape: Shape, *, name: str = "transformer", folded: bool = False) -> Model:
    """A decoder-only transformer.

    ``folded`` keeps one layer that stands for all ``L`` of them (or one for ``Ld`` dense layers and
    one for ``Lm`` with experts), for costs whose work does not depend on the depth; the simulator
    needs the layers one by one.
    """
    build = Builder()
    layers = _folded_layers(shape) if folded else _single_layers(shape)
    blocks = [Block("embedding"), *(block for block, _ in layers), Block("head")]
    build.block, build.unit = "embedding", ROOT
    ids = build.value("ids", ("B", "s"), integer=True)
    table = build.tensor("embedding.weight", ("V", "h"), "embedding")
    x = build.op("embedding", "embedding.out", TOKENS, (ids,), (table,))
    x = with_positions(build, x) if shape.positions else x
    x = build.dropped("embedding", x, shape)
    for block, dense in layers:
        build.block = build.unit = block.name
        x = layer(build, block.name, x, shape, dense=dense)
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
        shape,
    )


def perceptron(layers: int = 2, hidden: int = 8, ffn: int = 16, *, bias: bool = True) -> Model:
    """Residual blocks norm, up, activation, down on inputs of shape (batch, 1, hidden)."""
    build = Builder()
    shape = Shape(layers=layers, hidden=hidden, ffn=ffn, gated=False, bias=bias)
    x = build.value("inputs", TOKENS)
    for i in range(layers):
        build.block = build.unit = f"layer{i}"
        n = build.norm(f"layer{i}.norm", x)
        y = dense_ffn(build, f"layer{i}", n, shape)
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


__all__ = ["ROOT", "Shape", "abstract", "perceptron", "transformer"]
