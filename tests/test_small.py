"""Small twins: few ranks and a small model on which every composition still fits."""

import pytest

from placement_proofs.checking import plan_of
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import read_subject
from placement_proofs.simulate import simulate
from placement_proofs.small import MODELS, small

SUBJECTS = {
    "single()": "single()",
    "hsdp()": "hsdp(dp_replicate=2, dp_shard=2)",
    "zero3(dp=64) * tensor(tp=8, sequence=True) * context(cp=N) * ulysses(sp=4)": (
        "zero3(dp=2) * tensor(tp=2, sequence=True) * context(cp=2) * ulysses(sp=2)"
    ),
    "expert(ep=8) * tensor(tp=4) * accumulate(micro=M)": (
        "expert(ep=2) * tensor(tp=2) * accumulate(micro=2)"
    ),
    "pipeline(pp=8, microbatches=32, schedule='interleaved', chunks=4)": (
        "pipeline(pp=2, microbatches=2, schedule='interleaved', chunks=4)"
    ),
    "zero2(dp=4, shard_over=('dp', 'cp')) * context(cp=4)": (
        "zero2(dp=2, shard_over=('dp', 'cp')) * context(cp=2)"
    ),
}


@pytest.mark.parametrize("text", SUBJECTS)
def test_twins_are_small_and_equal_one_device(text):
    twin = small(read_subject(text), {})
    assert twin.subject.text == SUBJECTS[text]
    assert simulate(*plan_of(twin.subject), steps=1).equal


def test_sizes_are_as_asked_and_the_rest_is_said():
    twin = small(read_subject("zero3(dp=64) * tensor(tp=8)"), {"dp": 3})
    assert twin.subject.text == "zero3(dp=3) * tensor(tp=2)"
    assert twin.notes == (
        "dp = 3 stands for 64",
        "tp = 2 stands for 8",
        "the small model transformer stands for dense",
    )


@pytest.mark.parametrize("model", MODELS)
def test_models(model):
    twin = small(read_subject("data(dp=8)"), {}, model)
    assert simulate(*plan_of(twin.subject), steps=1).equal


def test_deviations_are_kept():
    subject = read_subject("data(dp=8)", without=["drop all-reduce gradient dp"])
    assert not simulate(*plan_of(small(subject, {}).subject), steps=1).equal


def test_a_size_of_no_axis():
    with pytest.raises(IllFormed, match="the sizes are dp, micro"):
        small(read_subject("data(dp=8)"), {"tp": 2})
