"""Answers of ``formula``: what fits, what dominates, where two cross, claims for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placement_proofs.cli.output import say, say_json, waiting

if TYPE_CHECKING:
    from fractions import Fraction

    from placement_proofs.cost.claims import Claim
    from placement_proofs.cost.closed_form import ClosedForms, Form
    from placement_proofs.cost.questions import Fit

SCHEMA = "placement-proofs/answers/1"

Forms = Callable[[str], "tuple[str, ClosedForms]"]
"""Gives the title and the formulas of a subject."""


@dataclass(frozen=True)
class Asked:
    """What is asked about a subject; ``values`` are numbers for symbols."""

    fits: str | None
    dominant: bool
    crossing: str | None
    claims: Sequence[str]
    values: Mapping[str, int]


def answer(asked: Asked, forms_of: Forms, subject: str, as_json: bool) -> int:
    """Print the answers; the exit code is that of the worst claim."""
    with waiting("working out formulas"):
        title, forms = forms_of(subject)
        data: dict[str, Any] = {}
        texts: list[str] = []
        _fit(asked, forms, data, texts)
        _dominant(asked, forms, data, texts)
        _crossing(asked, forms_of, forms, data, texts)
        claims = [_claim(text, forms_of, subject, asked.values) for text in asked.claims]
        data |= {"claims": [c.to_json() for c in claims]} if claims else {}
        texts += [c.shown() for c in claims]
        if as_json:
            say_json({"schema": SCHEMA, "composition": title, **data})
        else:
            say("\n".join([title, str(forms.convention), *texts]))
    return max((c.verdict.exit_code for c in claims), default=0)


def _known(asked: Asked, forms: ClosedForms) -> dict[str, int | Fraction]:
    """The model's and the convention's numbers, and those given; axes only if they are numbers."""
    return forms.values(asked.values)


def _fit(asked: Asked, forms: ClosedForms, data: dict[str, Any], texts: list[str]) -> None:
    from placement_proofs.cost.questions import bytes_of, fits

    if asked.fits:
        found = fits(forms.peak, bytes_of(asked.fits), _known(asked, forms))
        data["fits"] = found.to_json()
        texts.append(
            found.text() if found.ever else f"{found.text()}{_largest(asked, forms, found)}"
        )


def _largest(asked: Asked, forms: ClosedForms, found: Fit) -> str:
    """Which part is the largest where nothing fits."""
    from placement_proofs.cost.questions import LARGEST, shares

    values = _known(asked, forms) | ({found.size: LARGEST} if found.size else {})
    first = shares([*forms.memory.values(), forms.saved], values)[0]
    return f"; the largest part of it: {first.name}, {float(first.bytes):,.0f} bytes"


def _dominant(asked: Asked, forms: ClosedForms, data: dict[str, Any], texts: list[str]) -> None:
    from placement_proofs.cost.questions import shares

    if not asked.dominant:
        return
    values = _known(asked, forms)
    groups: dict[str, list[Form]] = {
        "memory": [*forms.memory.values(), forms.saved],
        "communication": list(forms.communication.values()),
    }
    for what, parts in groups.items():
        found = shares(parts, values)
        data[what] = [{"name": s.name, "bytes": float(s.bytes), "share": s.share} for s in found]
        lines = [f"  {s.share:7.1%}  {s.name}: {float(s.bytes):,.0f} bytes" for s in found]
        texts.append("\n".join([f"{what}, the largest first", *(lines or ["  nothing"])]))


def _crossing(
    asked: Asked, forms_of: Forms, forms: ClosedForms, data: dict[str, Any], texts: list[str]
) -> None:
    from placement_proofs.cost.questions import cross

    if not asked.crossing:
        return
    _, other = forms_of(asked.crossing)
    pairs = {
        "memory": (forms.persistent, other.persistent),
        "traffic": (forms.traffic, other.traffic),
    }
    values = _known(asked, forms)
    others = {**values, **other.values({}), **asked.values}
    for what, (a, b) in pairs.items():
        found = cross(a, b, values, others)
        data[f"crossing_{what}"] = found.to_json()
        both = "" if found.size else _both((a, values), (b, others))
        texts.append(f"{what}: {found.text(asked.crossing)}{both}")


def _both(*pairs: tuple[Form, Mapping[str, int | Fraction]]) -> str:
    """Both numbers, where nothing is open."""
    from placement_proofs.cost import symbols

    left = [symbols.replaced(form.exact, values) for form, values in pairs]
    if any(symbols.symbols_of(formula) for formula in left):
        return ""
    first, second = (float(symbols.number(formula, {})) for formula in left)
    return f" ({first:,.0f} and {second:,.0f} bytes)"


def _claim(text: str, forms_of: Forms, subject: str, given: Mapping[str, int]) -> Claim:
    from placement_proofs.inequalities import claim

    return claim(text, lambda side: forms_of(side)[1], subject, given)
