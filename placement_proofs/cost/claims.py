"""Claims about formulas, proved or refuted for all sizes.

Sizes are whole numbers from 1. A claim is proved where, with every size written as one plus what
is above it, the difference of the two sides is a quotient of polynomials without a negative
coefficient; it is refuted by sizes at which it fails; else it is unknown. First for all models of
the family, then with the numbers of the one model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from placement_proofs.cost import symbols
from placement_proofs.cost.closed_form import ClosedForms
from placement_proofs.cost.symbols import Expr
from placement_proofs.errors import IllFormed
from placement_proofs.verdict import Verdict

TRIED = (1, 2, 3, 4, 5, 7, 8, 16, 64, 1024, 10**6)
"""Sizes at which a claim that is not proved is tried."""
MANY = 20_000
"""Combinations of sizes that are tried at most."""

QUANTITIES = {
    "traffic": "communication_total",
    "peak": "memory_peak",
    "memory": "memory_persistent",
    "activations": "memory_saved_activations",
}
"""What a claim can be about, by the words of a claim."""

RELATIONS = ("<=", ">=", "==", "<", ">")


@dataclass(frozen=True)
class Claim:
    """A claim about formulas, decided for all sizes.

    Attributes:
        text: the claim.
        verdict: PROVED, REFUTED or UNKNOWN.
        left, right: the two sides as formulas.
        witness: sizes at which a refuted claim fails.
        why: how it was decided.
    """

    text: str
    verdict: Verdict
    left: Expr
    right: Expr
    witness: Mapping[str, int]
    why: str

    def shown(self) -> str:
        """The verdict in words."""
        lines = [f"{self.text}: {self.verdict.value} ({self.why})"]
        lines += [f"  left = {self.left}", f"  right = {self.right}"]
        if self.witness:
            at = ", ".join(f"{name} = {size}" for name, size in self.witness.items())
            lines.append(f"  fails at {at}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Formulas as texts."""
        return {
            "claim": self.text,
            "verdict": self.verdict.value,
            "left": str(self.left),
            "right": str(self.right),
            "witness": dict(self.witness),
            "why": self.why,
        }


@dataclass(frozen=True)
class Side:
    """One side of a claim: a number times a quantity of a subject ("" is the one asked about)."""

    factor: Fraction
    subject: str
    quantity: str


def read_claim(text: str) -> tuple[Side, str, Side]:
    """The parts of a claim such as ``zero3(dp=N) traffic <= 3/2 * data(dp=N) traffic``.

    Raises:
        IllFormed: the text is no such claim.
    """
    body = text.partition(" for all ")[0]
    for relation in RELATIONS:
        left, found, right = body.partition(f" {relation} ")
        if found:
            return _side(left), relation, _side(right)
    raise IllFormed(
        "--claim",
        repr(text[:80]),
        f"two sides with one of {', '.join(RELATIONS)} between blanks",
        'write "traffic <= 3/2 * data(dp=N) traffic"',
    )


def _side(text: str) -> Side:
    words = text.strip().rsplit(None, 1)
    quantity = words[-1] if words else ""
    rest = words[0] if len(words) == 2 else ""
    head, star, tail = rest.partition(" * ")
    factor = _factor(head) if star else _factor(rest.removesuffix("*").strip())
    subject = rest if factor is None else (tail if star else "")
    if quantity not in QUANTITIES:
        raise IllFormed(
            "--claim",
            repr(text[:80]),
            f"a side ends with one of {', '.join(QUANTITIES)}",
            'write "3/2 * data(dp=N) traffic"',
        )
    return Side(Fraction(1) if factor is None else factor, subject.strip(), quantity)


def _factor(text: str) -> Fraction | None:
    try:
        return Fraction(text.replace(" ", "")) if 0 < len(text) < 40 else None
    except (ValueError, ZeroDivisionError):
        return None


def side_of(side: Side, forms: ClosedForms) -> Expr:
    """The formula of a side; ``K`` and the bytes ``P`` of parameters have their values."""
    form = dict(forms.forms())[QUANTITIES[side.quantity]]
    width = forms.convention.parameter
    bytes_ = symbols.symbol(symbols.PARAMETERS) * width
    given = {symbols.OPTIMIZER: forms.known[symbols.OPTIMIZER], symbols.PARAMETER_BYTES: bytes_}
    factor = symbols.rational(side.factor)
    return factor * symbols.replaced(form.exact, given)


def claim(text: str, forms_of: Callable[[str], ClosedForms], subject: str = "") -> Claim:
    """Read a claim and decide it; a side that names no subject is about ``subject``.

    Raises:
        IllFormed: the text is no claim, or ``forms_of`` knows no formulas of a side.
    """
    left, relation, right = read_claim(text)
    forms = [forms_of(side.subject or subject) for side in (left, right)]
    sides = [side_of(side, form) for side, form in zip((left, right), forms, strict=True)]
    return decide(text, sides[0], relation, sides[1], forms[0].sizes_of_model)


def decide(
    text: str, left: Expr, relation: str, right: Expr, model: Mapping[str, int] | None = None
) -> Claim:
    """Decide a claim for all sizes from 1; ``model`` has the numbers of one model.

    What holds for all models of the family is proved without these numbers.
    """
    first = _decide(text, left, relation, right, "for all models of these operations")
    if first.verdict is Verdict.PROVED or not model:
        return first
    here = [symbols.replaced(side, model) for side in (left, right)]
    second = _decide(text, here[0], relation, here[1], "for this model")
    return Claim(text, second.verdict, left, right, second.witness, second.why)


def _decide(text: str, left: Expr, relation: str, right: Expr, covers: str) -> Claim:
    small, large = (right, left) if relation in (">=", ">") else (left, right)
    strict = relation in ("<", ">")
    if relation == "==":
        if symbols.equal(left, right):
            return Claim(text, Verdict.PROVED, left, right, {}, f"{covers}: no difference")
    elif _above(large, small, strict):
        why = f"{covers}: no coefficient of the difference is negative, all sizes being at least 1"
        return Claim(text, Verdict.PROVED, left, right, {}, why)
    for sizes in _sizes(large - small):
        value = symbols.number(large - small, sizes)
        if value < 0 or (relation == "==" and value != 0) or (strict and value == 0):
            return Claim(text, Verdict.REFUTED, left, right, sizes, "by an example")
    why = "neither a sign of all coefficients nor a counterexample was found"
    return Claim(text, Verdict.UNKNOWN, left, right, {}, why)


def _above(large: Expr, small: Expr, strict: bool) -> bool:
    """Each argument of the maxima in ``small`` has one in ``large`` that is not below it."""
    options = list(_unfolded(large))
    return all(any(_nonnegative(o - part, strict) for o in options) for part in _unfolded(small))


def _unfolded(expression: Expr) -> Iterator[Expr]:
    """The expression for each choice of an argument of its maxima."""
    found = next((e for e in expression.args if e.func.__name__ == "Max"), None)
    if expression.func.__name__ == "Max":
        for part in expression.args:
            yield from _unfolded(part)
    elif found is not None and expression.is_Add:
        for part in found.args:
            yield from _unfolded(expression - found + part)
    else:
        yield expression


def _nonnegative(difference: Expr, strict: bool) -> bool:
    """Whether a quotient is at least 0 (above 0) by its coefficients in sizes minus one."""
    if symbols.is_maximum(difference):
        return False
    above, below = difference.together().as_numer_denom()
    shifted = {s: s + 1 for s in difference.free_symbols}
    signs = [_signs(part.subs(shifted, simultaneous=True).expand()) for part in (above, below)]
    (low, constant), (low_below, constant_below) = signs
    if low_below < 0 or constant_below <= 0:
        return False
    return bool(low >= 0 and (constant > 0 or not strict))


def _signs(polynomial: Expr) -> tuple[Expr, Expr]:
    """The lowest coefficient, and the constant term."""
    terms = polynomial.as_coefficients_dict()
    constant = next((c for m, c in terms.items() if not m.free_symbols), 0)
    return min(terms.values(), default=0), constant


def _sizes(difference: Expr) -> Iterator[dict[str, int]]:
    """All symbols alike, then each alone, then combinations."""
    names = symbols.symbols_of(difference)
    alike = ((size,) * len(names) for size in TRIED)
    alone = (
        tuple(size if i == k else 2 for i in range(len(names)))
        for k in range(len(names))
        for size in TRIED
    )
    rest = itertools.islice(itertools.product(TRIED, repeat=len(names)), MANY)
    for sizes in itertools.chain(alike, alone, rest):
        yield dict(zip(names, sizes, strict=True))
