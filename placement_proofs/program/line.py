"""One statement of the text form: its word, what follows, and its options."""

from __future__ import annotations

import re
from dataclasses import dataclass

from placement_proofs.errors import IllFormed
from placement_proofs.program import ALWAYS, Axes, Guard, Held
from placement_proofs.program.lex import syntax


@dataclass
class Line:
    """A statement."""

    place: str
    word: str
    rest: str
    options: dict[str, str]
    guard: Guard = ALWAYS

    def take(self, name: str) -> str:
        """An option, which is then used up."""
        return self.options.pop(name, "")

    def names(self, name: str) -> Axes:
        """An option that lists names."""
        return split(self.take(name))

    def held(self) -> Held:
        """The layout that `held=` and `shard=` say."""
        pairs = [part.partition(":") for part in self.names("held")]
        held = tuple((axis, owner or "p") for axis, _, owner in pairs)
        return held + tuple((axis, "p") for axis in self.names("shard"))

    def words(self, *counts: int) -> list[str]:
        """The words after the first, if their number is right."""
        words = self.rest.split()
        if len(words) not in counts:
            raise self.error(f"'{self.word}' has {' or '.join(map(str, counts))} words after it")
        return words

    def sides(self, *signs: str) -> tuple[str, str, str]:
        """Name, sign and value of `name = value`."""
        match = re.fullmatch(r"(\S+)\s*(\+=|=)\s*(.+)", self.rest)
        if match is None or match[2] not in signs:
            raise self.error(f"'{self.word}' is followed by a name, {' or '.join(signs)}, a value")
        return match[1], match[2], match[3].strip()

    def error(self, rule: str) -> IllFormed:
        """An error at this line."""
        return syntax(self.place, f"{self.word} {self.rest}".strip(), rule)


def split(text: str) -> Axes:
    """Names between commas or stars."""
    return tuple(part for part in re.split(r"[,*]", text) if part)


def family(line: Line, text: str) -> tuple[str, Axes]:
    """A family with its indices."""
    match = re.fullmatch(r"([A-Za-z_][\w.]*)\s*\[([^\]]*)\]", text)
    if match is None:
        raise line.error("contributions are written as a family with its indices, c[dp,mb]")
    return match[1], tuple(part.strip() for part in match[2].split(",") if part.strip())


def integer(text: str, place: str) -> int:
    """A number of ranks, turns or steps."""
    if not re.fullmatch(r"\d{1,12}", text):
        raise syntax(place, text, "a size is a positive integer")
    return int(text)
