'''TOML files that hold an element program and what it claims.

A file has the mesh, loops, specification
and copies as tables (all optional: the program text may say the same), the text, and claims:

    [mesh]
    dp = "N"            # or an integer
    [spec.W]
    target = "c[dp]/dp"
    [copies]
    w = "W held=dp:p"
    relax = ["late W=1"]            # weaker claims (`program.relax`), at the top of the file
    [[claim]]
    condition = "gradient_integrity"
    verdict = "refuted"
    [program]
    text = """ ... """
'''

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.program import Program
from placement_proofs.program.lex import syntax
from placement_proofs.program.parse import MAX_BYTES, parse_program
from placement_proofs.program.relax import relaxed


@dataclass(frozen=True, slots=True)
class Claim:
    """What a file says about its program: the verdict of a condition (or of all)."""

    verdict: str
    condition: str = ""
    factor: str = ""
    mesh: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A program and the claims that its file makes."""

    program: Program
    claims: tuple[Claim, ...] = ()
    relax: tuple[str, ...] = ()


def load_program(path: str | Path) -> Program:
    """The program of a TOML file; raises `IllFormed`."""
    return load_file(path).program


def load_file(path: str | Path) -> ProgramFile:
    """The program and the claims of a TOML file; raises `IllFormed`."""
    place = Path(path).name
    try:
        raw = Path(path).read_bytes()
        data = tomllib.loads(raw[: MAX_BYTES + 1].decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise IllFormed(
            place, str(error)[:80], "a program file is readable TOML", "correct the file"
        ) from None
    program = relaxed(parse_program(_file_text(data, place), place=place), _relax(data, place))
    claims = tuple(_claim(entry, place) for entry in data.get("claim", []))
    return ProgramFile(program, claims, tuple(_relax(data, place)))


_TABLES = ("name", "mesh", "loops", "equal", "spec", "copies", "program", "relax", "claim")


def _relax(data: dict[str, Any], place: str) -> list[str]:
    texts = data.get("relax", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise syntax(place, str(texts), 'relax is a list of texts, relax = ["late W=1"]')
    return texts


def _file_text(data: dict[str, Any], place: str) -> str:
    """The tables of a file as declarations, before its text."""
    unknown = sorted(set(data) - set(_TABLES))
    if unknown:
        raise syntax(place, ", ".join(unknown), f"a file has the tables {', '.join(_TABLES)}")
    lines = [f"name {data['name']}"] if "name" in data else []
    for word, table in (("axes", "mesh"), ("loops", "loops")):
        entries = _table(data, table, place)
        lines += [f"{word} {' '.join(entries)}"] if entries else []
        lines += [
            f"size {name} {size}"
            for name, size in entries.items()
            if not isinstance(size, str) or size.isdigit()
        ]
    lines += [f"equal {' '.join(map(str, data['equal']))}"] if "equal" in data else []
    specs = _table(data, "spec", place)
    lines += [_spec_line(name, _table(specs, name, place)) for name in specs]
    lines += [_copy_line(name, str(text)) for name, text in _table(data, "copies", place).items()]
    text = _table(data, "program", place).get("text", "")
    if not isinstance(text, str):
        raise syntax(place, str(text), "[program] has a text")
    return "; ".join(lines) + "\n" + text


def _spec_line(name: str, spec: dict[str, Any]) -> str:
    options = {key: value for key, value in spec.items() if key != "target"}
    texts = {k: ",".join(map(str, v)) if isinstance(v, list) else v for k, v in options.items()}
    more = "".join(f" {key}={value}" for key, value in texts.items())
    return f"spec {name} = {spec.get('target', '0')}{more}"


def _copy_line(name: str, text: str) -> str:
    param, _, rest = text.partition(" ")
    return f"copy {name} of {param} {rest}"


def _table(data: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise syntax(place, name, f"[{name}] is a table")
    return table


def _claim(entry: Any, place: str) -> Claim:
    if not isinstance(entry, dict) or set(entry) - {"verdict", "condition", "factor", "mesh"}:
        raise syntax(place, str(entry), "a claim has verdict, condition, factor and mesh")
    mesh = entry.get("mesh", {})
    return Claim(
        verdict=str(entry.get("verdict", "proved")),
        condition=str(entry.get("condition", "")),
        factor=str(entry.get("factor", "")),
        mesh=tuple((str(axis), int(size)) for axis, size in mesh.items()),
    )
