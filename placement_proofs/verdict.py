"""Verdicts: never a boolean, and unknown never passes (the semantics page, section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """The answer to one claim; it has no truth value, so that unknown never passes for true."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    ILL_FORMED = "ill-formed"
    NOT_APPLICABLE = "not-applicable"

    def __bool__(self) -> bool:
        raise TypeError("a verdict is no boolean: compare it with Verdict.PROVED")

    @property
    def exit_code(self) -> int:
        """Exit code of a check: 0 proved, 1 refuted, 2 ill-formed, 3 anything else."""
        codes = {Verdict.PROVED: 0, Verdict.REFUTED: 1, Verdict.ILL_FORMED: 2}
        return codes.get(self, 3)


CONDITIONS = (
    "gradient_integrity",
    "state_consistency",
    "norm_integrity",
    "optimizer_class",
    "contract",
)
"""The obligations of a program. The last two are no conditions of the paper: whole-tensor
optimizers see whole tensors, and explicit contracts hold."""


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Verdict of one condition.

    `covers` states for which sizes and turn counts it holds, `assumptions` what it takes for
    granted, `reason` why it is not proved, `obligations` how many comparisons it rests on.
    """

    verdict: Verdict
    covers: str = ""
    assumptions: tuple[str, ...] = ()
    reason: str = ""
    obligations: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "verdict": self.verdict.value,
            "covers": self.covers,
            "assumptions": list(self.assumptions),
            "reason": self.reason,
            "obligations": self.obligations,
        }


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a conjunction; without any proved part it is not proved."""
    seen = set(verdicts)
    for worst in (Verdict.ILL_FORMED, Verdict.REFUTED, Verdict.UNKNOWN):
        if worst in seen:
            return worst
    return Verdict.PROVED if Verdict.PROVED in seen else Verdict.UNKNOWN
