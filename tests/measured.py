"""The measured models as ops and shapes, and what each measured case is in our terms.

Every entry of ``TORCH`` is a composition, the facts of the stack that differ from the paper's plan
(fields of a profile, read in the notes that come with the measurements), and facts of the loop. No
case has code of its own.
"""

from dataclasses import dataclass, field, replace

from placement_proofs.cost import convention
from placement_proofs.expression import parse
from placement_proofs.model import Block, Model, Op, Tensor, Value
from placement_proofs.profile import Profile

FLOAT32 = convention("fp32")
BFLOAT16 = replace(FLOAT32, name="bf16 compute", gathered=2, activation=2)
"""Parameters are stored and gradients reduced in float32, gathered in bfloat16."""

TOKENS = ("B", "s", "h")


class Builder:
    """The measured models: norms with biases, biases in the feed-forward part."""

    def __init__(self, shape):
        self.shape = shape
        self.tensors, self.values, self.ops = [], [], []
        self.block = self.unit = ""

    def op(self, kind, out, shape, ins, *tensors, **more):
        """One operation; ``tensors`` are (name, shape, group)."""
        for name, dims, group in tensors:
            self.tensors.append(Tensor(name, dims, group, self.unit))
        self.values.append(Value(out, shape, residual=kind in ("add", "embedding")))
        names = tuple(name for name, _, _ in tensors)
        self.ops.append(Op(kind, out, ins, names, self.block, **more))
        return out

    def norm(self, name, x):
        y = self.op("norm", f"{name}.scaled", TOKENS, (x,), (f"{name}.weight", ("h",), "norm"))
        return self.op("bias", f"{name}.out", TOKENS, (y,), (f"{name}.bias", ("h",), "norm"))

    def linear(self, name, x, dims, group, bias=False):
        shape = ("B", "s", dims[0])
        y = self.op("linear", f"{name}.out", shape, (x,), (f"{name}.weight", dims, group))
        if not bias:
            return y
        tensor = (f"{name}.bias", (dims[0],), f"{group}_bias")
        return self.op("bias", f"{name}.biased", shape, (y,), tensor)

    def attention(self, name, x):
        n = self.norm(f"{name}.n1", x)
        bias = self.shape["qkv_bias"]
        q, k, v = (self.linear(f"{name}.{c}", n, ("h", "h"), "column", bias) for c in "qkv")
        heads = (("heads", "a"), ("kv_heads", "a"))
        scores = ((f"{name}.scores", ("B", "a", "s", "s")),)
        o = self.op("attention", f"{name}.attn", TOKENS, (q, k, v), attrs=heads, internals=scores)
        y = self.linear(f"{name}.o", o, ("h", "h"), "row")
        return self.op("add", f"{name}.mid", TOKENS, (x, y))

    def feed_forward(self, name, x, n):
        up = self.linear(f"{name}.w1", n, ("f", "h"), "column", bias=True)
        up = self.op("activation", f"{name}.act", ("B", "s", "f"), (up,))
        y = self.linear(f"{name}.w2", up, ("h", "f"), "row", bias=True)
        return self.op("add", f"{name}.end", TOKENS, (x, y))

    def layer(self, name, x):
        self.block = self.unit = name
        if self.shape["kind"] == "mlp":
            return self.feed_forward(name, x, x)
        x = self.attention(name, x)
        return self.feed_forward(name, x, self.norm(f"{name}.n2", x))


def model_of(shape, micro_batch):
    """A measured model; an mlp has no norms, no attention, and rows instead of sequences."""
    b = Builder(shape)
    mlp = shape["kind"] == "mlp"
    layers = [f"layer{i}" for i in range(shape["layers"])]
    if mlp:
        b.values.append(Value("x", TOKENS))
        x = "x"
    else:
        b.block, b.unit = "embedding", "root"
        b.values.append(Value("ids", ("B", "s"), integer=True))
        x = b.op("embedding", "embedding.out", TOKENS, ("ids",), ("emb", ("V", "h"), "embedding"))
    for name in layers:
        x = b.layer(name, x)
    b.block, b.unit = "head", "root"
    x = x if mlp else b.norm("norm", x)
    logits = b.linear("head", x, ("V", "h"), "head", shape["head_bias"] or mlp)
    b.op("loss", "loss", (), (logits,))
    dims = {"h": shape["d"], "f": shape["ff"], "V": shape["out"], "s": shape["seq"] or 1}
    dims |= {"a": shape["heads"]} if shape["heads"] else {}
    names = ([] if mlp else ["embedding"]) + [*layers, "head"]
    blocks = tuple(Block(n) for n in names)
    tensors, values, ops = tuple(b.tensors), tuple(b.values), tuple(b.ops)
    return Model(shape["name"], tensors, values, ops, blocks, dims, micro_batch)


@dataclass(frozen=True)
class Case:
    """What a measured case is: an expression in ``{n}`` ranks (``{s}``: half of them), facts."""

    text: str
    facts: dict = field(default_factory=dict)
    clipping: bool = False
    widths: object = FLOAT32

    def composition(self, ranks):
        return parse(self.text.format(n=ranks, s=ranks // 2))

    @property
    def profile(self):
        return Profile("measured", **self.facts)


HOOKS = {"hooked_reductions": True}
"""Gradient reductions start as the backward pass ends (3.1)."""
CAPS = {"bucket_caps": (2**18, 25 * 2**18)}
"""DDP's buckets of 1 MiB, then 25 MiB, in float32."""
DDP = HOOKS | CAPS | {"bucket_copies": True}
"""The buckets hold a second copy of the gradients unless these are views into them (4)."""
VIEWS = HOOKS | CAPS
SYNC = CAPS | {"sync_each_micro": True, "bucket_copies": True}
UNITS = HOOKS | {"padded_copies": True, "root_spans_pass": True, "norm_vector": True}
"""FSDP2: copies keep the padding of dim 0 (3.3), the root unit spans a pass, norms (3.8)."""
STEP = UNITS | {"root_spans_step": True}
"""The root is not resharded after the forward pass (3.4)."""
MEGATRON = {"share_inputs": True}
DTENSOR = {"whole_gradients": ("embedding",), "norm_vector": True}
"""The gradient of a vocabulary-parallel embedding is stored whole (4)."""
ENDS = {"whole_ends": True}
"""The sequence-sharded region has an entry and an exit outside embedding and head (3.7a)."""
FLATTENED = ENDS | {"one_bucket": True}
"""Written by hand, as Megatron does: one all-reduce of all norm and row-bias gradients (3.7b)."""
SEQUENCE = DTENSOR | ENDS | {"bias_on_partial": True, "optimizer_reads": 3}
"""Norm gradients stay partial, Adam reads them three times; row biases need no sum (3.7b, c)."""
MESH_2D = UNITS | DTENSOR | {"resolve_first": True}
SEQUENCE_2D = MESH_2D | ENDS | {"bias_on_partial": True}
FLAT = HOOKS | {"flat_units": True, "root_spans_step": True}
"""FSDP1: one flat tensor per unit, padded once; the root as in FSDP2's default (3.3, 3.4)."""
OWNED = DDP | {"scatter_gradients": False, "whole_tensors": True}
"""torch's ZeRO-1: all-reduce, whole tensors to owners, broadcasts (3.2)."""
VIEWED = VIEWS | {"scatter_gradients": False, "whole_tensors": True, "one_broadcast": True}
"""The same with parameters that are views into one buffer for each owner."""

MICRO = " * accumulate(micro=2)"
TP = "tensor(tp={n}, vocabulary=False)"
SP = "tensor(tp={n}, vocabulary=False, sequence=True)"
FULL = "tensor(tp={n}, sequence=True)"
FSDP = "fsdp(dp={n})"
KEEP = "fsdp(dp={n}, reshard_after_forward=False)"
AGAIN = " * recompute('full')"
HSDP = "hsdp(dp_replicate={s}, dp_shard=2)"
PIPE = "pipeline(pp={n}, microbatches=4"

TORCH = {
    "single": Case("single()"),
    "single_ac": Case("recompute('full')"),
    "ddp": Case("data(dp={n})", DDP),
    "ddp_ac": Case("data(dp={n})" + AGAIN, DDP),
    "ddp_bucketview": Case("data(dp={n})", VIEWS),
    "ddp_smallbuckets": Case("data(dp={n})", DDP | {"bucket_caps": (2622,)}),
    "ddp_ga_nosync": Case("data(dp={n})" + MICRO, DDP),
    "ddp_ga_sync": Case(
        "data(dp={n})" + MICRO, CAPS | {"sync_each_micro": True, "bucket_copies": True}
    ),
    "zero1": Case("zero1(dp={n})", OWNED),
    "zero1_bucketview": Case("zero1(dp={n})", VIEWED),
    "fsdp1_full_shard": Case(FSDP, FLAT),
    "fsdp1_shard_grad_op": Case(KEEP, FLAT),
    "fsdp2_raf_true": Case(FSDP, UNITS),
    "fsdp2_raf_default": Case(FSDP, STEP),
    "fsdp2_raf_false": Case(KEEP, UNITS),
    "fsdp2_rootonly": Case(FSDP, STEP | {"one_unit": True}),
    "fsdp2_rootonly_raf_true": Case(FSDP, UNITS | {"one_unit": True}),
    "fsdp2_raf_int2": Case(
        "zero3(dp={s}, shard_over=('dp', 'sub')) * place(sub=2, batch='S(0)')",
        UNITS | {"regather_axes": ("sub",)},
    ),
    "fsdp2_mp_bf16": Case(FSDP, UNITS, widths=BFLOAT16),
    "fsdp2_clip": Case(FSDP, UNITS, clipping=True),
    "fsdp2_ac_inner": Case(FSDP + AGAIN, UNITS),
    "fsdp2_ac_outer": Case(FSDP + AGAIN, UNITS),
    "fsdp2_ga_sync": Case(FSDP + MICRO, UNITS),
    "fsdp2_ga_nosync": Case(FSDP + MICRO, UNITS | {"defer_reductions": True}),
    "hsdp_raf_true": Case(HSDP, UNITS),
    "hsdp_raf_false": Case(HSDP[:-1] + ", reshard_after_forward=False)", UNITS),
    "hsdp_ga_nosync": Case(HSDP + MICRO, UNITS | {"defer_reductions": True}),
    "manual_tp": Case(TP),
    "manual_tp_ac": Case(TP + AGAIN),
    "manual_tp_sp": Case(SP, FLATTENED),
    "manual_tp_sp_ac": Case(SP + AGAIN, FLATTENED),
    "tp": Case(TP, DTENSOR),
    "tp_ac": Case(TP + AGAIN, DTENSOR),
    "tp_naive": Case(TP, DTENSOR | {"share_inputs": False}),
    "tp_uneven_default_plan": Case(TP, DTENSOR),
    "tp_full_lossparallel": Case("tensor(tp={n})", DTENSOR),
    "tp_sp": Case(SP, SEQUENCE),
    "tp_sp_ac": Case(SP + AGAIN, SEQUENCE),
    "tp_sp_full_lossparallel": Case(FULL, SEQUENCE),
    "tp_sp_full_foreach": Case(FULL, SEQUENCE),
    "tp_sp_full_clip": Case(FULL, SEQUENCE, clipping=True),
    "fsdp2_tp": Case("fsdp(dp={s}) * tensor(tp=2, vocabulary=False)", MESH_2D),
    "fsdp2_tp_raf_false": Case(
        "fsdp(dp={s}, reshard_after_forward=False) * tensor(tp=2, vocabulary=False)", MESH_2D
    ),
    "fsdp2_tp_sp": Case(
        "fsdp(dp={s}) * tensor(tp=2, vocabulary=False, sequence=True)", SEQUENCE_2D
    ),
    "fsdp2_tp_spfull": Case("fsdp(dp={s}) * tensor(tp=2, sequence=True)", SEQUENCE_2D),
    "fsdp2_tp_spfull_clip": Case(
        "fsdp(dp={s}) * tensor(tp=2, sequence=True)", SEQUENCE_2D, clipping=True
    ),
    "pp_gpipe": Case(PIPE + ", schedule='gpipe')"),
    "pp_gpipe_ac": Case(PIPE + ", schedule='gpipe')" + AGAIN),
    "pp_1f1b": Case(PIPE + ")"),
    "pp_interleaved1f1b": Case(PIPE + ", schedule='interleaved', chunks=2)"),
}
"""Section numbers are those of the notes on the measurements."""

XLA = {"reports_loss": True}
"""The loss is folded into the gradients' all-reduce: four bytes more (3.8)."""
APART = XLA | {"share_inputs": False}
"""XLA reduces the input gradients of q, k and v apart, as they are three products (3.6)."""

ANNOTATED = APART | {
    "scatter_gradients": False,
    "gathers_once": True,
    "regathered": ("norm",),
}
"""Whole gradients are all-reduced and cut; parameters gathered once, weights of norms twice (5)."""

JAX = {
    "jax_dp{n}": Case("data(dp={n})", XLA),
    "jax_zero1_{n}": Case("zero1(dp={n})", XLA | {"scatter_gradients": False}),
    "jax_fsdp{n}_shardmap": Case(KEEP, XLA),
    "jax_fsdp{n}_shardmap_remat": Case(KEEP, XLA),
    "jax_tp{n}": Case(TP, APART),
    "jax_tp{n}_noconstraint": Case(TP, APART),
    "jax_tp{n}_remat": Case(TP + AGAIN, APART),
    "jax_dp{d}_tp{t}": Case("data(dp={d}) * tensor(tp={t}, vocabulary=False)", APART),
    "jax_fsdp{n}": Case(FSDP, ANNOTATED),
    "jax_fsdp{n}_remat": Case(FSDP + AGAIN, ANNOTATED),
}
"""The JAX steps whose compiler follows the placement, by the pattern of their names."""

NAMED_XLA = tuple(name for name in JAX if "shardmap" not in name)
"""Those that are annotated, not written out: the profile of XLA has their facts."""

SMALL_BATCH = (
    "8 rows are fewer bytes than the weights: activations are exchanged (all-to-all) and gathered, "
    "so that most gradients come out as shards and only 264 numbers are all-reduced"
)
NOT_AS_PLACED = {
    ("jax_fsdp{n}", "mlp_div"): SMALL_BATCH,
    ("jax_fsdp{n}_remat", "mlp_div"): SMALL_BATCH + "; the blocks' weights are gathered once more",
    ("jax_tp{n}_sp", "*"): "the annotation of the sequence becomes gathers, all-to-alls and "
    "all-reduces, about twice the bytes: this partitioner makes no reduce-scatter",
    ("jax_fsdp{d}_tp{t}", "*"): "the matrices and norms of layers follow as under dp alone, the "
    "embedding or the head do not: they stay cut, and permutes, a gather over tp and one more "
    "all-reduce move rows and logits instead",
}
"""The JAX steps that the partitioner is free to lower in another way, and how, by model."""
