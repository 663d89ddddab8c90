"""Answers to exercises: right ones, wrong ones with what the package found, and none at all."""

from fractions import Fraction

import pytest

from placement_proofs import exercises, formulas
from placement_proofs.verdict import Verdict

GAP = """
axes dp
spec W = c[dp]/dp
copy w of W
loop step {
  use w
  grad g = c[dp]
  ???
  update w g
  tick
}
"""
TRAFFIC = "3*P*(N - 1)/N"


def number(answer):
    return exercises.number(answer, Fraction(120), "why")


def formula(answer):
    return exercises.formula(answer, formulas("zero3(dp=N)", model="abstract").traffic, "why")


def choice(answer):
    return exercises.choice(answer, ["norm", "row_bias"], "why")


def program(answer):
    return exercises.program(answer, "why", into=GAP)


def composition(answer):
    return exercises.composition(answer, "why")


def deviation(answer):
    return exercises.deviation(answer, "why", of="data(dp=N)", wanted=Verdict.REFUTED)


def same_plan(answer):
    return exercises.same_plan(answer, "zero1(dp=8)", "why", model="abstract")


RIGHT = [
    (number, 120),
    (number, 119.95),
    (formula, TRAFFIC),
    (formula, "2*P - 2*P/N + P*(N-1)/N"),
    (choice, {"row_bias", "norm"}),
    (program, "mean g dp"),
    (program, "sum g dp; scale g 1/dp"),
    (composition, "zero3(dp=N) * tensor(tp=T)"),
    (deviation, "drop all-reduce gradient dp"),
    (same_plan, 'place(dp=8, optimizer="S", batch="S(0)")'),
]
WRONG = [
    (number, 240, "240 is 2 times what it is"),
    (number, 0, "0 is too small"),
    (number, -120, "-120 is too small"),
    (number, "many", "'many' is no number"),
    (number, float("inf"), "inf is no number"),
    (number, None, "None is no number"),
    (formula, "3*P", "at N = 2, P = 3 yours is 9, and it is 9/2"),
    (formula, "3*Q", "it is a formula of N, P, without Q"),
    (formula, "3P", "answer: found '3P'; an expression has"),
    (formula, "P/(1-1)", "a division by zero"),
    (formula, 3, "at N = 2, P = 3 yours is 3, and it is 9/2"),
    (choice, 3, "3: not what the package finds; 2 of 2 missing"),
    (choice, "norm", "1 of 2 missing"),
    (choice, ["norm", "row"], "row: not what the package finds; 1 of 2 missing"),
    (program, "sum g dp", "the verdict is refuted, not proved. The gradient of W"),
    (program, "sum g", "answer, line 8"),
    (program, 3, "answer, line 8"),
    (composition, 3, "found 3; the strategies are"),
    (deviation, 3, "a deviation begins with one of"),
    (composition, "zero3(dp=N) * data(dp=N)", "each mesh axis belongs to one strategy"),
    (deviation, "drop all-reduce gradient tp", "no such step in the plan"),
    (same_plan, "zero2(dp=8)", "memory gradients is 2*Psi/N_dp bytes in yours, 2*Psi in the"),
    (same_plan, "zero1(dp=)", "not an expression"),
]


@pytest.mark.parametrize(("ask", "answer"), RIGHT)
def test_right(ask, answer):
    told = ask(answer)
    assert told.right and repr(told) == "right: why"


@pytest.mark.parametrize(("ask", "answer", "said"), WRONG)
def test_not_right(ask, answer, said):
    told = ask(answer)
    assert told.right is False and said in repr(told)
    assert repr(told).startswith("not right: ")


@pytest.mark.parametrize(
    "ask", [number, formula, choice, program, composition, deviation, same_plan]
)
def test_no_answer_yet(ask):
    told = ask(...)
    assert told.right is None and repr(told).startswith("no answer yet: ")


def test_plans_may_differ_without_a_difference_in_cost():
    """Two axes in another order: the same bytes, other positions."""
    axes = ["data(dp=2)", "context(cp=2)"]
    told = exercises.same_plan(" * ".join(axes), " * ".join(reversed(axes)), "why")
    assert not told.right and "the steps are not" in told.said


def test_a_formula_given_as_text_is_compared_too():
    assert exercises.formula("M/2 + M", "3*M/2", "why").right
    assert not exercises.formula("M", "3*M/2", "why").right
