"""Lines, options and guards of the text form of element programs."""

from __future__ import annotations

import re
from typing import cast

from placement_proofs.errors import IllFormed
from placement_proofs.program import Guard, TurnTest


def syntax(place: str, found: str, rule: str, remedy: str = "see the examples") -> IllFormed:
    """The error of a line that is no statement."""
    return IllFormed(place, repr(found[:60]), rule, remedy)


# --- statements ----------------------------------------------------------------------

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


class _Reader:
    def __init__(self, place: str) -> None:
        self.place = place
        self.program = Program(())
        self.stack: list[tuple[str, Guard, list[Step]]] = [("", ALWAYS, [])]

    def read(self, text: str) -> Program:
        for number, statement in _statements(text):
            self._statement(statement, f"{self.place}, line {number}")
        if len(self.stack) > 1:
            raise syntax(
                self.place, f"loop {self.stack[-1][0]}", "a block ends with '}'", "close it"
            )
        steps = tuple(self.stack[0][2])
        return replace(self.program, steps=steps)

    def _statement(self, text: str, place: str) -> None:
        guard = ALWAYS
        if match := re.match(r"if\s+(.*?):\s*(.*)\Z", text):
            guard, text = _guard(match[1], place), match[2]
        if text == "}":
            self._close(place)
            return
        if match := re.fullmatch(r"loop\s+([\w.]+)\s*\{", text):
            self._open(match[1], guard, place)
            return
        word, _, rest = text.partition(" ")
        bare, options = _options(f" {rest}")
        line = _Line(place, word, bare, options, guard)
        if word in _STEPS:
            why = line.take("why")
            step = _STEPS[word](line)
            self.stack[-1][2].append(replace(step, g=guard, why=why))
        elif guard != ALWAYS or not self._declare(line):
            words = ", ".join((*_STEPS, "loop", *_DECLARATIONS))
            raise syntax(place, text, f"a statement begins with one of: {words}")
        if line.options:
            raise syntax(
                place, ", ".join(line.options), f"'{word}' has no such option", "correct it"
            )

    def _open(self, name: str, guard: Guard, place: str) -> None:
        if len(self.stack) > MAX_DEPTH:
            raise syntax(place, name, f"loops are nested at most {MAX_DEPTH} deep")
        if name not in self.program.loops:
            self.program = replace(self.program, loops=(*self.program.loops, name))
        self.stack.append((name, guard, []))

    def _close(self, place: str) -> None:
        if len(self.stack) == 1:
            raise syntax(place, "}", "a block is opened before it is closed", "remove it")
        name, guard, body = self.stack.pop()
        self.stack[-1][2].append(Loop(name, tuple(body), guard))

    def _declare(self, line: _Line) -> bool:
        declare = _DECLARATIONS.get(line.word)
        if declare is None:
            return False
        self.program = declare(line, self.program)
        return True


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
