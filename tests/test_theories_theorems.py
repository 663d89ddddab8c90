"""The theorems in code: what their tables say, on more cases than a run of theories takes."""

import pytest

from placement_proofs.prove.smt import decide
from placement_proofs.theorems import THEOREMS, finding
from placement_proofs.theorems.composing import RULES, proved, removed
from placement_proofs.theorems.cutoff import sampled
from placement_proofs.theorems.layout_rules import accepted, fault, rejected
from placement_proofs.theorems.placements import RUNNABLE, SPACE
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
    assert len(accepted()) > 50 and len(rejected()) > 2000
    assert len(unused) < 40
    assert {p.kind for p in accepted()} == {p.kind for p in rejected()}


@pytest.mark.parametrize("seed", range(4))
def test_the_cut_off_on_random_programs(seed):
    for text, holds in sampled(150, seed):
        assert holds, text


@pytest.mark.deep
def test_the_cut_off_on_thousands_of_random_programs():
    for text, holds in sampled(5000, 7):
        assert holds, text
