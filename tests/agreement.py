"""Whether prover and replay agree on a program: the check behind the fuzz tests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from placement_proofs.errors import IllFormed
from placement_proofs.program import Program
from placement_proofs.program.orders import orders
from placement_proofs.prove import ProgramResult, prove
from placement_proofs.replay import Replay, replay, work
from placement_proofs.verdict import Verdict

WORK = 400


@dataclass(frozen=True)
class Agreement:
    """The prover's result, and what contradicts it (empty if nothing)."""

    result: ProgramResult
    trouble: str


def replays(
    program: Program, top: int = 3, seed: int = 7
) -> list[tuple[dict[str, int], Replay | None]]:
    """Replays on all meshes up to a size; None where a step has no meaning."""
    names = program.axes + program.loops
    limits = [2 if name == "step" else top for name in names]
    found = []
    for sizes in itertools.product(*(range(1, limit + 1) for limit in limits)):
        mesh = dict(zip(names, sizes, strict=True))
        if work(program, mesh) > WORK:
            continue
        try:
            found.append((mesh, replay(program, mesh, seed)))
        except IllFormed:
            found.append((mesh, None))
    return found


def agreement(program: Program, certify: bool = False) -> Agreement:
    """Compare the verdict of every condition with replays up to size three."""
    result = prove(program, certify=certify)
    return Agreement(result, _trouble(program, result))


def _trouble(program: Program, result: ProgramResult) -> str:
    if result.verdict is Verdict.ILL_FORMED:
        return ""
    for mesh, outcome in (found for order in orders(program) for found in replays(order)):
        if outcome is None:
            return f"replay finds no meaning at {mesh}, the prover says {result.verdict}"
        for mismatch in outcome.mismatches:
            verdict = result[mismatch.condition].verdict
            if verdict not in (Verdict.REFUTED, Verdict.UNKNOWN):
                return f"{mismatch.condition} is {verdict} but fails at {mesh}: {mismatch}"
    if result.verdict is Verdict.REFUTED and result.counterexample is None:
        return "refuted without a counterexample"
    return ""


def agreement_at(program: Program, mesh: dict[str, int]) -> str:
    """What contradicts the verdict for one given mesh (all axes and loops), if anything."""
    if work(program, mesh) > WORK:
        return ""
    result = prove(program, sizes=mesh, certify=False)
    if result.verdict is Verdict.ILL_FORMED:
        return ""
    try:
        outcome = replay(program, mesh, 11)
    except IllFormed as error:
        return f"replay finds no meaning at {mesh}: {error}"
    failed = {mismatch.condition for mismatch in outcome.mismatches}
    for name, condition in result.conditions:
        wrong = {Verdict.PROVED: name in failed, Verdict.REFUTED: name not in failed}
        if wrong.get(condition.verdict, False):
            return f"{name} is {condition.verdict} at {mesh}, the replay failed: {sorted(failed)}"
    return ""
