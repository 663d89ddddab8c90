"""Theories: files of claims, and what is said of files that are none."""

from dataclasses import replace

import pytest
from conftest import ROOT

from placement_proofs.errors import IllFormed
from placement_proofs.theorems import THEOREMS
from placement_proofs.theories import all_theories, find_theory, read_theory, run_claims
from placement_proofs.verdict import Verdict

CLAIM = 'name = "c"\ncomposition = "data(dp=N)"\nverdict = "proved"\n'


def theory(tmp_path, text):
    path = tmp_path / "t.toml"
    path.write_text(text)
    return read_theory(path)


@pytest.mark.parametrize("path", all_theories(), ids=lambda path: path.stem)
def test_every_claim_gives_its_verdict(path):
    """With solvers, kernel and mutants: the whole of the evidence."""
    for outcome in run_claims([read_theory(path)], brief=False):
        assert outcome.as_expected, outcome.to_json()
        assert outcome.verdict is not Verdict.UNKNOWN
        assert outcome.evidence.mutant.killed, outcome.claim.name


def test_every_theorem_and_each_of_its_wrong_forms_is_a_claim():
    claims = [c for path in all_theories() for c in read_theory(path).claims]
    stated = {(c.theorem.name, c.wrong) for c in claims if c.theorem}
    assert stated == {(n, w) for n, t in THEOREMS.items() for w in ("", *t.wrong)}


def test_what_is_out_of_reach_says_why():
    left = [o for path in all_theories() for o in read_theory(path).open]
    assert {o.name for o in left} >= {"routing that depends on the data"}
    assert all(len(o.reason) > 30 for o in left)


@pytest.mark.parametrize("path", all_theories(), ids=lambda path: path.stem)
def test_a_theory_is_a_page_of_prose_too(path):
    prose = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert len(prose) > 7 and any("Not covered" in line for line in prose)


@pytest.mark.parametrize("path", all_theories(), ids=lambda path: path.stem)
def test_right_and_wrong_stand_side_by_side(path):
    verdicts = {claim.verdict for claim in read_theory(path).claims}
    assert verdicts >= {Verdict.PROVED, Verdict.REFUTED}


@pytest.mark.parametrize("path", sorted((ROOT / "examples/programs").glob("*.toml")))
def test_program_files_are_theories_of_one_program(path):
    for outcome in run_claims([read_theory(path)]):
        assert outcome.as_expected, outcome.to_json()


@pytest.mark.parametrize(
    "more", ['verdict = "refuted"', 'condition = "norm_integrity"\nverdict = "refuted"']
)
def test_a_wrong_claim_is_noticed(tmp_path, more):
    text = "[[claim]]\n" + CLAIM.replace('verdict = "proved"', more)
    (outcome,) = run_claims([theory(tmp_path, text)])
    assert not outcome.as_expected


@pytest.mark.parametrize("wrong", ['factor = "7"', "mesh = { dp = 3 }"])
def test_a_wrong_counterexample_is_noticed(tmp_path, wrong):
    text = (
        '[[claim]]\nname = "c"\ncomposition = "data(dp=N)"\n'
        'without = ["drop all-reduce gradient dp"]\nverdict = "refuted"\n'
    )
    (right,) = run_claims([theory(tmp_path, text)])
    (other,) = run_claims([theory(tmp_path, text + wrong)])
    assert right.as_expected and not other.as_expected


def test_a_second_mesh_is_replayed():
    """Tied embeddings whose two owners differ, on two stages of two data ranks."""
    whole = read_theory(find_theory("pipeline"))
    (claim,) = (c for c in whole.claims if c.also)
    (outcome,) = run_claims([replace(whole, claims=(claim,))])
    assert outcome.as_expected and dict(outcome.second.sizes) == {"pp": 2, "dp": 2}
    assert outcome.second.got != outcome.second.expected
    other = replace(claim, also=(("pp", 2), ("dp", 1)))
    (outcome,) = run_claims([replace(whole, claims=(other,))])
    assert not outcome.as_expected, "with one data rank there is one owner"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 3", "found no claims; a theory has claims; write [[claim]] tables"),
        ("claim = 3", "found no claims; a theory has claims; write [[claim]] tables"),
        (
            "[[claim]]\n" + CLAIM + "expect = 3",
            "claim 1: found 'expect'; a claim has name, composition, ",
        ),
        ('[[claim]]\nname = "c"\nverdict = "proved"', "a claim has a name, and a composition or"),
        (
            "[[claim]]\n" + CLAIM.replace("proved", "true"),
            "claim 1: verdict: found 'true'; a claim",
        ),
        ("[[claim]]\n" + CLAIM + 'condition = "x"', "claim 1: condition: found 'x'; the condition"),
        ("[[claim]]\n" + CLAIM.replace("data", "dada"), "expression: found dada(dp=N); "),
        (
            '[[claim]]\nname = "c"\ntheorem = "nope"\nverdict = "proved"',
            "theorem: found 'nope'; theorems are normal form, ",
        ),
        (
            '[[claim]]\nname = "c"\ntheorem = "shards"\nwrong = "x"\nverdict = "refuted"',
            "wrong: found 'x'; the wrong forms are chunks of n/N rounded down",
        ),
        ("[[claim", "the file is TOML in UTF-8; correct it"),
    ],
)
def test_ill_formed_theories(tmp_path, text, message):
    with pytest.raises(IllFormed) as caught:
        theory(tmp_path, text)
    assert message in str(caught.value)


def test_a_theory_that_does_not_exist():
    with pytest.raises(IllFormed, match="the theories are adjoints, composition, context, "):
        find_theory("nope")
