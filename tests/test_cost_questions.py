"""Questions to formulas: the smallest size that fits, crossings, shares, claims for all sizes."""

import json
from fractions import Fraction

import pytest

from placement_proofs.cost.claims import decide, read_claim, side_of
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.questions import bytes_of, cross, fits, never_grows, shares
from placement_proofs.cost.symbols import symbol
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import abstract
from placement_proofs.verdict import Verdict
from placement_proofs.zoo import named


def forms_of(text, model=None):
    model = model or abstract()
    return closed_forms(derive(parse(text), model), model)


def fit(text, limit, model=None, what="persistent"):
    forms = forms_of(text, model)
    return fits(getattr(forms, what), bytes_of(limit), forms.values({}))


@pytest.mark.parametrize(
    ("text", "limit", "least"),
    [
        ("zero3(dp=N)", "80GB", 2),  # 120 GB / N
        ("zero3(dp=N)", "1GB", 120),
        ("zero2(dp=N)", "16.64GB", 65),  # 15 + 105 / N: ZeRO's 16.6 GB at 64 is 16.640625
        ("zero2(dp=N)", "16GB", 105),
        ("zero1(dp=N)", "31.40625GB", 64),
        ("zero2(dp=N)", "15GB", None),
        ("data(dp=N)", "120GB", 1),
    ],
)
def test_the_smallest_number_of_ranks_that_fits(text, limit, least):
    if text.startswith("data"):
        with pytest.raises(IllFormed, match="0 open symbols"):
            fit(text, limit)
        return
    found = fit(text, limit)
    assert (found.least, found.certain) == (least, True)
    if least is not None:
        assert found.at <= bytes_of(limit) < found.before


def test_peaks_fit_too():
    found = fit("zero3(dp=N)", "24GB", named("llama-7b"), "peak")
    assert found.at <= 24 * 10**9 < found.before
    assert found.certain
    assert f"from N = {found.least}: " in found.text()
    json.dumps(found.to_json())


def test_what_may_grow_is_not_certain():
    n = symbol("N")
    assert never_grows(5 + 3 / n, n)
    assert not never_grows(5 - 3 / n, n)
    assert not never_grows((n - 1) / n, n)


@pytest.mark.parametrize("text", ["80 apples", "", "0GB", "-3GB", "1/0GB", "nan"])
def test_an_amount_that_is_none(text):
    with pytest.raises(IllFormed):
        bytes_of(text)


def test_units():
    assert [bytes_of(t) for t in ("80GB", "80GiB", "1.5TB", "1e9", "7B")] == [
        80 * 10**9,
        80 * 2**30,
        1500 * 10**9,
        10**9,
        7,
    ]


def test_shares_sum_to_one_and_the_first_dominates():
    forms = forms_of("zero1(dp=64)")
    found = shares(list(forms.memory.values()), forms.values({}))
    assert sum(s.share for s in found) == pytest.approx(1)
    assert [s.name for s in found] == ["parameters", "gradients", "optimizer"]
    alone = forms_of("data(dp=64)")
    assert shares(list(alone.memory.values()), alone.values({}))[0].name == "optimizer"


def test_crossings_of_traffic():
    """With the batch so small, tensor parallelism sends less from the start."""
    one, other = forms_of("zero2(dp=N)"), forms_of("zero1(dp=N)")
    found = cross(one.persistent, other.persistent, one.values({}))
    assert (found.at, found.smaller) == ((), (-1,))
    assert found.text("zero1") == "less than zero1 for all N above 1"
    same = cross(one.traffic, other.traffic, one.values({}))
    assert same.text("zero1") == "as much as zero1 for all sizes"


def test_a_crossing_between_two_sizes():
    """16 Psi / N meets 4 Psi + 12 Psi / 8, the memory of ZeRO-1 on 8 ranks, at 32 / 11."""
    one, other = forms_of("zero3(dp=N)"), forms_of("zero1(dp=8)")
    found = cross(one.persistent, other.persistent, one.values({}) | other.values({}))
    assert (found.at, found.smaller) == ((Fraction(32, 11),), (1, -1))
    assert found.text("it") == "more than it below N = 32/11, less than it above N = 32/11"


def claim(text, subject="zero3(dp=N)", model=None):
    left, relation, right = read_claim(text)
    forms = [forms_of(side.subject or subject, model) for side in (left, right)]
    sides = [side_of(s, f) for s, f in zip((left, right), forms, strict=True)]
    return decide(text, sides[0], relation, sides[1], forms[0].sizes_of_model)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("traffic <= 3/2 * data(dp=N) traffic", Verdict.PROVED),
        ("zero3(dp=N) traffic <= 3/2 * data(dp=N) traffic for all N", Verdict.PROVED),
        ("traffic == 3/2 * data(dp=N) traffic", Verdict.PROVED),
        ("traffic <= data(dp=N) traffic", Verdict.REFUTED),
        ("zero1(dp=N) traffic == data(dp=N) traffic", Verdict.PROVED),
        ("zero2(dp=N) traffic >= zero3(dp=N) traffic", Verdict.REFUTED),
        ("memory <= zero2(dp=N) memory", Verdict.PROVED),
        ("memory < zero2(dp=N) memory", Verdict.REFUTED),  # equal on one rank
        ("zero2(dp=N) memory > 1/8 * data(dp=N) memory", Verdict.PROVED),
        ("zero2(dp=N) memory > 1/7 * data(dp=N) memory", Verdict.REFUTED),
        ("zero1(dp=N) memory >= 1/4 * data(dp=N) memory", Verdict.PROVED),
        ("memory <= 1/4 * data(dp=N) memory", Verdict.REFUTED),
    ],
)
def test_claims_about_the_zero_paper(text, verdict):
    found = claim(text)
    assert found.verdict is verdict, found.shown()
    assert bool(found.witness) is (verdict is Verdict.REFUTED)
    json.dumps(found.to_json())


def test_claims_about_a_transformer():
    """The head is untied: the limit of 3/2 holds for every model of these operations."""
    dense = named("llama-7b")
    found = claim("traffic <= 3/2 * data(dp=N) traffic", model=dense)
    assert found.verdict is Verdict.PROVED
    assert "for all models" in found.why
    halved = claim("memory <= 1/2 * data(dp=N) memory", model=dense)
    assert halved.witness == {"N": 1}
    tied = claim("traffic <= 3/2 * data(dp=N) traffic", model=named("gpt2"))
    assert tied.verdict is Verdict.REFUTED, "a tied table is gathered for both of its uses"


def test_maxima_are_compared_argument_by_argument():
    found = claim("activations <= data(dp=N) activations", model=named("llama-7b"))
    assert found.verdict is Verdict.PROVED
    peak = claim("peak <= 2 * peak", model=named("llama-7b"))
    assert peak.verdict is Verdict.PROVED


@pytest.mark.parametrize(
    "text",
    ["traffic", "traffic <= ", "traffic<=traffic", "speed <= traffic", "foo traffic <= traffic"],
)
def test_what_is_no_claim(text):
    with pytest.raises(IllFormed):
        claim(text)


def test_the_command_answers(run):
    shown = run("formula", "zero3(dp=N)", "--model", "abstract", "--fits", "80GB")
    assert shown.code == 0
    assert "peak fits 80,000,000,000 bytes from N = 3" in shown.out
    proved = run(
        "formula",
        "zero3(dp=N)",
        "--model",
        "abstract",
        "--claim",
        "traffic <= 3/2 * data(dp=N) traffic",
        "--json",
    )
    assert (proved.code, json.loads(proved.out)["claims"][0]["verdict"]) == (0, "proved")
    refuted = run(
        "formula", "zero3(dp=N)", "--model", "abstract", "--claim", "traffic < data(dp=N) traffic"
    )
    assert (refuted.code, "fails at" in refuted.out) == (1, True)
    parts = run("formula", "zero1(dp=8)", "--model", "llama-7b", "--dominant")
    assert "memory, the largest first" in parts.out
    crossing = run(
        "formula", "zero2(dp=N)", "--model", "abstract", "--crossing", "zero1(dp=N)", "--json"
    )
    assert json.loads(crossing.out)["crossing_memory"]["sign"] == [-1]
