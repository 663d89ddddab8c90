"""What a proof attempt returns: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placement_proofs.program import Program
from placement_proofs.prove.counterexample import Counterexample
from placement_proofs.replay import Path, step_name
from placement_proofs.verdict import ConditionResult, Verdict


@dataclass(frozen=True)
class ProgramResult:
    """Verdicts of one element program.

    `conditions` has an entry for each of the conditions in `verdict.CONDITIONS`, `verdict`
    their conjunction. `blame` is the step of the first cause with its text, `failed_steps`
    where each refuted condition shows. `program` is the program in the order of steps that fails,
    where steps run beside others.
    """

    name: str
    verdict: Verdict
    conditions: tuple[tuple[str, ConditionResult], ...]
    counterexample: Counterexample | None = None
    first_cause: str = ""
    blame: tuple[Path, str] | None = None
    reason: str = ""
    program: Program | None = None

    def __getitem__(self, condition: str) -> ConditionResult:
        return dict(self.conditions)[condition]

    @property
    def refuted(self) -> tuple[str, ...]:
        """The refuted conditions."""
        return tuple(n for n, c in self.conditions if c.verdict is Verdict.REFUTED)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        blame = None
        if self.blame is not None:
            blame = {"step": step_name(self.blame[0]), "text": self.blame[1]}
        example = self.counterexample
        return {
            "name": self.name,
            "verdict": self.verdict.value,
            "conditions": {name: result.to_json() for name, result in self.conditions},
            "counterexample": None if example is None else example.to_json(),
            "first_cause": self.first_cause,
            "blame": blame,
            "reason": self.reason,
        }
