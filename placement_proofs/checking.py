"""The main job: derive, project, prove, cost; what is refuted comes with a counterexample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from placement_proofs.advice import advice
from placement_proofs.composition import Composition
from placement_proofs.derive import derive
from placement_proofs.derive.fit import check_fit
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.mesh import IntSizes
from placement_proofs.model import Model
from placement_proofs.plan import Phase, Plan
from placement_proofs.profile import Profile
from placement_proofs.program import Program
from placement_proofs.project import Projected, project
from placement_proofs.project.runnable import cannot_run
from placement_proofs.prove import Counterexample, ProgramResult, find_repairs, prove
from placement_proofs.report import Failure, Fix, Report
from placement_proofs.strategies import Strategy
from placement_proofs.verdict import ConditionResult, Verdict, combine

CONDITIONS = ("gradient_integrity", "state_consistency", "norm_integrity")


@dataclass(frozen=True)
class Proof:
    """One element program of a plan with its result."""

    projected: Projected
    result: ProgramResult


@lru_cache(maxsize=512)
def _proved(program: Program, sizes: tuple[tuple[str, int], ...]) -> ProgramResult:
    return prove(program, sizes=dict(sizes) or None)


def prove_plan(plan: Plan, sizes: Mapping[str, int]) -> tuple[Proof, ...]:
    """Prove every element program of a plan."""
    proofs = []
    for projected in project(plan):
        program = projected.program
        names = (*program.axes, *program.loops)
        known = tuple((a, sizes[a]) for a in names if a in sizes)
        proofs.append(Proof(projected, _proved(program, known)))
    return tuple(proofs)


def known_sizes(composition: Composition) -> dict[str, int]:
    """The sizes that are integers, micro-batches included."""
    sizes: dict[str, int] = {
        a.name: a.size for a in composition.mesh.axes if isinstance(a.size, int)
    }
    micro = composition.placement.micro
    return sizes | ({"micro": micro} if isinstance(micro, int) else {})


def plan_of(subject: Subject, *, clipping: bool = False) -> tuple[Plan, Model]:
    """The subject's plan with its deviations, checked against its sizes.

    Raises:
        IllFormed: the composition does not fit the model, or a deviation selects nothing.
    """
    composition, model = subject.composed()
    plan = derive(composition, model, subject.profile, clipping=clipping)
    sizes = int_sizes(plan, model, known_sizes(composition))
    if sizes is not None:
        check_fit(plan, model, sizes)
    return _deviated(plan, subject.deviations), model


def int_sizes(plan: Plan, model: Model, known: Mapping[str, int]) -> IntSizes | None:
    """All sizes as integers, or ``None`` where one is a symbol."""
    from placement_proofs.cost import sizes_of

    if set(plan.mesh.names) - set(known) or "micro" not in known:
        return None
    return sizes_of(plan, model)


def _deviated(plan: Plan, deviations: Iterable[str]) -> Plan:
    texts = tuple(deviations)
    if not texts:
        return plan
    from placement_proofs.deviate import deviate, parse_deviation

    for text in texts:
        plan = deviate(plan, parse_deviation(text))
    return plan


def check(
    what: Subject | Composition | Strategy | str, *, convention: str = "zero-paper"
) -> Report:
    """Prove or refute a subject, and cost it where its sizes are known.

    Anything but a subject is read with the defaults of :func:`read_subject`. ``convention`` names
    the bytes per parameter.

    Raises:
        IllFormed: the subject has no meaning, or its ranks cannot run it.
    """
    subject = what if isinstance(what, Subject) else read_subject(what)
    if subject.program is not None:
        return _check_program(subject, subject.program)
    composition, model = subject.composed()
    plan, _ = plan_of(subject, clipping=True)
    known = known_sizes(composition)
    proofs = prove_plan(plan, known)
    conditions = _decided(subject, {name: _condition(proofs, name) for name in CONDITIONS})
    failures = tuple(_failures(proofs))
    if not failures:
        _check_runnable(subject, plan)
    report = Report(
        subject.text,
        model.name,
        combine(c.verdict for c in conditions.values()),
        conditions,
        failures[0] if failures else None,
        len(failures),
        tuple(dict.fromkeys(name for f in failures[1:] for name in f.members)),
        _undone(subject, known, convention) if failures else (),
        warnings=(*_import_warnings(subject), *advice(composition)),
        assumptions=_assumptions(subject, conditions),
        source=subject.imported.to_json() if subject.imported else None,
        deviations=subject.deviations,
    )
    return _costed(report, plan, model, known, convention)


def _decided(
    subject: Subject, conditions: Mapping[str, ConditionResult]
) -> Mapping[str, ConditionResult]:
    """Nothing is proved of a file that leaves the sharding itself open."""
    undecided = subject.imported.undecided if subject.imported else ()
    if not undecided:
        return conditions
    return {
        name: replace(c, verdict=Verdict.UNKNOWN, covers="", reason="; ".join(undecided))
        if c.verdict is Verdict.PROVED
        else c
        for name, c in conditions.items()
    }


def _check_runnable(subject: Subject, plan: Plan) -> None:
    """Values may be right in a plan that no rank can finish: only deviations make such plans."""
    reason = cannot_run(plan) if subject.deviations else ""
    if reason:
        raise IllFormed(
            "; ".join(subject.deviations),
            reason,
            "every rank must reach the end of the step",
            "leave the deviation out",
        )


def _condition(proofs: Iterable[Proof], name: str) -> ConditionResult:
    """One condition over all element programs: contracts on activations are about gradients."""
    parts = []
    for proof in proofs:
        conditions = dict(proof.result.conditions)
        names = [name]
        if name == "gradient_integrity":
            names += ["contract"] if proof.projected.about == "activations" else []
        parts += [conditions[n] for n in names if n in conditions]
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


def _merged(texts: Iterable[str]) -> str:
    """Distinct texts, the longest last, without those that another one contains."""
    distinct = sorted(set(texts), key=len)
    kept = [t for i, t in enumerate(distinct) if t and not any(t in u for u in distinct[i + 1 :])]
    return "; ".join(kept)


FREE = ("all sizes of ", "any number of turns of ")


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
    return "; ".join([*texts, *(o for o in others if o and o != EXACT), *_exact(others)])


EXACT = "exact arithmetic"


def _exact(parts: Iterable[str]) -> list[str]:
    return [EXACT] if EXACT in parts else []


def _failures(proofs: Iterable[Proof]) -> Iterable[Failure]:
    for proof in proofs:
        found = proof.result.counterexample
        if found is not None:
            yield Failure(
                found.condition,
                proof.projected.about,
                proof.projected.members_of(found.subject),
                _told(proof.result, found),
                str(found),
            )


def _applies(condition: ConditionResult) -> bool:
    return condition.verdict is not Verdict.NOT_APPLICABLE


def _told(result: ProgramResult, found: Counterexample) -> dict[str, Any]:
    """A counterexample with the step to blame, which is not always where it shows."""
    return {**found.to_json(), "blame": result.to_json()["blame"]}


def _undone(subject: Subject, known: Mapping[str, int], convention: str) -> tuple[Fix, ...]:
    """Repairs of a composition: the plan without one or all of its deviations, proved again."""
    fixes = []
    for i, deviation in enumerate(subject.deviations):
        rest = subject.deviations[:i] + subject.deviations[i + 1 :]
        fixes.append(_fix(replace(subject, deviations=rest), f"undo: {deviation}", subject, known))
    if len(subject.deviations) > 1:
        fixes.append(_fix(replace(subject, deviations=()), "undo all deviations", subject, known))
    proved = [f for f in fixes if f.verdict is Verdict.PROVED]
    return tuple(proved)


def _fix(repaired: Subject, change: str, broken: Subject, known: Mapping[str, int]) -> Fix:
    plan, _ = plan_of(repaired, clipping=True)
    proofs = prove_plan(plan, known)
    verdict = combine(_condition(proofs, n).verdict for n in CONDITIONS)
    return Fix(
        change, verdict, _traffic_difference(plan, plan_of(broken, clipping=True)[0], broken)
    )


def _traffic_difference(repaired: Plan, broken: Plan, subject: Subject) -> str:
    from placement_proofs.cost import communication
    from placement_proofs.cost.convention import DEFAULT

    composition, model = subject.composed()
    sizes = int_sizes(repaired, model, known_sizes(composition))
    if sizes is None:
        return "sizes are symbols: compare the closed forms"
    more = (
        communication(repaired, sizes, DEFAULT).total - communication(broken, sizes, DEFAULT).total
    )
    return f"{round(more):+,} bytes sent per rank and step"


def _import_warnings(subject: Subject) -> tuple[str, ...]:
    return tuple(str(f) for f in subject.imported.findings) if subject.imported else ()


def _assumptions(subject: Subject, conditions: Mapping[str, ConditionResult]) -> tuple[str, ...]:
    profile: Profile = subject.profile
    texts = [f"derived plan of profile {profile.name}"]
    if subject.imported is not None:
        texts.append(f"costs are of model {subject.composed()[1].name}: the file names no model")
        texts += subject.imported.assumptions
    texts += [a for c in conditions.values() for a in c.assumptions]
    return tuple(dict.fromkeys(texts))


def _costed(
    report: Report, plan: Plan, model: Model, known: Mapping[str, int], convention: str
) -> Report:
    """Memory and communication without the steps that only the norm's proof needed."""
    from placement_proofs.cost import communication, memory
    from placement_proofs.cost.convention import convention as convention_named

    widths = convention_named(convention)
    sizes = int_sizes(plan, model, known)
    if sizes is None:
        note = "sizes are symbols: memory and communication are closed forms, see formula"
        return replace(report, notes=(*report.notes, note))
    bare = without_norm(plan)
    return replace(
        report,
        memory=memory(bare, sizes, widths).to_json(),
        communication=communication(bare, sizes, widths).to_json(),
    )


def without_norm(plan: Plan) -> Plan:
    """The plan of a loop that does not clip."""
    stages = tuple(
        replace(s, after=tuple(t for t in s.after if t.where.phase is not Phase.CLIP))
        for s in plan.stages
    )
    return replace(plan, stages=stages)


def _check_program(subject: Subject, program: Program) -> Report:
    result = prove(program)
    failure = None
    if result.counterexample is not None:
        found = result.counterexample
        told = _told(result, found)
        failure = Failure(found.condition, "given program", (), told, str(found))
    repairs = find_repairs(program, result) if failure else ()
    return Report(
        subject.text,
        "",
        result.verdict,
        {n: c for n, c in result.conditions if n in CONDITIONS or _applies(c)},
        failure,
        1 if failure else 0,
        repairs=tuple(Fix(f"{r.action}: {r.text}", Verdict.PROVED, r.cost) for r in repairs),
    )
