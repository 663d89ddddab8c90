"""The theorems in code: what their tables say, on more cases than a run of theories takes."""

import math
from dataclasses import replace

import pytest

from placement_proofs.prove.smt import decide
from placement_proofs.theorems import THEOREMS, finding, judging, layout_rules
from placement_proofs.theorems.composing import RULES, proved, removed
from placement_proofs.theorems.cutoff import sampled
from placement_proofs.theorems.indexed import (
    GRADIENT,
    KINDS,
    Add,
    Fn,
    Leaf,
    Mul,
    Reduced,
    Sum,
    Top,
)
from placement_proofs.theorems.judging import ALIKE, HIGHEST, PENDING
from placement_proofs.theorems.layout_rules import accepted, fault, rejected, underived
from placement_proofs.theorems.placements import RUNNABLE, SPACE
from placement_proofs.theorems.small_tensors import follows_the_chain_rule
from placement_proofs.verdict import Verdict


@pytest.mark.parametrize("name", THEOREMS)
def test_the_right_form_is_proved(name):
    found = finding(name)
    assert found.verdict is Verdict.PROVED, found.evidence
    assert found.covers


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, wrong) for name, t in THEOREMS.items() for wrong in t.wrong]
)
def test_each_wrong_form_is_refuted_with_a_reason(name, wrong):
    found = finding(name, wrong)
    assert found.verdict is Verdict.REFUTED and found.evidence


def test_premises_can_be_met():
    for name in THEOREMS:
        for query in finding(name).queries:
            assert decide(query.premise).result == "sat", query.name


def test_every_rule_forbids_something_that_no_other_rule_forbids():
    for rule in RULES:
        point, told = removed(rule)
        assert not proved(point) and " at {'dp': " in told


def test_the_space_and_what_can_run():
    assert (len(SPACE), len(RUNNABLE)) == (648, 156)
    assert sum(proved(point) for point in RUNNABLE) == 32


def test_layouts_that_no_rule_gives_are_nearly_all_wrong():
    """Those that are right would be sound to accept; they are never needed."""
    unused = [p for p in rejected() if not fault(p, 2) and not fault(p, 3)]
    assert len(accepted()) > 60 and len(rejected()) > 3000
    assert len(unused) < 40
    assert {p.kind for p in accepted()} == {p.kind for p in rejected()}


def test_a_derivation_is_there_exactly_where_numbers_agree():
    """The rules of inference are sound and complete on the whole space of layouts."""
    for placed in (*accepted(), *rejected()):
        assert bool(underived(placed)) == bool(fault(placed, 2)), placed


LOOSE = {
    "a function of parts of a sum is alike": (Fn, ALIKE),
    "a product of parts of two sums is a part": (Mul, PENDING),
    "a value added to parts of a sum is alike": (Add, ALIKE),
    "a value added to parts of a sum is a part": (Add, PENDING),
    "a sum over a dim that is cut beside another is a part": (Sum, PENDING),
    "a sum of parts over a dim that is cut is alike": (Sum, ALIKE),
    "an all-reduce of what all ranks have is that": (Reduced, ALIKE),
}


@pytest.mark.parametrize("name", LOOSE)
def test_a_looser_rule_of_inference_is_noticed(name, monkeypatch):
    form, answer = LOOSE[name]
    strict = judging.judge

    def loose(expr, cut, pending=frozenset()):
        found = strict(expr, cut, pending)
        return answer if found is None and isinstance(expr, form) else found

    monkeypatch.setattr(judging, "judge", loose)
    monkeypatch.setattr(layout_rules, "judge", loose)
    assert any(not underived(p) and fault(p, 2) for p in rejected())


def test_maxima_are_of_alike_values_over_one_cut_dim():
    top = Top("v", Leaf("x", ("b", "v")))
    assert judging.judge(top, {"v"}) is HIGHEST
    assert judging.judge(top, set()) is ALIKE
    assert judging.judge(top, {"v", "b"}) is None
    assert judging.judge(top, set(), {"x"}) is None, "the maximum of a sum is not that of parts"
    assert judging.judge(Reduced(top, top=True), {"v"}) is ALIKE
    assert judging.judge(Reduced(top), {"v"}) is None, "a sum of maxima"


@pytest.mark.parametrize("query", [q for q in judging.RULES if q.premises], ids=lambda q: q.name)
def test_a_rule_of_inference_needs_its_premises(query):
    needed = [
        decide(replace(query, premises=query.premises[:i] + query.premises[i + 1 :]).text).result
        for i in range(len(query.premises))
    ]
    assert "sat" in needed


def test_the_chain_rule_can_fail(monkeypatch):
    """A derivative without one factor is not that of dual numbers."""
    assert all(follows_the_chain_rule(name) for name in KINDS)
    product = KINDS["multiply"]
    terms = [(Leaf("x", product.out), Leaf(GRADIENT, product.out))]
    monkeypatch.setattr(type(product), "gradients", lambda kind, shared: terms)
    assert not follows_the_chain_rule("multiply")


def test_cross_entropy_over_a_vocabulary_cut_in_two():
    """The three exchanges, with real exponentials: the loss and its gradient."""
    logits, word = [[0.5, -1.0, 2.0], [0.25, 3.0]], 4
    flat = [x for part in logits for x in part]
    plain = math.log(sum(map(math.exp, flat))) - flat[word]
    top = max(max(part) for part in logits)
    weight = sum(sum(math.exp(x - top) for x in part) for part in logits)
    assert math.isclose(math.log(weight) + top - flat[word], plain)
    for v, x in enumerate(flat):
        share = math.exp(x) / sum(map(math.exp, flat)) - (v == word)
        assert math.isclose(math.exp(x - top) / weight - (v == word), share)


@pytest.mark.parametrize("seed", range(4))
def test_the_cut_off_on_random_programs(seed):
    for text, holds in sampled(150, seed):
        assert holds, text


@pytest.mark.deep
def test_the_cut_off_on_thousands_of_random_programs():
    for text, holds in sampled(5000, 7):
        assert holds, text
