"""Inequalities for all sizes: coefficients and solvers agree with each other and with a grid."""

import itertools
import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_proofs import inequalities
from placement_proofs.cost import cleared as clearing
from placement_proofs.cost import symbols
from placement_proofs.cost.claims import decide_by_coefficients, failing, read_claim, side_of
from placement_proofs.cost.cleared import TooManyCases, cleared, polynomial
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.derive import derive
from placement_proofs.expression import parse
from placement_proofs.inequalities import Disagreement, Question, decide, solve
from placement_proofs.models import abstract
from placement_proofs.prove.smt import has_cvc5
from placement_proofs.verdict import Verdict
from placement_proofs.zoo import named

X, Y, Z = (symbols.symbol(n) for n in "xyz")
ZERO = X - X
SIZES = symbols.SymSizes({}, X, X, divides=False)
GRID = range(1, 8)


def decided(left, relation, right):
    return decide("it", left, relation, right)


def fails_on_grid(difference, relation, names):
    """The sizes of a grid at which a claim fails, in order of their sum."""
    points = sorted(itertools.product(GRID, repeat=len(names)), key=sum)
    for sizes in points:
        at = dict(zip(names, sizes, strict=True))
        if failing(Fraction(symbols.number(difference, at)), relation):
            yield at


# what only one route can do


@pytest.mark.parametrize(
    ("left", "relation", "right", "verdict", "words"),
    [
        (2 * X * Y, "<=", X**2 + Y**2, Verdict.PROVED, "QF_NRA"),
        (3 * X, "<=", X**2 + 2, Verdict.PROVED, "QF_NIA"),  # (x-1)(x-2), negative at 3/2
        (3 * X, "<", X**2 + 3, Verdict.PROVED, "QF_NRA"),
        (4 * X, "<", X**2 + 4, Verdict.REFUTED, "order of their sum"),
        (SIZES.cdiv(X, Y) * Y, ">=", X, Verdict.PROVED, "QF_N"),
        (SIZES.cdiv(X, Y) * Y, "<", X + Y, Verdict.PROVED, "QF_N"),
        (SIZES.cdiv(X, symbols.rational(Fraction(3))) * 3, "<=", X, Verdict.REFUTED, "order"),
        (X, "<=", 100_000 + ZERO, Verdict.REFUTED, "QF_NIA"),
    ],
)
def test_what_coefficients_do_not_show(left, relation, right, verdict, words):
    found = decided(left, relation, right)
    assert found.verdict is verdict, found.shown()
    assert words in found.why
    if has_cvc5() and verdict is Verdict.PROVED:
        assert "cvc5" in found.why


def test_the_smallest_sizes_are_found_far_out():
    """z3 finds some sizes, halving finds the smallest, and what is below is excluded."""
    found = decided(X, "<=", 100_000 + ZERO)
    assert (found.witness, found.smallest) == ({"x": 100_001}, True)
    assert "fails at x = 100001, the smallest by their sum" in found.shown()


def test_unknown_is_said():
    """x^2 = 61 y^2 + 1 has whole solutions from 1766319049 on: a hard equation of Pell."""
    pell = X**2 - 61 * Y**2 - 1
    found = decided(ZERO + 1, "<=", pell**2)
    assert found.verdict is Verdict.UNKNOWN
    assert "undecided: z3 gave no answer within its limit" in found.shown()
    assert found.verdict.exit_code == 3


def test_too_many_cases_are_not_guessed(monkeypatch):
    monkeypatch.setattr(clearing, "MANY", 1)
    tall = SIZES.largest([X**2 + Y, Y**2 + X, X * Y + 1])
    with pytest.raises(TooManyCases):
        cleared(tall)
    found = solve(Question(2 * tall - X - Y, "<="))
    assert (found.verdict, "too many maxima" in found.how) == (Verdict.UNKNOWN, True)


def test_maxima_are_split_into_cases():
    """The larger of two is at least their mean, and at most their sum."""
    tall = SIZES.largest([X**2 - Y, Y**2 - X])
    mean = (X**2 - Y + Y**2 - X) / 2
    assert decided(mean, "<=", tall).verdict is Verdict.PROVED
    low = SIZES.least([X, Y])
    assert decided(low * 2, "<=", X + Y).verdict is Verdict.PROVED
    assert decided(low * 2, ">=", X + Y).witness == {"x": 1, "y": 2}


def test_polynomials_are_whole():
    assert polynomial((X / 2 + Y / 3).expand()) == {(("x", 1),): 3, (("y", 1),): 2}
    assert polynomial(ZERO) == {}
    assert polynomial(ZERO + 4) == {(): 4}


# random inequalities

COEFFICIENT = st.integers(-4, 4)
TERM = st.tuples(COEFFICIENT, st.integers(0, 2), st.integers(0, 2))
RELATIONS = st.sampled_from(["<=", "<", "=="])


def summed(terms):
    return symbols.total([c * X**i * Y**j for c, i, j in terms]) + ZERO


@st.composite
def differences(draw):
    """Polynomials, quotients, maxima and ceilings of them in two sizes."""
    first = summed(draw(st.lists(TERM, min_size=1, max_size=4)))
    kind = draw(st.sampled_from(["plain", "quotient", "largest", "least", "ceiling"]))
    if kind == "quotient":
        return first / (X + draw(st.integers(0, 2)) * Y)
    if kind == "ceiling":
        return first + SIZES.cdiv(X, Y) * draw(COEFFICIENT)
    second = summed(draw(st.lists(TERM, min_size=1, max_size=2)))
    if kind == "largest":
        return SIZES.largest([first, second]) - draw(COEFFICIENT)
    return SIZES.least([first, second]) - draw(COEFFICIENT) if kind == "least" else first


def check(difference, relation):
    """Both routes against each other and against a grid; returns the verdict."""
    found = decided(ZERO, relation, difference)
    on_grid = next(fails_on_grid(difference, relation, symbols.symbols_of(difference)), None)
    if found.verdict is Verdict.PROVED:
        assert on_grid is None, found.shown()
    if found.verdict is Verdict.REFUTED:
        assert failing(Fraction(symbols.number(difference, found.witness)), relation)
        if found.smallest and on_grid is not None:
            assert sum(found.witness.values()) <= sum(on_grid.values())
    if on_grid is not None:
        assert found.verdict is Verdict.REFUTED, found.shown()
    return found


@settings(max_examples=60)
@given(differences(), RELATIONS)
def test_random_inequalities_agree_with_a_grid(difference, relation):
    check(difference, relation)


SAMPLES = [
    (X * Y - X - Y + 1, "<="),
    (X / Y - 1, "<="),
    (SIZES.largest([X - Y, Y - X]), "<="),
    (SIZES.least([X - 2, Y**2 - 4]), "<="),
    (SIZES.cdiv(X, Y) * Y - X, "<="),
    (SIZES.cdiv(X, Y) - X, "=="),
    (X**2 - Y**2, "<"),
    ((X - 3) ** 2 + 1 - 2 / Y, "<="),
]


def wrong_guards(case):
    turned = tuple(({m: -c for m, c in g.items()}, s) for g, s in case.guards)
    return clearing.Case(case.sign, case.below, turned, case.whole)


def wrong_sign(case):
    turned = {m: -c for m, c in case.sign.items()}
    return clearing.Case(turned, case.below, case.guards, case.whole)


def no_guards(case):
    return clearing.Case(case.sign, case.below, (), case.whole)


@pytest.mark.parametrize("mutant", [wrong_guards, wrong_sign, no_guards])
def test_mutants_of_the_cases_are_noticed(monkeypatch, mutant):
    """Turned guards, a turned sign and no guards make wrong answers or lose right ones."""
    right = [check(*sample).verdict for sample in SAMPLES]
    assert set(right) == {Verdict.PROVED, Verdict.REFUTED}
    true = clearing.cleared
    monkeypatch.setattr(inequalities, "cleared", lambda e: [mutant(c) for c in true(e)])
    noticed = 0
    for sample, expected in zip(SAMPLES, right, strict=True):
        try:
            noticed += check(*sample).verdict is not expected
        except (AssertionError, Disagreement):
            noticed += 1
    assert noticed


@pytest.mark.parametrize("relation", ["<=", "<", "=="])
def test_each_negation_is_needed(monkeypatch, relation):
    """With the wrong negation, z3 contradicts the coefficients."""
    wrong = {"<=": "(> {} {})", "<": "(>= {} {})", "==": "(= {} {})"}
    monkeypatch.setitem(inequalities.NEGATED, relation, wrong[relation])
    samples = {"<=": X * Y + X, "<": X * Y, "==": (X + Y) ** 2 - X**2 - 2 * X * Y - Y**2}
    found = solve(Question(samples[relation], relation))
    assert found.verdict is not Verdict.PROVED


# strategies

STRATEGIES = ["data(dp=N)", "zero1(dp=N)", "zero2(dp=N)", "zero3(dp=N)", "zero3(dp=M)"]
PAIRS = list(itertools.permutations(STRATEGIES, 2))


@pytest.fixture(scope="module")
def forms():
    model = abstract()
    return {text: closed_forms(derive(parse(text), model), model) for text in STRATEGIES}


@pytest.mark.parametrize("quantity", ["traffic", "memory", "peak"])
def test_routes_agree_on_all_pairs_of_strategies(forms, quantity):
    """What signs of coefficients or tried sizes decide, z3 decides alike, and nothing is open."""
    for a, b in PAIRS:
        text = f"{a} {quantity} <= {b} {quantity}"
        left, relation, right = read_claim(text)
        sides = [side_of(left, forms[a]), side_of(right, forms[b])]
        sizes = forms[a].sizes_of_model
        here = [symbols.replaced(side, sizes) for side in sides]
        first = decide_by_coefficients(text, here[0], relation, here[1])
        second = solve(Question(here[1] - here[0], relation))
        assert second.verdict is not Verdict.UNKNOWN, text
        assert first.verdict in (second.verdict, Verdict.UNKNOWN), text
        both = decide(text, sides[0], relation, sides[1], sizes)
        assert both.verdict is second.verdict, text


def test_pairs_on_a_transformer():
    """Tensor parallelism sends less than ZeRO-3 where the batch is small, and not everywhere."""
    model = named("llama-7b")
    texts = ("zero3(dp=N)", "tensor(tp=N)")
    made = {t: closed_forms(derive(parse(t), model), model) for t in texts}
    claims = {
        "zero3(dp=N) memory <= tensor(tp=N) memory": Verdict.PROVED,  # norms stay whole in tensor
        "tensor(tp=N) traffic <= zero3(dp=N) traffic": Verdict.PROVED,
        "tensor(tp=N) traffic >= zero3(dp=N) traffic": Verdict.REFUTED,
    }
    for text, verdict in claims.items():
        left, relation, right = read_claim(text)
        sides = [side_of(s, made[s.subject]) for s in (left, right)]
        found = decide(text, sides[0], relation, sides[1], made[texts[0]].sizes_of_model)
        assert found.verdict is verdict, found.shown()


def test_a_wrong_route_is_a_fault(monkeypatch):
    wrong = inequalities.Solved(Verdict.REFUTED, {"x": 1}, True, "a wrong solver")
    monkeypatch.setattr(inequalities, "solve", lambda question: wrong)
    with pytest.raises(Disagreement, match="a wrong solver"):
        decided(X, "<=", X * Y)


def test_the_command_says_which_route_decided(run):
    text = ("formula", "zero3(dp=N)", "--model", "abstract", "--claim")
    proved = run(*text, "traffic <= 3/2 * data(dp=N) traffic")
    assert proved.code == 0
    assert "covers all whole N, Psi from 1; all models of these operations" in proved.out
    assert "why: no coefficient of the difference is negative" in proved.out
    assert "z3: no real sizes from 1 at which it fails (QF_NRA, one case)" in proved.out
    refuted = run(*text, "zero2(dp=N) memory > 1/7 * data(dp=N) memory", "--json")
    assert refuted.code == 1
    (claim,) = json.loads(refuted.out)["claims"]
    assert (claim["witness"], claim["smallest"]) == ({"N": 49}, True)
