"""What a proof uses, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement_proofs.needed import Group, Need, minimal
from placement_proofs.prove.uses import RULES, SIZES, Follows
from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, section


def needed_text(found: Sequence[Need], paint: Paint = PLAIN) -> str:
    """Each step, and what fails without it; whether none can be deleted."""
    if not found:
        return ""
    rows = [(need.step, _without(need)) for need in found]
    said = "none can be deleted" if minimal(tuple(found)) else "not all are needed"
    return section(paint.strong(f"what the proof needs ({said})"), columns(rows))


def cores_text(groups: Sequence[Group], paint: Paint = PLAIN) -> str:
    """Each obligation, the steps from which it follows, and the rule of each step."""
    proofs = [use for group in groups for use in group.uses]
    if not proofs:
        return ""
    fewest = all(use.minimal for use in proofs)
    said = "of each, every deletion was shown satisfiable" if fewest else "not all are minimal"
    parts = [section(paint.strong(f"what each proof follows from ({said})"), " ")]
    for group in groups:
        rows = [row for told, use in _together(group.uses) for row in _core_rows(told, use)]
        parts.append(section(group.about, columns(rows)) if group.about else columns(rows))
    return "\n".join(part.rstrip() for part in parts)


def _together(uses: Sequence[Follows]) -> Iterator[tuple[str, Follows]]:
    """Obligations of one condition that follow from the same steps, as one; none without steps."""
    alike: dict[tuple[object, ...], list[Follows]] = {}
    for use in (u for u in uses if u.steps):
        alike.setdefault((use.condition, use.steps, use.sizes, use.minimal), []).append(use)
    for found in alike.values():
        subjects = ", ".join(dict.fromkeys(use.subject for use in found))
        fewest = "" if found[0].minimal else " (not minimal)"
        yield f"{found[0].condition.replace('_', ' ')} of {subjects}{fewest}", found[0]


def _core_rows(told: str, use: Follows) -> Iterator[tuple[str, ...]]:
    """The obligations beside their first step."""
    steps = [(text.partition(' why="')[0], rule) for _, text, rule in use.steps]
    if use.sizes:
        steps.append(("sizes are at least 1", RULES[SIZES]))
    for i, (text, rule) in enumerate(steps):
        yield ("" if i else told, text, rule)


def _without(need: Need) -> str:
    if not need.needed:
        return f"without it: {need.verdict}"
    return f"without it: {need.fails}" if need.fails else "without it: cannot run"
