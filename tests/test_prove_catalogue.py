"""Published faults as element programs: the faulty form is refuted, the fixed form proved.

Each file in `data/programs` has both forms, the condition that fails first, the smallest
mesh and, where there is one, the closed-form factor. The encodings are ours, and were
written by people who knew the expected verdict: they test the engine, not blind detection.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from agreement import agreement

from placement_proofs.program_text import format_program, parse_program
from placement_proofs.prove import prove
from placement_proofs.verdict import Verdict

FILES = sorted((Path(__file__).parent / "data" / "programs").glob("*.toml"))


def load(path: Path) -> dict[str, Any]:
    """The tables of one fault."""
    return tomllib.loads(path.read_text())


def test_there_are_many() -> None:
    assert len(FILES) >= 70


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_faulty_form_is_refuted(path: Path) -> None:
    fault = load(path)
    result = prove(parse_program(fault["faulty"], place=path.stem))
    assert result.verdict is Verdict.REFUTED
    assert result.first_cause == fault["condition"]
    example = result.counterexample
    assert example is not None and dict(example.sizes) == fault["mesh"]
    if "factor" in fault:
        assert example.factor == fault["factor"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_fixed_form_is_proved(path: Path) -> None:
    result = prove(parse_program(load(path)["fixed"], place=path.stem))
    assert result.verdict is Verdict.PROVED, result.to_json()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_replay_agrees_with_both_forms(path: Path) -> None:
    fault = load(path)
    for form in ("faulty", "fixed"):
        program = parse_program(fault[form])
        assert not agreement(program).trouble
        assert parse_program(format_program(program)) == program
