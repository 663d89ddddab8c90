"""Two profiles on one composition: differences, and the facts that make them."""

import json
import math
from dataclasses import fields, replace

from placement_proofs.cost import DEFAULT, convention, memory, sizes_of
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.stacks import compare_stacks
from placement_proofs.cost.symbols import equal, symbol
from placement_proofs.derive import derive
from placement_proofs.expression import parse
from placement_proofs.models import Shape, abstract, transformer
from placement_proofs.profile import PROFILES, REASONS, Profile

MODEL = transformer(Shape(), folded=True)


def stacks(text, second, model=MODEL, **options):
    return compare_stacks(parse(text), model, PROFILES[second], **options)


def test_every_fact_has_a_meaning():
    assert set(REASONS) == {f.name for f in fields(Profile)} - {"name"}


def test_the_facts_of_fsdp2():
    found = {d.name: d for d in stacks("fsdp(dp=N)", "torch-fsdp2").differences}
    gathers = found["communication all gather over dp"]
    assert gathers.facts == ("root_spans_step",)
    assert "memory peak" in found
    assert "memory parameters" not in found


def test_torch_zero1_moves_half_as_much_again():
    found = stacks("zero1(dp=N)", "torch-zero1", abstract())
    total = next(d for d in found.differences if d.name == "communication total")
    assert (str(total.ratio), total.facts) == ("3/2", ("scatter_gradients",))
    (buckets,) = (d for d in found.differences if d.name == "memory gradient buckets")
    assert (str(buckets.second), buckets.facts) == ("2*Psi", ("bucket_copies",))
    assert "memory parameters" in found.same
    assert "because of scatter_gradients: gradients are reduce-scattered" in found.text()


def test_naive_tensor_parallelism_reduces_six_times_a_layer():
    """Two all-reduces in the forward pass and, with q, k, v and a gate apart, five in backward."""
    found = stacks("tensor(tp=N, vocabulary=False)", "torch-tp")
    (total,) = (d for d in found.differences if d.name == "communication total")
    assert (str(total.ratio), total.facts) == ("7/4", ("share_inputs",))
    plain = transformer(Shape(gated=False), folded=True)
    (total,) = (
        d
        for d in stacks("tensor(tp=N, vocabulary=False)", "torch-tp", plain).differences
        if d.name == "communication total"
    )
    assert str(total.ratio) == "3/2"


def test_sequence_parallelism_of_torch_has_three_reasons():
    text = "tensor(tp=N, sequence=True, vocabulary=False)"
    found = {d.name: d for d in stacks(text, "torch-sp").differences}
    assert set(found["communication total"].facts) == {"optimizer_reads", "whole_ends"}
    found = {d.name: d for d in stacks("tensor(tp=N, sequence=True)", "torch-sp").differences}
    assert found["memory gradients"].facts == ("whole_gradients",)
    assert "-2*V*h" not in str(found["memory peak"].second)


def test_a_profile_against_itself_differs_in_nothing():
    found = stacks("zero3(dp=N)", "paper")
    assert found.differences == ()
    json.dumps(found.to_json())


def test_padding_makes_a_difference_where_sizes_do_not_divide():
    odd = transformer(Shape(vocabulary=11, ffn=13), folded=True)
    even = stacks("fsdp(dp=N)", "torch-fsdp1", odd)
    uneven = stacks("fsdp(dp=N)", "torch-fsdp1", odd, divides=False)
    facts = [{f for d in x.differences for f in d.facts} for x in (even, uneven)]
    assert "flat_units" not in facts[0]
    assert "flat_units" in facts[1]


def test_the_command(run):
    shown = run("compare", "fsdp(dp=N)", "--profile", "torch-fsdp2", "--against", "paper")
    assert shown.code == 0
    assert "because of root_spans_step" in shown.out
    data = run("compare", "fsdp(dp=N)", "--profile", "torch-fsdp2", "--against", "paper", "--json")
    assert json.loads(data.out)["profiles"] == ["paper", "torch-fsdp2"]
    refused = run("compare", "fsdp(dp=N)", "--against", "other")
    assert refused.code == 2
    assert "--against: found 'other'; profiles are paper" in refused.err
    refused = run("compare", "fsdp(dp=N)", "data(dp=N)", "--against", "paper")
    assert "one subject under two profiles" in refused.err


WIDE = transformer(Shape(hidden=400, ffn=800, vocabulary=1000), folded=True)
"""Matrices of 160,000 elements and more, norms of 400."""


def numbers(text, name, model=MODEL, widths=None, **sizes):
    plan = derive(parse(text), model, PROFILES[name])
    return plan, memory(plan, sizes_of(plan, model), widths or DEFAULT)


def test_deepspeed_keeps_small_parameters_whole():
    """Below 1e5 elements: stored on every rank, published after the update, never gathered."""
    plan, held = numbers("zero3(dp=4)", "deepspeed-zero3", WIDE)
    norms = {"layers.norm1.weight", "layers.norm2.weight", "final_norm.weight"}
    gathered = {i.name for t in plan.transfers() for i in t.items if t.why == "gather before use"}
    published = {i.name for t in plan.transfers() for i in t.items if t.why == "publish"}
    assert published == norms
    assert gathered == {t.name for t in WIDE.tensors} - norms
    _, paper = numbers("zero3(dp=4)", "paper", WIDE)
    few = 5 * 400
    assert held.by["parameters"] - paper.by["parameters"] == 2 * (few - few // 4)
    assert held.by["optimizer"] == paper.by["optimizer"]
    found = {d.name: d.facts for d in stacks("zero3(dp=N)", "deepspeed-zero3", WIDE).differences}
    assert found["memory parameters"] == ("persistent_below",)
    assert found["memory communication buffers"] == ("buffers",)


def test_deepspeed_cuts_tensors_by_their_elements():
    """Each padded to equal parts of its elements; by the paper's plan, of its rows."""
    odd = transformer(Shape(hidden=8, vocabulary=13, ffn=11), folded=True)
    facts = replace(PROFILES["deepspeed-zero3"], persistent_below=0, buffers=0)
    plan = derive(parse("zero3(dp=5)"), odd, facts)
    held = memory(plan, sizes_of(plan, odd), DEFAULT)
    sizes = sizes_of(plan, odd)
    parts = sum(
        -(-math.prod(sizes.dim(d) for d in t.shape) // 5) * sizes.dim(t.times)
        for t in plan.stages[0].tensors
    )
    assert held.by["parameters"] == 2 * parts


def test_deepspeed_holds_its_buckets():
    _, held = numbers("zero2(dp=4)", "deepspeed", WIDE)
    assert held.by["communication buffers"] == 2 * 2 * 500_000_000


def test_the_distributed_optimizer_with_float32_gradients():
    """Megatron-LM: 2 + 4 + 12/d bytes a parameter, reduced in float32, published in bfloat16."""
    model = abstract()
    plan = derive(parse("zero1(dp=d)"), model, PROFILES["megatron"])
    forms = closed_forms(plan, model, convention("megatron"))
    psi, ranks, optimizer = (symbol(n) for n in ("Psi", "d", "K"))
    assert equal(forms.persistent.exact, psi * (6 + optimizer / ranks))
    sent = forms.traffic.exact.subs(symbol("P"), 2 * psi)
    assert equal(sent, (4 + 2) * psi * (ranks - 1) / ranks)


def test_gradients_added_in_place_have_no_fresh_copy():
    found = {d.name: d for d in stacks("zero1(dp=N) * accumulate(micro=4)", "megatron").differences}
    assert found["memory peak"].facts == ("adds_in_place",)
    for name, fresh in (("paper", True), ("megatron", False)):
        _, held = numbers("zero1(dp=4) * accumulate(micro=4)", name)
        assert (held.transient["fresh gradients"] > 0) is fresh
