"""The composition language: one expression in Python, as text and as repr."""

import pytest
from drawn import compositions
from hypothesis import given

from placement_proofs import strategies
from placement_proofs.checking import check
from placement_proofs.composition import compose
from placement_proofs.errors import IllFormed
from placement_proofs.expression import STRATEGIES, parse
from placement_proofs.inputs import read_subject
from placement_proofs.strategies import (
    accumulate,
    data,
    expert,
    fsdp,
    offload,
    pipeline,
    place,
    recompute,
    tensor,
    zero1,
    zero3,
)
from placement_proofs.verdict import Verdict


@given(compositions(experts=True))
def test_the_repr_is_the_expression(composition):
    text = repr(composition)
    assert parse(text) == composition
    assert eval(text, dict(STRATEGIES)) in (composition, composition.strategies[0])


def test_the_expression_of_the_readme():
    composition = zero3(dp=8) * tensor(tp=4, sequence=True) * pipeline(pp=2, microbatches=16)
    text = "zero3(dp=8) * tensor(tp=4, sequence=True) * pipeline(pp=2, microbatches=16)"
    assert repr(composition) == text
    assert parse(text) == composition


@pytest.mark.parametrize(
    "part",
    [
        fsdp(dp=4, reshard_after_forward=False),
        offload("optimizer", "parameters", to="nvme"),
        recompute("selective"),
        zero1(dp="N", shard_over=("dp", "cp")),
        place(dp=4, parameters="S*", optimizer="S", gradients="S", batch="S(0)"),
        place(tp=2, group="row", parameters="S(1)", optimizer="S(1)", gradients="S(1)"),
        pipeline(pp="p", microbatches="m", schedule="interleaved", chunks=2),
    ],
)
def test_arguments_survive_the_round_trip(part):
    assert eval(repr(part), dict(STRATEGIES)) == part


def test_sizes_may_be_symbols_with_or_without_quotes():
    assert parse("zero3(dp=N)") == parse("zero3(dp='N')") == compose(zero3(dp="N"))
    assert parse("zero3()").mesh.sizes() == {"dp": "N_dp"}
    assert parse("zero3") == parse("zero3()")


def test_a_placement_written_directly_is_the_strategy():
    direct = place(dp=8, parameters="S*", optimizer="S", gradients="S", batch="S(0)")
    assert set(direct.placement.places) == set(zero3(dp=8).placement.places)
    assert direct.placement.flows == zero3(dp=8).placement.flows


def test_every_strategy_of_the_module_can_be_written():
    public = {
        name
        for name, thing in vars(strategies).items()
        if callable(thing)
        and not name.startswith("_")
        and getattr(thing, "__module__", "") == strategies.__name__
        and name != "Strategy"
    }
    assert public == set(STRATEGIES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zero4(dp=8)", "did you mean zero"),
        ("zero3(dp=0)", "whole number from 1"),
        ("zero3(dp=-2)", "found -2"),
        ("zero3(dp=1.5)", "an argument is a number"),
        ("zero3(dp=True)", "whole number from 1"),
        ("zero3(dp=10**12)", "an argument is a number"),
        ("zero3(dp=9999999999)", "1,000,000,000"),
        ("zero3(dp=8) + tensor(tp=2)", "joined by * only"),
        ("zero3(dp=8) * data(dp=2)", "axis dp"),
        ("pipeline(pp=2) * pipeline(pp=4)", "axis pp"),
        ("accumulate(micro=2) * pipeline(pp=2, microbatches=4)", "one such loop"),
        ("recompute('full') * recompute('none')", "recompute twice"),
        ("offload('optimizer') * offload('optimizer', to='nvme')", "offload of optimizer twice"),
        ("zero1(dp=2, shard_over=('cp',))", "names cp"),
        ("offload('weights')", "states are parameters"),
        ("offload('gradients')", "with the optimizer that reads them"),
        ("pipeline(pp=2, schedule='zigzag')", "gpipe, 1f1b, interleaved"),
        ("pipeline(pp=2, chunks=2)", "interleaved"),
        ("context(cp=2, method='blockwise')", "all-gather or by ring"),
        ("zero3(tp=8)", "has no keyword argument 'tp'"),
        ("zero3(8)", "takes 0 positional"),
        ("__import__('os').system('true')", "the strategies are"),
        ("zero3(dp=__import__('os'))", "an argument is a number"),
        ("zero3(dp=8", "not an expression"),
        ("", "not an expression"),
        ("(" * 4000 + "zero3(dp=8)" + ")" * 4000, "not an expression"),
        (" * ".join(["data(dp=2)"] * 2000), "characters"),
        ("place(parameters='S')", "one axis at a time"),
        ("place(dp=2, parameters='T')", "a mode is R, S or S*"),
    ],
)
def test_what_is_ill_formed_says_why(text, words):
    with pytest.raises(IllFormed) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_resizing_changes_every_mention():
    composition = zero3(dp=8) * pipeline(pp=4, microbatches=16)
    small = composition.resized({"dp": 2, "pp": 2, "micro": 4})
    assert repr(small) == "zero3(dp=2) * pipeline(pp=2, microbatches=4)"
    assert small == parse(repr(small))
    assert small.placement.micro == 4


def test_products_of_compositions_are_associative():
    a, b, c = data(dp=2), expert(ep=2), accumulate(micro=3)
    assert (a * b) * c == a * (b * c) == compose(a, b, c)


def test_activations_are_whole_where_no_strategy_says_how_they_flow():
    """Two matrices cut over an axis of their own, everything else whole on it."""
    states = 'parameters="S", optimizer="S", gradients="S"'
    cut = [f'place(vp=N, group="{group}", {states})' for group in ("embedding", "head")]
    assert check(" * ".join(["zero1(dp=M)", *cut])).verdict is Verdict.PROVED
    without = ["drop all-reduce activation vp"]
    assert check(read_subject(" * ".join(cut), without=without)).verdict is Verdict.REFUTED
