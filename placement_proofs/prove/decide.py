"""From the runs of a program to verdicts: proof, counterexample, or the reason for neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from placement_proofs.errors import IllFormed
from placement_proofs.program import Apply, Program
from placement_proofs.program.draws import flag_families
from placement_proofs.program.rules import walk
from placement_proofs.prove import certificate
from placement_proofs.prove.blame import first_cause, step_texts
from placement_proofs.prove.counterexample import (
    Counterexample,
    complete,
    describe,
    search,
    shows_on,
)
from placement_proofs.prove.engine import Run, Runs, execute
from placement_proofs.prove.factor import find_factor, only_clip
from placement_proofs.prove.result import ProgramResult
from placement_proofs.prove.sizes import BOUNDED_TURNS, TooManyCases
from placement_proofs.verdict import CONDITIONS, ConditionResult, Verdict, combine

LAWFUL = ("square", "sqrt", "max", "min", "abs", "exp", "log", "norm", "or", "and", "relu")
"""Functions whose laws the prover does not use: a refutation through several is doubtful."""

NI, GI = "norm_integrity", "gradient_integrity"


@dataclass(frozen=True)
class _Case:
    program: Program
    given: Mapping[str, int]
    runs: Runs
    free: Runs


def decide(
    program: Program, given: Mapping[str, int], certify: bool, everywhere: bool = True
) -> ProgramResult:
    """Verdicts for all sizes if they hold there, else for the given sizes."""
    try:
        free = execute(program, {})
    except TooManyCases:
        if not given:
            raise
        free = execute(program, given)
    runs = free
    if given and (free.bounded or not free.holds):
        at_given = execute(program, given)
        if not free.holds or any(loop in given for loop in free.bounded):
            runs = at_given
    counted = _counted(runs)
    if not any(_reached(run, given) and run.state.obligations for run in runs.runs):
        return _empty(program)
    case = _Case(program, given, runs, free)
    if runs.holds:
        return _proved(case, counted, _certified(runs) if certify else "")
    return _refuted(case, counted, everywhere)


def ill_formed(program: Program, error: IllFormed) -> ProgramResult:
    """The result of a program without meaning."""
    result = ConditionResult(Verdict.ILL_FORMED, reason=str(error))
    conditions = tuple((name, result) for name in CONDITIONS)
    return ProgramResult(program.name, Verdict.ILL_FORMED, conditions, reason=str(error))


def _reached(run: Run, given: Mapping[str, int]) -> bool:
    """Whether the given sizes are among those of a run."""
    return all(
        name not in (run.size.many if size == 1 else run.size.ones) for name, size in given.items()
    )


def undecided(program: Program, reason: str) -> ProgramResult:
    """The result of a program that could not be analysed."""
    result = ConditionResult(Verdict.UNKNOWN, reason=reason)
    conditions = tuple((name, result) for name in CONDITIONS)
    return ProgramResult(program.name, Verdict.UNKNOWN, conditions, reason=reason)


def _most(runs: Runs, loop: str) -> int:
    """Up to how many turns a loop was unrolled."""
    return max(run.size.bounded.get(loop, BOUNDED_TURNS[-1]) for run in runs.runs)


def _counted(runs: Runs) -> dict[str, int]:
    counts: dict[str, int] = {}
    for run in runs.runs:
        for obligation in run.state.obligations:
            counts[obligation.condition] = counts.get(obligation.condition, 0) + 1
    return counts


def _empty(program: Program) -> ProgramResult:
    reason = "no step with an obligation runs at these sizes"
    conditions = tuple(
        (name, ConditionResult(Verdict.NOT_APPLICABLE, reason=reason)) for name in CONDITIONS
    )
    return ProgramResult(program.name, Verdict.UNKNOWN, conditions, reason=reason)


def _certified(runs: Runs) -> str:
    from placement_proofs.prove.smt import all_unsat

    return all_unsat(certificate.blocks(runs))


# --- what a verdict covers -----------------------------------------------------------


def _covers(case: _Case, condition: str) -> str:
    """Sizes and turn counts for which a verdict was reached; all of them where possible."""
    free = condition not in _failing(case.free) and not case.free.bounded
    runs = case.free if free else case.runs
    scope = runs.runs[0].size.sizes
    axes = [axis for axis in case.program.axes if axis not in scope]
    parts = [f"all sizes of {', '.join(axes)}"] if axes else []
    parts += [", ".join(f"{name} = {size}" for name, size in scope.items())] if scope else []
    loops = [loop for loop in case.program.loops if loop not in scope]
    bounded = [loop for loop in loops if loop in runs.bounded]
    unbounded = [loop for loop in loops if loop not in runs.bounded]
    parts += [f"any number of turns of {', '.join(unbounded)}"] if unbounded else []
    if bounded:
        parts += [f"1 to {_most(runs, loop)} turns of {loop}" for loop in bounded]
    return "; ".join([*parts, "exact arithmetic"])


def _assumptions(program: Program) -> tuple[str, ...]:
    found = [f"equal counts {name} on all ranks and turns" for name in program.equal]
    found += [f"some rank sets {name}" for name in sorted(flag_families(program))]
    if any(isinstance(step, Apply) for step in walk(program.steps)):
        found.append("functions are deterministic, and otherwise unknown")
    return tuple(found)


def _bounded_reason(case: _Case) -> str:
    """Why an unrolled loop does not give what was asked for, if so."""
    for loop in case.runs.bounded:
        turns = case.given.get(loop)
        exact = any(run.size.bounded.get(loop) == turns for run in case.runs.runs)
        if turns is not None and not exact:
            return f"loop {loop} was only unrolled to {_most(case.runs, loop)} turns, not {turns}"
    return ""


def _proved(case: _Case, counted: Mapping[str, int], doubt: str) -> ProgramResult:
    reason = f"the certificate was not confirmed: z3 answers {doubt}" if doubt else ""
    reason = reason or _bounded_reason(case)
    verdict = Verdict.UNKNOWN if reason else Verdict.PROVED
    conditions = []
    for name in CONDITIONS:
        result = _absent()
        if name in counted:
            covers = _covers(case, name)
            result = ConditionResult(
                verdict, covers, _assumptions(case.program), reason, counted[name]
            )
        conditions.append((name, result))
    return ProgramResult(case.program.name, verdict, tuple(conditions), reason=reason)


def _absent() -> ConditionResult:
    return ConditionResult(Verdict.NOT_APPLICABLE, reason="the program has no such obligation")


# --- refutation ----------------------------------------------------------------------


def _refuted(case: _Case, counted: Mapping[str, int], everywhere: bool) -> ProgramResult:
    failing = _failing(case.runs)
    found = search(case.program, failing, case.given)
    results = {name: _result(case, name, failing, found, counted) for name in CONDITIONS}
    cause = _cause(case, {n for n, r in results.items() if r.verdict is Verdict.REFUTED})
    results = _folded(case, results, cause)
    example = _example(case, cause, found, everywhere) if cause else None
    blame = None
    if example is not None:
        path = first_cause(case.program, cause, example)
        blame = (path, step_texts(case.program)[path])
    verdict = combine(result.verdict for result in results.values())
    reasons = [r.reason for r in results.values() if r.verdict is verdict and r.reason]
    reason = f"{cause} fails" if verdict is Verdict.REFUTED else next(iter(reasons), "")
    return ProgramResult(
        case.program.name,
        verdict,
        tuple(results.items()),
        example,
        cause,
        blame,
        reason,
    )


def _failing(runs: Runs) -> set[str]:
    return {obligation.condition for run in runs.runs for obligation in run.failed}


def _result(
    case: _Case,
    name: str,
    failing: set[str],
    found: Mapping[str, Mapping[str, int]],
    counted: Mapping[str, int],
) -> ConditionResult:
    if name not in counted:
        return _absent()
    covers = _covers(case, name)
    assumptions = _assumptions(case.program)
    if name not in failing:
        reason = _bounded_reason(case)
        verdict = Verdict.UNKNOWN if reason else Verdict.PROVED
        return ConditionResult(verdict, covers, assumptions, reason, counted[name])
    reason = _doubt(case, name, found)
    verdict = Verdict.UNKNOWN if reason else Verdict.REFUTED
    return ConditionResult(verdict, covers, assumptions, reason, counted[name])


def _doubt(case: _Case, name: str, found: Mapping[str, Mapping[str, int]]) -> str:
    """Why a failed comparison is not a refutation, if it is not."""
    if name not in found:
        return "the values are not equal by algebra, but no mesh within the cut-off shows it"
    at_given = _at_given(case, name)
    if at_given is False:
        return "the values are not equal by algebra, but the replay at the given sizes agrees"
    lawful = [s.fn for s in walk(case.program.steps) if isinstance(s, Apply) and s.fn in LAWFUL]
    if len(lawful) > 1 and name == "contract":
        return f"the laws of {' and '.join(dict.fromkeys(lawful))} are not known to the prover"
    return ""


def _at_given(case: _Case, name: str) -> bool | None:
    given = complete(case.program, case.given)
    if not case.given or given is None:
        return None
    return shows_on(case.program, given, name)


def _cause(case: _Case, refuted: set[str]) -> str:
    """The condition that fails first; a norm before the gradient that it clips."""
    obligations = [o for run in case.runs.runs for o in run.failed if o.condition in refuted]
    norms = [o for o in obligations if o.condition == NI and not o.dependent]
    if norms:
        return NI
    if GI in refuted:
        return GI
    ordered = sorted(obligations, key=lambda o: o.step)
    return ordered[0].condition if ordered else ""


def _folded(
    case: _Case, results: Mapping[str, ConditionResult], cause: str
) -> dict[str, ConditionResult]:
    """Say of a dependent failure what it follows from."""
    folded = dict(results)
    if cause == NI and folded[GI].verdict is Verdict.REFUTED:
        wrong = [(r, o) for r in case.runs.runs for o in r.failed if o.condition == GI]
        if all(only_clip(run, obligation) for run, obligation in wrong):
            folded[GI] = replace(folded[GI], reason=f"follows from {NI}")
    elif cause == GI and folded[NI].verdict is Verdict.REFUTED:
        folded[NI] = replace(folded[NI], reason=f"follows from {GI}")
    return folded


def _example(
    case: _Case, cause: str, found: Mapping[str, Mapping[str, int]], everywhere: bool
) -> Counterexample | None:
    sizes = found[cause]
    example = describe(case.program, cause, sizes, step_texts(case.program))
    if example is None:
        return None
    factor = find_factor(case.free, cause) or find_factor(case.runs, cause)
    at_given = _at_given(case, cause)
    if at_given is None and case.given:
        at_given = True
    return replace(
        example,
        factor=factor.text if factor is not None else "",
        shows_at=_shows_at(case.program, cause, sizes) if everywhere else "",
        at_given=at_given,
    )


# --- where a fault shows -------------------------------------------------------------

PROBES = (1, 2, 3, 4, 5)


def _shows_at(program: Program, condition: str, sizes: Mapping[str, int]) -> str:
    """The sizes of each axis at which the fault shows, the others as in the example."""
    parts = []
    for name in (*program.axes, *program.loops):
        shown = [p for p in PROBES if _fails_at(program, condition, {**sizes, name: p})]
        least = min(shown, default=0)
        if shown == list(PROBES[least - 1 :]):
            parts.append("" if least == 1 else f"every {name} >= {least}")
        else:
            parts.append(f"{name} = {', '.join(map(str, shown))} (of 1 to {PROBES[-1]})")
    said = [part for part in parts if part]
    return "; ".join(said) or "all sizes"


def _fails_at(program: Program, condition: str, sizes: Mapping[str, int]) -> bool:
    try:
        runs = execute(program, sizes)
    except (IllFormed, TooManyCases):
        return False
    return condition in _failing(runs)
