"""The page of a report: verdicts, formulas to play with, pictures, plan, assumptions."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from placement_proofs.checking import convention_of
from placement_proofs.cost import bytes_of_steps
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject
from placement_proofs.program import Program
from placement_proofs.program.print import format_program
from placement_proofs.render import pictures
from placement_proofs.render.findings import HEADINGS, other_warnings
from placement_proofs.render.page.markup import (
    bullets,
    data_script,
    details,
    section,
    table,
    tag,
    text,
)
from placement_proofs.render.page.play import Variant, data, play, script, variants
from placement_proofs.render.pictures.drawn import Drawn, drawn
from placement_proofs.render.plan import plan_json, plan_text
from placement_proofs.render.report import (
    cost_text,
    failure_rows,
    mesh_text,
    scope_text,
    words,
)
from placement_proofs.render.source import source_rows
from placement_proofs.render.svg import Picture
from placement_proofs.report import Report

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; "
    "form-action 'none'"
)
"""Nothing is fetched, and no script runs but the page's own."""


def document(subject: Subject, report: Report, convention: str | None = None) -> str:
    """The page of a report as HTML; it needs neither network nor server.

    ``convention`` names the bytes per parameter, as for ``check``.

    Raises:
        IllFormed: no convention has that name.
    """
    found, why = _variants(subject, convention)
    if subject.program is not None:
        shown = [section("Program", _program(subject.program), "plan")]
    else:
        made = drawn(subject)
        shown = [
            section("Pictures", _pictures(made, convention), "pictures"),
            section("Plan", _plan(made, convention), "plan"),
        ]
    parts = [
        section("Verdict", _conditions(report), "verdict"),
        section("Counterexample", _counterexample(report), "counterexample"),
        section("Repairs", _repairs(report), "repairs"),
        section("Findings in the file", _findings(report), "findings"),
        section("Memory and traffic", _play(subject, found, why, convention), "costs"),
        *shown,
        section("Understood from the file", _source(report), "source"),
        section("Assumptions and notes", _assumptions(report), "assumptions"),
    ]
    return _whole(report, [p for p in parts if p], found)


# --- sections ------------------------------------------------------------------------


def _conditions(report: Report) -> str:
    rows = [
        (text(words(name)), _badge(c.verdict.value), text(scope_text(c)))
        for name, c in report.conditions.items()
    ]
    return table(("condition", "verdict", "covers, or why not"), rows, "Conditions")


def _badge(verdict: str) -> str:
    return tag("strong", text(verdict), class_=verdict)


def _counterexample(report: Report) -> str:
    failure = report.failure
    if failure is None:
        return ""
    rows = [(text(name), text(value)) for name, value in failure_rows(failure, report)]
    said = f"On {mesh_text(failure.counterexample)}, replayed exactly."
    drawing = _figure(pictures.picture_counterexample(report))
    return tag("p", text(said)) + drawing + table((), rows, "Facts of the counterexample")


def _repairs(report: Report) -> str:
    return bullets(
        text(f"{fix.change}: ") + _badge(fix.verdict.value) + text(cost_text(fix))
        for fix in report.repairs
    )


def _findings(report: Report) -> str:
    found = report.source["findings"] if report.source else ()
    parts = []
    for title, kinds in HEADINGS.items():
        own = [f for f in found if f["kind"] in kinds]
        items = bullets(map(_finding, own))
        parts.append(tag("h3", text(title.capitalize())) + items if items else "")
    return "".join(parts)


def _finding(finding: Mapping[str, Any]) -> str:
    head = tag("strong", text(finding["place"])) + text(f": {finding['message']}. ")
    rule = tag("span", text(f"{finding['rule']} ({finding['source']})"), class_="faint")
    return head + text(f"Remedy: {finding['remedy']}. ") + rule


def _source(report: Report) -> str:
    if report.source is None:
        return ""
    rows = [tuple(map(text, row)) for row in source_rows(report.source)]
    return details(
        f"values read from {report.source['file']} ({report.source['format']})",
        table(("value", "is", "from"), rows, "Values and where they come from"),
    )


def _assumptions(report: Report) -> str:
    warnings = other_warnings(report.warnings, report.source)
    groups = {"Warnings": warnings, "Assumptions": report.assumptions, "Notes": report.notes}
    return "".join(
        tag("h3", title) + bullets(map(text, texts)) for title, texts in groups.items() if texts
    )


# --- formulas ------------------------------------------------------------------------


def _variants(subject: Subject, convention: str | None) -> tuple[list[Variant], str]:
    """The formulas; or why there are none."""
    if subject.program is not None:
        return [], ""
    try:
        return variants(subject, convention_of(subject, convention)), ""
    except IllFormed as error:
        return [], str(error)


def _play(subject: Subject, found: Sequence[Variant], why: str, convention: str | None) -> str:
    if found:
        return play(found, convention_of(subject, convention))
    return tag("p", text(f"No formulas: {why}")) if why else ""


# --- pictures ------------------------------------------------------------------------


def _pictures(made: Drawn, convention: str | None) -> str:
    kinds: list[tuple[str, Callable[[], Picture]]] = [
        ("Who holds what", lambda: pictures.picture_mesh(made)),
        ("Memory", lambda: pictures.picture_memory(made, convention=convention)),
        ("Traffic", lambda: pictures.picture_traffic(made, convention=convention)),
    ]
    schedule = made.composition.placement.schedule
    if schedule is not None and made.composition.mesh.size(schedule.axis) != 1:
        kinds.append(("Schedule", lambda: pictures.picture_schedule(made)))
    return "".join(tag("h3", text(title)) + _drawing(draw) for title, draw in kinds)


def _drawing(draw: Callable[[], Picture]) -> str:
    try:
        return _figure(draw())
    except IllFormed as error:
        return tag("p", text(f"Not drawn: {error}"))


def _figure(picture: Picture) -> str:
    inside = tag(
        "div", picture.svg, class_="wide", role="region", aria_label=picture.title, tabindex=0
    )
    return tag("figure", inside)


def _program(program: Program) -> str:
    return tag("pre", text(format_program(program)), tabindex=0)


def _plan(made: Drawn, convention: str | None) -> str:
    try:
        stages = [stage.name for stage in made.plan.stages]
        known = bytes_of_steps(made.plan, made.sizes, convention_of(made.subject, convention))
    except IllFormed as error:
        return tag("p", text(f"Not drawn: {error}"))
    drawings = [_stage(made, name, convention, alone=len(stages) == 1) for name in stages]
    steps = plan_text(plan_json(made.plan, made.subject.text, known))
    return "".join([*drawings, details("the plan as text", tag("pre", text(steps), tabindex=0))])


def _stage(made: Drawn, name: str, convention: str | None, *, alone: bool) -> str:
    figure = _drawing(lambda: pictures.picture_plan(made, stage=name, convention=convention))
    return figure if alone else details(f"stage {name}", figure)


# --- the whole -----------------------------------------------------------------------


def _whole(report: Report, parts: Sequence[str], found: Sequence[Variant]) -> str:
    from importlib.metadata import version

    code = script(found) if found else ""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    title = f"{report.verdict.value}: {report.subject}"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY.format(digest)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", text(title)),
        tag("style", _styles()),
    ]
    body = [
        tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
        tag("header", [_headline(report), _contents(parts)]),
        tag("main", parts),
        tag("footer", tag("p", text(_made_by(version("placement-proofs"))), class_="faint")),
    ]
    if found:
        body += [data_script(data(found), "setup"), f"<script>{code}</script>"]
    whole = tag("html", [tag("head", head), tag("body", body)], lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def _headline(report: Report) -> str:
    verdict = tag("span", text(report.verdict.value), class_=f"verdict {report.verdict.value}")
    model = text(f" on model {report.model}") if report.model else ""
    changes = "".join(text(f' with the deviation "{d}"') for d in report.deviations)
    title = tag("h1", f"{verdict} {tag('code', text(report.subject))}{changes}{model}")
    if report.source is None:
        return title
    said = f"Read from {report.source['file']} ({report.source['format']})."
    return title + tag("p", text(said))


def _contents(parts: Sequence[str]) -> str:
    links = [tag("a", text(title), href=f"#{name}") for name, title in _titles(parts)]
    return tag("nav", bullets(links), aria_label="Contents")


def _titles(parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for part in parts:
        name = part.partition('<section id="')[2].partition('"')[0]
        title = part.partition(f'id="{name}-title">')[2].partition("<")[0]
        yield name, title


def _made_by(version: str) -> str:
    return f"Made by placement-proofs {version}; this page is complete and works offline."


def _styles() -> str:
    return files("placement_proofs.render.page").joinpath("page.css").read_text(encoding="utf-8")
