"""The programs in `examples/programs`: every claim holds, with its factor and its mesh."""

from __future__ import annotations

from pathlib import Path

import pytest

from placement_proofs.program.file import load_file
from placement_proofs.program.text import format_program, parse_program
from placement_proofs.prove import prove
from placement_proofs.replay import replay
from placement_proofs.verdict import Verdict

FOLDER = Path(__file__).parent.parent / "examples" / "programs"
FILES = sorted(FOLDER.glob("*.toml"))


def test_there_are_examples() -> None:
    assert len(FILES) >= 11


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_claims(path: Path) -> None:
    file = load_file(path)
    assert file.claims, "an example claims something"
    result = prove(file.program)
    for claim in file.claims:
        verdict = result[claim.condition].verdict if claim.condition else result.verdict
        assert verdict == claim.verdict, result.to_json()
        if claim.verdict != Verdict.REFUTED:
            continue
        example = result.counterexample
        assert example is not None and result.first_cause == claim.condition
        assert dict(example.sizes) == dict(claim.mesh)
        if claim.factor:
            assert example.factor == claim.factor


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_counterexamples_are_replayed(path: Path) -> None:
    program = load_file(path).program
    example = prove(program).counterexample
    if example is not None:
        outcome = replay(program, {**dict(example.sizes), **dict(example.lengths)})
        assert outcome.failed(example.condition) is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_text_round_trip(path: Path) -> None:
    program = load_file(path).program
    assert parse_program(format_program(program)) == program
