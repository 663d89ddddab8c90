"""Claims about formulas, proved or refuted for all sizes.

Sizes are whole numbers from 1. A claim is proved here where, with every size written as one plus
what is above it, the difference of the two sides is a quotient of polynomials without a negative
coefficient; it is refuted by sizes at which it fails; else it is unknown here (solvers decide more:
:mod:`placement_proofs.inequalities`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from placement_proofs.cost import symbols
from placement_proofs.cost.closed_form import ClosedForms
from placement_proofs.cost.evaluation import compiled
from placement_proofs.cost.questions import bytes_of
from placement_proofs.cost.symbols import Expr
from placement_proofs.errors import IllFormed
from placement_proofs.verdict import Verdict

TRIED = (1, 2, 3, 4, 5, 7, 8, 16, 64, 1024, 10**6)
"""Sizes at which a claim that is not proved is tried."""
MANY = 500
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
        covers: the sizes and models that it was decided for.
        smallest: whether no sizes with a smaller sum fail.
    """

    text: str
    verdict: Verdict
    left: Expr
    right: Expr
    witness: Mapping[str, int]
    why: str
    covers: str = ""
    smallest: bool = False

    def shown(self) -> str:
        """The verdict in words, what it covers, and how it was reached."""
        lines = [f"{self.text}: {self.verdict.value}", f"  left = {self.left}"]
        lines.append(f"  right = {self.right}")
        proved = self.verdict is Verdict.PROVED
        lines.append(f"  {'covers' if proved else 'asked of'} {self.covers}")
        if self.verdict is Verdict.REFUTED:
            at = ", ".join(f"{name} = {size}" for name, size in self.witness.items())
            least = ", the smallest by their sum" if self.smallest and self.witness else ""
            lines.append(f"  fails at {at or 'these numbers'}{least}")
        lines.append(f"  {'why' if self.decided else 'undecided'}: {self.why}")
        return "\n".join(lines)

    @property
    def decided(self) -> bool:
        """Whether the claim was proved or refuted."""
        return self.verdict in (Verdict.PROVED, Verdict.REFUTED)

    def to_json(self) -> dict[str, object]:
        """Formulas as texts."""
        return {
            "claim": self.text,
            "verdict": self.verdict.value,
            "left": str(self.left),
            "right": str(self.right),
            "witness": dict(self.witness),
            "why": self.why,
            "covers": self.covers,
            "smallest": self.smallest,
        }


@dataclass(frozen=True)
class Side:
    """One side of a claim: a number times a quantity of a subject ("" is the one asked about).

    Without a quantity it is the number of bytes.
    """

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
    if text.strip()[:1].isdigit() and quantity not in QUANTITIES:
        return Side(Fraction(bytes_of(text, "--claim")), "", "")
    if quantity not in QUANTITIES:
        raise IllFormed(
            "--claim",
            repr(text[:80]),
            f"a side ends with one of {', '.join(QUANTITIES)}, or is an amount such as 80GB",
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
    if not side.quantity:
        return symbols.rational(side.factor)
    form = dict(forms.forms())[QUANTITIES[side.quantity]]
    width = forms.convention.parameter
    bytes_ = symbols.symbol(symbols.PARAMETERS) * width
    given = {symbols.OPTIMIZER: forms.known[symbols.OPTIMIZER], symbols.PARAMETER_BYTES: bytes_}
    factor = symbols.rational(side.factor)
    return factor * symbols.replaced(form.exact, given)


def decide_by_coefficients(
    text: str, left: Expr, relation: str, right: Expr, *, tried: int = MANY
) -> Claim:
    """Decide a claim for all whole sizes from 1 by signs of coefficients, or by sizes tried."""
    small, large = (right, left) if relation in (">=", ">") else (left, right)
    strict = relation in ("<", ">")
    if relation == "==":
        if symbols.equal(left, right):
            return Claim(text, Verdict.PROVED, left, right, {}, "the two sides are one formula")
    elif _above(large, small, strict):
        why = "no coefficient of the difference is negative in sizes from 1"
        return Claim(text, Verdict.PROVED, left, right, {}, why)
    kind = "==" if relation == "==" else "<" if strict else "<="
    value = compiled(large - small)
    for sizes in itertools.islice(_sizes(large - small), tried):
        if failing(Fraction(value({n: Fraction(s) for n, s in sizes.items()})), kind):
            return Claim(text, Verdict.REFUTED, left, right, sizes, "an example")
    return Claim(text, Verdict.UNKNOWN, left, right, {}, "")


def failing(difference: Fraction, relation: str) -> bool:
    """Whether the larger side minus the smaller one breaks ``<=``, ``<`` or ``==``."""
    match relation:
        case "==":
            return difference != 0
        case "<":
            return difference <= 0
    return difference < 0


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
    """All symbols alike, then each alone, then some combinations."""
    names = symbols.symbols_of(difference)
    alike = ((size,) * len(names) for size in TRIED)
    alone = (
        tuple(size if i == k else 2 for i in range(len(names)))
        for k in range(len(names))
        for size in TRIED
    )
    rest = itertools.product(TRIED, repeat=len(names))
    for sizes in itertools.chain(alike, alone, rest):
        yield dict(zip(names, sizes, strict=True))
