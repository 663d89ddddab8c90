"""Properties of costs on random compositions: divisible or not, folded or layer by layer."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from placement_proofs.cost import (
    DEFAULT,
    communication,
    communication_at,
    memory,
    memory_at,
    sizes_of,
)
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.lifetimes import Kept, Lifetimes
from placement_proofs.cost.measure import largest
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, transformer

EVEN = Shape(hidden=144, heads=144, kv_heads=144, ffn=144, vocabulary=144, sequence=144 * 144)
"""Every size divides by every product of two sizes of axes."""

SIZES = st.integers(1, 4)


def _dense(draw):
    n, m = draw(SIZES), draw(SIZES)
    return draw(
        st.sampled_from(
            [
                f"data(dp={n})",
                f"zero1(dp={n})",
                f"zero2(dp={n})",
                f"zero3(dp={n})",
                f"fsdp(dp={n}, reshard_after_forward=False)",
                f"hsdp(dp_replicate={n}, dp_shard={m})",
                f"hsdp(dp_replicate={n}, dp_shard={m}, reshard_after_forward=False)",
                "single()",
            ]
        )
    )


def _others(draw, experts):
    n, m = draw(SIZES), draw(st.integers(1, 6))
    parts = []
    if experts and draw(st.booleans()):
        parts.append(f"expert(ep={draw(SIZES)})")
    parts.append(
        draw(
            st.sampled_from(
                ["", "", f"context(cp={n})", f'context(cp={n}, method="ring")', f"ulysses(sp={n})"]
            )
        )
    )
    tp = draw(SIZES)
    parts.append(
        draw(
            st.sampled_from(
                [
                    "",
                    f"tensor(tp={tp})",
                    f"tensor(tp={tp}, sequence=True)",
                    f"tensor(tp={tp}, vocabulary=False)",
                    f"tensor(tp={tp}, sequence=True, replicate_kv=True)",
                ]
            )
        )
    )
    pp = draw(st.sampled_from([1, 2, 4]))
    loops = ["", "", f"accumulate(micro={m})", f"pipeline(pp={pp}, microbatches={m})"]
    name = draw(st.sampled_from(["gpipe", "zb-h1", "zb-h2"]))
    loops.append(f'pipeline(pp={pp}, microbatches={m}, schedule="{name}")')
    loops.append(f'pipeline(pp=2, microbatches={2 * m}, schedule="interleaved", chunks=2)')
    parts.append(draw(st.sampled_from(loops)))
    parts.append(draw(st.sampled_from(["", "", 'recompute("full")', 'recompute("selective")'])))
    stored = ["", "", "", 'offload("optimizer")', 'offload("parameters", "optimizer")']
    parts.append(draw(st.sampled_from(stored)))
    return [p for p in parts if p]


@st.composite
def parts(draw, size, experts, bias):
    """Norms of queries and keys or latent attention, and experts of their own; widths of a size."""
    latent = {n: size for n in ("kv_rank", "q_rank", "nope_dim", "rope_dim", "value_dim")}
    attentions = [{}] if bias else [{}, {"qk_norm": True, "head_dim": size}, latent]
    more = {"expert_ffn": size, "shared_ffn": size, "top_k": 2}
    return draw(st.sampled_from(attentions)) | draw(
        st.sampled_from([{}, more] if experts else [{}])
    )


@st.composite
def compositions(draw):
    """An expression and the shape of a transformer; sizes divide each other or not."""
    experts = draw(st.sampled_from([0, 0, 2]))
    expression = " * ".join([_dense(draw), *_others(draw, experts)])
    flags = {
        "layers": 4,
        "gated": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "tied": draw(st.sampled_from([False, False, True])),
        "micro_batch": draw(st.integers(1, 3)),
        "post_norm": draw(st.booleans()),
        "fused_attention": draw(st.booleans()),
    }
    even = draw(st.booleans())
    flags |= draw(parts(EVEN.hidden if even else 5, experts, flags["bias"]))
    if even:
        return expression, replace(EVEN, experts=EVEN.hidden if experts else 0, **flags)
    uneven = Shape(
        hidden=draw(st.sampled_from([20, 28])),
        heads=4,
        kv_heads=draw(st.sampled_from([2, 4])),
        ffn=draw(st.integers(9, 31)),
        vocabulary=draw(st.integers(9, 31)),
        sequence=draw(st.sampled_from([6, 10, 14])),
        experts=experts,
    )
    return expression, replace(uneven, **flags)


def planned(example, folded=True):
    """The model, plan and integer sizes of an example; nothing if it has no plan."""
    text, shape = example
    model = transformer(shape, folded=folded)
    try:
        plan = derive(parse(text), model)
        return model, plan, sizes_of(plan, model)
    except IllFormed:
        return None


def coordinates(plan, sizes):
    """The ranks of a mesh: the first and the last few."""
    names = plan.mesh.names
    places = list(itertools.product(*(range(sizes.axes[a]) for a in names)))
    return [dict(zip(names, place, strict=True)) for place in (*places[:3], *places[-3:])]


@given(compositions())
def test_ranks_never_hold_or_send_more_than_the_largest(example):
    found = planned(example)
    if found is None:
        return
    _, plan, sizes = found
    for rank in coordinates(plan, sizes):
        held = memory_at(plan, sizes, DEFAULT, rank)
        assert held.peak <= memory(plan, sizes, DEFAULT, held.position).peak
        sent = communication_at(plan, sizes, DEFAULT, rank)
        bound = communication(plan, sizes, DEFAULT, held.position)
        assert sent.total <= bound.total
        assert sent.by.keys() == bound.by.keys()


def totals(found):
    """What the first and the last position hold and send."""
    _, plan, sizes = found
    result = []
    for position in (plan.positions[0].name, plan.positions[-1].name):
        held = memory(plan, sizes, DEFAULT, position)
        sent = communication(plan, sizes, DEFAULT, position)
        result.append((held.by, held.host, held.persistent, held.in_flight))
        result.append((held.saved, held.transient, held.peak))
        result.append((sent.by, sent.by_phase, sent.total, sent.host))
    return result


@given(compositions())
def test_folded_layers_cost_the_same_as_layers_one_by_one(example):
    folded, written_out = planned(example), planned(example, folded=False)
    if folded and written_out:
        assert totals(folded) == totals(written_out)


@given(compositions())
def test_everything_that_a_step_makes_is_dropped(example):
    found = planned(example)
    if found is None:
        return
    _, plan, sizes = found
    for stage in plan.stages:
        fold = Lifetimes(plan, stage, largest(sizes), DEFAULT)
        assert not [key for key in fold.live if key[0] is not Kept.FRESH]
        assert all(
            v >= 0 for points in fold.points.values() for point in points for v in point.values()
        )


def same(forms, held, sent):
    """Formulas with numbers equal the integers, exactly."""
    numbers = {name: amount.bytes for name, amount in forms.numbers().items()}
    for state, value in held.by.items():
        assert numbers[f"memory_{state}"] == value
    assert numbers["memory_persistent"] == held.persistent
    assert numbers["memory_saved_activations"] == held.saved
    assert numbers["memory_peak"] == held.peak
    for (kind, axes), value in sent.by.items():
        name = f"communication_{kind}_over_{'_'.join(axes)}"
        assert numbers[name.replace("-", "_").replace(":", "_")] == value
    assert numbers["communication_total"] == sent.total
    assert numbers.get("communication_host_link", 0) == sent.host


@settings(max_examples=30)
@given(compositions(), st.booleans())
def test_formulas_with_numbers_are_the_integers(example, folded):
    found = planned(example, folded)
    if found is None:
        return
    model, plan, sizes = found
    position = plan.positions[-1].name
    held = memory(plan, sizes, DEFAULT, position)
    sent = communication(plan, sizes, DEFAULT, position)
    same(closed_forms(plan, model, position=position, divides=False), held, sent)
    if example[1].hidden == EVEN.hidden and plan.chunks == 1:
        same(closed_forms(plan, model, position=position), held, sent)
