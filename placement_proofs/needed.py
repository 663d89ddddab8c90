"""Which steps a proof uses, and which it needs.

What a proof uses are unsat cores: the steps from which each obligation follows. What it needs is
found by deletion: each step is deleted in turn, and what is left is proved again. A step is needed
if the subject without it is refuted, at a mesh that was replayed, or cannot run. If every step is,
none can be deleted, and only then the plan is called minimal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from placement_proofs.checking import known_sizes, plan_of
from placement_proofs.conditions import prove_plan
from placement_proofs.deviate import deviate, mutants
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject
from placement_proofs.plan import Plan
from placement_proofs.program import Expect, Loop, Program, Step, Tick, Use
from placement_proofs.program.print import step_text
from placement_proofs.project import Projected, project
from placement_proofs.project.runnable import cannot_run
from placement_proofs.prove import Counterexample, ProgramResult, prove
from placement_proofs.prove.uses import Follows, uses
from placement_proofs.verdict import Verdict, combine


@dataclass(frozen=True)
class Need:
    """One step: what fails without it, and where; the verdict without it."""

    step: str
    verdict: Verdict
    fails: str = ""

    @property
    def needed(self) -> bool:
        """Whether the subject without the step is refuted, or means nothing."""
        return self.verdict in (Verdict.REFUTED, Verdict.ILL_FORMED)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"step": self.step, "without": self.verdict.value, "fails": self.fails}


def needs(subject: Subject) -> tuple[Need, ...]:
    """Every step of a subject that can be deleted, and what happens without it."""
    if subject.program is not None:
        return tuple(_of_program(subject.program))
    return tuple(_of_plan(subject))


@dataclass(frozen=True)
class Group:
    """What the proofs of one element program use; of which parameters or values it is."""

    about: str
    uses: tuple[Follows, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"program": self.about, "proofs": [use.to_json() for use in self.uses]}


def cores(subject: Subject) -> tuple[Group, ...]:
    """The steps and rules that each proof of a proved subject uses, program by program."""
    if subject.program is not None:
        return (Group("", uses(subject.program)),)
    plan, _ = plan_of(subject, clipping=True)
    return tuple(Group(_about(p), uses(p.program)) for p in project(plan))


def _about(projected: Projected) -> str:
    names = ", ".join(projected.members[:3])
    more = f" and {len(projected.members) - 3} more" if len(projected.members) > 3 else ""
    return f"{projected.about}: {names}{more}" if names else projected.about


def minimal(found: tuple[Need, ...]) -> bool:
    """Whether no step can be deleted."""
    return bool(found) and all(need.needed for need in found)


def dropped(steps: tuple[Step, ...]) -> Iterator[tuple[Step, tuple[Step, ...]]]:
    """Each step with the steps that are left; ticks, uses and contracts are what is claimed."""
    for index, step in enumerate(steps):
        before, after = steps[:index], steps[index + 1 :]
        if isinstance(step, Loop):
            for inner, body in dropped(step.body):
                yield inner, (*before, replace(step, body=body), *after)
        elif not isinstance(step, Tick | Use | Expect):
            yield step, (*before, *after)


def _of_program(program: Program) -> Iterator[Need]:
    for step, steps in dropped(program.steps):
        result = prove(replace(program, steps=steps), certify=False, everywhere=False)
        yield Need(step_text(step), result.verdict, _told([result]))


def _of_plan(subject: Subject) -> Iterator[Need]:
    plan, _ = plan_of(subject, clipping=True)
    sizes = known_sizes(subject.composed()[0])
    for deviation in mutants(plan):
        if deviation.action != "drop":
            continue
        name = str(deviation).removeprefix("drop ")
        try:
            changed = deviate(plan, deviation)
            results = [proof.result for proof in prove_plan(changed, sizes)]
        except IllFormed:
            yield Need(name, Verdict.ILL_FORMED)
        else:
            yield _judged(name, changed, results)


def _judged(name: str, changed: Plan, results: list[ProgramResult]) -> Need:
    """A plan without a step may be refuted, or have right values and never reach its end."""
    verdicts = [r.verdict for r in results]
    if Verdict.REFUTED in verdicts:
        return Need(name, Verdict.REFUTED, _told(results))
    if cannot_run(changed):
        return Need(name, Verdict.ILL_FORMED)
    return Need(name, combine(verdicts))


def _told(results: list[ProgramResult]) -> str:
    examples = [r.counterexample for r in results if r.counterexample is not None]
    return _where(examples[0]) if examples else ""


def _where(found: Counterexample) -> str:
    mesh = ", ".join(f"{name}={size}" for name, size in (*found.sizes, *found.lengths))
    return f"{found.condition.replace('_', ' ')}, at {mesh or 'one rank'}"
