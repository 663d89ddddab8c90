"""Two training stacks on one composition: what differs, and which facts of the profiles make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from placement_proofs.composition import Composition
from placement_proofs.cost import symbols
from placement_proofs.cost.closed_form import ClosedForms, closed_forms
from placement_proofs.cost.convention import DEFAULT, Convention
from placement_proofs.cost.symbols import Expr
from placement_proofs.derive import derive
from placement_proofs.model import Model
from placement_proofs.profile import PAPER, REASONS, Profile


@dataclass(frozen=True)
class Difference:
    """One formula under two profiles (bytes of a rank).

    Attributes:
        name: the formula, such as ``communication all-gather over dp``.
        first, second: the formula under each profile; zero where it has none.
        ratio: the second by the first; ``None`` where the first is zero or one is a maximum.
        facts: the facts without which the second would be another one.
    """

    name: str
    first: Expr
    second: Expr
    ratio: Expr | None
    facts: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Formulas as texts, facts with their meaning."""
        return {
            "name": self.name,
            "first": str(self.first),
            "second": str(self.second),
            "ratio": None if self.ratio is None else str(self.ratio),
            "facts": {fact: REASONS[fact] for fact in self.facts},
        }


@dataclass(frozen=True)
class Stacks:
    """A composition under two profiles; ``same`` names the formulas that agree."""

    subject: str
    first: Profile
    second: Profile
    convention: Convention
    differences: tuple[Difference, ...]
    same: tuple[str, ...]

    def text(self) -> str:
        """The differences in words."""
        lines = [str(self.convention), f"{self.subject}: {self.second.name} by {self.first.name}"]
        for d in self.differences:
            ratio = "" if d.ratio is None else f"  (times {d.ratio})"
            lines += [f"{d.name}{ratio}", f"  {self.first.name}: {_short(d.first)}"]
            lines.append(f"  {self.second.name}: {_short(d.second)}")
            lines += [f"  because of {fact}: {REASONS[fact]}" for fact in d.facts]
            if not d.facts:
                lines.append("  because of several facts together")
        lines.append(f"the same: {', '.join(self.same) or 'nothing'}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Everything as plain data."""
        return {
            "composition": self.subject,
            "profiles": [self.first.name, self.second.name],
            "convention": self.convention.to_json(),
            "differences": [d.to_json() for d in self.differences],
            "same": list(self.same),
        }


def _short(formula: Expr) -> str:
    text = str(formula)
    return text if len(text) <= LONGEST else f"a formula of {len(text):,} characters (--json)"


LONGEST = 240
"""Characters of a formula that the text shows whole."""


def facts_between(first: Profile, second: Profile) -> tuple[str, ...]:
    """The names of the facts in which two profiles differ."""
    names = (f.name for f in fields(Profile) if f.name != "name")
    return tuple(n for n in names if getattr(first, n) != getattr(second, n))


def compare_stacks(
    composition: Composition,
    model: Model,
    second: Profile,
    first: Profile = PAPER,
    convention: Convention = DEFAULT,
    *,
    clipping: bool = False,
    divides: bool = True,
) -> Stacks:
    """The formulas of a composition under two profiles, each difference with its facts.

    With ``divides`` no size needs padding, and facts about padding make no difference. A fact is a
    reason where the second profile without it has another formula.

    Raises:
        IllFormed: the composition has no plan on the model.
    """

    def forms(profile: Profile) -> Mapping[str, Expr]:
        plan = derive(composition, model, profile, clipping=clipping)
        return _formulas(closed_forms(plan, model, convention, divides=divides))

    base, other = forms(first), forms(second)
    without = {
        fact: forms(replace(second, **{fact: getattr(first, fact)}))
        for fact in facts_between(first, second)
    }
    names = dict.fromkeys([*base, *other])
    zero = symbols.total(())
    found, same = [], []
    for name in names:
        a, b = base.get(name, zero), other.get(name, zero)
        if symbols.equal(a, b):
            same.append(name)
            continue
        facts = tuple(f for f, x in without.items() if not symbols.equal(x.get(name, zero), b))
        ratio = None if a == 0 or symbols.is_maximum(a + b) else symbols.quotient(b, a)
        found.append(Difference(name, a, b, ratio, facts))
    return Stacks(repr(composition), first, second, convention, tuple(found), tuple(same))


def _formulas(forms: ClosedForms) -> dict[str, Expr]:
    return {name.replace("_", " "): form.exact for name, form in forms.forms()}
