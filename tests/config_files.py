"""Files of every format, made from a base and edits: the data of the tests of importers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data"
Edits = Mapping[str, Any]

SUFFIX = {"deepspeed": ".json", "torchtitan": ".toml", "megatron": ".sh", "lightning": ".py"}


def data(name: str) -> Any:
    """A YAML file of ``tests/data``."""
    return yaml.safe_load((DATA / name).read_text(encoding="utf-8"))


BASES: Mapping[str, dict[str, Any]] = data("config_bases.yaml")
"""A valid file of each format, for eight ranks."""


def edited(format: str, edits: Edits) -> dict[str, Any]:
    """The base of a format with keys set at paths such as ``a/b``, or taken out with ``None``."""
    config = copy.deepcopy(BASES[format])
    for path, value in edits.items():
        *outer, last = path.split("/")
        block = config
        for key in outer:
            block = block.setdefault(key, {})
        if value is None:
            block.pop(last, None)
        else:
            block[last] = value
    return config


def write(folder: Path, format: str, edits: Edits) -> Path:
    """A file of a format; the key ``@text`` is added at its end as it is."""
    config = edited(format, edits)
    tail = config.pop("@text", "")
    file = folder / f"a{SUFFIX.get(format, '.yaml')}"
    file.write_text(rendered(format, config) + (f"\n{tail}\n" if tail else ""), encoding="utf-8")
    return file


def rendered(format: str, config: dict[str, Any]) -> str:
    """The text of a file with these keys."""
    return _TEXTS.get(format, yaml_text)(config)


def yaml_text(config: Any) -> str:
    """YAML in the order of the keys."""
    return str(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))


def toml_text(config: Any) -> str:
    """TOML with every table in one line."""
    return "\n".join(f"{json.dumps(key)} = {_inline(value)}" for key, value in config.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_inline(inner)}" for key, inner in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if value is None:
        return '"none"'
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def _shell(config: Any) -> str:
    flags = " ".join(f"--{key} {value}".strip() for key, value in config.items())
    return f"torchrun pretrain_gpt.py {flags}\n"


def _python(config: Any) -> str:
    strategy = _call(config.get("@strategy"), config.get("strategy"))
    trainer = _call("L.Trainer", config.get("trainer"), "strategy=strategy")
    head = "import lightning as L\nfrom lightning.pytorch.strategies import *\n"
    return f"{head}strategy = {strategy}\ntrainer = {trainer}\n"


def _call(name: Any, keys: Any, *more: str) -> str:
    pairs = [f"{k}={v}" for k, v in keys.items()] if isinstance(keys, dict) else [str(keys)]
    return f"{name}({', '.join([*pairs, *more])})"


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "deepspeed": lambda config: json.dumps(config, indent=1),
    "torchtitan": toml_text,
    "megatron": _shell,
    "lightning": _python,
}
