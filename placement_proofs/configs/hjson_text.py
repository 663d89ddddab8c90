"""DeepSpeed's JSON: comments, trailing commas and unquoted words are legal (package ``hjson``)."""

from __future__ import annotations

import re
from bisect import bisect
from pathlib import Path
from typing import Any

from placement_proofs.configs.document import (
    MAX_DEPTH,
    MAX_NODES,
    Block,
    Item,
    Value,
    is_placeholder,
    read_text,
)
from placement_proofs.errors import IllFormed

_LITERAL = re.compile(
    r"(null|true|false|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?)[ \t]*(?=[,}\]#\r\n]|//|/\*|\Z)"
)
_LINE = re.compile(r"[^\r\n]*")
_FIRST = re.compile(r"[^,}\]\s]+\}?")
_SOURCE = "DeepSpeed reads its files with hjson (runtime/config.py)"


class _Reader:
    """hjson's decoder with its object parser replaced by one that keeps lines."""

    def __init__(self, text: str, file: str) -> None:
        from hjson import decoder

        self.hjson = decoder
        self.file = file
        self.text = text
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        self.keys: list[str] = []
        self.depth = 0
        self.nodes = 0
        machine = decoder.HjsonDecoder()
        machine.parse_object = self._object
        machine.parse_array = self._array
        machine.parse_tfnns = self._word
        machine.scan_once, machine.scan_object_once = decoder.make_scanner(machine)
        self.machine = machine

    def line(self, position: int) -> int:
        return bisect(self.newlines, position - 1) + 1

    def refuse(self, position: int, found: str, rule: str, remedy: str) -> IllFormed:
        return IllFormed(f"{self.file}:{self.line(position)}", found, rule, remedy)

    def _enter(self, position: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            rule = f"blocks nest at most {MAX_DEPTH} deep"
            raise self.refuse(position, "deeper nesting", rule, "is this the right file?")

    def _count(self, position: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            rule = f"a configuration has at most {MAX_NODES:,} values"
            raise self.refuse(position, "more values", rule, "is this the right file?")

    def _object(self, state: tuple[str, int], *context: Any) -> tuple[Block, int]:
        text, end = state
        braces = not (len(context) > 6 and context[6])
        start = end
        self._enter(start)
        items: dict[str, Item] = {}
        char, end = self.hjson.getNext(text, end)
        while not (char == "}" if braces else char == ""):
            end = self._pair(text, end, items)
            char, end = self.hjson.getNext(text, end)
            if char == ",":
                char, end = self.hjson.getNext(text, end + 1)
        self.depth -= 1
        return Block(self.line(start), items), end + braces

    def _pair(self, text: str, end: int, items: dict[str, Item]) -> int:
        begin = end
        self._count(begin)
        key, end = self.hjson.scanKeyName(text, end)
        char, end = self.hjson.getNext(text, end)
        if char != ":":
            raise self.refuse(end, repr(char), "a colon follows a key", "write key: value")
        _, end = self.hjson.getNext(text, end + 1)
        self.keys.append(key)
        value, end = self.machine.scan_once(text, end)
        self.keys.pop()
        if key in items:
            raise self.refuse(
                begin,
                f"{key!r} a second time (first on line {items[key].line})",
                f"{_SOURCE} and raises on duplicate keys",
                "keep one of the two",
            )
        items[key] = Item(value, self.line(begin))
        return end

    def _array(self, state: tuple[str, int], scan: Any) -> tuple[tuple[Value, ...], int]:
        text, end = state
        self._enter(end)
        values: list[Value] = []
        char, end = self.hjson.getNext(text, end)
        while char != "]":
            self._count(end)
            value, end = scan(text, end)
            values.append(value)
            char, end = self.hjson.getNext(text, end)
            if char == ",":
                char, end = self.hjson.getNext(text, end + 1)
        self.depth -= 1
        return tuple(values), end + 1

    def _word(self, context: Any, text: str, end: int) -> tuple[Value, int]:
        """A literal; any other word reaches to the end of its line, as in hjson."""
        if text[end : end + 1] in "{}[],:" or _LITERAL.match(text, end):
            value, end = self.hjson.scantfnns(context, text, end)
            return value, end
        match = _LINE.match(text, end)
        word = match.group().strip() if match else ""
        first = _FIRST.match(word)
        if first and is_placeholder(first.group()):
            raise self._template(end, first.group())
        return word, match.end() if match else end

    def _template(self, position: int, word: str) -> IllFormed:
        return IllFormed(
            f"{self.file}:{self.line(position)} {'.'.join(self.keys)}",
            word[:80],
            "the file is a template: a script replaces this word before the file is read",
            "check the file that the script writes, or put a value here",
        )

    def read(self) -> Value:
        value: Value = self.machine.decode(self.text)
        return value


def parse_hjson(text: str, file: str) -> Block:
    """Read the text of a DeepSpeed file.

    Raises:
        IllFormed: it is not hjson, has duplicate keys or placeholders, or nests too deep.
    """
    reader = _Reader(text, file)
    value = _parsed(reader)
    if not isinstance(value, Block):
        rule = "a configuration is a block of keys and values"
        raise IllFormed(file, "no block", rule, "begin the file with { and end it with }")
    return value


def _parsed(reader: _Reader) -> Value:
    try:
        return reader.read()
    except IllFormed:
        raise
    except RecursionError:
        rule = f"blocks nest at most {MAX_DEPTH} deep"
        raise IllFormed(reader.file, "deep nesting", rule, "is this the right file?") from None
    except (ValueError, IndexError, OverflowError) as error:
        line = getattr(error, "lineno", None) or len(reader.newlines) + 1
        ended = "the text ends inside a value"
        other = ended if isinstance(error, IndexError) else "a number out of range"
        reason = str(getattr(error, "msg", "") or other)
        if "{{" in reader.text or "{%" in reader.text:
            reason = "it has the braces of a template, which a script fills in first"
        raise IllFormed(
            f"{reader.file}:{line}",
            f"no JSON ({reason[:120]})",
            _SOURCE,
            "correct the syntax on this line or the one before",
        ) from None


def read_hjson(path: Path) -> Block:
    """Read a DeepSpeed file; see :func:`parse_hjson`."""
    return parse_hjson(read_text(path), path.name)
