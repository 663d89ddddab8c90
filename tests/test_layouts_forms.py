"""Forms of layouts: the numbers of the cost of the same plan, and what comes on top of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_proofs.cost import CONVENTIONS, communication, memory, sizes_of, symbols
from placement_proofs.cost.evaluation import evaluate
from placement_proofs.derive import derive
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.forms import FIRST, LAYER, LOGITS, MIDDLE, SAVED, forms
from placement_proofs.layouts.kernels import ATTENTION, NORM, available, with_kernels
from placement_proofs.layouts.predict import predictor
from placement_proofs.layouts.setting import Job, Kind, Layout, visited
from placement_proofs.layouts.space import concrete
from placement_proofs.layouts.work import work_of
from placement_proofs.model import Model
from placement_proofs.models import Shape, transformer
from placement_proofs.plan import Plan

SHAPE = Shape(8, 64, 8, 4, 96, 160, 32, fused_attention=True)
MACHINE = load_machine("a100-80gb")
STATES = ("parameters", "gradients", "optimizer")
BARE = Constants(allocator=1.0, reserve=0.0)


def job(gpus=16, batch=128, shape=SHAPE, **facts):
    return Job("small", shape, batch, gpus, MACHINE, **facts)


def plan_of(layout: Layout, given: Job) -> tuple[Plan, Model]:
    """The plan of one layout, all its sizes numbers."""
    shape = replace(given.shape, micro_batch=layout.micro_batch)
    model = with_kernels(transformer(shape, folded=True), layout.attention, layout.norm)
    return derive(concrete(layout, given), model), model


def numbers(layout, given, constants=BARE):
    """Exact values of all symbols of the forms."""
    whole = {name: int(value) for name, value in {**given.symbols, **constants.symbols}.items()}
    return {**whole, **given.columns(layout)}


LAYOUTS = [
    Layout(2, data=16, norm="eager"),
    Layout(1, tensor=4, data=4),
    Layout(1, tensor=4, data=4, sequence=True, norm="eager"),
    Layout(2, tensor=2, pipeline=2, data=4, sequence=True, recompute="full"),
    Layout(1, tensor=2, pipeline=4, data=2, attention="eager"),
    Layout(4, pipeline=8, data=2, zero=0, attention="fused-softmax"),
    Layout(1, tensor=2, pipeline=4, data=2, zero=3, recompute="selective", attention="eager"),
    Layout(1, pipeline=4, data=4, zero=2),
    Layout(1, pipeline=2, data=8, chunks=2),
    Layout(1, tensor=2, data=4, context=2),
    Layout(1, tensor=2, pipeline=2, data=2, context=2, zero=3, sequence=True),
]


@pytest.mark.parametrize("name", ["zero-paper", "megatron"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_memory_is_that_of_the_plan_to_the_byte(layout, name):
    """With chunks, the cost rounds what is in flight up to whole turns of all chunks."""
    given = job(convention=CONVENTIONS[name])
    made, values = forms(layout.kind, given), numbers(layout, given)
    plan, model = plan_of(layout, given)
    sizes = sizes_of(plan, model)
    logits = logits_of(plan, sizes)
    for position in (p.name for p in plan.positions if p.name != MIDDLE):
        held = memory(plan, sizes, given.convention, position)
        term = {n: symbols.number(made.memory[f"{position} {n}"], values) for n in (*STATES, SAVED)}
        assert {state: term[state] for state in STATES} == dict(held.by)
        width = given.convention.logits or given.convention.activation
        kept = 0 if position == FIRST else width * logits
        if layout.chunks > 1:
            assert 0 <= held.saved - term[SAVED] - kept < held.saved / held.in_flight
            continue
        assert term[SAVED] + kept == held.saved
        if position == FIRST:
            layer = symbols.number(made.memory[f"{position} {LAYER}"], values)
            assert held.persistent + held.saved + layer == held.peak


def logits_of(plan, sizes):
    from placement_proofs.cost.measure import largest

    value = next(v for v in plan.values.values() if v.logits)
    return largest(sizes).elements(value.shape, value.layout)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_fullest_rank_holds_at_least_the_peak_of_the_plan(layout):
    given = job()
    plan, model = plan_of(layout, given)
    peak = memory(plan, sizes_of(plan, model), given.convention).peak
    assert predictor([(given, layout)]).peak(BARE)[0] >= peak * (1 - 1e-12)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_traffic_is_that_of_the_plan(layout):
    """Bytes of all messages of a step: of every micro-batch, and beside them."""
    given = job()
    plan, model = plan_of(layout, given)
    sizes = sizes_of(plan, model)
    symbolic = symbols.symbolic_sizes(plan, model)
    values = {**numbers(layout, given), **{f"N_{a}": n for a, n in sizes.axes.items()}}
    for position in (p.name for p in plan.positions):
        work = work_of(plan, symbolic, given.convention, position, layout.attention, layout.norm)
        turns = {True: given.microbatches(layout), False: 1}
        sent = sum(turns[m.looped] * symbols.number(m.bytes, values) for m in work.messages)
        assert sent == communication(plan, sizes, given.convention, position).total


@given(
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.sampled_from(["none", "full"]),
    st.sampled_from([0, 1, 2, 3]),
)
@settings(max_examples=25)
def test_states_of_any_layout(b, p, t, sequence, recompute, zero):
    """Of a model whose dims divide by all ranks: the forms have quotients, the plan pads."""
    layout = Layout(b, t, p, data=64 // (t * p), zero=zero, sequence=sequence, recompute=recompute)
    given = job(64, 256, Shape(8, 512, 8, 8, 1024, 1024, 64, fused_attention=True))
    made, values = forms(layout.kind, given), numbers(layout, given)
    plan, model = plan_of(layout, given)
    sizes = sizes_of(plan, model)
    last = plan.positions[-1].name
    held = memory(plan, sizes, given.convention, last)
    found = {s: symbols.number(made.memory[f"{last} {s}"], values) for s in STATES}
    assert found == dict(held.by)


def test_middle_stages_hold_less_than_the_first():
    layout = Layout(1, tensor=2, pipeline=4, data=2)
    given = job()
    plan, model = plan_of(layout, given)
    held = [memory(plan, sizes_of(plan, model), given.convention, n).peak for n in (FIRST, MIDDLE)]
    assert held[0] > held[1]


def test_scores_of_a_kernel_are_those_of_the_paper_on_activations():
    """5 a s^2 b / t bytes a layer (arXiv 2205.05198, section 4.1) beside what flash keeps."""
    saved = {}
    for attention in ("eager", "flash-2"):
        layout = Layout(2, tensor=2, data=8, attention=attention)
        made = forms(layout.kind, job())
        saved[attention] = symbols.number(made.memory[f"only {SAVED}"], numbers(layout, job()))
    a, s, b, t = SHAPE.heads, SHAPE.sequence, 2, 2
    assert saved["eager"] - saved["flash-2"] == SHAPE.layers * 5 * a * s * s * b // t


def test_scratch_of_a_backward_pass_is_held_while_it_runs():
    """Two copies of the scores of one layer beside what is then still saved."""
    long = job(shape=replace(SHAPE, sequence=1024))

    def beside(attention):
        layout = Layout(1, pipeline=4, data=4, attention=attention)
        made = forms(layout.kind, long)
        return symbols.number(made.memory[f"first {LAYER}"], numbers(layout, long))

    more = ATTENTION["eager"].scratch * 2 * SHAPE.heads * 1024**2
    assert 0.9 * more < beside("eager") < 1.5 * more
    assert beside("flash-2") < more / 10


def test_eager_norms_keep_six_bytes_an_element_and_sequence_parallelism_splits_them():
    def saved(**more):
        layout = Layout(1, tensor=4, data=4, **more)
        made = forms(layout.kind, job())
        return symbols.number(made.memory[f"only {SAVED}"], numbers(layout, job()))

    each = SHAPE.sequence * SHAPE.hidden
    norms = 2 * SHAPE.layers + 1
    assert saved(norm="eager") - saved() == 6 * norms * each
    split = saved(norm="eager", sequence=True) - saved(sequence=True)
    assert split == 6 * norms * each // 4


def test_gpt_saves_what_the_paper_on_activations_says():
    """``s b h (34 + 5 a s / h)`` a layer, mixed precision, dropout, GELU, learned positions."""
    gpt = Shape(
        8, 64, 8, 8, 256, 160, 32, gated=False, bias=True, norm_bias=True, positions=32,
        dropout=True,
    )  # fmt: skip
    one, two = (forms(Kind(attention="eager"), job(shape=replace(gpt, layers=n))) for n in (8, 9))
    layout = Layout(1, data=16, attention="eager")
    values = [
        symbols.number(
            f.memory[f"only {SAVED}"], numbers(layout, job(shape=replace(gpt, layers=n)))
        )
        for f, n in ((one, 8), (two, 9))
    ]
    s, h, a = gpt.sequence, gpt.hidden, gpt.heads
    assert values[1] - values[0] == s * (34 * h + 5 * a * s)


def test_logits_count_once_at_the_loss_and_whole_where_they_are_gathered():
    layout = Layout(1, tensor=2, pipeline=2, data=4)
    given, constants = job(), replace(BARE, logit=18.0)
    values = numbers(layout, given, constants)
    elements = SHAPE.sequence * SHAPE.vocabulary
    made = forms(layout.kind, given)
    assert symbols.number(made.memory[f"last {LOGITS}"], values) == 18 * elements // 2
    assert f"first {LOGITS}" not in made.memory
    whole = forms(layout.kind, replace(given, whole_logits=True))
    assert symbols.number(whole.memory[f"last {LOGITS}"], values) == 22 * elements


def test_the_last_stage_has_fewer_layers_where_they_do_not_divide():
    """Ten layers on four stages: three on the first ones, two on the last."""
    shape = replace(SHAPE, layers=10)
    layout = Layout(1, pipeline=4, data=4)
    found = {}
    for name, layers in (("ten", 10), ("twelve", 12)):
        small = job(shape=replace(shape, layers=layers))
        made = forms(layout.kind, small)
        values = {k: float(v) for k, v in numbers(layout, small).items()}
        parts = {p: evaluate(made.memory[f"{p} parameters"], values) for p in ("first", "last")}
        found[name] = parts
    assert found["ten"]["first"] == found["twelve"]["first"]
    layer = found["twelve"]["last"] - found["ten"]["last"]
    assert layer == 2 * (visited(replace(shape, layers=2)) - visited(replace(shape, layers=1)))


def test_allocator_and_reserve_come_on_top():
    layout = Layout(2, data=16)
    prepared = predictor([(job(), layout)])
    made = forms(layout.kind, job())
    saved = symbols.number(made.memory[f"only {SAVED}"], numbers(layout, job()))
    base = prepared.peak(BARE)[0]
    assert prepared.peak(replace(BARE, allocator=1.5))[0] - base == pytest.approx(saved / 2)
    assert prepared.peak(replace(BARE, reserve=100.0))[0] - base == pytest.approx(100)


def step(layout, constants=None, given=None):
    return float(predictor([(given or job(), layout)]).step(constants or Constants(launch=0.0))[0])


def test_time_of_the_matrix_products_is_six_flops_a_parameter_and_token():
    slow = Constants(matrix=1e-6, launch=0.0)
    wide = replace(SHAPE, kv_heads=8)
    given = job(shape=wide)
    embedding = wide.vocabulary * wide.hidden
    norms = (2 * wide.layers + 1) * wide.hidden
    weights = visited(wide) - embedding - norms
    flops = 6 * weights * wide.sequence * given.global_batch
    expected = flops / (given.gpus * MACHINE.device.flops * slow.matrix)
    assert step(Layout(1, data=16), slow, given) == pytest.approx(expected, rel=0.01)


def test_recomputation_repeats_the_forward_pass_of_layers():
    slow = Constants(matrix=1e-6, launch=0.0)
    facts = job(repeats=True)
    times = [step(Layout(1, data=16, recompute=r), slow, facts) for r in ("full", "none")]
    head = 6 * SHAPE.vocabulary * SHAPE.hidden
    layers = 6 * (visited(SHAPE) - 2 * SHAPE.vocabulary * SHAPE.hidden)
    assert times[0] / times[1] == pytest.approx((4 / 3 * layers + head) / (layers + head), rel=0.01)


def test_the_bubble_grows_with_stages_and_shrinks_with_chunks():
    slow = Constants(matrix=1e-6, launch=0.0)
    even = replace(SHAPE, vocabulary=1, layers=32)
    given = job(16, 64, even)
    plain = step(Layout(1, pipeline=8, data=2), slow, given)
    chunked = step(Layout(1, pipeline=8, data=2, chunks=2), slow, given)
    m, p = 32, 8
    assert plain / chunked == pytest.approx((m + p - 1) / (m + (p - 1) / 2), rel=1e-3)


def test_links_inside_a_node_are_faster_than_between():
    """The same tensor traffic with 8 ranks on one node, and on two nodes of four."""
    slow = Constants(link=1e-5, launch=0.0)
    layout = Layout(1, tensor=8, data=2)
    small = replace(MACHINE, cluster=replace(MACHINE.cluster, node=4))
    inside, between = (step(layout, slow, replace(job(), machine=m)) for m in (MACHINE, small))
    assert between > 1.5 * inside


def test_contention_slows_only_what_crosses_nodes():
    calm, crowded = (Constants(link=1e-4, contention=c) for c in (0.0, 1.0))
    many, one = Layout(1, data=64), Layout(1, data=8)
    wide = job(64, 128)
    assert step(many, crowded, wide) > 1.2 * step(many, calm, wide)
    small = job(8, 128)
    assert step(one, crowded, small) == step(one, calm, small)


def test_flops_and_utilisation():
    """``B s (6 Psi + 12 L h s)`` (arXiv 2311.05610, section 3)."""
    psi = visited(SHAPE)
    dense = sum(t for t in tensors(SHAPE))
    assert psi == dense
    expected = 128 * 32 * (6 * psi + 12 * 8 * 64 * 32)
    assert job().flops == expected
    assert job().mfu(2.0) == expected / (2 * 16 * 312e12)
    assert list(job().mfu(np.array([1.0, 2.0]))) == [job().mfu(1.0), job().mfu(2.0)]


def tensors(shape):
    h, kv, f, V = shape.hidden, shape.kv_heads * 8, shape.ffn, shape.vocabulary
    yield 2 * V * h + h
    yield shape.layers * (2 * h * h + 2 * h * kv + 3 * h * f + 2 * h)


def test_a_token_meets_the_experts_that_it_is_sent_to():
    dense = replace(SHAPE, experts=0)
    routed = replace(SHAPE, experts=8, top_k=2)
    router = SHAPE.layers * 8 * SHAPE.hidden
    ffn = visited(dense) - visited(replace(dense, ffn=0))
    expected = visited(dense) - ffn + 2 * ffn + router
    assert visited(routed) == expected


@pytest.mark.parametrize(
    ("b", "t", "runs"), [(1, 2, False), (2, 2, True), (4, 4, True), (2, 4, False), (1, 1, True)]
)
def test_a_fused_softmax_takes_scores_in_fours(b, t, runs):
    """52 heads: 26 or 13 on a rank."""
    assert available("fused-softmax", 52, b, t) is runs
    assert available("flash-2", 52, b, t)


def test_every_kernel_has_a_source():
    assert all(k.source for k in (*ATTENTION.values(), *NORM.values()))
