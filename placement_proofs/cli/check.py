"""``check``: prove or refute subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import click

from placement_proofs.cli.options import (
    SUBJECT_HELP,
    common_options,
    convention_option,
    read,
    subject_options,
    topology_option,
)
from placement_proofs.cli.output import one_line, paint, refusal, say, say_json, waiting
from placement_proofs.errors import IllFormed
from placement_proofs.verdict import Verdict, combine

if TYPE_CHECKING:
    from placement_proofs.needed import Group, Need
    from placement_proofs.report import Report

HELP = f"""Prove that a composition trains like one device, or show how it does not.

{SUBJECT_HELP}

Prints the verdict, what it covers, a counterexample and repairs where refuted, and memory and
traffic per rank. Every repair was proved for all sizes and has its extra traffic; --repair also
shows it as a difference of the program, or of the composition as a file. --no-repair saves the
search.

A program whose copies or updates may be late on purpose is checked against a weaker claim: --relax
"late W=2" (the gradient of two steps before), "within w=1" (a copy read one version late), "sync W"
(copies agree where they are averaged, as in local SGD). A file says it as relax = ["late W=2"].

\b
Exit codes: 0 proved, 1 refuted, 2 ill-formed input or usage, 3 unknown.
Of several subjects the worst counts: ill-formed, refuted, unknown, proved; a summary has a line
for each. --sarif writes all results, with files and lines, for code scanning in CI.

\b
Examples:
  placement-proofs check "zero3(dp=8) * tensor(tp=4, sequence=True)"
  placement-proofs check "data(dp=8)" --without "drop all-reduce gradient dp"
  placement-proofs check examples/configs/deepspeed_zero3.json --world 64
  placement-proofs check "zero1(dp=8)" --without "drop all-gather parameter dp" --repair
  placement-proofs check examples/programs/delayed_update.toml
  placement-proofs check "zero2(dp=8)" --explain
  placement-proofs check "zero3(dp=64) * tensor(tp=8)" --topology dgx-a100
"""


@click.command(help=HELP)
@click.argument("subjects", nargs=-1, required=True, metavar="SUBJECT...")
@subject_options
@convention_option
@topology_option
@click.option("--sarif", metavar="FILE", help="Also write the results as SARIF 2.1.0.")
@click.option(
    "--explain",
    is_flag=True,
    help="Also say from which steps and rules each proof follows (unsat cores), and what fails "
    "without each step.",
)
@click.option(
    "--relax",
    multiple=True,
    metavar="CLAIM",
    help='A weaker claim about a program: "late W=1", "within w=1" or "sync W". Repeatable.',
)
@click.option(
    "--repair/--no-repair",
    default=None,
    help="Show repairs as differences; do not search for them. Default: name them.",
)
@common_options
def check(
    subjects: tuple[str, ...],
    convention: str | None,
    topology: str | None,
    sarif: str | None,
    explain: bool,
    repair: bool | None,
    as_json: bool,
    **options: Any,
) -> int:
    how = {"convention": convention, "topology": topology, "repair": repair is not False}
    found = [_checked(text, how, options) for text in subjects]
    if sarif is not None:
        _write_sarif(sarif, list(zip(subjects, found, strict=True)))
    pairs = zip(subjects, found, strict=True) if explain else ()
    uses = {text: _explain(text, result, options) for text, result in pairs}
    if as_json:
        say_json(_json(subjects, found) | _explained(uses))
    elif text := _text(subjects, found, uses, repair is True):
        say(text)
    for result in found:
        if isinstance(result, IllFormed):
            click.echo(one_line(result), err=True)
    return combine(map(_verdict, found)).exit_code


def _checked(text: str, how: dict[str, Any], options: dict[str, Any]) -> Report | IllFormed:
    from placement_proofs.checking import check as prove_or_refute

    try:
        with waiting(f"checking {text[:60]}"):
            subject = read(text, **options)
            return prove_or_refute(subject, **how)
    except IllFormed as error:
        return error


Explained: TypeAlias = "tuple[tuple[Need, ...], tuple[Group, ...]]"
"""What a proof needs, step by step, and what it follows from."""


def _explain(text: str, result: Report | IllFormed, options: dict[str, Any]) -> Explained:
    """The steps of a proved subject; there is nothing to explain of a proof that failed."""
    from placement_proofs.needed import cores, needs

    if isinstance(result, IllFormed) or result.verdict is not Verdict.PROVED:
        return (), ()
    with waiting(f"explaining {text[:60]}"):
        subject = read(text, **options)
        return needs(subject), cores(subject)


def _explained(uses: dict[str, Explained]) -> dict[str, Any]:
    from placement_proofs.needed import minimal

    told = [
        {
            "subject": text,
            "minimal": minimal(found),
            "steps": [n.to_json() for n in found],
            "cores": [group.to_json() for group in groups],
        }
        for text, (found, groups) in uses.items()
    ]
    return {"explained": told} if uses else {}


def _verdict(result: Report | IllFormed) -> Verdict:
    return Verdict.ILL_FORMED if isinstance(result, IllFormed) else result.verdict


def _found(result: Report | IllFormed) -> str:
    from placement_proofs.render.findings import rejections

    return "" if isinstance(result, IllFormed) else rejections(result.source)


def _write_sarif(path: str, checked: list[tuple[str, Report | IllFormed]]) -> None:
    import json
    from importlib.metadata import version
    from pathlib import Path

    from placement_proofs.render.sarif import sarif

    log = sarif(checked, version("placement-proofs"))
    Path(path).write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")


def _json(subjects: tuple[str, ...], found: list[Report | IllFormed]) -> dict[str, Any]:
    parts = [refusal(r) if isinstance(r, IllFormed) else r.to_json() for r in found]
    if len(parts) == 1:
        return parts[0]
    verdict = combine(map(_verdict, found))
    return {
        "schema": "placement-proofs/checks/1",
        "verdict": verdict.value,
        "subjects": list(subjects),
        "reports": parts,
    }


def _text(
    subjects: tuple[str, ...],
    found: list[Report | IllFormed],
    uses: dict[str, Explained],
    repaired: bool,
) -> str:
    from placement_proofs.render.needed import cores_text, needed_text
    from placement_proofs.render.repairs import repaired_text
    from placement_proofs.render.report import report_text
    from placement_proofs.render.summary import summary
    from placement_proofs.render.table import sections

    colours = paint()
    reports = [r for r in found if not isinstance(r, IllFormed)]
    parts = [report_text(report, colours) for report in reports]
    parts += [repaired_text(report, colours) for report in reports if repaired]
    for steps, groups in uses.values():
        parts += [needed_text(steps, colours), cores_text(groups, colours)]
    if len(found) > 1:
        pairs = zip(subjects, found, strict=True)
        parts.append(summary([(text, _verdict(r), _found(r)) for text, r in pairs], colours))
    return sections(parts)
