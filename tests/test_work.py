"""The work of a check does not grow with sizes or depth."""

import sys

from placement_proofs import conditions
from placement_proofs.checking import check
from placement_proofs.inputs import read_subject


def calls(text, **options):
    """How many Python functions of the package a check calls, without earlier proofs."""
    subject = read_subject(text, **options)
    check(subject)
    conditions.forget()
    count = 0

    def profile(frame, event, _):
        nonlocal count
        count += event == "call" and "placement_proofs" in frame.f_code.co_filename

    sys.setprofile(profile)
    try:
        check(subject)
    finally:
        sys.setprofile(None)
    return count


def test_a_million_ranks_take_the_work_of_two():
    few, many = calls("zero3(dp=2)"), calls("zero3(dp=1000000)")
    assert abs(few - many) <= few / 100


def test_a_deep_model_takes_the_work_of_a_shallow_one(tmp_path):
    for layers in (2, 128):
        (tmp_path / f"{layers}.toml").write_text(f'base = "dense"\nlayers = {layers}\n')
    text = "zero1(dp=4) * tensor(tp=2, sequence=True) * pipeline(pp=2, microbatches=8)"
    few, many = (calls(text, model=str(tmp_path / f"{n}.toml")) for n in (2, 128))
    assert abs(few - many) <= few / 100


def test_more_micro_batches_take_no_more_work():
    few, many = (calls(f"data(dp=2) * accumulate(micro={m})") for m in (4, 4096))
    assert abs(few - many) <= few / 100
