"""What a check found, as data: shown as text, JSON or pictures by others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement_proofs.verdict import ConditionResult, Verdict

SCHEMA = "placement-proofs/check/1"


@dataclass(frozen=True)
class Fix:
    """A repair: what to change, the verdict of the repaired plan, what it costs per step.

    ``broken`` and ``repaired`` are the texts of the program or of the composition file.
    """

    change: str
    verdict: Verdict
    cost: str
    broken: str = ""
    repaired: str = ""

    def to_json(self) -> dict[str, Any]:
        said = {"change": self.change, "verdict": self.verdict.value, "cost": self.cost}
        return said | {"repaired": self.repaired}


@dataclass(frozen=True)
class Failure:
    """A refutation: the condition, the tensors, and a counterexample that was replayed."""

    condition: str
    about: str
    members: tuple[str, ...]
    counterexample: Mapping[str, Any]
    text: str

    def to_json(self) -> dict[str, Any]:
        return {
            "condition": self.condition,
            "about": self.about,
            "tensors": list(self.members),
            **self.counterexample,
        }


@dataclass(frozen=True)
class Report:
    """The answer to ``check``.

    ``deviations`` are how the loop differs from the derived plan. ``failure`` is the first of
    ``failures``; ``also_failing`` are the tensors of the others.
    ``memory`` is in bytes per rank, ``communication`` in bytes sent per rank and step; both are
    ``None`` where a size is a symbol (``formula`` gives the closed forms). ``time`` is that of the
    traffic, in seconds, where a topology was given.
    """

    subject: str
    model: str
    verdict: Verdict
    conditions: Mapping[str, ConditionResult]
    failure: Failure | None = None
    failures: int = 0
    also_failing: tuple[str, ...] = ()
    repairs: tuple[Fix, ...] = ()
    memory: Mapping[str, Any] | None = None
    communication: Mapping[str, Any] | None = None
    time: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "composition": self.subject,
            "without": list(self.deviations),
            "model": self.model,
            "verdict": self.verdict.value,
            "conditions": {name: c.to_json() for name, c in self.conditions.items()},
            "counterexample": self.failure.to_json() if self.failure else None,
            "failures": self.failures,
            "also_failing": list(self.also_failing),
            "repairs": [r.to_json() for r in self.repairs],
            "memory": self.memory,
            "communication": self.communication,
            "time": self.time,
            "warnings": list(self.warnings),
            "assumptions": list(self.assumptions),
            "source": self.source,
            "notes": list(self.notes),
        }
