"""TOML as blocks with lines: the standard library parses, a scan of the text finds the lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placement_proofs.configs.document import (
    MAX_DEPTH,
    MAX_NODES,
    Block,
    Item,
    Value,
    read_text,
)
from placement_proofs.errors import IllFormed

_TABLE = re.compile(r"\s*\[\[?\s*([^\]]*?)\s*\]\]?\s*(#.*)?\Z")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_AT = re.compile(r"\(at line (\d+)")

_MOST = 10 * MAX_NODES
"""Signs that end or begin values, and lines; more of them are not read at all."""

Lines = dict[tuple[str, ...], int]


def parse_toml(text: str, file: str) -> Block:
    """Read the text of a TOML file; a key that is given twice is an error of TOML itself.

    Raises:
        IllFormed: it is not TOML, or nests or expands too far.
    """
    import tomllib

    if text.count(",") + text.count("=") + text.count("\n") > _MOST:
        rule = f"a configuration has at most {MAX_NODES:,} values"
        raise IllFormed(file, "more values", rule, "is this the right file?")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refused(str(error), file) from None
    except (RecursionError, ValueError, OverflowError):
        rule = f"blocks nest at most {MAX_DEPTH} deep and numbers are short"
        raise IllFormed(file, "no readable TOML", rule, "is this the right file?") from None
    return _Builder(file, _lines(text)).block(table, ())


def read_toml(path: Path) -> Block:
    """Read a TOML file; see :func:`parse_toml`."""
    return parse_toml(read_text(path), path.name)


def _refused(message: str, file: str) -> IllFormed:
    at = _AT.search(message)
    reason = _AT.split(message)[0].strip() or "unreadable"
    return IllFormed(
        f"{file}:{at.group(1)}" if at else file,
        f"no TOML ({' '.join(reason.split())[:120]})",
        "the file is read as TOML 1.0",
        "correct this line; text stands in quotes, and every key is given once",
    )


def _lines(text: str) -> Lines:
    """The first line of every key path and table header."""
    lines: Lines = {}
    table: tuple[str, ...] = ()
    for number, line in _code_lines(text):
        header = _TABLE.match(line)
        if header:
            table = _parts(header.group(1))
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            path = (*table, *_parts(key.group(1)))
            for depth in range(len(table) + 1, len(path) + 1):
                lines.setdefault(path[:depth], number)
    return lines


def _code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside of texts over several lines."""
    inside = ""
    for number, line in enumerate(text.split("\n"), 1):
        if not inside:
            yield number, line
        for mark in ('"""', "'''"):
            if inside in ("", mark) and line.count(mark) % 2:
                inside = "" if inside else mark


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(path))


class _Builder:
    """Turns parsed tables into blocks and counts what it builds."""

    def __init__(self, file: str, lines: Lines) -> None:
        self.file = file
        self.lines = lines
        self.nodes = 0

    def block(self, table: dict[str, Any], path: tuple[str, ...]) -> Block:
        here = self.lines.get(path, 1)
        items = {
            key: Item(
                self.value(value, (*path, key)),
                self.lines.get((*path, key), here),
            )
            for key, value in table.items()
        }
        return Block(here, items)

    def value(self, value: Any, path: tuple[str, ...]) -> Value:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(path) > MAX_DEPTH:
            rule = f"a configuration has at most {MAX_NODES:,} values, {MAX_DEPTH} deep"
            raise IllFormed(self.file, "more values", rule, "is this the right file?")
        if isinstance(value, dict):
            return self.block(value, path)
        if isinstance(value, list):
            return tuple(self.value(inner, (*path, str(i))) for i, inner in enumerate(value))
        return value if isinstance(value, bool | int | float | str) else str(value)
