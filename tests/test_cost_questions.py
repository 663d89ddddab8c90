"""Questions to formulas: the smallest size that fits, crossings, shares, claims for all sizes."""

import json
from fractions import Fraction

import pytest

from placement_proofs.cost import symbols
from placement_proofs.cost.claims import read_claim, side_of
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.questions import bytes_of, cross, fits, never_grows, shares
from placement_proofs.cost.symbols import symbol
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.inequalities import decide
from placement_proofs.models import abstract
from placement_proofs.verdict import Verdict
from placement_proofs.zoo import named


def forms_of(text, model=None, *, divides=True):
    model = model or abstract()
    return closed_forms(derive(parse(text), model), model, divides=divides)


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
    ],
)
def test_the_smallest_number_of_ranks_that_fits(text, limit, least):
    found = fit(text, limit)
    assert (found.least, found.certain) == (least, True)
    if least is not None:
        assert found.at <= bytes_of(limit) < found.before


def test_without_an_open_size_it_fits_or_not():
    enough = fit("data(dp=N)", "120GB")
    assert (enough.size, enough.ever, enough.least) == ("", True, None)
    assert "fits 120,000,000,000 bytes: it needs 120,000,000,000, 0 bytes to spare" in enough.text()
    over = fit("zero3(dp=64)", "1GB")
    assert not over.ever
    assert "does not fit 1,000,000,000 bytes: it needs 1,875,000,000, 875,000,000" in over.text()


def test_several_open_sizes_are_said():
    with pytest.raises(IllFormed, match=r"2 open symbols: M, N.*such as --set N=8"):
        fit("zero3(dp=N) * tensor(tp=M)", "80GB", named("tiny"), "peak")


def test_the_next_power_of_two_is_told():
    found = fit("zero3(dp=N)", "1GB")
    assert found.rounded == (128, Fraction(120_000_000_000, 128))
    assert "N = 128 needs 937,500,000" in found.text()
    assert fit("zero3(dp=N)", "80GB").rounded is None


def test_what_may_grow_is_tried_size_by_size():
    """A pipeline keeps more micro-batches and fewer layers as it grows: sympy finds no limit."""
    found = fit("pipeline(pp=N, microbatches=8)", "40GB", named("llama-7b"), "peak")
    assert not found.certain
    assert found.at <= 40 * 10**9 < found.before
    never = fit("pipeline(pp=N, microbatches=8)", "1GB", named("llama-7b"), "peak")
    assert never.least is None
    assert "that was tried: all to 1024 and powers of two beyond" in never.text()
    uneven = forms_of("zero3(dp=N)", divides=False)
    assert fits(uneven.persistent, 10**10, uneven.values({})).least == 12


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


@pytest.mark.parametrize("text", ["80", "79.5", "80 apples", "", "0GB", "-3GB", "1/0GB", "nan"])
def test_an_amount_that_is_none(text):
    with pytest.raises(IllFormed):
        bytes_of(text)


def test_units():
    assert [bytes_of(t) for t in ("80GB", "80 gb", "80G", "80GiB", "1.5TB", "1e9", "7B")] == [
        80 * 10**9,
        80 * 10**9,
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
    assert same.text("zero1") == "as much as zero1"


def test_a_crossing_between_two_sizes():
    """16 Psi / N meets 4 Psi + 12 Psi / 8, the memory of ZeRO-1 on 8 ranks, at 32 / 11."""
    one, other = forms_of("zero3(dp=N)"), forms_of("zero1(dp=8)")
    found = cross(one.persistent, other.persistent, one.values({}) | other.values({}))
    assert (found.at, found.smaller) == ((Fraction(32, 11),), (1, -1))
    assert found.text("it") == "more than it below N = 32/11, less than it above N = 32/11"


def test_numbers_put_into_a_form_leave_the_open_size_and_the_same_bytes():
    forms = forms_of("zero3(dp=N) * tensor(tp=4)", named("llama3-70b"))
    for name, form in forms.forms():
        put = form.put(forms.values({}))
        assert set(put.symbols) <= {"N"}, name
        values = forms.values({"N": 24})
        assert symbols.number(put.exact, {"N": 24}) == symbols.number(form.exact, values)


def test_open_sizes_of_an_answer_are_asked_for(run):
    asked = run("formula", "zero3(dp=N)", "--model", "abstract", "--dominant")
    assert (asked.code, "give it, such as --set N=8" in asked.err) == (2, True)


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
    assert found.covers.endswith("; all models of these operations")
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


def test_numbers_of_axes_are_used(run):
    """What the user wrote as a number is no size to vary, also that of the other subject."""
    text = ("formula", "zero3(dp=64)", "--model", "abstract")
    held = run(*text, "--claim", "memory < 1/10 * data(dp=64) memory")
    assert (held.code, "proved" in held.out) == (0, True)
    amount = run(*text, "--claim", "memory < 2GB", "--claim", "peak < 2GB")
    assert amount.code == 1
    assert "memory < 2GB: proved" in amount.out and "peak < 2GB: refuted" in amount.out
    given = run("formula", "zero3(dp=N)", "--claim", "peak < 1GB", "--set", "N=2")
    assert "fails at these numbers" in given.out
    other = run(*text, "--crossing", "zero3(dp=8)")
    assert "memory: less than zero3(dp=8) (1,875,000,000 and 15,000,000,000 bytes)" in other.out
    ratio = run("compare", "zero3(dp=64)", "zero3(dp=8)", "--model", "abstract")
    assert "memory of zero3(dp=64) / memory of zero3(dp=8) = 1/8" in ratio.out
    crossing = run(*text, "--crossing", "zero2(dp=64)")
    assert "memory: less than zero2(dp=64) (1,875,000,000 and 16,640,625,000 bytes)" in crossing.out


def test_answers_say_what_to_do(run):
    text = ("formula", "zero3(dp=N)", "--model", "llama3-405b")
    never = run(*text, "--fits", "80GB")
    assert "the largest part of it: saved activations" in never.out
    assert "such as --set N=8" in run(*text, "--dominant").err
    alone = run("formula", "single()", "--model", "abstract", "--dominant")
    assert alone.out.rstrip().endswith("communication, the largest first\n  nothing")
    uneven = run(*text, "--crossing", "tensor(tp=N)", "--uneven")
    assert (uneven.code, "rounded up" in uneven.err) == (2, True)


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
