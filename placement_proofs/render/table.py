"""Text in columns and paragraphs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return len(_ESCAPE.sub("", text))


def columns(rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), indent: int = 2) -> str:
    """Rows with aligned columns; those in ``right`` are flush right, the last is not padded.

    >>> print(columns([("a", "10"), ("bcd", "9")], right=(1,)))
      a    10
      bcd   9
    """
    table = [tuple(row) for row in rows]
    if not table:
        return ""
    count = max(map(len, table))
    widths = [max(width(row[i]) for row in table if i < len(row)) for i in range(count)]
    return "\n".join(_row(row, widths, right, indent) for row in table)


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[int], indent: int) -> str:
    cells = [
        " " * (widths[i] - width(cell)) + cell
        if i in right
        else cell + " " * (widths[i] - width(cell))
        for i, cell in enumerate(row)
    ]
    return (" " * indent + "  ".join(cells)).rstrip()


def paragraph(text: str, *, indent: int = 2, hanging: int = 0, columns: int = 100) -> str:
    """A paragraph wrapped at ``columns``; later lines stand ``hanging`` further in."""
    return textwrap.fill(
        text,
        columns,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )


def bullets(texts: Iterable[str], *, indent: int = 2) -> str:
    """A list, one text an item."""
    return "\n".join(paragraph(f"- {text}", indent=indent, hanging=2) for text in texts)


def section(title: str, body: str) -> str:
    """A heading over a body; nothing where the body is empty."""
    return f"{title}\n{body}" if body else ""


def sections(parts: Iterable[str]) -> str:
    """Parts with an empty line between; empty parts are left out."""
    return "\n\n".join(part for part in parts if part)
