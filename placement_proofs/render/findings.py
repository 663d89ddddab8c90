"""What is wrong or doubtful in a configuration file, by kind and never mixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import paragraph, section, sections
from placement_proofs.render.units import plural

HEADINGS: Mapping[str, tuple[str, ...]] = {
    "wrong mathematics": ("mathematics",),
    "the framework rejects or ignores this": ("rejected", "ignored"),
    "probably not what you meant": ("unlikely",),
}
"""Heading by heading, the kinds of findings under it; the worst first."""


def findings_text(source: Mapping[str, Any] | None, paint: Paint = PLAIN) -> str:
    """A section for each kind that occurs: place, message, remedy, and the rule with its source."""
    found = source["findings"] if source else ()
    return sections(
        section(paint.strong(title), "\n".join(_items(found, kinds)))
        for title, kinds in HEADINGS.items()
    )


def rejections(source: Mapping[str, Any] | None) -> str:
    """How many findings say that the framework does not run the file as it is written."""
    kinds = [finding["kind"] for finding in source["findings"]] if source else []
    verbs = {"rejected": "rejects", "ignored": "ignores"}
    told = [
        f"{verb} {plural(kinds.count(k), 'setting')}" for k, verb in verbs.items() if k in kinds
    ]
    return f"the framework {' and '.join(told)}" if told else ""


def _items(found: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> Iterator[str]:
    for kind in kinds:
        for finding in found:
            if finding["kind"] == kind:
                yield _item(finding, word=f"{kind}: " if len(kinds) > 1 else "")


def _item(finding: Mapping[str, Any], word: str) -> str:
    lines = (
        paragraph(f"- {finding['place']}: {finding['message']}", hanging=2),
        paragraph(f"remedy: {finding['remedy']}", indent=4, hanging=2),
        paragraph(f"{word}{finding['rule']} ({finding['source']})", indent=4, hanging=2),
    )
    return "\n".join(lines)


def line_of(finding: Mapping[str, Any]) -> str:
    """A finding in one line, as a report's warnings have it."""
    return (
        f"{finding['place']}: {finding['message']}; {finding['remedy']} "
        f"[{finding['kind']}: {finding['rule']}]"
    )


def other_warnings(warnings: Sequence[str], source: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The warnings that are not a finding of the file."""
    told = {line_of(finding) for finding in source["findings"]} if source else set()
    return tuple(text for text in warnings if text not in told)
