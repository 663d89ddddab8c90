"""Activation memory against Korthikanti et al. (arXiv 2205.05198), sections 4 and 5.

Convention: 2 bytes for what is kept, 1 for an element of a dropout mask (theirs, section 4.1).
"""

from dataclasses import replace
from fractions import Fraction

import pytest

from placement_proofs.cost import DEFAULT, convention, memory, memory_at, sizes_of
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.lifetimes import Kept
from placement_proofs.cost.symbols import equal, symbol
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, transformer
from placement_proofs.profile import KERNELS, PAPER, PROFILES, profile
from placement_proofs.simulate import Held, simulate
from placement_proofs.zoo import PRESETS

MEGATRON = PROFILES["megatron"]
S, B, H, A, L, T = (symbol(n) for n in ("s", "b", "h", "a", "L", "t"))
SBH = S * B * H


def gpt(name="gpt2", **more):
    shape = replace(PRESETS[name], dropout=True, **more)
    return shape, transformer(shape, folded=True)


def per_layer(text, profile=PAPER, **more):
    """What one more layer keeps, as a formula; ``f = 4h`` and ``hkv = h`` as in GPT."""
    _, model = gpt(**more)
    forms = closed_forms(derive(parse(text), model, profile), model)
    (others,) = (t for t in forms.saved.terms if t.block == "layers")
    payload = others.payload
    return payload.subs({symbol("f"): 4 * H, symbol("hkv"): H})


def attention(share):
    return 5 * A * S * S * B / share


@pytest.mark.parametrize(
    ("text", "profile", "expected"),
    [
        ("single()", PAPER, 34 * SBH + attention(1)),
        ("tensor(tp=t)", PAPER, 10 * SBH + 24 * SBH / T + attention(T)),
        ("tensor(tp=t, sequence=True)", MEGATRON, 34 * SBH / T + attention(T)),
        ("tensor(tp=t) * recompute('selective')", PAPER, 10 * SBH + 24 * SBH / T),
        ("tensor(tp=t, sequence=True) * recompute('selective')", MEGATRON, 34 * SBH / T),
        ("tensor(tp=t) * recompute('full')", PAPER, 2 * SBH),
        ("tensor(tp=t, sequence=True) * recompute('full')", MEGATRON, 2 * SBH / T),
        ("context(cp=t)", PAPER, 30 * SBH / T + 4 * SBH + attention(T)),
        ("context(cp=t, method='ring')", PAPER, 34 * SBH / T + attention(T)),
        ("ulysses(sp=t)", PAPER, 34 * SBH / T + attention(T)),
        ("data(dp=t)", PAPER, 34 * SBH + attention(1)),
    ],
)
def test_the_formulas_of_the_paper(text, profile, expected):
    """Section 4; with context parallelism, gathered keys and values are whole, others shards."""
    found = per_layer(text, profile)
    assert equal(found, expected), found - expected


def test_without_the_second_gather_the_inputs_of_regions_are_whole():
    found = per_layer("tensor(tp=t, sequence=True)")
    assert equal(found, 4 * SBH + 30 * SBH / T + attention(T))


def test_fused_attention_keeps_no_scores():
    assert equal(per_layer("single()", fused_attention=True), 34 * SBH)


LAYOUTS = {
    "megatron-22b": (1, 1, 4, 1),
    "megatron-175b": (8, 3, 1, 64),
    "megatron-530b": (35, 3, 1, 280),
    "megatron-1t": (64, 1, 1, 512),
}
"""Pipeline, chunks a rank, micro-batch and micro-batches of table 3; all with 8-way tensor."""

GIB = {
    ("", PAPER): (59.25, 66.84, 114.0, 131.3),
    (", sequence=True", MEGATRON): (39.56, 41.41, 66.51, 76.56),
    (", sequence=True) * recompute('selective'", MEGATRON): (9.56, 12.35, 23.08, 26.56),
    (") * recompute('full'", PAPER): (4.50, 5.81, 10.86, 12.50),
}
"""What the layers of the first stage keep, in GiB, by the formulas of the paper."""


def first_stage(name, options, profile):
    """Bytes that the layers of the first stage keep, all micro-batches in flight."""
    pp, chunks, micro_batch, micro = LAYOUTS[name]
    text = f"tensor(tp=8{options})"
    if pp > 1:
        schedule = ", schedule='interleaved', chunks=3" if chunks > 1 else ""
        text += f" * pipeline(pp={pp}, microbatches={micro}{schedule})"
    shape, model = gpt(name)
    model = replace(model, micro_batch=micro_batch)
    plan = derive(parse(text), model, profile)
    sizes = sizes_of(plan, model)
    position = plan.positions[0]
    held = memory(plan, sizes, DEFAULT, position.name)
    layers = shape.layers // pp // chunks
    (one,) = {t.payload for t in held.terms if t.block == "layers"} or {0}
    if layers == 1:
        one = layer_alone(name, options, profile, micro_batch)
    return Fraction(one * layers * held.in_flight)


def layer_alone(name, options, profile, micro_batch):
    _, model = gpt(name)
    model = replace(model, micro_batch=micro_batch)
    plan = derive(parse(f"tensor(tp=8{options})"), model, profile)
    held = memory(plan, sizes_of(plan, model), DEFAULT)
    (one,) = (t.payload for t in held.terms if t.block == "layers")
    return one


@pytest.mark.parametrize(("setting", "expected"), GIB.items())
def test_the_first_stages_of_the_four_models(setting, expected):
    found = [float(first_stage(name, *setting) / 2**30) for name in LAYOUTS]
    assert found == pytest.approx(expected, rel=1e-3)


def test_the_ends_of_the_model():
    """Section 4.3: dropout of the embedding, final norm and head inputs, float32 logits."""
    _, model = gpt()
    text = "tensor(tp=t, sequence=True)"
    forms = closed_forms(derive(parse(text), model, MEGATRON), model, convention("megatron"))
    others, inside = forms.saved.terms
    assert (inside.block, others.block) == ("", "layers")
    ends = (inside.payload - others.payload).subs(symbol("hkv"), H).expand()
    vocabulary = symbol("V")
    assert equal(ends, SBH / T * (1 + 4 + 4 * vocabulary / H)), ends


@pytest.mark.parametrize(("name", "percent"), [("megatron-175b", 70), ("megatron-530b", 65)])
def test_the_share_that_selective_recomputation_saves(name, percent):
    """Section 5: 5as/h is 80 and 64, so 70 and 65 per cent go."""
    _, model = gpt(name)
    whole = layer_of(model, "single()")
    less = layer_of(model, "recompute('selective')")
    shape = PRESETS[name]
    assert Fraction(5 * shape.heads * shape.sequence, shape.hidden) in (80, 64)
    assert round(100 * (1 - less / whole)) == percent


def layer_of(model, text):
    plan = derive(parse(text), model)
    held = memory(plan, sizes_of(plan, model), DEFAULT)
    (one,) = (t.payload for t in held.terms if t.block == "layers")
    return one


@pytest.mark.parametrize(
    "text", ["tensor(tp=2, sequence=True) * zero1(dp=2)", "recompute('full') * zero3(dp=2)"]
)
def test_dropout_and_second_gathers_train_as_on_one_device(text):
    shape = Shape(gated=False, bias=True, norm_bias=True, positions=4, dropout=True)
    model = transformer(shape)
    assert simulate(derive(parse(text), model, MEGATRON), model).equal


def llama(**more):
    return transformer(replace(PRESETS["llama-7b"], **more), folded=True)


def layer_form(text, name, model, convention=DEFAULT):
    forms = closed_forms(derive(parse(text), model, profile(name)), model, convention)
    (others,) = (t for t in forms.saved.terms if t.block == "layers")
    return others.payload.subs(symbol("hkv"), H)


@pytest.mark.parametrize(
    ("text", "share"),
    [("single()", 1), ("tensor(tp=t)", 1), ("tensor(tp=t, sequence=True)", T)],
)
def test_eager_norms_keep_twelve_more(text, share):
    """Two norms a layer: a float32 copy (4) and the normalised value (2); 20 sbh against 8.

    Sequence parallelism divides what they keep, as it divides their tokens.
    """
    fused, eager = (layer_form(text, f"paper{k}", llama()) for k in ("", "+eager-norm"))
    assert equal(eager - fused, 12 * SBH / share)
    if text == "single()":
        # residual and norms; queries, keys, values and attention; the gated feed-forward part
        assert equal(fused, 8 * SBH + 8 * SBH + 8 * S * B * symbol("f"))


def test_attention_kernels():
    """Scores of 2 bytes, 2 a s^2 b a layer, with an eager kernel; a fused one keeps none."""
    fused, eager = (
        layer_form("tensor(tp=t)", f"paper{k}", llama()) for k in ("", "+eager-attention")
    )
    assert equal(eager - fused, 2 * A * S * S * B / T)
    plain = llama(fused_attention=False)
    assert equal(layer_form("tensor(tp=t)", "paper", plain), eager)
    assert equal(layer_form("tensor(tp=t)", "paper+fused-attention", plain), fused)


@pytest.mark.parametrize(("vocabulary", "share"), [("True", T), ("False", 1)])
def test_an_eager_loss_keeps_float32_logits(vocabulary, share):
    """Beside the logits (2 or 4 bytes) float32 copies of them and of their log-probabilities."""
    model = llama()
    for name, widths in (("zero-paper", 2), ("megatron", 4)):
        text = f"tensor(tp=t, vocabulary={vocabulary})"
        kept = [
            closed_forms(derive(parse(text), model, profile(p)), model, convention(name)).saved
            for p in ("paper", "paper+eager-loss")
        ]
        tokens = S * B * symbol("V") / share
        assert equal(kept[1].exact - kept[0].exact, 8 * tokens)
        assert kept[0].exact.expand().coeff(symbol("V")) * symbol("V") == widths * tokens


def test_what_experts_keep():
    """k copies of a token: dispatched 2h; up, gate, activation, product 2f each; result 2h."""
    shape = replace(PRESETS["qwen3-30b-a3b"], shared_ffn=0)
    model = transformer(shape, folded=True)
    dense = transformer(replace(shape, experts=0), folded=True)
    k, f, e = (symbol(n) for n in ("k", "f", "E"))
    routed, plain = (layer_form("single()", "paper", m) for m in (model, dense))
    experts = 4 * k * SBH + 8 * k * S * B * f + 4 * S * B * e
    assert equal(routed - plain, experts - 8 * S * B * f)
    spread = layer_form("expert(ep=t)", "paper", model)
    assert equal(spread, routed)


KERNEL_TEXTS = [
    "tensor(tp=2, sequence=True) * zero3(dp=2)",
    "recompute('full') * data(dp=2)",
    "tensor(tp=2)",
]


@pytest.mark.parametrize("text", KERNEL_TEXTS)
@pytest.mark.parametrize("kernels", [*KERNELS, "eager-norm+eager-loss"])
def test_kernels_train_as_one_device_and_hold_what_is_said(kernels, text):
    """In float32, where every kept element has four bytes."""
    model = transformer(Shape(qk_norm=True, kv_heads=2, fused_attention=True))
    plan = derive(parse(text), model, profile(f"paper+{kernels}"))
    result = simulate(plan, model)
    assert result.equal, str(result)
    sizes = sizes_of(plan, model)
    for rank in result.ranks:
        held = memory_at(plan, sizes, convention("fp32"), dict(rank.coordinates))
        assert rank.held[Held.FLOWING] * 4 == held.transient[Kept.ACTIVATIONS.value]


def test_an_unknown_kernel_is_refused():
    with pytest.raises(IllFormed, match="kernels to add are eager-norm"):
        profile("megatron+lazy-norm")
