"""MaxText's settings as a block: its YAML with the files it builds on, or a shell's key=value."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice
from pathlib import Path

from placement_proofs.configs.document import Block, Item, Scalar, read_text
from placement_proofs.configs.yaml_text import read_yaml
from placement_proofs.errors import IllFormed

BASES = "base_config"
_DEEPEST = 8
_MOST = 100
"""Repeated keys that are told."""
_PAIR = re.compile(r"""(?<![\w./$-])([a-z][a-z0-9_]*)=("[^"\n]*"|'[^'\n]*'|[^\s"'\\|;&)]*)""")
_FLAG = re.compile(r"--(num-slices|device-type|tpu-type)[= ]([\w.-]+)")
_SETTING = re.compile(r"""^\s*(?:export\s+)?([A-Z][A-Z0-9_]*)=["']?([\w.-]*)["']?\s*$""", re.M)
_VARIABLE = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)\}?")
_MARK = re.compile(r"\b(ici|dcn)_\w+_parallelism=|\bper_device_batch_size=")
_DEGREE = re.compile(r"(ici|dcn)_|per_device_batch_size")
_START = re.compile(r"\btrain(_compile)?(\.py)?\s+\S*\.yml")
_LINE = re.compile("^", re.MULTILINE)
_COMMENT = re.compile(r"(^|\s)#.*")
_WHOLE = re.compile(r"-?\d{1,15}\Z")
_REAL = re.compile(r"-?\d{1,15}\.\d*\Z")
_WORDS: dict[str, Scalar] = {"true": True, "false": False, "none": None, "null": None}


def read_settings(path: Path) -> Block:
    """Read YAML with the files that ``base_config`` names, or a shell script by its ending.

    Raises:
        IllFormed: unreadable, or files that build on each other in a circle.
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        return _with_base(read_yaml(path), path, ())
    return parse_shell(read_text(path), path.name)


def _with_base(block: Block, path: Path, seen: tuple[str, ...]) -> Block:
    """The keys of a file over those of its base, where the base lies beside it."""
    name = block.items.get(BASES)
    if name is None or not isinstance(name.value, str) or not name.value:
        return block
    base = path.parent / name.value
    if not _exists(base):
        return block
    if str(base) in seen or base.name == path.name or len(seen) >= _DEEPEST:
        raise IllFormed(
            f"{path.name}:{name.line} {BASES}",
            name.value[:80],
            f"files build on each other in a line of at most {_DEEPEST}",
            "break the circle",
        )
    below = _with_base(read_yaml(base), base, (*seen, str(base)))
    marked = {
        key: Item(item.value, item.line, f"{key} (in {base.name})", item.given)
        for key, item in below.items.items()
        if key != BASES and not item.shown
    }
    deeper = {k: v for k, v in below.items.items() if v.shown}
    return Block(block.line, {**deeper, **marked, **block.items}, block.repeated)


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def parse_shell(text: str, file: str) -> Block:
    """The ``key=value`` arguments of a script that starts MaxText; empty for any other script.

    The script is not run: comments are left out, and a variable is replaced where the script sets
    it once to a plain word.

    Raises:
        IllFormed: it starts several trainings with different degrees.
    """
    code = "\n".join(_without_comment(line) for line in text.split("\n"))
    if not _MARK.search(code):
        return Block()
    variables = _variables(code)
    starts = [match.start() for match in _LINE.finditer(code)]
    several = len(list(islice(_START.finditer(code), 2))) == 2
    items: dict[str, Item] = {}
    repeated: list[tuple[str, int]] = []
    for match in (*_FLAG.finditer(code), *_PAIR.finditer(code)):
        key, line = match.group(1).replace("-", "_"), bisect_right(starts, match.start())
        item = Item(_value(match.group(2), variables), line)
        if key in items:
            repeated.append((key, line))
            if several:
                _several(key, items[key], item, file)
        items[key] = item
    return Block(1, items, tuple(repeated[:_MOST]))


def _several(key: str, first: Item, item: Item, file: str) -> None:
    """Two values of a degree in a script with two starts are two configurations."""
    if first.value != item.value and _DEGREE.match(key):
        raise IllFormed(
            f"{file}:{item.line} {key}",
            f"{item.value} here and {first.value} on line {first.line}, in a script that starts "
            "several trainings",
            "one configuration is one placement",
            "write the one to check into a file of its own",
        )


def _without_comment(line: str) -> str:
    return "" if line.lstrip().startswith("#") else _COMMENT.sub("", line)


def _variables(code: str) -> dict[str, str]:
    """Variables that are set to one plain word, once."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for match in _SETTING.finditer(code):
        name, value = match.groups()
        if name in found:
            twice.add(name)
        found[name] = value
    return {name: value for name, value in found.items() if name not in twice and value}


def _value(text: str, variables: dict[str, str]) -> Scalar:
    word = text.strip("\"'")
    word = _VARIABLE.sub(lambda m: variables.get(m.group(1), m.group(0)), word)
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _WHOLE.match(word):
        return int(word)
    return float(word) if _REAL.match(word) else word
