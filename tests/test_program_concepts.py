"""Streams, flags, owners, covers and delays: what they mean, and what is ill-formed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from placement_proofs.errors import IllFormed
from placement_proofs.program.text import format_program, parse_program
from placement_proofs.prove import prove
from placement_proofs.verdict import Verdict

RIGHT = {
    "a seed per shard": "axes tp\nsample m = drop key=tp\nexpect m drawn axes=tp",
    "one seed for replicas": "axes tp\nsample m = drop\nexpect m drawn",
    "the numbers of one device": "axes tp\nsample m = drop index=tp\nexpect m is drop[@tp]",
    "the second draw": "axes tp\nsample m = d\nsample n = d\nexpect n is d.n1[]",
    "a replayed counter": (
        "axes dp\nloop mb {\nsample m = d key=dp\nsample r = d key=dp replay=m\nexpect r same m\n}"
    ),
    "a counter replayed in the backward loop": (
        "axes dp\nloop mb {\nsample m = d key=dp\n}\n"
        "loop mb {\nsample r = d key=dp replay=m\nexpect r drawn axes=dp\n}"
    ),
    "any rank raises a flag": (
        "axes a b\nflag k = n[a,b]\nmax k a\nmax k b\nexpect k is max(n[a,b])"
    ),
    "a flag times itself": (
        "axes dp\nspec W = c[dp]*n[dp]\ncopy w of W\nflag k = n[dp]\n"
        "grad g = c[dp] x=k*k\nsum g dp\nupdate w g\ntick"
    ),
    "weights of counts": (
        "axes dp\nspec W = c[dp]*n[dp]/n\ncopy w of W\ncount k = n[dp]\nset t k\nsum t dp\n"
        "grad g = c[dp] x=k/t\nsum g dp\nupdate w g\ntick"
    ),
    "owners of equal stride": (
        "axes dp tp\nowner dp:p = tp dp ...\nowner dp:q = tp 1 dp 2 ...\nspec W = 0\n"
        "copy m of W held=dp:p\ncopy w of W\nset w m\ngather w dp q\nuse w"
    ),
    "padded rows": "axes tp\nloops rows\ncover rows over tp up",
    "rows that the axis divides": "axes tp\nloops rows\ncover rows over tp even divides",
    "a delay of one step": (
        "axes dp\nspec W = c[dp] late=1\ncopy w of W\nbuffer d\n"
        "loop step {\nuse w\nupdate w d\ngrad g = c[dp]\nsum g dp\nset d g\ntick\n}"
    ),
    "a copy one step old": (
        "axes dp\nspec W = c[dp]\ncopy w of W\ncopy v of W\n"
        "loop step {\nuse v within=1\nset v w\ngrad g = c[dp]\nsum g dp\nupdate w g\ntick\n}"
    ),
    "functions of data that are cut alike": (
        "axes tp\ngrad x = x[tp]\ngrad m = m[tp]\napply y = f(x, m)\nexpect y is f(x[@tp], m[@tp])"
    ),
}

WRONG = {
    "one seed for shards": "axes tp\nsample m = drop\nexpect m drawn axes=tp",
    "a seed per replica": "axes tp\nsample m = drop key=tp\nexpect m drawn",
    "seeds are not indices": "axes tp\nsample m = drop key=tp\nexpect m is drop[@tp]",
    "the counter moved on": "axes dp\nsample m = d\nsample r = d\nexpect r same m",
    "a turn replays the wrong draw": (
        "axes dp\nloop mb {\nsample m = d\nsample n = d\nsample r = d replay=m\nexpect r same n\n}"
    ),
    "one rank decides": "axes dp\nflag k = n[dp]\ntake k dp first\nexpect k is max(n[dp])",
    "a count times itself": (
        "axes dp\nspec W = c[dp]*n[dp]\ncopy w of W\ncount k = n[dp]\n"
        "grad g = c[dp] x=k*k\nsum g dp\nupdate w g\ntick"
    ),
    "owners of another stride": (
        "axes dp tp\nowner dp:p = dp ...\nowner dp:q = tp dp ...\nspec W = 0\n"
        "copy m of W held=dp:p\ncopy w of W\nset w m\ngather w dp q\nuse w"
    ),
    "shards of another number of ranks": (
        "axes dp old\nowner dp:p = dp ...\nowner dp:q = [old] ...\nspec W = 0\n"
        "copy m of W held=dp:p\ncopy f of W held=dp:q\nset m f\nuse m"
    ),
    "a remainder": "axes tp\nloops rows\ncover rows over tp",
    "short shards": "axes tp\nloops rows\ncover rows over tp up even",
    "a delay of two steps, late in the loop": (
        "axes dp\nspec W = c[dp] late=2\ncopy w of W\nbuffer d\n"
        "loop step {\nuse w\nupdate w d\ntick\n}"
    ),
    "a copy two steps old": (
        "axes dp\nspec W = c[dp]\ncopy w of W\ncopy v of W\ncopy u of W\n"
        "loop step {\nuse v within=1\nset v u\nset u w\ngrad g = c[dp]\nsum g dp\n"
        "update w g\ntick\n}"
    ),
    "a mask of other data": (
        "axes tp\ngrad x = x[tp]\ngrad m = m[tp]\ntake m tp p\napply y = f(x, m)\n"
        "expect y is f(x[@tp], m[@tp])"
    ),
}

BAD = {
    "axes a\nsample m = d replay=x\nexpect m drawn": "was not drawn from d",
    "axes a\nsample m = d\nsample n = e replay=m\nexpect n same m": "was not drawn from e",
    "axes a\nsample m = d key=a index=a\nexpect m drawn": "'a' twice",
    "axes a\nsample z = d\nif a@first: sample m = d replay=z\nexpect m drawn": "on some ranks only",
    "axes a\nloop mb {\nsample m = d\n}\nsample r = d replay=m\nexpect r same m": (
        "drawn in a loop over mb"
    ),
    "axes a\nloop mb {\nsample m = d\n}\nexpect m is d[@mb]": "axis or open loop 'mb'",
    "axes a\nflag k = n[a]\ncount l = n[a]\nexpect k same l": "a flag here and a count elsewhere",
    "axes a\ncount k = n[a]\nmax k a\nexpect k agree": "the maximum of 'k'",
    "axes a\nowner a:p = a\nspec W = 0\ncopy w of W\nuse w": "'...' once each",
    "axes a\nowner a:p = 2 ...\nspec W = 0\ncopy w of W\nuse w": "'...' once each",
    "axes a\nowner a:p = a b ...\nspec W = 0\ncopy w of W\nuse w": "size 'b'",
    "axes a\nspec W = c[a] late=9\ncopy w of W\nuse w": "a delay is at most 8 steps",
    "axes a\nspec W = c[a]\ncopy w of W\nuse w within=9": "a delay is at most 8 steps",
    "axes a\ncover rows over a": "length 'rows'",
    "axes a\nloops rows\ncover rows by a": "write 'cover rows over tp'",
    "axes a\nloops rows\ncover rows over a up up": "write 'cover rows over tp'",
    "axes a\ngrad g = d[a]\nsample m = d\nexpect m same g": "with the name of a family",
    "axes a\nspec W = c[a]*k[a]\ncopy w of W\ngrad g = c[a]\nupdate w g": "each weighted by counts",
}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    program = parse_program(RIGHT[name])
    assert prove(program).verdict is Verdict.PROVED
    assert parse_program(format_program(program)) == program


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    program = parse_program(WRONG[name])
    assert prove(program).verdict is Verdict.REFUTED
    assert parse_program(format_program(program)) == program


@pytest.mark.parametrize("text", BAD)
def test_ill_formed(text: str) -> None:
    with pytest.raises(IllFormed) as caught:
        parse_program(text)
    assert BAD[text] in str(caught.value)


def test_a_division_by_one_flag_is_refused() -> None:
    text = "axes a\nspec W = c[a]\ncopy w of W\nflag k = n[a]\ngrad g = c[a] x=1/k\nupdate w g"
    result = prove(parse_program(text))
    assert result.verdict is Verdict.ILL_FORMED
    assert "by a flag" in result.reason


def test_an_assumption_about_flags_is_stated() -> None:
    text = RIGHT["a flag times itself"]
    covers = prove(parse_program(text))["gradient_integrity"].assumptions
    assert covers == ("some rank sets n",)


def test_other_numbers_of_shards_are_right_where_they_are_equal() -> None:
    program = parse_program(WRONG["shards of another number of ranks"])
    assert prove(program, sizes={"dp": 2, "old": 2}).verdict is Verdict.PROVED
    assert prove(program, sizes={"dp": 2, "old": 4}).verdict is Verdict.REFUTED


# --- staleness ----------------------------------------------------------------------


def delayed(steps: int, declared: int) -> str:
    """A gradient that waits in a queue of buffers, and the delay that is declared."""
    queue = "\n".join(f"buffer b{i}" for i in range(steps))
    shift = "\n".join(f"set b{i} b{i - 1}" for i in range(steps - 1, 0, -1))
    return (
        f"axes dp\nspec W = c[dp]/dp late={declared}\ncopy w of W\n{queue}\nloop step {{\nuse w\n"
        f"update w b{steps - 1}\n{shift}\ngrad g = c[dp]\nmean g dp\nset b0 g\ntick\n}}\n"
    )


@pytest.mark.parametrize("steps", [1, 3, 5, 8])
def test_a_declared_delay_is_kept_for_any_number_of_turns(steps: int) -> None:
    found = prove(parse_program(delayed(steps, steps)))
    assert found.verdict is Verdict.PROVED
    assert "any number of turns of step" in found["gradient_integrity"].covers


@pytest.mark.parametrize(("steps", "declared"), [(3, 2), (3, 4), (5, 4), (5, 6), (8, 7)])
def test_another_delay_is_refuted_where_it_shows(steps: int, declared: int) -> None:
    found = prove(parse_program(delayed(steps, declared)))
    assert found.verdict is Verdict.REFUTED
    assert found.counterexample is not None
    assert dict(found.counterexample.lengths) == {"step": min(steps, declared) + 1}


STALE = """
axes dp
spec W = c[dp]/dp
copy w of W
copy v of W
{olds}
loop step {{
use v within={within}
grad g = c[dp]
mean g dp
update w g
{shift}
tick
}}
"""


@pytest.mark.parametrize("age", [1, 2, 4])
def test_a_copy_that_is_read_late_keeps_its_bound(age: int) -> None:
    olds = "\n".join(f"copy o{i} of W" for i in range(1, age))
    chain = ["v", *(f"o{i}" for i in range(1, age)), "w"]
    moves = [f"set {left} {right}" for left, right in pairwise(chain)]
    first, rest = moves[:-1], moves[-1]
    text = STALE.format(olds=olds, within="{within}", shift="\n".join([*first, rest]))
    late = age - 1
    if late:
        with_bound = text.replace("{within}", str(late))
        assert prove(parse_program(with_bound)).verdict is Verdict.PROVED
    fresh = text.replace(" within={within}", "")
    assert (prove(parse_program(fresh)).verdict is Verdict.PROVED) is (age == 1)
