"""Running claims: the verdict of each, and the evidence for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from placement_proofs.checking import check
from placement_proofs.prove.counterexample import Counterexample, describe
from placement_proofs.prove.sizes import cut_offs
from placement_proofs.report import Report
from placement_proofs.theories.claims import Claim, Theory
from placement_proofs.theories.evidence import Evidence, evidence
from placement_proofs.theories.obligations import finding
from placement_proofs.verdict import Verdict


@dataclass(frozen=True)
class Outcome:
    """A claim and the report on its subject (a theorem in code has none)."""

    theory: str
    claim: Claim
    report: Report | None
    evidence: Evidence | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the condition that the claim names, or of all."""
        if self.report is None:
            return finding(self.claim).verdict
        if not self.claim.condition:
            return self.report.verdict
        found = self.report.conditions.get(self.claim.condition)
        return found.verdict if found else Verdict.NOT_APPLICABLE

    @property
    def as_expected(self) -> bool:
        """Whether the claim gives its verdict, with the counterexample that it states.

        Where there is evidence, none of it may speak against the claim.
        """
        claim, found = self.claim, self.counterexample
        mesh = found.get("mesh", {})
        return (
            self.verdict is claim.verdict
            and claim.factor in ("", found.get("factor"))
            and all(mesh.get(axis) == size for axis, size in claim.mesh)
            and (not claim.also or self.second is not None)
            and (self.evidence is None or self.evidence.complete)
        )

    @property
    def counterexample(self) -> Mapping[str, Any]:
        """The counterexample as plain data; empty where there is none."""
        failure = self.report.failure if self.report else None
        return failure.counterexample if failure else {}

    @property
    def second(self) -> Counterexample | None:
        """What a replay finds on the other mesh that the claim names, loops run once."""
        program = self.claim.subject.program if self.claim.subject else None
        if program is None or not self.claim.also:
            return None
        sizes = {**dict.fromkeys((*program.axes, *program.loops), 1), **dict(self.claim.also)}
        condition = self.claim.condition or str(self.counterexample.get("condition", ""))
        return describe(program, condition, sizes, {})

    @property
    def covers(self) -> str:
        """What a proof covers, or why there is none."""
        if self.report is None:
            found = finding(self.claim)
            refuted = found.verdict is not Verdict.PROVED
            return (
                found.evidence
                if refuted
                else "; ".join(filter(None, (found.covers, found.evidence)))
            )
        same = [c for c in self.report.conditions.values() if c.verdict is self.report.verdict]
        return next((c.reason or c.covers for c in same if c.reason or c.covers), "")

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        claim = self.claim
        return {
            "theory": self.theory,
            "claim": claim.name,
            "subject": claim.about,
            "without": list(claim.subject.deviations) if claim.subject else [],
            "condition": claim.condition,
            "expected": claim.verdict.value,
            "got": self.verdict.value,
            "as_expected": self.as_expected,
            "covers": self.covers,
            "counterexample": dict(self.counterexample) or None,
            "also": self.second.to_json() if self.second else None,
            "cut_off": cut_off(claim),
            "evidence": self.evidence.to_json() if self.evidence else None,
        }


def cut_off(claim: Claim) -> dict[str, int] | None:
    """The size of each axis and loop up to which a fault must show, for one element program.

    The search for counterexamples stops there; beyond `prove.sizes.MAX_CUT` it does not go.
    """
    if claim.subject is None or claim.subject.program is None:
        return None
    return cut_offs(claim.subject.program)


def run_claims(theories: Iterable[Theory], *, brief: bool = True) -> Iterator[Outcome]:
    """Check the claims of theories, one after another; `brief` leaves out the evidence."""
    for theory in theories:
        for claim in theory.claims:
            report = check(claim.subject) if claim.subject is not None else None
            found = None if brief else evidence(claim, theory)
            yield Outcome(theory.name, claim, report, found)
