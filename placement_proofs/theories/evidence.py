"""What stands behind a verdict: two solvers, the kernel, a mutant with the opposite verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from placement_proofs.program import Program
from placement_proofs.prove import kernel, prove
from placement_proofs.prove.core import Outside, certificate_of
from placement_proofs.prove.smt import PROVING, has_cvc5
from placement_proofs.theories.claims import Claim, Theory
from placement_proofs.theories.identities import certificate, identities
from placement_proofs.theories.mutants import Mutant, mutant_of
from placement_proofs.theories.obligations import (
    Script,
    answer,
    finding,
    programs,
    scripts,
    second_answer,
)
from placement_proofs.verdict import Verdict


@dataclass(frozen=True)
class Checked:
    """What a checker says of a claim: a few words, and whether it speaks against the claim."""

    text: str
    against: bool = False


@dataclass(frozen=True)
class Evidence:
    """The checkers of one claim, and its mutant."""

    z3: Checked
    cvc5: Checked
    kernel: Checked
    mutant: Mutant

    @property
    def complete(self) -> bool:
        """Whether nothing speaks against the claim and its mutant was killed."""
        against = self.z3.against or self.cvc5.against or self.kernel.against
        return self.mutant.killed and not against

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def evidence(claim: Claim, theory: Theory) -> Evidence:
    """Have every checker look at a claim."""
    found = scripts(claim)
    first = [answer(s.text).result for s in found]
    return Evidence(
        _first(claim, found, first), _second(found, first), _kernel(claim), mutant_of(claim, theory)
    )


def _first(claim: Claim, found: tuple[Script, ...], answers: list[str]) -> Checked:
    """A proof has every answer as claimed; a refutation shows in one, or in numbers only."""
    if not found:
        return Checked("numbers only")
    differing = sum(a != s.claimed for s, a in zip(found, answers, strict=True))
    text = ", ".join(f"{count} {what}" for what, count in sorted(Counter(answers).items()))
    if claim.verdict is Verdict.PROVED:
        partly = bool(claim.condition) and claim.theorem is None
        return Checked(text, bool(differing) and not partly)
    return Checked(text if differing else f"{text}; by replay")


def _second(found: tuple[Script, ...], first: list[str]) -> Checked:
    if not found:
        return Checked("numbers only")
    if not has_cvc5():
        return Checked("not installed")
    answers = [second_answer(s.text, s.logic) for s in found]
    clash = sum({a, b} == {"sat", "unsat"} for a, b in zip(first, answers, strict=True))
    silent = sum(a not in ("sat", "unsat") for a in answers)
    if clash:
        return Checked(f"{clash} differ", True)
    proofs = sum(s.logic in PROVING and a == "unsat" for s, a in zip(found, answers, strict=True))
    told = f"agrees on {len(found) - silent} of {len(found)}" if silent else "agrees"
    return Checked(f"{told}, {proofs} by proof" if proofs else told)


def _kernel(claim: Claim) -> Checked:
    if claim.subject is None:
        return _identities(claim)
    results = [_one(claim, p) for p in programs(claim.subject)]
    wrong = [r for r in results if r.against]
    if wrong:
        return wrong[0]
    done = [r for r in results if r.text in ("checked", "rejected")]
    if len(results) == 1:
        return results[0]
    if any(r.text == "rejected" for r in done):
        return Checked("rejected")
    left = _reasons(r for r in results if r not in done)
    if not done:
        return Checked(left)
    told = f"checked {len(done)} of {len(results)}"
    return Checked(f"{told} ({left})" if left else told)


def _identities(claim: Claim) -> Checked:
    """The kernel on a theorem: those of its queries that are identities of polynomials."""
    queries = finding(claim).queries
    try:
        cert = certificate(claim.name, queries)
        if cert is None:
            logics = ", ".join(sorted({query.logic for query in queries}))
            return Checked(f"outside: no identity in {logics}")
        kernel.check(cert)
    except kernel.Rejected:
        return Checked("rejected", claim.verdict is Verdict.PROVED)
    done = sum(bool(list(identities(query))) for query in queries)
    return Checked(f"checked {done} of {len(queries)}")


def _reasons(results: Iterable[Checked]) -> str:
    return "; ".join(dict.fromkeys(r.text for r in results))


CHECKED = ("gradient_integrity", "norm_integrity", "contract")
"""The conditions whose obligations a certificate has, all of them."""


def _one(claim: Claim, program: Program) -> Checked:
    """The kernel against the prover's own verdict on gradients, norms and contracts."""
    try:
        kernel.check(certificate_of(program, claim.name))
        said = Verdict.PROVED
    except (Outside, kernel.Undecided) as reason:
        return Checked(f"outside: {reason}")
    except kernel.Rejected:
        said = Verdict.REFUTED
    result = prove(program, certify=False, everywhere=False)
    refuted = any(result[name].verdict is Verdict.REFUTED for name in CHECKED)
    clash = refuted != (said is Verdict.REFUTED)
    return Checked("checked" if said is Verdict.PROVED else "rejected", clash)
