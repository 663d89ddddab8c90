"""The page about faults: its files are run, its commands work; the schemas fit all files."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from placement_proofs.cli import main
from placement_proofs.faults import all_faults, read_fault, run_fault
from placement_proofs.program.parse import _DECLARATIONS, _STEPS

PAGE = (ROOT / "docs" / "faults.md").read_text()
FILES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ placement-proofs (.*)$", PAGE, re.MULTILINE)
TABLE = PAGE[PAGE.index("| statement") : PAGE.index("`how` says")]


def test_six_faults_are_worked() -> None:
    assert len(FILES) == 6


@pytest.mark.parametrize("text", FILES, ids=[tomllib.loads(text)["fault"] for text in FILES])
def test_the_files_give_what_they_say(text: str, tmp_path: Path) -> None:
    path = tmp_path / "fault.toml"
    path.write_text(text)
    found = run_fault(read_fault(path))
    assert found.as_expected, found.to_json()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_work(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)) == 0
    assert "titan-ep-2x" in capsys.readouterr().out


def test_every_statement_is_in_the_table() -> None:
    missing = [word for word in (*_STEPS, *_DECLARATIONS) if f"{word} " not in TABLE]
    assert set(missing) <= {"draw", "buffer", "equal", "name", "tick"}
    assert "`tick`" in TABLE


def schema(name: str) -> dict[str, Any]:
    """A schema for editors."""
    loaded: dict[str, Any] = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text())
    return loaded


@pytest.mark.parametrize("path", all_faults(), ids=lambda path: path.stem)
def test_faults_fit_their_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(tomllib.loads(path.read_text()), schema("fault"))


PROGRAMS = sorted((ROOT / "examples" / "programs").glob("*.toml"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_fit_their_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(tomllib.loads(path.read_text()), schema("program"))


def test_the_schema_notices_mistakes() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    table = tomllib.loads(all_faults()[0].read_text())
    for change in ({"how": "magic"}, {"colour": "red"}, {"how": "effect"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**table, **change}, schema("fault"))
