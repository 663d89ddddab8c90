"""A refutation in sentences: what is wrong, who holds what, by how much, where, and who notices."""

from __future__ import annotations

import re
from dataclasses import replace

from placement_proofs.program import Clip, Cover, Expect, Loop, Program, Step, Update, Use
from placement_proofs.program.backward import derived, told
from placement_proofs.program.print import step_text, target_text
from placement_proofs.program.rules import walk
from placement_proofs.prove.blame import paths
from placement_proofs.prove.counterexample import Counterexample
from placement_proofs.prove.result import ProgramResult
from placement_proofs.replay import step_name


def explain(program: Program, result: ProgramResult) -> tuple[str, ...]:
    """Sentences about the first cause of a refutation; none where nothing is refuted."""
    found = result.counterexample
    if found is None:
        return ()
    said_so = program
    amiss, program = told(program), derived(result.program or program)
    step = dict(paths(program.steps))[found.step]
    said = (
        _wrong(program, step, found),
        amiss,
        _held(step, found),
        _factor(found),
        _where(found),
        _order(said_so, result, found),
        _blame(result, found),
        _hidden(program, step, found),
    )
    return tuple(text for text in said if text)


# --- what is wrong -------------------------------------------------------------------


def _wrong(program: Program, step: Step, found: Counterexample) -> str:
    match step:
        case Update(buf=buf) if found.condition == "gradient_integrity":
            name = next(b.of for b in program.buffers if b.name == buf)
            param = program.param(name)
            norm = f", clipped by the norm of group {param.clip}" if param.clip else ""
            late = f" of {param.late} steps before" if param.late else ""
            wanted = f"{target_text(param.target)}{late}{norm}"
            return f"The gradient of {name}, as its copy {buf} is updated, is not {wanted}."
        case Update(buf=buf) if found.condition == "optimizer_class":
            return f"The optimizer of {found.subject} needs whole tensors; {buf} is a shard."
        case Update(buf=buf) if found.condition == "contract":
            return f"The update of {buf} reads {found.note}."
        case Use(buf=buf) | Update(buf=buf):
            name = next(b.of for b in program.buffers if b.name == buf)
            return f"The copy {buf} of {name} is read when it is {_stale(found)}."
        case Clip(bufs=bufs, by=by):
            names = " and ".join(bufs)
            return f"The squared norm {by} does not count every element of {names} once."
        case Cover(rows=rows, axis=axis):
            return f"The {rows} are not cut over {axis} so that {found.note}."
        case Expect():
            return f"{_contract(step)}."
        case _:
            return f"{found.subject}: {found.note}."


def _stale(found: Counterexample) -> str:
    return found.note.split(" is ")[-1].replace("not current", "not the current version")


def _contract(step: Expect) -> str:
    about = "" if step.about == "value" else f" ({step.about.replace('-', ' ')})"
    axes = ", ".join(step.axes)
    match step.kind:
        case "agree":
            return f"{step.buf}{about} differs between the ranks of {axes or 'the mesh'}"
        case "same":
            return f"{step.buf}{about} is not {step.other}"
        case "drawn":
            if not axes:
                return f"The numbers of {step.buf}{about} are not the same on all ranks"
            return (
                f"The numbers of {step.buf}{about} do not differ on the ranks of {axes}"
                " and agree on all others"
            )
        case "is":
            return f"{step.buf}{about} is not {target_text(step.target)}"


# --- what each rank holds ------------------------------------------------------------


def _held(step: Step, found: Counterexample) -> str:
    rank = _pairs(found.rank) or "0"
    mesh = _pairs((*found.sizes, *found.lengths)) or "one rank"
    shown = ", ".join(f"{name} = {value}" for name, value in found.contributions[:4])
    more = " ..." if len(found.contributions) > 4 else ""
    values = f" (with {shown}{more})" if shown else ""
    return f"On {mesh}, rank {rank} {_values(step, found)}{values}."


def _values(step: Step, found: Counterexample) -> str:
    """What a rank has, and what it should have."""
    if found.condition == "optimizer_class":
        return f"has {found.got} of the {found.expected} elements"
    match step:
        case Update() if found.condition == "contract":
            return "is updated like all others"
        case Cover(even=True):
            return f"has {found.got} rows where the first has {found.expected}"
        case Cover():
            return f"and the others have {found.got} of the {found.expected} rows"
        case Expect(kind="drawn") if found.expected == "nothing":
            return f"draws {found.got}, the number of another rank whose data differ"
        case Expect(kind="drawn"):
            return f"draws {found.got} where another rank with the same data has {found.expected}"
        case Expect(kind="agree"):
            return f"holds {found.got} where another rank holds {found.expected}"
        case Expect(kind="same", other=other):
            return f"holds {found.got} where {other} is {found.expected}"
        case _:
            return f"holds {found.got} where one device has {found.expected}"


def _pairs(values: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values)


def _factor(found: Counterexample) -> str:
    if found.factor != "1":
        return f"Got over expected: {found.factor}." if found.factor else ""
    if found.condition == "contract":
        return ""
    return "The own contributions are right, but values of other elements are mixed in."


def _order(program: Program, result: ProgramResult, found: Counterexample) -> str:
    """In which case and order of steps it fails, where there are several."""
    if result.program is None:
        return ""
    fixed = [f"{axis} = {n}" for axis, n in result.program.sizes if (axis, n) not in program.sizes]
    case = f"It is the case of {' and '.join(fixed)}." if fixed else ""
    if not any(step.g.starts for step in walk(program.steps)):
        return case
    steps = derived(result.program).steps
    here = steps[found.step[0]]
    body = here.body if isinstance(here, Loop) else steps
    shown = "; ".join(step_text(replace(s, why="")) for s in body)
    return f"{case} It shows in the order '{shown}'.".strip()


def _where(found: Counterexample) -> str:
    return f"It shows at {found.shows_at}." if found.shows_at else ""


def _blame(result: ProgramResult, found: Counterexample) -> str:
    path, text = result.blame or (found.step, found.step_text)
    if path == found.step:
        return f"A step is missing before step {step_name(path)}, '{text}', or it is wrong."
    return f"The step to blame is {step_name(path)}, '{text}'."


# --- who would notice ----------------------------------------------------------------


def _hidden(program: Program, step: Step, found: Counterexample) -> str:
    """Why a loss curve would not show it, where that is so."""
    match found.condition:
        case "gradient_integrity":
            return _hidden_gradient(program, found)
        case "norm_integrity":
            return (
                "A loss curve hides it: training is clipped as if the threshold were another one,"
                " and not at all differently where nothing is clipped."
            )
        case "state_consistency":
            return "A loss curve hides it at first: a copy drifts away slowly, step by step."
        case "contract" if isinstance(step, Expect) and step.kind == "drawn":
            return "A loss curve hides it: every rank's numbers look random on their own."
        case _:
            return ""


def _hidden_gradient(program: Program, found: Counterexample) -> str:
    factor = found.factor
    sizes = {*program.axes, *program.loops}
    if factor not in ("", "0", "1") and _names(factor) <= sizes and ";" not in factor:
        clipped = any(isinstance(inner, Clip) for inner in walk(program.steps))
        also = "; clipping to a norm masks it too" if clipped else ""
        why = "Adam divides by the gradient's own size, and a constant factor cancels"
        return f"A loss curve may hide it: {why}{also}."
    looped = any(f"{loop} last" in factor for loop in program.loops)
    reason = _LAST if looped else next((text for mark, text in _REASONS if mark in factor), "")
    return f"A loss curve may hide it: {reason}." if reason else ""


_LAST = "every step still trains, on one turn of the loop"
_REASONS = (
    ("clip", "where nothing is clipped, nothing differs"),
    ("#", "every step still trains, with another weight for each turn of the loop"),
    ("[other", "every rank still trains, on its own part, and its loss falls"),
    (".rest", "every rank still trains, on its own part, and its loss falls"),
    ("; 0 for", "the other terms are right, and a model trains without this one"),
    (";", "the other terms are right, and this one only has another weight"),
    ("[", "every token still counts, with a weight that depends on where it is"),
)


def _names(factor: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_][\w.]*", factor.replace("[", " [ ? "))) | (
        {"["} if "[" in factor else set()
    )
