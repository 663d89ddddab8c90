"""Two profiles on one composition: differences, and the facts that make them."""

import json
from dataclasses import fields

from placement_proofs.cost.stacks import compare_stacks
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
    assert "memory persistent" in found.same
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
    assert refused.code != 0
    assert "one subject under two profiles" in refused.err
