"""``check --repair``: repairs as differences, proved and costed; ``--no-repair``: no search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placement_proofs.cli import main
from placement_proofs.faults import find_fault
from placement_proofs.program.text import parse_program
from placement_proofs.prove import prove
from placement_proofs.verdict import Verdict


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints."""
    assert main(["check", *arguments]) == 1
    return capsys.readouterr().out


def test_a_program_is_repaired_as_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(find_fault("te-ln-tp-diverge")), "--repair")
    assert "repair 1: insert the missing reduction: before step 1.3: 'sum g tp'" in text
    assert "\n  +  sum g tp\n" in text
    assert "2*(N_tp-1)/N_tp * bytes" in text


def test_a_forward_pass_is_repaired(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(find_fault("slapo-row-bias")), "--repair")
    assert "  -join y = o + c\n" in text
    assert "  +join z = y + c\n" in text


def test_a_composition_is_repaired_as_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    change = "drop all-reduce gradient dp"
    arguments = ["data(dp=4)", "--without", change]
    assert f'  -  "{change}",' in shown(capsys, *arguments, "--repair")
    (fix,) = json.loads(shown(capsys, *arguments, "--json"))["repairs"]
    path = tmp_path / "repaired.toml"
    path.write_text(fix["repaired"])
    assert main(["check", str(path)]) == 0


@pytest.mark.parametrize("name", ["te-ln-tp-diverge", "slapo-row-bias", "titan-ep-2x"])
def test_repaired_programs_are_proved_again(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    fixes = json.loads(shown(capsys, str(find_fault(name)), "--json"))["repairs"]
    assert fixes
    for fix in fixes:
        assert prove(parse_program(fix["repaired"])).verdict is Verdict.PROVED


def test_no_repair_leaves_the_search_out(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(find_fault("te-ln-tp-diverge")), "--no-repair")
    assert "repair" not in text


def test_where_nothing_helps_it_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "lost.toml"
    path.write_text(
        '[program]\ntext = """\naxes dp\nspec W = c[dp]\ncopy w of W\nuse w\n'
        'grad g = d[dp]\nwhole h = f(g)\nupdate w h\ntick\n"""\n'
    )
    text = shown(capsys, str(path), "--repair")
    assert "no single change was found after which everything is proved" in text
