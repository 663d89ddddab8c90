"""Configuration files as nested blocks of values that remember their lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never, TypeAlias

from placement_proofs.errors import IllFormed

MAX_BYTES = 10_000_000
MAX_DEPTH = 64
MAX_NODES = 20_000
MAX_NUMBER = 10**15

Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True)
class Item:
    """A value and its line.

    Where an importer moved the value, ``shown`` is the key path in the file; where it supplied a
    default of the framework, ``given`` is false.
    """

    value: Value
    line: int
    shown: str = ""
    given: bool = True


@dataclass(frozen=True)
class Block:
    """A mapping. ``repeated`` are the keys that were given again, with the later lines."""

    line: int = 1
    items: Mapping[str, Item] = field(default_factory=dict)
    repeated: tuple[tuple[str, int], ...] = ()


Value: TypeAlias = Scalar | Block | tuple["Value", ...]

_TEMPLATE = re.compile(r"\$\{?\w|\$\(|\{\{|<[\w -]+>|%\(\w")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9_]{2,}\W*\Z")
_NUMBER = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?\Z")
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set of keys."""
    return frozenset(text.split())


def is_placeholder(word: str) -> bool:
    """Whether an unquoted word is a template's variable, or a name in capitals."""
    return bool(_CAPITALS.match(word)) or is_template(word)


def is_template(text: str) -> bool:
    """Whether ``text`` waits for another program to fill it in (``${TP}``, ``{{ x }}``)."""
    return bool(_TEMPLATE.search(text))


def read_text(path: Path) -> str:
    """The text of a file, in UTF-8 (with or without mark) or UTF-16 with mark.

    Raises:
        IllFormed: no such regular file, larger than 10 MB, or not text.
    """
    name = path.name
    try:
        if not path.is_file():
            raise IllFormed(str(path), "no regular file", "a configuration is a file", "check it")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except IllFormed:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "a path that names no file"
        raise IllFormed(
            repr(str(path))[:200], reason, "the file must be readable", "check it"
        ) from None
    if len(raw) > MAX_BYTES:
        raise IllFormed(
            name, "more than 10 MB", "a configuration is a few kilobytes", "is this the right file?"
        )
    return _decoded(raw, name)


def _decoded(raw: bytes, name: str) -> str:
    coding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = raw.decode(coding)
    except UnicodeDecodeError as error:
        raise IllFormed(
            name,
            f"byte {raw[error.start]:#04x} at position {error.start}, which is not {coding}",
            "configuration files are text in UTF-8",
            "save the file as UTF-8",
        ) from None
    if "\0" in text:
        raise IllFormed(name, "a zero byte", "configuration files are text", "save it as UTF-8")
    return text


@dataclass(frozen=True)
class Section:
    """A block seen from a file: typed access to its keys; every error names file, line and key."""

    file: str
    block: Block
    path: tuple[str, ...] = ()

    def __contains__(self, key: str) -> bool:
        item = self.block.items.get(key)
        return item is not None and item.given and item.value is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.block.items)

    def line(self, key: str) -> int:
        """The line of ``key``, or the line where this block begins."""
        item = self.block.items.get(key)
        return item.line if item else self.block.line

    def place(self, key: str = "") -> str:
        """``file:line key`` for messages."""
        item = self.block.items.get(key)
        shown = item.shown if item else ""
        name = shown or ".".join((*self.path, key) if key else self.path)
        return f"{self.file}:{self.line(key)} {name}".rstrip()

    def raw(self, key: str) -> Value:
        """The value of ``key``, or ``None``."""
        item = self.block.items.get(key)
        return item.value if item else None

    def is_auto(self, key: str) -> bool:
        """Whether ``key`` is left to an integration with the word ``auto``."""
        return self.raw(key) == "auto"

    def refuse(self, key: str, rule: str, remedy: str) -> Never:
        """Raise the error for the value of ``key``."""
        raise IllFormed(self.place(key), shown(self.raw(key)), rule, remedy)

    def section(self, key: str) -> Section:
        """The block under ``key``; an empty one if it is absent or null."""
        value = self.raw(key)
        if value is None:
            value = Block(self.line(key))
        if not isinstance(value, Block):
            self.refuse(key, "a block of keys and values belongs here", "indent its keys below it")
        begun = Block(self.line(key), value.items, value.repeated)
        return Section(self.file, begun, (*self.path, key))

    def integer(self, key: str, default: int | None = None, *, least: int = 0) -> int | None:
        """A whole number; ``5e8``, ``"1e9"`` and ``"8"`` count; ``auto`` and null are absent."""
        value = self.raw(key)
        if value is None or value == "auto":
            return default
        number = self._number(key, value)
        if not math.isfinite(number) or number != int(number):
            self.refuse(key, "a whole number belongs here", f"write {key} as a whole number")
        if not least <= number <= MAX_NUMBER:
            self.refuse(key, f"it lies between {least} and {MAX_NUMBER:,}", "correct the number")
        return int(number)

    def real(self, key: str, default: float) -> float:
        """A number; ``auto`` and null are absent."""
        value = self.raw(key)
        if value is None or value == "auto":
            return default
        return self._number(key, value)

    def _number(self, key: str, value: Value) -> int | float:
        self._filled(key, value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and len(value) < 40 and _NUMBER.match(value):
            return float(value) if set(value) & set(".eE") else int(value.replace("_", ""))
        self.refuse(key, "a number belongs here", f"write {key} as a number")

    def flag(self, key: str, default: bool | None = None) -> bool | None:
        """True or false, also as the words that launchers accept; ``auto`` and null are absent."""
        value = self.raw(key)
        if value is None or value == "auto":
            return default
        self._filled(key, value)
        word = str(value).lower() if isinstance(value, bool | int | str) else ""
        if word not in (*_YES, *_NO):
            self.refuse(key, "true or false belongs here", f"write {key} as true or false")
        return word in _YES

    def word(self, key: str, default: str | None = None) -> str | None:
        """A text; numbers and truth values are given as text; null is absent."""
        value = self.raw(key)
        if value is None:
            return default
        self._filled(key, value)
        if isinstance(value, Block | tuple):
            self.refuse(key, "one word belongs here", f"write one value for {key}")
        return str(value)

    def _filled(self, key: str, value: Value) -> None:
        if isinstance(value, str) and is_template(value):
            self.refuse(
                key,
                "it is a placeholder that a script fills in before the framework reads the file",
                "fill it in and check the result",
            )


def shown(value: Value) -> str:
    """A value in one short line."""
    if isinstance(value, Block):
        return "a block"
    if isinstance(value, tuple):
        return f"a list of {len(value)}"
    text = repr(str(value).rstrip(",")) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
