"""OmegaConf's ``${...}`` and Primus' ``${NAME:default}`` in YAML values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from placement_proofs.configs.document import Block, Value
from placement_proofs.configs.shell_expand import scalar

MAX_DEPTH = 10
_WHOLE = re.compile(r"\$\{([^${}]*)\}")
_PATH = re.compile(r"\.*[A-Za-z_][\w.]*\Z")
_ENVIRONMENT = re.compile(r"([A-Z][A-Z0-9_]*):(.*)\Z", re.S)


@dataclass(frozen=True)
class Resolved:
    """A value after interpolation; ``variable`` may replace it from the environment."""

    value: Value
    variable: str = ""


def resolve(value: Value, root: Block, path: Sequence[str]) -> Resolved:
    """Fill in what the file itself decides; anything else stays as written.

    ``path`` is the key path of the value, for relative references.
    """
    if not isinstance(value, str) or "${" not in value or len(value) > 400:
        return Resolved(value)
    text, variable = value, ""
    for _ in range(MAX_DEPTH):
        match = _WHOLE.search(text)
        if match is None:
            return Resolved(scalar(text), variable)
        found, name = _inside(match[1].strip(), root, path)
        if found is None:
            return Resolved(value)
        variable = variable or name
        text = text[: match.start()] + found + text[match.end() :]
        if len(text) > 400:
            return Resolved(value)
    return Resolved(value)


def _inside(text: str, root: Block, path: Sequence[str]) -> tuple[str | None, str]:
    """What stands for ``${text}``, and the variable of the environment behind it."""
    if _PATH.match(text):
        return _at(text, root, path), ""
    operator, _, rest = text.partition(":")
    if operator in ("multiply", "mul"):
        return _product(rest), ""
    if operator == "oc.env":
        name, comma, default = rest.partition(",")
        return (default.strip() if comma else None), name.strip()
    if operator in ("oc.decode", "int"):
        return rest.strip(), ""
    match = _ENVIRONMENT.match(text)
    return (match[2].strip(), match[1]) if match else (None, "")


def _product(text: str) -> str | None:
    product = 1
    for factor in text.split(","):
        number = scalar(factor)
        if not isinstance(number, int) or abs(number) > 10**9:
            return None
        product *= number
    return str(product)


def _at(text: str, root: Block, path: Sequence[str]) -> str | None:
    """The scalar at a key path; ``.key`` is beside the value, ``..key`` one block higher."""
    dots = len(text) - len(text.lstrip("."))
    keys = [*path[: len(path) - dots], *text.lstrip(".").split(".")] if dots else text.split(".")
    value: Value = root
    for key in keys:
        item = value.items.get(key) if isinstance(value, Block) else None
        value = item.value if item else None
    return None if value is None or isinstance(value, Block | tuple) else str(value)
