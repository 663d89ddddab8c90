"""Theorems that no single program states: about all programs, all layouts, all placements.

Each has its right form, and wrong ones that must be refuted; `theories/` gives their text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from placement_proofs.errors import IllFormed
from placement_proofs.theorems.adjoints import ADJOINTS, CONVERSIONS
from placement_proofs.theorems.composing import COMPOSING
from placement_proofs.theorems.cutoff import CUT_OFF
from placement_proofs.theorems.equivalence import EQUIVALENCE
from placement_proofs.theorems.finding import Finding, Query, Theorem
from placement_proofs.theorems.headline import HEADLINE
from placement_proofs.theorems.layout_rules import LAYOUT_RULES
from placement_proofs.theorems.normal_form import NORMAL_FORM
from placement_proofs.theorems.ring import RING
from placement_proofs.theorems.shards import SHARDS

__all__ = ["THEOREMS", "Finding", "Query", "Theorem", "find_theorem", "finding"]

THEOREMS: Mapping[str, Theorem] = {
    theorem.name: theorem
    for theorem in (
        NORMAL_FORM,
        CONVERSIONS,
        ADJOINTS,
        LAYOUT_RULES,
        EQUIVALENCE,
        COMPOSING,
        CUT_OFF,
        SHARDS,
        RING,
        HEADLINE,
    )
}
"""By name."""


def find_theorem(name: str, wrong: str, place: str) -> Theorem:
    """The theorem of that name, which has that wrong form (unless it is empty).

    Raises:
        IllFormed: there is none.
    """
    if name not in THEOREMS:
        raise IllFormed(
            f"{place}: theorem", repr(name), f"theorems are {', '.join(THEOREMS)}", "name one"
        )
    theorem = THEOREMS[name]
    if wrong and wrong not in theorem.wrong:
        raise IllFormed(
            f"{place}: wrong",
            repr(wrong),
            f"the wrong forms are {'; '.join(theorem.wrong)}",
            "name one of them",
        )
    return theorem


@cache
def finding(name: str, wrong: str = "") -> Finding:
    """The outcome of a theorem, or of one of its wrong forms; found once."""
    theorem = THEOREMS[name]
    return theorem.wrong[wrong]() if wrong else theorem.right()
