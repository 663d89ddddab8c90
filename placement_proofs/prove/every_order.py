"""A program whose steps run beside others is right if it is right in every order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from placement_proofs.program import Program
from placement_proofs.prove.result import ProgramResult
from placement_proofs.verdict import ConditionResult, Verdict, combine


def of_all(found: Iterable[tuple[Program, ProgramResult]]) -> ProgramResult:
    """The worst result, with its order; what was proved covers all orders."""
    results: list[ProgramResult] = []
    for program, result in found:
        results.append(replace(result, program=program))
        if result.verdict in (Verdict.REFUTED, Verdict.ILL_FORMED):
            return results[-1]
    worst = combine(result.verdict for result in results)
    first = next(result for result in results if result.verdict is worst)
    if len(results) == 1:
        return first
    return replace(first, conditions=tuple(_covered(first, len(results))))


def _covered(result: ProgramResult, number: int) -> Iterator[tuple[str, ConditionResult]]:
    for name, condition in result.conditions:
        covers = f"{condition.covers}; all {number} orders and cases" if condition.covers else ""
        yield name, replace(condition, covers=covers)
