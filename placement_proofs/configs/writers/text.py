"""The text of configuration files: YAML, TOML, JSON, and a comment above."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

Table = Mapping[str, object]


def yaml_text(table: Table) -> str:
    """YAML in the order of the keys."""
    import yaml

    return str(yaml.safe_dump(_plain(table), sort_keys=False, default_flow_style=False))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def json_text(table: Table) -> str:
    """JSON, indented."""
    return json.dumps(_plain(table), indent=2) + "\n"


def toml_text(tables: Mapping[str, Table]) -> str:
    """TOML of tables with plain values."""
    parts = []
    for name, table in tables.items():
        rows = [f"{key} = {_toml(value)}" for key, value in table.items()]
        parts.append("\n".join([f"[{name}]", *rows]) + "\n")
    return "\n".join(parts)


def _toml(value: object) -> str:
    return json.dumps(value)


def commented(lines: Iterable[str], text: str) -> str:
    """A text below comment lines."""
    return "".join(f"# {line}\n" for line in lines) + text


def given(table: Mapping[str, object | None]) -> dict[str, object]:
    """A table without the values that are not known."""
    return {key: value for key, value in table.items() if value is not None}
