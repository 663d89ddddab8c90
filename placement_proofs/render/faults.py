"""Published faults as text: a table with the rate, or one fault in full."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import ndiff

from placement_proofs.faults import Fault, Outcome, Rate, find_fault, read_fault, run_fault
from placement_proofs.program.print import format_program
from placement_proofs.prove import explain
from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import bullets, columns, paragraph, section, sections
from placement_proofs.render.units import plural
from placement_proofs.verdict import Verdict

Fixes = tuple[tuple[str, str], ...]


def faults_text(
    outcomes: Sequence[Outcome],
    fixes: Sequence[Fixes],
    counted: Rate,
    paint: Paint = PLAIN,
    *,
    full: bool = False,
) -> str:
    """The table of faults, or each in full, and the rate below."""
    if full:
        found = zip(outcomes, fixes, strict=True)
        return sections([*(_full(o, f, paint) for o, f in found), _closing(counted, paint)])
    head = ("fault", "expected", "got", "got / expected", "how", "mesh")
    return sections(
        [columns([head, *(_row(o, paint) for o in outcomes)]), _closing(counted, paint)]
    )


def _row(outcome: Outcome, paint: Paint) -> tuple[str, ...]:
    fault, example = outcome.fault, outcome.faulty.counterexample
    mesh = ",".join(f"{axis}={size}" for axis, size in example.sizes) if example else ""
    got = paint.verdict(outcome.faulty.verdict) + "/" + paint.verdict(outcome.fixed.verdict)
    if not outcome.as_expected:
        got += paint.verdict(Verdict.REFUTED, " (wrong)")
    factor = example.factor if example else ""
    short = factor if len(factor) <= 40 else f"{factor[:37]}..."
    return (fault.name, f"{fault.expected.value}/proved", got, short, fault.how, mesh)


def _full(outcome: Outcome, fixes: Fixes, paint: Paint) -> str:
    fault = outcome.fault
    said = f"{fault.how}{f' ({fault.concept})' if fault.concept else ''}"
    rows = [("source", fault.url), ("said by", said)]
    rows += [("rejected by", f"{r.framework}: {r.rule}") for r in (fault.rejected,) if r]
    rows += [("faulty", paint.verdict(outcome.faulty.verdict))]
    rows += [("fixed", paint.verdict(outcome.fixed.verdict))]
    repairs = [f"{change}; {cost if cost != '0' else 'no traffic'}" for change, cost in fixes]
    return sections(
        [
            paragraph(f"{fault.name}: {fault.about}", indent=0),
            columns(rows),
            section(paint.strong("why"), bullets(explain(fault.faulty, outcome.faulty))),
            section(paint.strong("faulty form"), _indented(format_program(fault.faulty))),
            section(paint.strong("repairs"), bullets(repairs)),
        ]
    )


def fault_text(name: str, paint: Paint = PLAIN) -> str:
    """One fault by name, short: what happened, both forms as a difference, why it is wrong.

    Raises:
        IllFormed: no fault has that name.
    """
    outcome = run_fault(read_fault(find_fault(name)))
    fault = outcome.fault
    rows = [
        ("source", fault.url),
        ("faulty", paint.verdict(outcome.faulty.verdict)),
        ("fixed", paint.verdict(outcome.fixed.verdict)),
    ]
    return sections(
        [
            paragraph(f"{fault.name}: {fault.about}", indent=0),
            columns(rows),
            section(paint.strong("faulty (-) and fixed (+)"), _indented(_difference(fault))),
            section(paint.strong("why"), bullets(explain(fault.faulty, outcome.faulty))),
        ]
    )


def _difference(fault: Fault) -> str:
    faulty, fixed = (format_program(f).splitlines() for f in (fault.faulty, fault.fixed))
    return "\n".join(line.rstrip() for line in ndiff(faulty, fixed) if not line.startswith("?"))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _closing(counted: Rate, paint: Paint) -> str:
    said = ", ".join(f"{count} by {how}" for how, count in counted.by.items() if count)
    if counted.wrong:
        text = f"{len(counted.wrong)} of {plural(counted.faults, 'fault')} differ"
        return paint.verdict(Verdict.REFUTED, f"{text}: {', '.join(counted.wrong)}")
    return f"{plural(counted.faults, 'fault')}, every one as expected ({said})"
