"""Claims about formulas, decided by two routes that must agree: coefficients and solvers.

The first route (:mod:`placement_proofs.cost.claims`) reads signs of coefficients and tries sizes.
The second clears maxima, ceilings and quotients (:mod:`placement_proofs.cost.cleared`) and asks z3
for sizes at which the claim fails: among the real numbers from 1, where the answer "none" also
settles the whole numbers, and then among the whole numbers. Sizes at which a claim fails are the
smallest by their sum where that could be established, and are evaluated exactly. cvc5, where it is
installed, repeats a proof.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from placement_proofs.cost import symbols
from placement_proofs.cost.claims import (
    Claim,
    decide_by_coefficients,
    failing,
    read_claim,
    side_of,
)
from placement_proofs.cost.cleared import Case, Polynomial, TooManyCases, cleared
from placement_proofs.cost.closed_form import ClosedForms
from placement_proofs.cost.evaluation import compiled
from placement_proofs.cost.symbols import Expr
from placement_proofs.prove.smt import decide_again, has_cvc5, witness
from placement_proofs.verdict import Verdict

REALS, WHOLE = "QF_NRA", "QF_NIA"

EFFORT = 200_000
"""z3's work on one case."""
TRIED = 1_500
"""Sizes that are tried for a smallest one at which a claim fails."""
SHRUNK = 40
"""How often z3 is asked for sizes with a smaller sum."""

NEGATED = {"<=": "(< {} {})", "<": "(<= {} {})", "==": "(distinct {} {})"}
"""What holds of the larger side minus the smaller one where a relation fails."""


@dataclass(frozen=True)
class Question:
    """Whether ``large - small`` is at least (``<=``), above (``<``) or equal to zero."""

    difference: Expr
    relation: str

    @property
    def names(self) -> list[str]:
        """The sizes, by name."""
        return symbols.symbols_of(self.difference)

    @cached_property
    def cases(self) -> list[Case]:
        """The cases of the difference, cleared of maxima, ceilings and quotients.

        Raises:
            TooManyCases: the formula has too many maxima.
        """
        return cleared(self.difference)

    def fails(self, sizes: Mapping[str, int]) -> bool:
        """Whether the claim fails at sizes, by exact arithmetic."""
        return failing(Fraction(symbols.number(self.difference, sizes)), self.relation)


@dataclass(frozen=True)
class Solved:
    """What the solvers say.

    Attributes:
        verdict: PROVED, REFUTED or UNKNOWN.
        sizes: where the claim fails.
        smallest: whether no sizes with a smaller sum fail.
        how: the answers in words.
    """

    verdict: Verdict
    sizes: Mapping[str, int]
    smallest: bool
    how: str


class Disagreement(Exception):
    """Two routes gave opposite answers: a fault of this project."""


def decide(
    text: str, left: Expr, relation: str, right: Expr, model: Mapping[str, int] | None = None
) -> Claim:
    """Decide a claim for all whole sizes from 1, by both routes.

    ``model`` has the numbers of one model; what holds for all models of the family is proved
    without them.

    Raises:
        Disagreement: the routes give opposite answers.
    """
    if model:
        general = _for_all_models(text, left, relation, right)
        if general is not None:
            return general
        here = [symbols.replaced(side, model) for side in (left, right)]
        return replace(
            _decide(text, here[0], relation, here[1], "this model"), left=left, right=right
        )
    return _decide(text, left, relation, right, "")


def claim(
    text: str,
    forms_of: Callable[[str], ClosedForms],
    subject: str = "",
    given: Mapping[str, int] | None = None,
) -> Claim:
    """Read a claim and decide it; a side that names no subject is about ``subject``.

    Axes whose sizes are numbers have these, and symbols those of ``given``.

    Raises:
        IllFormed: the text is no claim, or ``forms_of`` knows no formulas of a side.
        Disagreement: the routes give opposite answers.
    """
    left, relation, right = read_claim(text)
    forms = [forms_of(side.subject or subject) for side in (left, right)]
    sides = [
        symbols.replaced(side_of(side, form), {**form.axes_known, **(given or {})})
        for side, form in zip((left, right), forms, strict=True)
    ]
    return decide(text, sides[0], relation, sides[1], forms[0].sizes_of_model)


def _question(left: Expr, relation: str, right: Expr) -> Question:
    small, large = (right, left) if relation in (">=", ">") else (left, right)
    return Question(large - small, {">=": "<=", ">": "<"}.get(relation, relation))


def _for_all_models(text: str, left: Expr, relation: str, right: Expr) -> Claim | None:
    """The claim as proved without the numbers of a model, or ``None``."""
    first = decide_by_coefficients(text, left, relation, right, tried=0)
    try:
        second = without_reals(_question(left, relation, right))
    except TooManyCases:
        second = None
    how = "; ".join(w for w in (first.why, second.how if second else "") if w)
    if first.verdict is not Verdict.PROVED and second is None:
        return None
    covers = _covers(left, right, "all models of these operations")
    return Claim(text, Verdict.PROVED, left, right, {}, how, covers)


def _covers(left: Expr, right: Expr, models: str) -> str:
    names = sorted({*symbols.symbols_of(left), *symbols.symbols_of(right)})
    sizes = f"all whole {', '.join(names)} from 1" if names else "these numbers"
    return f"{sizes}; {models}" if models else sizes


def _numbers(text: str, left: Expr, relation: str, right: Expr, models: str) -> Claim:
    """The claim where nothing is open."""
    question = _question(left, relation, right)
    verdict = Verdict.REFUTED if question.fails({}) else Verdict.PROVED
    return Claim(text, verdict, left, right, {}, "arithmetic", _covers(left, right, models))


def _decide(text: str, left: Expr, relation: str, right: Expr, models: str) -> Claim:
    if not symbols.symbols_of(left - right):
        return _numbers(text, left, relation, right, models)
    first = decide_by_coefficients(text, left, relation, right)
    second = solve(_question(left, relation, right))
    if {first.verdict, second.verdict} == {Verdict.PROVED, Verdict.REFUTED}:
        raise Disagreement(f"{text}: {first.verdict.value} by {first.why}, but {second.how}")
    verdict = second.verdict if first.verdict is Verdict.UNKNOWN else first.verdict
    sizes = second.sizes or first.witness
    how = "; ".join(w for w in (first.why, second.how) if w)
    covers = _covers(left, right, models)
    return Claim(text, verdict, left, right, sizes, how, covers, second.smallest)


def solve(question: Question) -> Solved:
    """The answer of the solvers."""
    try:
        proved = without_reals(question)
    except TooManyCases:
        small = _smallest(question)
        verdict = Verdict.UNKNOWN if small is None else Verdict.REFUTED
        return Solved(verdict, small or {}, small is not None, "too many maxima for z3")
    if proved is not None:
        return proved
    small = _smallest(question)
    if small is not None:
        how = "sizes tried in order of their sum"
        return Solved(Verdict.REFUTED, small, True, how)
    return _whole(question)


def without_reals(question: Question) -> Solved | None:
    """A proof that a claim fails at no real sizes from 1, or ``None``.

    Raises:
        TooManyCases: the formula has too many maxima.
    """
    blocks = []
    for case in question.cases:
        block = _without_reals(case, question)
        if not block:
            return None
        blocks.append(block)
    how = f"z3: no real sizes from 1 at which it fails ({REALS}, {_cases(question.cases)})"
    return Solved(Verdict.PROVED, {}, False, how + _again(blocks, REALS))


def _without_reals(case: Case, question: Question) -> str:
    """A block that says that a case fails at real sizes, and is unsat; empty if none is.

    What is unsat without guards is so with them.
    """
    for tried in (replace(case, guards=()), case):
        block = _block(tried, question, REALS)
        if witness(block, REALS, (), EFFORT)[0] == "unsat":
            return block
    return ""


def _whole(question: Question) -> Solved:
    """The answer over the whole numbers."""
    blocks = [_block(case, question, WHOLE) for case in question.cases]
    answers = []
    for block in blocks:
        said, sizes = witness(block, WHOLE, question.names, EFFORT)
        answers.append(said)
        if said == "sat" and (at := _checked(sizes, question)):
            least, sure = _shrunk(at, question)
            how = f"z3: sizes at which it fails ({WHOLE})"
            return Solved(Verdict.REFUTED, least, sure, how)
    if set(answers) == {"unsat"}:
        how = f"z3: no whole sizes from 1 at which it fails ({WHOLE}, {_cases(question.cases)})"
        return Solved(Verdict.PROVED, {}, False, how + _again(blocks, WHOLE))
    return Solved(Verdict.UNKNOWN, {}, False, "z3 gave no answer within its limit")


def _cases(cases: Sequence[Case]) -> str:
    return "one case" if len(cases) == 1 else f"{len(cases)} cases"


def _again(blocks: Sequence[str], logic: str) -> str:
    """What cvc5 says of a proof.

    Raises:
        Disagreement: it has sizes at which the claim fails.
    """
    if not has_cvc5():
        return ""
    answers = {decide_again(block, logic) for block in blocks}
    if "sat" in answers:
        raise Disagreement(f"unsat for z3, sat for cvc5: {blocks}")
    return "; cvc5 agrees" if answers == {"unsat"} else "; cvc5 gave no answer within its limit"


def _checked(sizes: Mapping[str, int], question: Question) -> dict[str, int]:
    """Sizes with 1 for what z3 left open; empty if the claim holds there."""
    at = {name: sizes.get(name, 1) for name in question.names}
    return at if question.fails(at) else {}


# the smallest sizes


def _smallest(question: Question) -> dict[str, int] | None:
    """The first sizes at which a claim fails, in order of their sum; ``None`` if none is tried."""
    names = question.names
    value = compiled(question.difference)
    for sizes in itertools.islice(_by_sum(len(names)), TRIED):
        at = dict(zip(names, sizes, strict=True))
        exact = {name: Fraction(size) for name, size in at.items()}
        if failing(Fraction(value(exact)), question.relation) and question.fails(at):
            return at
    return None


def _by_sum(count: int) -> Iterator[tuple[int, ...]]:
    """Tuples of whole numbers from 1 in order of their sum."""
    if not count:
        yield ()
        return
    for total in itertools.count(count):
        for cuts in itertools.combinations(range(1, total), count - 1):
            ends = (0, *cuts, total)
            yield tuple(b - a for a, b in itertools.pairwise(ends))


def _shrunk(at: dict[str, int], question: Question) -> tuple[dict[str, int], bool]:
    """Sizes with a smaller sum, by halving; whether z3 excludes all below."""
    names, low, sure = question.names, len(at) - 1, True
    for _ in range(SHRUNK):
        high = sum(at.values()) - 1
        if high <= low:
            break
        middle = (low + high + 1) // 2
        blocks = [_block(case, question, WHOLE, middle) for case in question.cases]
        said = [witness(block, WHOLE, names, EFFORT) for block in blocks]
        found = [_checked(sizes, question) for result, sizes in said if result == "sat"]
        better = next(filter(None, found), None)
        if better:
            at = better
            continue
        sure = sure and all(s == "unsat" for s, _ in said)
        low = middle
    return at, sure and sum(at.values()) - 1 <= low


# SMT-LIB


def _block(case: Case, question: Question, logic: str, bound: int | None = None) -> str:
    """Declarations and assertions: sizes of this case at which the claim fails."""
    kind, zero = ("Real", "0.0") if logic == REALS else ("Int", "0")
    sizes = question.names
    lines = [f"(declare-fun |{n}| () {kind})" for n in (*sizes, *case.whole)]
    one = "1.0" if logic == REALS else "1"
    facts = [f"(>= |{n}| {one})" for n in sizes]
    facts += [f"(distinct {_text(d, logic)} {zero})" for d in case.below]
    facts += [f"({'>' if s else '>='} {_text(g, logic)} {zero})" for g, s in case.guards]
    facts.append(NEGATED[question.relation].format(_text(case.sign, logic), zero))
    if bound is not None:
        facts.append(f"(<= (+ {' '.join(f'|{n}|' for n in sizes)} 0) {bound})")
    return "\n".join([*lines, *(f"(assert {fact})" for fact in facts)]) + "\n"


def _text(polynomial: Polynomial, logic: str) -> str:
    terms = [_term(monomial, c, logic) for monomial, c in polynomial.items()]
    return f"(+ {' '.join(terms)} {_number(0, logic)})" if terms else _number(0, logic)


def _term(monomial: tuple[tuple[str, int], ...], coefficient: int, logic: str) -> str:
    factors = [f"|{name}|" for name, power in monomial for _ in range(power)]
    number = _number(coefficient, logic)
    return f"(* {number} {' '.join(factors)})" if factors else number


def _number(value: int, logic: str) -> str:
    text = f"{abs(value)}.0" if logic == REALS else str(abs(value))
    return f"(- {text})" if value < 0 else text
