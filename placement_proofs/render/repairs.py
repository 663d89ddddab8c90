"""Repairs as differences of the text that was checked."""

from __future__ import annotations

from difflib import unified_diff

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import section, sections
from placement_proofs.report import Fix, Report
from placement_proofs.verdict import Verdict


def repaired_text(report: Report, paint: Paint = PLAIN) -> str:
    """Each repair as a difference; why there is none where there is none."""
    if report.verdict is not Verdict.REFUTED:
        return ""
    parts = [
        section(paint.strong(f"repair {number}: {fix.change}"), difference(fix))
        for number, fix in enumerate(report.repairs, start=1)
        if fix.repaired
    ]
    if not parts:
        none = "no single change was found after which everything is proved"
        return section(paint.strong("repair"), f"  {none}")
    return sections(parts)


def difference(fix: Fix) -> str:
    """The lines that change, with two around them."""
    lines = unified_diff(fix.broken.splitlines(), fix.repaired.splitlines(), lineterm="", n=2)
    return "\n".join(f"  {line}" for line in list(lines)[2:])
