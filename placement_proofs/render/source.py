"""What was understood of a configuration file, and where each value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, section


def source_text(source: Mapping[str, Any] | None, paint: Paint = PLAIN) -> str:
    """The values that an import rests on; defaults that nobody wrote are counted only."""
    if source is None:
        return ""
    title = f"understood from {Path(source['file']).name} ({source['format']})"
    return section(paint.strong(title), columns(source_rows(source)))


def source_rows(source: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, value and origin of what a file says; defaults are counted."""
    defaults = 0
    for field in source["fields"]:
        if field["provenance"] == "default":
            defaults += 1
            continue
        yield field["name"], _value(field["value"]), _origin(field)
    if defaults:
        yield "defaults", str(defaults), "values that the file leaves to the framework (--json)"


def _value(value: object) -> str:
    if value is None:
        return "open"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _origin(field: Mapping[str, Any]) -> str:
    place = str(field["place"])
    name, colon, rest = place.partition(":")
    short = f"{Path(name).name}{colon}{rest}" if colon else place
    origin = field["provenance"] if field["provenance"] != "literal" or not short else ""
    return ", ".join(filter(None, (origin, short, field.get("note", ""))))
