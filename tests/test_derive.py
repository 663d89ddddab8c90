"""Derived plans: the transfers that the placement implies, and nothing else."""

from collections import Counter
from dataclasses import replace

import pytest
from drawn import compositions
from hypothesis import given, settings

from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.layout import Kind, dual_layout
from placement_proofs.models import Shape, abstract, perceptron, transformer
from placement_proofs.plan import Action, Local, Phase, Run, Transfer, What
from placement_proofs.profile import PROFILES

TWO = transformer(Shape())


def traffic(text, model=TWO, **options):
    """Transfers counted by kind, axes and what they carry."""
    plan = derive(parse(text), model, **options)
    return Counter(
        (t.kind.value, "*".join(t.axes), t.items[0].what.value) for t in plan.transfers()
    )


def test_one_device_has_no_traffic():
    assert traffic("single()") == {}


def test_data_parallel_reduces_each_unit_once():
    assert traffic("data(dp=4)") == {("all-reduce", "dp", "gradient"): 3}


def test_zero3_gathers_each_unit_for_each_pass_and_scatters_its_gradient():
    counts = traffic("zero3(dp=4)", abstract())
    assert counts == {("all-gather", "dp", "parameter"): 2, ("reduce-scatter", "dp", "gradient"): 1}


def test_zero1_scatters_and_publishes():
    counts = traffic("zero1(dp=4)", abstract())
    assert counts == {("all-gather", "dp", "parameter"): 1, ("reduce-scatter", "dp", "gradient"): 1}


def test_torch_zero1_reduces_everything_first():
    counts = traffic("zero1(dp=4)", abstract(), profile=PROFILES["torch-zero1"])
    assert counts == {("broadcast", "dp", "parameter"): 1, ("all-reduce", "dp", "gradient"): 1}


def test_tensor_parallel_has_four_all_reduces_a_layer():
    counts = traffic("tensor(tp=4, vocabulary=False)")
    forward = counts[("all-reduce", "tp", "activation")]
    backward = counts[("all-reduce", "tp", "activation gradient")]
    assert (forward, backward) == (2 * 2, 2 * 2)


def test_separate_inputs_of_q_k_v_take_six():
    counts = traffic("tensor(tp=4, vocabulary=False)", profile=PROFILES["torch-tp"])
    assert counts[("all-reduce", "tp", "activation gradient")] == 2 * 5
    assert counts[("all-reduce", "tp", "activation")] == 2 * 2


def test_the_first_input_needs_no_gradient():
    counts = traffic("tensor(tp=4)", perceptron(layers=2))
    assert counts[("all-reduce", "tp", "activation gradient")] == 3


def test_sequence_parallel_reduces_norms_over_tp():
    plan = derive(parse("tensor(tp=2, sequence=True)"), TWO)
    reduced = {
        i.name
        for t in plan.transfers()
        for i in t.items
        if i.what is What.GRADIENT and t.axes == ("tp",)
    }
    assert reduced == {t.name for t in TWO.tensors if t.group == "norm"}


def test_key_value_projections_that_are_whole_are_split_in_their_gradient():
    plan = derive(parse("tensor(tp=2, replicate_kv=True)"), TWO)
    uses = {t.name: t.use for t in plan.stages[0].tensors}
    assert [e.on.kind for e in uses["layer0.k.weight"]] == [Kind.REPLICATED]
    assert uses["layer0.norm1.weight"] == ()


def test_experts_are_reached_by_all_to_all_and_only_there():
    counts = traffic("data(dp=2) * expert(ep=2)", transformer(Shape(experts=4)))
    assert counts[("all-to-all", "ep", "activation")] == 2 * 2
    assert counts[("all-to-all", "ep", "activation gradient")] == 2 * 2


def test_ulysses_exchanges_sequence_for_heads():
    counts = traffic("ulysses(sp=2)")
    assert counts[("all-to-all", "sp", "activation")] == 2 * 4


def test_ring_attention_sends_keys_again_in_backward():
    ring = traffic("context(cp=2, method='ring')")
    gather = traffic("context(cp=2)")
    key = ("all-gather", "cp", "activation")
    assert (gather[key], ring[key]) == (4, 8)


def test_tied_embeddings_meet_across_the_pipeline():
    tied = transformer(Shape(tied=True))
    counts = traffic("pipeline(pp=2, microbatches=2)", tied)
    assert counts[("all-reduce", "pp:tied", "gradient")] == 2
    assert ("all-reduce", "pp:tied", "gradient") not in traffic("pipeline(pp=2, microbatches=2)")


def test_a_kept_parameter_is_gathered_once_a_step_under_a_schedule():
    plan = derive(parse("fsdp(dp=2, reshard_after_forward=False) * pipeline(pp=2)"), TWO)
    for stage in plan.stages:
        gathers = [
            section
            for section, step in stage.steps()
            if isinstance(step, Transfer) and step.why == "gather before use"
        ]
        assert gathers
        assert set(gathers) == {"before"}


def test_full_recomputation_stops_before_the_last_collective():
    counts = Counter()
    for step in derive(parse("tensor(tp=2) * recompute('full')"), TWO).transfers():
        counts[step.where.phase, step.kind.value] += 1
    assert counts[Phase.RECOMPUTE, "all-reduce"] == 2


def test_selective_recomputation_repeats_attention_only():
    plan = derive(parse("recompute('selective')"), TWO)
    again = [
        s.kind
        for _, _, s in plan.steps()
        if isinstance(s, Run) and s.where.phase is Phase.RECOMPUTE
    ]
    assert again == ["attention"] * 2


def test_the_norm_is_summed_over_the_axes_that_shard():
    plan = derive(parse("zero1(dp=2) * tensor(tp=2)"), TWO, clipping=True)
    over = {t.axes for t in plan.transfers() if t.where.phase is Phase.CLIP}
    assert over == {("dp",), ("dp", "tp")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("place(dp=2, parameters='S', batch='S(0)')", "no layout rule"),
        ("place(dp=2, parameters='S*', batch='S(0)')", "optimizer state not"),
        ("pipeline(pp=4)", "at least one layer"),
        ("pipeline(pp=p)", "known number of stages"),
    ],
)
def test_placements_without_a_program_say_why(text, words):
    with pytest.raises(IllFormed) as caught:
        derive(parse(text), TWO)
    assert words in str(caught.value)


@settings(max_examples=60)
@given(compositions(experts=True))
def test_layouts_of_all_steps_chain(composition):
    """What one step leaves is what the next one takes, for every gradient and every value."""
    plan = derive(composition, transformer(Shape(experts=4, tied=True)))
    for stage in plan.stages:
        held = {}
        for _, step in stage.steps():
            for item in getattr(step, "items", ()):
                if item.what is What.GRADIENT:
                    key = (item.name, item.buffer)
                    if isinstance(step, Local) and step.action is Action.ACCUMULATE:
                        assert held.get(key, item.before) == item.before
                        key = (item.name, type(item.buffer).TOTAL)
                    assert set(held.get(key, item.before)) == set(item.before)
                    held[key] = item.after
                elif item.what is What.ACTIVATION:
                    assert item.before == plan.values[item.name].layout
                elif item.what is What.COTANGENT:
                    assert item.before == dual_layout(plan.values[item.name].layout)


def test_offloaded_activations_leave_after_forward_and_return_before_backward():
    plan = derive(parse("offload('activations')"), TWO)
    moves = [
        (section, step.shift)
        for _, section, step in plan.steps()
        if isinstance(step, Transfer) and step.kind.value == "host-link"
    ]
    assert {m for m in moves if m[0] == "forward"} == {("forward", -1)}
    assert {m for m in moves if m[0] == "backward"} == {("backward", 1)}
    reading = len(TWO.blocks) - 1  # the embedding reads token ids, which stay
    assert len(moves) == 2 * reading


def test_experts_shard_over_what_remains_of_a_product():
    model = transformer(Shape(experts=4))
    plan = derive(parse("fsdp(dp=2, shard_over=('dp', 'ep')) * expert(ep=2)"), model)
    stored = {t.name: [(e.axes, e.on.dim) for e in t.stored] for t in plan.stages[0].tensors}
    assert stored["layer0.q.weight"] == [(("dp", "ep"), 0)]
    assert stored["layer0.experts.up"] == [(("ep",), 0), (("dp",), 0)]


@pytest.mark.parametrize(
    ("states", "moves"),
    [
        ("'parameters'", {"fetch parameters": 1, "store parameters": -1}),
        ("'optimizer'", {"gradients to the optimizer": -1, "parameters back": 1}),
        ("'optimizer', 'parameters'", {"fetch parameters": 1, "gradients to the optimizer": -1}),
    ],
)
def test_what_crosses_the_host_link(states, moves):
    plan = derive(parse(f"zero3(dp=2) * offload({states})"), TWO)
    found = {t.why: t.shift for t in plan.transfers() if t.kind.value == "host-link"}
    assert found == moves


def frozen(*groups):
    tensors = tuple(replace(t, trainable=t.group not in groups) for t in TWO.tensors)
    return replace(TWO, tensors=tensors)


def test_frozen_parameters_are_gathered_and_never_reduced():
    model = frozen("embedding", "norm")
    plan = derive(parse("zero3(dp=2) * tensor(tp=2, sequence=True)"), model)
    still = {t.name for t in model.tensors if not t.trainable}
    moved = {(i.what, i.name) for t in plan.transfers() for i in t.items}
    assert {(What.PARAMETER, name) for name in still} <= moved
    assert not {(What.GRADIENT, name) for name in still} & moved


def test_nothing_below_the_first_trained_parameter_has_a_gradient():
    everything = traffic("tensor(tp=2)")
    bottom = traffic("tensor(tp=2)", frozen("embedding", "norm", "column", "kv", "row"))
    key = ("all-reduce", "tp", "activation gradient")
    assert bottom[key] < everything[key]
