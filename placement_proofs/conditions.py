"""The conditions of a plan, put together from those of its element programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from placement_proofs.plan import Plan
from placement_proofs.program import Program
from placement_proofs.project import Projected, project
from placement_proofs.prove import ProgramResult, prove
from placement_proofs.verdict import ConditionResult, Verdict, combine

CONDITIONS = ("gradient_integrity", "state_consistency", "norm_integrity")
EXACT = "exact arithmetic"
FREE = ("all sizes of ", "any number of turns of ")


@dataclass(frozen=True)
class Proof:
    """One element program of a plan with its result."""

    projected: Projected
    result: ProgramResult


def prove_plan(plan: Plan, sizes: Mapping[str, int]) -> tuple[Proof, ...]:
    """Prove every element program of a plan; ``sizes`` are those that are known."""
    return tuple(Proof(p, proved(p.program, sizes)) for p in project(plan))


def proved(
    program: Program, sizes: Mapping[str, int], *, everywhere: bool = False
) -> ProgramResult:
    """The result for one program; with ``everywhere``, at which sizes a fault shows."""
    known = tuple((a, sizes[a]) for a in (*program.axes, *program.loops) if a in sizes)
    return _proved(program, known, everywhere)


@lru_cache(maxsize=512)
def _proved(
    program: Program, sizes: tuple[tuple[str, int], ...], everywhere: bool
) -> ProgramResult:
    return prove(program, sizes=dict(sizes) or None, everywhere=everywhere)


def forget() -> None:
    """Forget all earlier proofs (for measurements)."""
    _proved.cache_clear()


def conditions_of(proofs: Iterable[Proof]) -> dict[str, ConditionResult]:
    """The three conditions over all element programs."""
    known = tuple(proofs)
    return {name: _condition(known, name) for name in CONDITIONS}


def verdict_of(conditions: Mapping[str, ConditionResult]) -> Verdict:
    """The verdict of the conditions together."""
    return combine(c.verdict for c in conditions.values())


def _condition(proofs: Iterable[Proof], name: str) -> ConditionResult:
    parts = [c for proof in proofs for c in _parts(proof, name)]
    parts = [p for p in parts if p.verdict is not Verdict.NOT_APPLICABLE]
    if not parts:
        return ConditionResult(Verdict.NOT_APPLICABLE)
    verdict = combine(p.verdict for p in parts)
    telling = [p for p in parts if p.verdict is verdict]
    return ConditionResult(
        verdict,
        _common(p.covers for p in telling),
        tuple(dict.fromkeys(a for p in parts for a in p.assumptions)),
        _merged(p.reason for p in telling if p.reason),
        sum(p.obligations for p in parts),
    )


def _parts(proof: Proof, name: str) -> list[ConditionResult]:
    """Contracts on activations are about gradients."""
    conditions = dict(proof.result.conditions)
    names = [name]
    if name == "gradient_integrity" and proof.projected.about == "activations":
        names.append("contract")
    return [conditions[n] for n in names if n in conditions]


def _merged(texts: Iterable[str]) -> str:
    """Distinct texts, the longest last, without those that another one contains."""
    distinct = sorted(set(texts), key=len)
    kept = [t for i, t in enumerate(distinct) if t and not any(t in u for u in distinct[i + 1 :])]
    return "; ".join(kept)


def _common(covers: Iterable[str]) -> str:
    """What several results cover together: an axis that one of them fixes is not free."""
    free: dict[str, dict[str, None]] = {prefix: {} for prefix in FREE}
    others: dict[str, None] = {}
    for part in (part for text in covers for part in text.split("; ")):
        prefix = next((p for p in FREE if part.startswith(p)), None)
        if prefix is None:
            others[part] = None
        else:
            free[prefix] |= dict.fromkeys(part.removeprefix(prefix).split(", "))
    said = set(" ".join(others).replace(",", "").split())
    kept = {prefix: [n for n in names if n not in said] for prefix, names in free.items()}
    texts = [prefix + ", ".join(names) for prefix, names in kept.items() if names]
    exact = [EXACT] if EXACT in others else []
    return "; ".join([*texts, *(o for o in others if o and o != EXACT), *exact])
