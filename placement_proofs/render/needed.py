"""What a proof uses, as text."""

from __future__ import annotations

from collections.abc import Sequence

from placement_proofs.needed import Need, minimal
from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, section


def needed_text(found: Sequence[Need], paint: Paint = PLAIN) -> str:
    """Each step, and what fails without it; whether none can be deleted."""
    if not found:
        return ""
    rows = [(need.step, _without(need)) for need in found]
    said = "none can be deleted" if minimal(tuple(found)) else "not all are needed"
    return section(paint.strong(f"what the proof uses ({said})"), columns(rows))


def _without(need: Need) -> str:
    if not need.needed:
        return f"without it: {need.verdict}"
    return f"without it: {need.fails}" if need.fails else "without it: cannot run"
