"""Answers to exercises, compared with what the package itself computes.

An answer that is still ``...`` is told to be missing. Every other one is right or not, with what
the package found: sizes at which two formulas differ, a counterexample, a cost.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import cycle
from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias

from placement_proofs.checking import check, formulas, plan_of
from placement_proofs.composition import Composition, Strategy
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.program.expr import Tree, folded, names_of, parse_expr
from placement_proofs.program.text import parse_program
from placement_proofs.report import Report
from placement_proofs.verdict import Verdict

if TYPE_CHECKING:
    from placement_proofs.cost.closed_form import Form
    from placement_proofs.cost.symbols import Expr

GAP = "???"
"""Where an answer goes in a text with a gap."""
SIZES = (2, 3, 5, 7, 11, 13)
"""Sizes at which formulas that differ are compared."""

SHOWN = 3
"""Words that a message shows."""

Missing: TypeAlias = EllipsisType


@dataclass(frozen=True)
class Checked:
    """Whether an answer is right (``None``: there is none yet), and why."""

    right: bool | None
    said: str

    def __repr__(self) -> str:
        words = {True: "right", False: "not right", None: "no answer yet"}
        return f"{words[self.right]}: {self.said}"


NONE_YET = Checked(None, "put yours in place of the dots in the cell above, and run both cells")


def number(answer: float | Fraction | Missing, computed: float | Fraction, why: str) -> Checked:
    """A number that equals the computed one, to a thousandth of it."""
    if isinstance(answer, EllipsisType):
        return NONE_YET
    try:
        mine, found = Fraction(answer), Fraction(computed)
    except (TypeError, ValueError, OverflowError):
        return Checked(False, f"{answer!r} is no number")
    if abs(mine - found) <= abs(found) / 1000:
        return Checked(True, why)
    if mine * found > 0:
        return Checked(False, f"{answer} is {float(mine / found):.4g} times what it is")
    return Checked(False, f"{answer} is too {'large' if mine > found else 'small'}")


def formula(answer: str | Missing, computed: Form | str, why: str) -> Checked:
    """A formula, as text, that equals the computed one at all sizes.

    Raises:
        IllFormed: ``computed`` is a text that is no formula.
    """
    from placement_proofs.cost import symbols

    if isinstance(answer, EllipsisType):
        return NONE_YET
    wanted = _expression(parse_expr(computed)) if isinstance(computed, str) else computed.exact
    known = symbols.symbols_of(wanted)
    try:
        tree = parse_expr(str(answer), "answer")
        unknown = sorted(set(names_of(tree)) - set(known))
        if unknown:
            said = f"it is a formula of {', '.join(known)}, without {', '.join(unknown)}"
            return Checked(False, said)
        own = _expression(tree)
    except IllFormed as error:
        return Checked(False, str(error))
    if not own.is_finite:
        return Checked(False, "a division by zero")
    if symbols.equal(own, wanted):
        return Checked(True, why)
    return Checked(False, _apart(own, wanted, known))


def _expression(tree: Tree) -> Expr:
    """A parsed formula on symbols."""
    from placement_proofs.cost import symbols

    return folded(tree, symbols.rational, symbols.symbol, operator.truediv)


def _apart(own: Expr, wanted: Expr, names: Sequence[str]) -> str:
    """Sizes at which two formulas differ, with both values."""
    from placement_proofs.cost import symbols

    for start in range(len(SIZES)):
        values = dict(zip(names, cycle((*SIZES[start:], *SIZES[:start])), strict=False))
        found = [symbols.replaced(side, values) for side in (own, wanted)]
        if found[0] != found[1]:
            at = ", ".join(f"{name} = {value}" for name, value in values.items())
            return f"at {at} yours is {found[0]}, and it is {found[1]}"
    return "the two formulas differ"


def choice(
    answer: str | Iterable[str] | Missing, computed: str | Iterable[str], why: str
) -> Checked:
    """One word or several, in any order, that the package finds too."""
    if isinstance(answer, EllipsisType):
        return NONE_YET
    mine, found = _words(answer), _words(computed)
    if mine == found:
        return Checked(True, why)
    extra, left = sorted(mine - found), len(found - mine)
    more = f" and {len(extra) - SHOWN} more" if len(extra) > SHOWN else ""
    parts = [f"{', '.join(extra[:SHOWN])}{more}: not what the package finds"] if extra else []
    parts += [f"{left} of {len(found)} missing"] if left and len(found) > 1 else []
    return Checked(False, "; ".join(parts) or "nothing is named")


def _words(given: str | Iterable[str]) -> set[str]:
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return set(map(str, given)) if several else {str(given)}


def program(
    answer: str | Missing, why: str, *, into: str = GAP, wanted: Verdict = Verdict.PROVED
) -> Checked:
    """An element program, or lines for the gap (``???``) of one, that gets the wanted verdict."""
    if isinstance(answer, EllipsisType):
        return NONE_YET
    try:
        report = check(parse_program(into.replace(GAP, str(answer)), place="answer"))
    except IllFormed as error:
        return Checked(False, str(error))
    return _decided(report, wanted, why)


def composition(
    answer: str | Composition | Strategy | Missing,
    why: str,
    *,
    without: Sequence[str] = (),
    wanted: Verdict = Verdict.PROVED,
    model: str | None = None,
) -> Checked:
    """A composition that gets the wanted verdict, with deviations from its derived plan."""
    if isinstance(answer, EllipsisType):
        return NONE_YET
    try:
        report = check(read_subject(answer, model=model, without=without))
    except IllFormed as error:
        return Checked(False, str(error))
    return _decided(report, wanted, why)


def deviation(
    answer: str | Missing, why: str, *, of: str, wanted: Verdict, model: str | None = None
) -> Checked:
    """A deviation of the plan derived from ``of`` that gets the wanted verdict."""
    if isinstance(answer, EllipsisType):
        return NONE_YET
    return composition(of, why, without=[str(answer)], wanted=wanted, model=model)


def _decided(report: Report, wanted: Verdict, why: str) -> Checked:
    if report.verdict is wanted:
        return Checked(True, why)
    said = [f"the verdict is {report.verdict.value}, not {wanted.value}"]
    if report.failure:
        said += report.failure.counterexample["explanation"][:2]
    return Checked(False, ". ".join(text.rstrip(".") for text in said))


def same_plan(
    answer: str | Composition | Strategy | Missing,
    as_of: str | Composition | Strategy,
    why: str,
    *,
    model: str | None = None,
) -> Checked:
    """A composition from which the same plan is derived, step by step."""
    if isinstance(answer, EllipsisType):
        return NONE_YET
    try:
        mine, other = (read_subject(c, model=model) for c in (answer, as_of))
        if plan_of(mine)[0] == plan_of(other)[0]:
            return Checked(True, why)
        return Checked(False, _unlike(mine, other))
    except IllFormed as error:
        return Checked(False, str(error))


def _unlike(mine: Subject, other: Subject) -> str:
    """Which states or which traffic of two plans differ."""
    forms = [dict(formulas(subject).forms()) for subject in (mine, other)]
    names = [n for n in forms[0].keys() | forms[1].keys() if not n.endswith(("total", "peak"))]
    for name in sorted(names, key=lambda n: (not n.startswith("memory"), n)):
        own, wanted = (str(f[name].exact) if name in f else "0" for f in forms)
        if own != wanted:
            return f"{name.replace('_', ' ')} is {own} bytes in yours, {wanted} in the other"
    return "memory and traffic are the same, but the steps are not"
