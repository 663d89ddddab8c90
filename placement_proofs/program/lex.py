"""Lines, options and guards of the text form of element programs."""

from __future__ import annotations

import re
from typing import cast

from placement_proofs.errors import IllFormed
from placement_proofs.program import Guard, TurnTest


def syntax(place: str, found: str, rule: str, remedy: str = "see the examples") -> IllFormed:
    """The error of a line that is no statement."""
    return IllFormed(place, repr(found[:60]), rule, remedy)


_OPTION = re.compile(r'\s+([a-z]+)=("[^"]*"|\S+)\s*\Z')


def options_of(text: str) -> tuple[str, dict[str, str]]:
    """The trailing `name=value` options of a statement."""
    options: dict[str, str] = {}
    while match := _OPTION.search(text):
        if match[1] in options:
            raise syntax("option", match[1], "an option is given once")
        options[match[1]] = match[2].strip('"')
        text = text[: match.start()]
    return text.strip(), options


def guard_of(text: str, place: str) -> Guard:
    """The guard that `dp > 1 and mb.first` says."""
    sizes: list[tuple[str, bool]] = []
    turns: list[tuple[str, TurnTest]] = []
    at: list[tuple[str, str]] = []
    for part in re.split(r"\s+and\s+", text.strip()):
        if match := re.fullmatch(r"([\w.]+)\s*(==|>)\s*1", part):
            sizes.append((match[1], match[2] == "=="))
        elif match := re.fullmatch(r"([\w.]+)\.(!?(?:first|last))", part):
            turns.append((match[1], cast(TurnTest, match[2])))
        elif match := re.fullmatch(r"([\w.]+)@(!?[\w.]+)", part):
            at.append((match[1], match[2]))
        else:
            raise syntax(place, part, "a condition is dp == 1, dp > 1, mb.first, mb.!last or pp@p")
    return Guard(tuple(sizes), tuple(turns), tuple(at))


# --- program -------------------------------------------------------------------------


def statements(text: str) -> list[tuple[int, str]]:
    """Statements with their line numbers; braces end statements, quotes protect."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        current, quoted = "", False
        for char in line:
            quoted = quoted != (char == '"')
            if char == "#" and not quoted:
                break
            if char in ";{}" and not quoted:
                current = current + "{" if char == "{" else current
                found.append((number, current.strip()))
                if char == "}":
                    found.append((number, "}"))
                current = ""
            else:
                current += char
        found.append((number, current.strip()))
    return [(number, statement) for number, statement in found if statement]
