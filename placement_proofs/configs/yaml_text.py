"""YAML as blocks with lines: data only, aliases counted, tags of other languages refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placement_proofs.configs.document import (
    MAX_DEPTH,
    MAX_NODES,
    Block,
    Item,
    Scalar,
    Value,
    read_text,
)
from placement_proofs.errors import IllFormed

_MERGE = "<<"
_TEXT = "tag:yaml.org,2002:str"
_LONGEST = 100
"""Characters of a number, date or truth value; base-60 numbers cost the square of their length."""
_PLAIN_TAGS = ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class _Reader:
    """Builds blocks from YAML events: a budget of values, where an alias costs what it repeats."""

    def __init__(self, text: str, file: str) -> None:
        import yaml

        self.yaml = yaml
        self.file = file
        self.events: Iterator[Any] = yaml.parse(text, Loader=_loader(yaml))
        self.resolver: Any = yaml.resolver.Resolver()
        self.constructor = yaml.constructor.SafeConstructor()
        self.anchors: dict[str, tuple[Value, int]] = {}
        self.nodes = 0
        self.depth = 0

    def refuse(self, event: Any, found: str, rule: str, remedy: str) -> IllFormed:
        return IllFormed(f"{self.file}:{event.start_mark.line + 1}", found, rule, remedy)

    def document(self) -> Value:
        """The first document; a second one is refused."""
        value: Value = None
        documents = 0
        for event in self.events:
            if isinstance(event, self.yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.refuse(event, "a second document", "one file, one document", "split")
                value = self._value(next(self.events))
        return value

    def _value(self, event: Any) -> Value:
        if isinstance(event, self.yaml.AliasEvent):
            return self._alias(event)
        before = self.nodes
        self._count(event, 1)
        if isinstance(event, self.yaml.ScalarEvent):
            value: Value = self._scalar(event)
        else:
            value = self._nested(event)
        if event.anchor:
            self.anchors[event.anchor] = (value, self.nodes - before)
        return value

    def _nested(self, event: Any) -> Value:
        if event.tag and event.tag not in _PLAIN_TAGS:
            rule = "values are data: nothing in a configuration is run"
            raise self.refuse(event, f"the tag {event.tag}"[:80], rule, "remove the tag")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            rule = f"blocks nest at most {MAX_DEPTH} deep"
            raise self.refuse(event, "deeper nesting", rule, "is this the right file?")
        mapping = isinstance(event, self.yaml.MappingStartEvent)
        value = self._mapping(event) if mapping else self._sequence()
        self.depth -= 1
        return value

    def _count(self, event: Any, cost: int) -> None:
        self.nodes += cost
        if self.nodes > MAX_NODES:
            rule = f"a configuration has at most {MAX_NODES:,} values, aliases written out"
            raise self.refuse(event, "more values", rule, "write the values without aliases")

    def _alias(self, event: Any) -> Value:
        if event.anchor not in self.anchors:
            rule = "an alias repeats an anchor that was closed before it"
            raise self.refuse(event, f"*{event.anchor}"[:60], rule, "write the value out")
        value, cost = self.anchors[event.anchor]
        self._count(event, cost)
        return value

    def _scalar(self, event: Any) -> Scalar:
        implicit = event.implicit if not event.tag or event.tag == "!" else (False, False)
        tag = event.tag
        if not tag or tag == "!":
            tag = self.resolver.resolve(self.yaml.ScalarNode, event.value, implicit)
        if tag == "tag:yaml.org,2002:merge":
            return _MERGE
        if tag == _TEXT:
            return str(event.value)
        node = self.yaml.ScalarNode(tag, event.value)
        try:
            if len(event.value) > _LONGEST:
                raise ValueError
            value = self.constructor.construct_object(node)
        except (self.yaml.YAMLError, ValueError, OverflowError, ArithmeticError):
            rule = "values are text, numbers, true, false and null"
            raise self.refuse(
                event, f"{tag} {event.value!r}"[:80], rule, "write it as text"
            ) from None
        return value if isinstance(value, bool | int | float | str | None) else event.value

    def _sequence(self) -> tuple[Value, ...]:
        values = []
        while not isinstance(event := next(self.events), self.yaml.SequenceEndEvent):
            values.append(self._value(event))
        return tuple(values)

    def _mapping(self, start: Any) -> Block:
        items: dict[str, Item] = {}
        merged: dict[str, Item] = {}
        repeated: list[tuple[str, int]] = []
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            key = self._key(event)
            line = event.start_mark.line + 1
            value = self._value(next(self.events))
            if key == _MERGE:
                merged = _merge(value) | merged
                continue
            if key in items:
                repeated.append((key, line))
            items[key] = Item(value, line)
        return Block(start.start_mark.line + 1, merged | items, tuple(repeated))

    def _key(self, event: Any) -> str:
        key = self._value(event)
        if isinstance(key, Block | tuple):
            raise self.refuse(event, "a block as a key", "keys are words", "write key: value")
        return str(key)


def _merge(value: Value) -> dict[str, Item]:
    parts = value if isinstance(value, tuple) else (value,)
    items: dict[str, Item] = {}
    for part in parts:
        if isinstance(part, Block):
            items = dict(part.items) | items
    return items


def _loader(yaml: Any) -> Any:
    """The C parser where PyYAML was built with it, else its Python twin."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, file: str) -> Block:
    """Read the text of a YAML file. Later duplicates win, as in PyYAML, and are remembered.

    Raises:
        IllFormed: it is not YAML, not a mapping, has foreign tags, or expands or nests too far.
    """
    import yaml

    try:
        value = _Reader(text, file).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark else 1
        reason = str(getattr(error, "problem", "") or getattr(error, "reason", "") or "unreadable")
        raise IllFormed(
            f"{file}:{line}",
            f"no YAML ({reason[:120]})",
            "the file is read as YAML 1.1",
            "correct the syntax or the indentation on this line or the one before",
        ) from None
    if not isinstance(value, Block):
        rule = "a configuration is a block of keys and values"
        raise IllFormed(file, "no keys", rule, "write key: value lines")
    return value


def read_yaml(path: Path) -> Block:
    """Read a YAML file; see :func:`parse_yaml`."""
    return parse_yaml(read_text(path), path.name)
