"""Weaker claims beside a program: late gradients, stale reads, agreement at an average."""

from __future__ import annotations

from pathlib import Path

import pytest
from agreement import agreement
from conftest import ROOT

from placement_proofs.cli import main
from placement_proofs.errors import IllFormed
from placement_proofs.program.relax import relaxed
from placement_proofs.program.text import format_program, load_file, parse_program
from placement_proofs.prove import prove
from placement_proofs.verdict import Verdict

PROGRAMS = ROOT / "examples" / "programs"
EXAMPLES = {
    "delayed_update": ("late W=2", "late W=1"),
    "stale_reads": ("within v=1", ""),
    "local_sgd": ("sync W", ""),
}


def strict(name: str, tmp_path: Path) -> Path:
    """An example without its weaker claim."""
    lines = (PROGRAMS / f"{name}.toml").read_text().splitlines()
    path = tmp_path / f"{name}.toml"
    path.write_text("\n".join(line for line in lines if not line.startswith("relax")))
    return path


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_claim_decides(name: str, tmp_path: Path) -> None:
    path = strict(name, tmp_path)
    right, wrong = EXAMPLES[name]
    assert main(["check", str(PROGRAMS / f"{name}.toml")]) == 0
    assert main(["check", str(path)]) == 1
    assert main(["check", str(path), "--relax", right]) == 0
    assert not wrong or main(["check", str(path), "--relax", wrong]) == 1


@pytest.mark.parametrize("name", [*EXAMPLES, "error_feedback"])
def test_replay_agrees_and_the_text_is_read_back(name: str) -> None:
    program = load_file(PROGRAMS / f"{name}.toml").program
    assert not agreement(program).trouble
    assert parse_program(format_program(program)) == program


def test_the_report_says_which_claim_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(PROGRAMS / "local_sgd.toml")])
    assert "weaker claim: sync W" in capsys.readouterr().out


LOCAL = """
axes worker
spec W = c[worker]/worker
copy w of W
loop inner {
use w
grad g = c[worker]
update w g
}
"""


def test_an_average_over_some_of_the_workers_leaves_copies_apart() -> None:
    text = LOCAL.replace("axes worker", "axes worker node") + "mean w worker"
    text = text.replace("c[worker]/worker", "c[worker,node]/(worker*node)")
    text = text.replace("= c[worker]\n", "= c[worker,node]\n")
    found = prove(relaxed(parse_program(text), ["sync W"]))
    assert (found.verdict, found.first_cause) == (Verdict.REFUTED, "contract")


BAD = {
    "sync W": "no step averages or broadcasts w",
    "sync V": "the program has the parameters W",
    "within x=1": "the program has the copies w",
    "late W=9": "a delay is at most 8 steps",
    "never W": "a relaxed claim is",
}


@pytest.mark.parametrize("claim", BAD)
def test_claims_that_mean_nothing(claim: str) -> None:
    with pytest.raises(IllFormed, match=BAD[claim]):
        relaxed(parse_program(LOCAL), [claim])


def test_compositions_have_no_weaker_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "data(dp=2)", "--relax", "sync W"]) == 2
    assert "relaxed claims are about element programs" in capsys.readouterr().err
