"""Random compositions on random models equal one device after two steps, and meter as costed."""

import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_meters_equal_closed_forms import check_memory, check_traffic

from placement_proofs.composition import compose
from placement_proofs.cost import DEFAULT, communication_at, convention, memory_at, sizes_of
from placement_proofs.derive import derive
from placement_proofs.models import Shape, perceptron, transformer
from placement_proofs.profile import Profile
from placement_proofs.simulate import simulate
from placement_proofs.strategies import (
    accumulate,
    context,
    data,
    expert,
    fsdp,
    hsdp,
    offload,
    pipeline,
    recompute,
    single,
    tensor,
    ulysses,
    zero1,
    zero2,
    zero3,
)

RANKS = 12
FLOAT32 = convention("fp32")
"""Every activation has four bytes, also what a kernel keeps in float32."""
KINDS = ["perceptron", "transformer", "transformer", "moe"]


@st.composite
def data_parts(draw, cp):
    kind = draw(st.sampled_from([None, data, zero1, zero2, zero3, fsdp, hsdp]))
    dp = draw(st.integers(1, 3))
    if kind is None:
        return []
    if kind is hsdp:
        keep = draw(st.booleans())
        return [hsdp(dp_replicate=2, dp_shard=dp, reshard_after_forward=keep)]
    if kind is fsdp:
        return [fsdp(dp=dp, reshard_after_forward=draw(st.booleans()))]
    if kind is not data and cp > 1 and draw(st.booleans()):
        return [kind(dp=dp, shard_over=draw(st.permutations(["dp", "cp"]).map(tuple)))]
    return [kind(dp=dp)]


@st.composite
def loop_parts(draw):
    """The loop, and the number of layers that it needs."""
    micro = draw(st.integers(1, 3))
    layers = draw(st.integers(1, 2))
    match draw(
        st.sampled_from(["none", "accumulate", "gpipe", "1f1b", "zb-h1", "zb-h2", "interleaved"])
    ):
        case "none":
            return [], layers
        case "accumulate":
            return [accumulate(micro=micro)], layers
        case "interleaved":
            loop = pipeline(pp=2, microbatches=micro, schedule="interleaved", chunks=2)
            return [loop], 4
        case schedule:
            pp = draw(st.integers(1, 3))
            return [pipeline(pp=pp, microbatches=micro, schedule=schedule)], max(pp, layers)


@st.composite
def cases(draw):
    """A composition and a model that it fits: heads, sequence and experts divide, no more."""
    kind = draw(st.sampled_from(KINDS))
    tokens = kind != "perceptron"
    cp = draw(st.sampled_from([1, 1, 2])) if tokens else 1
    sp = draw(st.sampled_from([1, 1, 2])) if tokens else 1
    tp = draw(st.sampled_from([1, 1, 2, 4 if sp == 1 else 2]))
    sequence, vocabulary = draw(st.booleans()), draw(st.booleans())
    kv = draw(st.sampled_from([n for n in (1, 2, 4) if sp == 1 or n % (tp * sp) == 0]))
    replicate_kv = sp == 1 and (bool(kv % tp) or draw(st.booleans()))
    ep = draw(st.sampled_from([1, 2])) if kind == "moe" else 1
    parts = draw(data_parts(cp))
    loop, layers = draw(loop_parts())
    parts += loop
    if tp > 1 or draw(st.booleans()):
        options = {"sequence": sequence, "vocabulary": vocabulary, "replicate_kv": replicate_kv}
        parts.append(tensor(tp=tp, **options))
    parts += [context(cp=cp, method=draw(st.sampled_from(["ring", "all-gather"])))] * (cp > 1)
    parts += [ulysses(sp=sp)] * (sp > 1)
    parts += [expert(ep=ep)] * (ep > 1)
    what = draw(st.sampled_from(["none", "none", "full", "selective"]))
    parts += [recompute(what)] * (what != "none")
    if draw(st.integers(0, 4)) == 0:
        parts.append(offload(*draw(st.sampled_from([("optimizer",), ("optimizer", "parameters")]))))
    composition = compose(*draw(st.permutations(parts or [single()])))
    assume(math.prod(axis.size for axis in composition.mesh.axes) <= RANKS)
    split = cp * sp * (tp if sequence and (kind == "moe" or not vocabulary) else 1)
    sequence_length = split * (2 if kind == "moe" else draw(st.integers(1, 3)))
    return composition, draw(models(kind, layers, kv, sequence_length))


@st.composite
def models(draw, kind, layers, kv, sequence):
    ffn, bias = draw(st.integers(3, 8)), draw(st.booleans())
    if kind == "perceptron":
        return perceptron(layers, draw(st.sampled_from([3, 4, 5])), ffn, bias=bias)
    return transformer(
        Shape(
            layers=layers,
            hidden=draw(st.sampled_from([4, 8])),
            heads=4,
            kv_heads=kv,
            ffn=ffn,
            vocabulary=draw(st.integers(3, 8)),
            sequence=sequence,
            gated=draw(st.booleans()),
            bias=bias,
            tied=draw(st.booleans()),
            experts=2 if kind == "moe" else 0,
            micro_batch=draw(st.integers(1, 2)),
            fused_attention=draw(st.booleans()),
            post_norm=draw(st.booleans()),
            **draw(attentions()),
            **(draw(expert_layers(layers)) if kind == "moe" else {}),
        )
    )


@st.composite
def attentions(draw):
    """Norms of queries and keys, or latent attention, as few models have both."""
    if draw(st.booleans()):
        return {"qk_norm": draw(st.booleans()), "head_dim": draw(st.sampled_from([0, 2, 3]))}
    sizes = {n: draw(st.integers(1, 3)) for n in ("kv_rank", "nope_dim", "rope_dim", "value_dim")}
    return sizes | {"q_rank": draw(st.integers(0, 3))}


@st.composite
def expert_layers(draw, layers):
    return {
        "top_k": draw(st.integers(1, 2)),
        "dense_layers": draw(st.integers(0, layers - 1)),
        "expert_ffn": draw(st.sampled_from([0, 3])),
        "shared_ffn": draw(st.sampled_from([0, 5])),
    }


@st.composite
def profiles(draw):
    flags = [draw(st.booleans()) for _ in range(6)] if draw(st.booleans()) else []
    return Profile(
        "drawn",
        *flags,
        tensor_units=draw(st.booleans()),
        persistent_below=draw(st.sampled_from([0, 9, 40])),
        bucket_caps=draw(st.sampled_from([(), (30,), (10, 100)])),
        eager=draw(st.sampled_from([(), ("norm", "loss")])),
    )


def check(case, profile, clipping, loss, optimizer):
    composition, model = case
    plan = derive(composition, model, profile, clipping=clipping, loss=loss)
    result = simulate(plan, model, optimizer=optimizer)
    assert result.equal, f"{composition!r} on {model.name}: {result}"
    sizes = sizes_of(plan, model)
    for rank in result.ranks:
        here = dict(rank.coordinates)
        check_traffic(communication_at(plan, sizes, DEFAULT, here), rank)
        check_memory(memory_at(plan, sizes, FLOAT32, here), rank, plan, FLOAT32)


drawn = given(
    cases(),
    profiles(),
    st.booleans(),
    st.sampled_from(["mean", "mean", "tokens", "sum"]),
    st.sampled_from(["sgd", "momentum", "adam"]),
)
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@drawn
def test_compositions_equal_one_device(case, profile, clipping, loss, optimizer):
    check(case, profile, clipping, loss, optimizer)


@pytest.mark.deep
@settings(max_examples=5000, deadline=None, suppress_health_check=SLOW)
@drawn
def test_many_compositions_equal_one_device(case, profile, clipping, loss, optimizer):
    check(case, profile, clipping, loss, optimizer)
