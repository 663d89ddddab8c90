"""Recommendations as inequalities: derived, with numbers from the forms, against measured pairs."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_proofs.cost import symbols
from placement_proofs.layouts.constants import Constants, load_constants
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.evidence import advised, compared, evidence, is_valid
from placement_proofs.layouts.rules import RULES, Side
from placement_proofs.layouts.runs import RAN, Run, read_runs
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.setups import load_setup
from placement_proofs.models import Shape

BY_NAME = {rule.name: rule for rule in RULES}
SHAPE = Shape(8, 512, 8, 8, 2048, 1024, 512, fused_attention=True)
JOB = Job("small", SHAPE, 128, 16, load_machine("a100-80gb"))
UNEVEN = Fraction(1, 7)

sizes = st.integers(1, 64)
seconds = st.fractions(Fraction(1, 100), 10, max_denominator=100)


def step(micro, stages, slot):
    return (micro + stages - 1) * slot


def gain(name, **values):
    return symbols.number(BY_NAME[name].gain, values)


@given(sizes, sizes, seconds, seconds)
def test_two_sequences_a_micro_batch_against_one(half, p, c, o):
    """Half as many micro-batches of twice the work: the page on layouts, ``o/(2c) > (p-1)/m``."""
    m = 2 * half
    found = gain("micro-batch 1", m=m, p=p, c=c, o=o)
    assert found == step(half, p, 2 * c + o) - step(m, p, c + o)
    assert (found < 0) == (o / (2 * c) > Fraction(p - 1, m))


@given(sizes, sizes, sizes, seconds, seconds, seconds)
def test_recomputation_against_twice_the_ranks(m, p, q, slot, again, added):
    found = gain("no recomputation", m=m, p=p, q=q, S=slot, R=again, D=added)
    assert found == step(m, p, slot + again) - step(2 * m, q, slot / 2 + added)


@given(sizes, sizes, seconds, seconds)
def test_tensor_ranks_against_stages(m, p, slot, saved):
    found = gain("pipeline before tensor", m=m, p=p, S=slot, C=saved)
    assert found == step(m, p, slot + saved) - step(m, 2 * p, slot)


@pytest.mark.parametrize(("name", "symbol"), [("sequence parallelism", "E"), ("kernels", "N")])
def test_what_shortens_a_slot_shortens_the_step(name, symbol):
    found = gain(name, m=5, p=3, **{symbol: UNEVEN})
    assert found == 7 * UNEVEN


PAIRS = {
    "micro-batch 1": (Layout(1, pipeline=4, data=4), Layout(2, pipeline=4, data=4)),
    "no recomputation": (
        Layout(1, pipeline=4, data=4),
        Layout(1, pipeline=2, data=8, recompute="full"),
    ),
    "pipeline before tensor": (
        Layout(1, tensor=2, pipeline=4, data=2),
        Layout(1, tensor=4, pipeline=2, data=2),
    ),
    "sequence parallelism": (
        Layout(1, tensor=4, data=4, sequence=True),
        Layout(1, tensor=4, data=4),
    ),
    "kernels": (Layout(1, data=16), Layout(1, data=16, norm="eager")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_rule_compares_a_layout_with_its_neighbours(name):
    rule = BY_NAME[name]
    one, two = PAIRS[name]
    assert two in list(rule.others(one))
    assert one in list(rule.toward(two))
    if name != "pipeline before tensor":
        assert rule.follows(one) and not rule.follows(two)


@pytest.mark.parametrize("name", PAIRS)
def test_the_inequality_has_the_sign_of_the_whole_forms(name):
    """Stages are alike here: no head to speak of, so that the slowest stage stands for all."""
    even = replace(JOB, shape=replace(SHAPE, vocabulary=1))
    constants = Constants(matrix=1e-3, launch=3e-5)
    (pair,) = compared(BY_NAME[name], [(even, PAIRS[name])], constants)
    one, two = pair.sides
    assert pair.gain == pytest.approx(two.step - one.step, rel=0.2)
    assert pair.holds == (two.step > one.step)


def test_values_of_a_pair_are_those_of_its_slots():
    one, two = Side(3.0, 8, 2, 30.0, 1.0), Side(5.0, 4, 2, 25.0, 1.0)
    values = BY_NAME["micro-batch 1"].values(one, two)
    assert values == {"m": 8, "p": 2, "c": 2.0, "o": 1.0}


def runs_of(*pairs):
    """Runs of ``JOB`` from layouts with seconds."""
    return [
        Run(f"made:{i}", "sweep", str(i), JOB, layout, RAN, step, None)
        for i, (layout, step) in enumerate(pairs)
    ]


def test_hits_and_exceptions_are_counted():
    one, two = PAIRS["pipeline before tensor"]
    other = [replace(layout, micro_batch=2) for layout in (one, two)]
    runs = runs_of((one, 10.0), (two, 12.0), (other[0], 11.0), (other[1], 10.0))
    found = {e.rule: e for e in evidence(runs, Constants())}["pipeline before tensor"]
    assert (found.pairs, found.hits) == (2, 1)
    assert found.median == pytest.approx((12 / 10 + 10 / 11) / 2 - 1)
    ((job, layouts, slower, _),) = found.exceptions
    assert layouts == tuple(other)
    assert slower == pytest.approx(1 - 10 / 11)
    assert job == "small, 512 tokens, 16 devices"
    assert (found.best, found.sweeps) == (1, 1)


def test_repeated_runs_count_by_their_median():
    one, two = PAIRS["kernels"]
    runs = runs_of((one, 10.0), (one, 30.0), (one, 11.0), (two, 12.0))
    found = {e.rule: e for e in evidence(runs, Constants())}["kernels"]
    assert (found.pairs, found.hits, found.median) == (1, 1, pytest.approx(12 / 11 - 1))


def test_without_a_pair_nothing_is_claimed():
    found = {e.rule: e for e in evidence(runs_of((Layout(1, data=16), 9.0)), Constants())}
    assert found["sequence parallelism"].pairs == 0
    assert found["sequence parallelism"].to_json()["exceptions"] == []


def test_advice_is_about_the_first_layout_that_has_neighbours():
    fastest = [Layout(1, data=16), Layout(1, tensor=2, data=8, sequence=True)]
    advice = {one.rule.name: one for one in advised(JOB, fastest, load_constants())}
    assert advice["sequence parallelism"].layout == fastest[1]
    assert advice["sequence parallelism"].follows
    assert advice["micro-batch 1"].layout == fastest[0]
    assert advice["pipeline before tensor"].layout == fastest[1]
    assert not advice["pipeline before tensor"].follows
    assert advised(JOB, [], load_constants())[0].layout is None


def test_neighbours_are_valid_layouts():
    assert is_valid(JOB, Layout(1, pipeline=8, data=2))
    assert not is_valid(JOB, Layout(1, pipeline=16))
    assert not is_valid(JOB, Layout(1, data=8))


def test_measured_pairs_of_the_published_sweeps(shared):
    path = shared / "data" / "layout_runs.csv"
    runs = read_runs(path, load_setup())
    found = {e.rule: e for e in evidence(runs, load_constants())}
    for name in ("no recomputation", "pipeline before tensor", "kernels"):
        one = found[name]
        assert one.pairs > 40
        assert one.hits / one.pairs > 0.9
        assert one.median > 0.1
        assert one.foretold / one.pairs > 0.85
    matched = found["micro-batch 1"]
    assert matched.hits / matched.pairs < 0.6
    assert matched.foretold / matched.pairs > 0.75
    assert (matched.best, matched.sweeps) == (5, 5)


def test_recommend_gives_numbers_for_the_users_job(run):
    asked = ["--model", "gpt2-xl", "--gpus", "8", "--global-batch", "64", "--no-cache"]
    asked += ["--chunks", "1", "--zero", "1", "--context", "1"]
    ran = run("layouts", "recommend", *asked, "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["schema"]) == (0, "placement-proofs/recommendations/1")
    assert [rule["rule"] for rule in found["rules"]] == [rule.name for rule in RULES]
    for rule in found["rules"]:
        for pair in rule["pairs"]:
            assert pair["holds"] == (pair["gain"] > 0)
            assert set(pair["values"]) <= set(rule["meaning"])
