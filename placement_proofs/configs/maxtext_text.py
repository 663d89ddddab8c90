"""MaxText's settings as a block: its YAML with the files it builds on, or a shell's key=value."""

from __future__ import annotations

import re
from pathlib import Path

from placement_proofs.configs.document import Block, Item, Scalar, read_text
from placement_proofs.configs.yaml_text import read_yaml
from placement_proofs.errors import IllFormed

BASES = "base_config"
_DEEPEST = 8
_PAIR = re.compile(r"""(?<![\w./$-])([a-z][a-z0-9_]*)=("[^"\n]*"|'[^'\n]*'|[^\s"'\\|;&)]*)""")
_FLAG = re.compile(r"--(num-slices|device-type|tpu-type)[= ]([\w.-]+)")
_SETTING = re.compile(r"""^\s*(?:export\s+)?([A-Z][A-Z0-9_]*)=["']?([\w.-]*)["']?\s*$""", re.M)
_VARIABLE = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)\}?")
_MARK = re.compile(r"\b(ici|dcn)_\w+_parallelism=|\bper_device_batch_size=")
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
    return parse_shell(read_text(path))


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


def parse_shell(text: str) -> Block:
    """The ``key=value`` arguments of a script that starts MaxText; empty for any other script.

    The script is not run: comments are left out, and a variable is replaced where the script sets
    it once to a plain word.
    """
    code = (
        _COMMENT.sub("", text)
        if "\n" not in text
        else "\n".join(
            _COMMENT.sub("", line) if not line.lstrip().startswith("#") else ""
            for line in text.split("\n")
        )
    )
    if not _MARK.search(code):
        return Block()
    variables = _variables(code)
    items: dict[str, Item] = {}
    repeated: list[tuple[str, int]] = []
    for match in _PAIR.finditer(code):
        key, line = match.group(1), code.count("\n", 0, match.start()) + 1
        if key in items:
            repeated.append((key, line))
        items[key] = Item(_value(match.group(2), variables), line)
    for match in _FLAG.finditer(code):
        key = match.group(1).replace("-", "_")
        items[key] = Item(_value(match.group(2), variables), code.count("\n", 0, match.start()) + 1)
    return Block(1, items, tuple(repeated))


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
