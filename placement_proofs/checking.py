"""The main job: derive, project, prove, cost; what is refuted comes with a counterexample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placement_proofs.advice import advice
from placement_proofs.composition import Composition, Strategy
from placement_proofs.conditions import (
    CONDITIONS,
    Proof,
    conditions_of,
    prove_plan,
    proved,
    verdict_of,
)
from placement_proofs.derive import derive
from placement_proofs.derive.fit import check_fit
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject, composition_file, read_subject
from placement_proofs.mesh import IntSizes
from placement_proofs.model import Model
from placement_proofs.plan import Phase, Plan
from placement_proofs.profile import Profile
from placement_proofs.program import Program
from placement_proofs.program.backward import followed
from placement_proofs.program.text import format_program
from placement_proofs.project.runnable import cannot_run
from placement_proofs.prove import (
    Counterexample,
    ProgramResult,
    Repair,
    explain,
    find_repairs,
    prove,
    witness,
)
from placement_proofs.report import Failure, Fix, Report
from placement_proofs.verdict import ConditionResult, Verdict

if TYPE_CHECKING:
    from placement_proofs.cost.claims import Claim
    from placement_proofs.cost.closed_form import ClosedForms
    from placement_proofs.cost.convention import Convention
    from placement_proofs.topologies import Described


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
    plan = derive(composition, model, subject.profile, clipping=clipping, loss=subject.loss)
    if subject.imported is None:
        fitting_sizes(plan, model, known_sizes(composition))
    return _deviated(plan, subject.deviations), model


def formulas(
    what: Subject | Composition | Strategy | str,
    *,
    model: str | None = None,
    convention: str | None = None,
    divides: bool = True,
) -> ClosedForms:
    """The closed forms of a subject, or of what :func:`read_subject` reads on ``model``.

    ``convention`` names the bytes per parameter, by default those of the ZeRO paper; ``divides``
    is that of :func:`closed_forms`.

    Raises:
        IllFormed: the subject has no plan, or a name is unknown.

    >>> print(formulas("zero3(dp=N)", model="abstract").traffic.exact)
    3*P*(N - 1)/N
    """
    from placement_proofs.cost.closed_form import closed_forms
    from placement_proofs.cost.convention import convention as convention_named

    subject = what if isinstance(what, Subject) else read_subject(what, model=model)
    return closed_forms(*plan_of(subject), convention_named(convention), divides=divides)


def claimed(text: str, *, model: str | None = None) -> Claim:
    """Decide for all sizes a claim such as ``zero3(dp=N) traffic <= 3/2 * data(dp=N) traffic``.

    Raises:
        IllFormed: the text is no claim, or a side of it has no plan.
    """
    from placement_proofs.inequalities import claim

    return claim(text, lambda subject: formulas(subject, model=model))


def fitting_sizes(plan: Plan, model: Model, known: Mapping[str, int]) -> IntSizes | None:
    """All sizes as integers, or ``None`` where one is a symbol.

    Raises:
        IllFormed: the sizes do not divide the model.
    """
    sizes = int_sizes(plan, model, known)
    if sizes is not None:
        check_fit(plan, model, sizes)
    return sizes


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
    what: Subject | Composition | Strategy | Program | str,
    *,
    convention: str | None = None,
    topology: str | None = None,
    repair: bool = True,
) -> Report:
    """Prove or refute a subject, and cost it where its sizes are known.

    Anything but a subject is read with the defaults of :func:`read_subject`. ``convention`` names
    the bytes per parameter; without it, a configuration file's number formats choose. ``topology``
    is the name or the TOML file of one: the traffic then also has a time. ``repair`` searches for
    repairs of what is refuted.

    Raises:
        IllFormed: the subject has no meaning, or its ranks cannot run it.
    """
    subject = what if isinstance(what, Subject) else read_subject(what)
    if subject.program is not None:
        return _check_program(subject, subject.program, repair)
    composition, model = subject.composed()
    plan, _ = plan_of(subject, clipping=True)
    known = known_sizes(composition)
    proofs = prove_plan(plan, known)
    conditions = _decided(subject, conditions_of(proofs))
    failing = _failing(proofs)
    if not failing:
        _check_runnable(subject, plan)
    report = Report(
        subject.text,
        model.name,
        verdict_of(conditions),
        conditions,
        _failure(failing, known),
        len(failing),
        _also_failing(failing),
        _undone(subject, plan, known) if failing and repair else (),
        warnings=(*_import_warnings(subject), *advice(composition)),
        assumptions=_assumptions(subject, conditions),
        source=subject.imported.to_json() if subject.imported else None,
        deviations=subject.deviations,
    )
    widths = convention_of(subject, convention)
    return _costed(report, plan, model, known, widths, _described(topology))


def _described(topology: str | None) -> Described | None:
    if topology is None:
        return None
    from placement_proofs.topologies import topology as named

    return named(topology)


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


def _failing(proofs: Iterable[Proof]) -> tuple[Proof, ...]:
    return tuple(p for p in proofs if p.result.counterexample is not None)


def _failure(failing: tuple[Proof, ...], known: Mapping[str, int]) -> Failure | None:
    """The first failure, with the sizes at which it shows."""
    if not failing:
        return None
    projected = failing[0].projected
    result = proved(projected.program, known, everywhere=True)
    found = result.counterexample
    assert found is not None
    return Failure(
        found.condition,
        projected.about,
        projected.members_of(found.subject),
        _told(projected.program, result, found),
        str(found),
    )


def _also_failing(failing: tuple[Proof, ...]) -> tuple[str, ...]:
    names = (n for p in failing[1:] for n in p.projected.members)
    return tuple(dict.fromkeys(names))


def _applies(condition: ConditionResult) -> bool:
    return condition.verdict is not Verdict.NOT_APPLICABLE


def _told(program: Program, result: ProgramResult, found: Counterexample) -> dict[str, Any]:
    """A counterexample with the step to blame, not always where it shows, and in sentences."""
    return {
        **found.to_json(),
        "blame": result.to_json()["blame"],
        "explanation": list(explain(program, result)),
        "moments": list(witness(program, result)),
    }


def _undone(subject: Subject, plan: Plan, known: Mapping[str, int]) -> tuple[Fix, ...]:
    """Repairs of a composition: ``plan`` without one or all of its deviations, proved again."""
    fewer = [
        (f"undo: {deviation}", subject.deviations[:i] + subject.deviations[i + 1 :])
        for i, deviation in enumerate(subject.deviations)
    ]
    if len(fewer) > 1:
        fewer.append(("undo all deviations", ()))
    fixes = [
        _fix(replace(subject, deviations=rest), change, subject, plan, known)
        for change, rest in fewer
    ]
    return tuple(f for f in fixes if f.verdict is Verdict.PROVED)


def _fix(
    repaired: Subject, change: str, broken: Subject, was: Plan, known: Mapping[str, int]
) -> Fix:
    plan, _ = plan_of(repaired, clipping=True)
    verdict = verdict_of(conditions_of(prove_plan(plan, known)))
    cost = _traffic_difference(plan, was, broken)
    return Fix(change, verdict, cost, composition_file(broken), composition_file(repaired))


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
        given = ", ".join(f"{k} {v}" for k, v in subject.imported.shape.items())
        name = subject.composed()[1].name
        stand_in = ", a stand-in: --model names yours" if name in ("dense", "moe") else ""
        texts.append(
            f"costs are of model {name}" + (f" with the file's {given}" if given else stand_in)
        )
        texts += subject.imported.assumptions
    texts += [a for c in conditions.values() for a in c.assumptions]
    return tuple(dict.fromkeys(texts))


def _costed(
    report: Report,
    plan: Plan,
    model: Model,
    known: Mapping[str, int],
    widths: Convention,
    topology: Described | None,
) -> Report:
    """Memory and communication without the steps that only the norm's proof needed.

    A configuration file whose sizes do not divide the model that is costed is proved all the same.
    """
    from placement_proofs.cost import communication, memory

    try:
        sizes = fitting_sizes(plan, model, known)
    except IllFormed as error:
        if report.source is None:
            raise
        return replace(report, notes=(*report.notes, f"no costs on model {model.name}: {error}"))
    if sizes is None:
        note = "sizes are symbols: memory and communication are closed forms, see formula"
        return replace(report, notes=(*report.notes, note))
    bare = without_norm(plan)
    return replace(
        report,
        memory=memory(bare, sizes, widths).to_json(),
        communication=communication(bare, sizes, widths).to_json(),
        time=None if topology is None else topology.timed(bare, sizes, widths),
    )


def convention_of(subject: Subject, named: str | None) -> Convention:
    """The bytes per parameter asked for, or those of the number formats that a file gives."""
    from placement_proofs.cost.convention import convention

    given = subject.imported.dtypes.convention if subject.imported else None
    return convention(named or given)


def without_norm(plan: Plan) -> Plan:
    """The plan of a loop that does not clip."""
    stages = tuple(
        replace(s, after=tuple(t for t in s.after if t.where.phase is not Phase.CLIP))
        for s in plan.stages
    )
    return replace(plan, stages=stages)


def _check_program(subject: Subject, program: Program, repair: bool) -> Report:
    result = prove(program)
    failure = None
    if result.counterexample is not None:
        found = result.counterexample
        told = _told(program, result, found)
        failure = Failure(found.condition, "given program", (), told, str(found))
    repairs = find_repairs(program, result) if failure and repair else ()
    return Report(
        subject.text,
        "",
        result.verdict,
        {n: c for n, c in result.conditions if n in CONDITIONS or _applies(c)},
        failure,
        1 if failure else 0,
        repairs=tuple(_edit(r) for r in repairs),
        assumptions=tuple(f"weaker claim: {text}" for text in subject.relaxed),
        notes=tuple(f"from the forward pass: {line}" for line in followed(program)),
    )


def _edit(repair: Repair) -> Fix:
    change = f"{repair.action}: {repair.text}"
    texts = (format_program(p) for p in (repair.broken, repair.program))
    return Fix(change, Verdict.PROVED, repair.cost, *texts)
