"""The text of a check: verdict first, then why, then what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement_proofs.render.bill import communication_text, memory_text
from placement_proofs.render.findings import findings_text, other_warnings, rejections
from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.source import source_text
from placement_proofs.render.table import bullets, columns, paragraph, section, sections
from placement_proofs.render.time import time_text
from placement_proofs.render.units import plural
from placement_proofs.report import Failure, Fix, Report
from placement_proofs.verdict import ConditionResult, Verdict

SHOWN_TENSORS = 4


def report_text(report: Report, paint: Paint = PLAIN) -> str:
    """A report for people; no line but the first has to be read."""
    parts = [
        verdict_text(report, paint),
        findings_text(report.source, paint),
        memory_text(report.memory, paint),
        communication_text(report.communication, paint),
        time_text(report.time, paint),
        source_text(report.source, paint),
        section(paint.strong("warnings"), bullets(other_warnings(report.warnings, report.source))),
        section(paint.strong("assumptions"), bullets(report.assumptions)),
        section(paint.strong("notes"), bullets(report.notes)),
    ]
    return sections(parts)


def verdict_text(report: Report, paint: Paint = PLAIN) -> str:
    """The verdict, what each condition covers, the counterexample and repairs; no costs."""
    parts = [
        headline(report, paint),
        conditions_text(report.conditions, paint),
        failure_text(report, paint),
        section(paint.strong("repairs"), _repairs(report, paint)),
    ]
    return sections(parts)


def headline(report: Report, paint: Paint = PLAIN) -> str:
    """Verdict, subject and model in one line, and whether the framework would reject the file."""
    word = paint.verdict(report.verdict, report.verdict.value.upper())
    model = f" on model {report.model}" if report.model else ""
    changes = "".join(f' with the deviation "{d}"' for d in report.deviations)
    found = rejections(report.source)
    return f"{word}  {report.subject}{changes}{model}{_why(report)}{found and f'; {found}'}"


def _why(report: Report) -> str:
    if report.verdict is Verdict.REFUTED and report.failure:
        return f": {words(report.failure.condition)} fails"
    if report.verdict is Verdict.UNKNOWN:
        reasons = [c.reason for c in report.conditions.values() if c.verdict is Verdict.UNKNOWN]
        return f": {reasons[0]}" if reasons and reasons[0] else ""
    return ""


def words(name: str) -> str:
    """The name of a condition as people say it."""
    return name.replace("_", " ")


def conditions_text(conditions: Mapping[str, ConditionResult], paint: Paint = PLAIN) -> str:
    """The conditions with their verdicts and what each covers; why, where not proved."""
    rows = [
        (words(name), paint.verdict(c.verdict), scope_text(c)) for name, c in conditions.items()
    ]
    return columns(rows)


def scope_text(condition: ConditionResult) -> str:
    """Why, if there is a reason; else what a proof covers."""
    if condition.reason or condition.verdict is Verdict.REFUTED:
        return condition.reason
    return condition.covers


def failure_text(report: Report, paint: Paint = PLAIN) -> str:
    """The counterexample: mesh, what the ranks hold, expected and got, the step to blame."""
    if report.failure is None:
        return ""
    failure = report.failure
    title = f"counterexample on {mesh_text(failure.counterexample)}, replayed exactly"
    if report.failures > 1:
        title += f" (the first of {report.failures})"
    return section(paint.strong(title), columns(failure_rows(failure, report)))


def mesh_text(found: Mapping[str, Any]) -> str:
    """The sizes of a counterexample: axes and loops."""
    sizes = {**found.get("mesh", {}), **found.get("turns", {})}
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "one rank"


def failure_rows(failure: Failure, report: Report) -> Iterator[tuple[str, str]]:
    """What there is to say of a counterexample, as names and texts."""
    found = failure.counterexample
    if failure.members:
        yield failure.about, f"{_members(failure.members)}"
    if report.also_failing:
        yield "also failing", _members(report.also_failing)
    where = {**found.get("rank", {}), **found.get("at_turn", {})}
    yield "value", f"{found.get('subject', '')} on rank {_pairs(where) or '0'}"
    yield from _lines("contributions", found.get("contributions", {}))
    yield "expected", str(found.get("expected", ""))
    yield "got", str(found.get("got", ""))
    if found.get("factor"):
        yield "got / expected", str(found["factor"])
    if found.get("shows_at"):
        yield "shows at", str(found["shows_at"])
    if found.get("at_given_sizes") is False:
        yield "at your sizes", "it does not show"
    yield "shows in step", f"{found.get('step_text') or found.get('step')}{_bracket(found)}"
    yield "step to blame", _blame(found, report)
    yield from _said(found)
    yield from _hidden(found)


_SAID = {
    "The backward of ": "amiss",
    "It is the case of ": "case",
    "It shows in the order ": "order",
}
"""Sentences of an explanation that have a row of their own."""


def _said(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Backward passes that are not the adjoint, and in which order of steps it shows."""
    for text in found.get("explanation", ()):
        for start, label in _SAID.items():
            if text.startswith(start):
                said = text.removeprefix(start) if label != "amiss" else text
                yield label, said.removesuffix(".")


def _hidden(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Why a loss curve would not show it."""
    for text in found.get("explanation", ()):
        if text.startswith("A loss curve "):
            yield "a loss curve", text.removeprefix("A loss curve ").removesuffix(".")


def _blame(found: Mapping[str, Any], report: Report) -> str:
    """The deviation that is the cause where one is known, else the step where it begins."""
    if report.deviations:
        undone = [r.change.removeprefix("undo: ") for r in report.repairs]
        return " or ".join(d for d in report.deviations if d in undone) or "the deviations together"
    blame = found.get("blame") or {"step": found.get("step", ""), "text": ""}
    return f"{blame['step']}: {blame['text']}"


def _bracket(found: Mapping[str, Any]) -> str:
    return f" ({found['note']})" if found.get("note") else ""


def _lines(name: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pairs = [f"{key} = {value}" for key, value in values.items()]
    for start in range(0, len(pairs), 4):
        yield ("" if start else name), ", ".join(pairs[start : start + 4])


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _members(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_TENSORS])
    more = len(names) - SHOWN_TENSORS
    return f"{shown} and {more} more" if more > 0 else shown


def _repairs(report: Report, paint: Paint) -> str:
    texts = []
    for fix in report.repairs:
        texts.append(f"{fix.change}: {paint.verdict(fix.verdict)}{cost_text(fix)}")
    return bullets(texts)


def cost_text(fix: Fix) -> str:
    """What a repair costs, behind a semicolon."""
    return f"; {fix.cost if fix.cost != '0' else 'no traffic'}" if fix.cost else ""


def summary_text(verdicts: Sequence[Verdict], paint: Paint = PLAIN) -> str:
    """How many subjects got which verdict."""
    counts = Counter(verdicts)
    parts = [f"{counts[v]} {paint.verdict(v)}" for v in Verdict if counts[v]]
    return paragraph(f"{plural(len(verdicts), 'subject')}: {', '.join(parts)}", indent=0)
