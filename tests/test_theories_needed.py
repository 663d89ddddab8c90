"""``check --explain``: the steps that a proof uses, by deleting each."""

import json

import pytest
from conftest import ROOT

from placement_proofs.cli import main
from placement_proofs.inputs import read_subject
from placement_proofs.needed import minimal, needs
from placement_proofs.verdict import Verdict


def test_every_transfer_of_a_derived_plan_is_needed():
    found = needs(read_subject("zero3(dp=8) * tensor(tp=4, sequence=True)"))
    assert len(found) > 20 and minimal(found)
    gather = next(n for n in found if n.step.startswith("all-gather parameter dp phase=forward"))
    assert gather.fails == "state consistency, at dp=1, tp=1, step=2"


def test_a_step_without_which_a_rank_waits_forever_is_needed():
    """One stage of a pipeline skips a collective that the others enter."""
    subject = read_subject("zero1(dp=N) * pipeline(pp=S, microbatches=M)", model="gpt2")
    found = needs(subject)
    alone = next(n for n in found if n.step.startswith("all-reduce statistic dp*pp"))
    assert alone.verdict is Verdict.ILL_FORMED and minimal(found)


def test_a_step_that_changes_nothing_is_not_needed(tmp_path):
    text = (ROOT / "examples/programs/loop.toml").read_text()
    assert "mean g dp" in text
    path = tmp_path / "twice.toml"
    path.write_text(text.replace("mean g dp", "mean g dp\n  mean g dp", 1))
    found = needs(read_subject(str(path)))
    assert not minimal(found)
    twice = [n for n in found if n.step == "mean g dp"]
    assert [n.verdict for n in twice] == [Verdict.PROVED, Verdict.PROVED]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_command(capsys, more):
    assert main(["check", "data(dp=8)", "--explain", *more]) == 0
    out = capsys.readouterr().out
    if more:
        (told,) = json.loads(out)["explained"]
        assert told["minimal"] and all(s["without"] == "refuted" for s in told["steps"])
    else:
        assert "what the proof uses (none can be deleted)" in out
        assert "without it: gradient integrity, at dp=2, step=1" in out


def test_nothing_is_explained_of_a_refutation(capsys):
    arguments = ["check", "data(dp=8)", "--without", "drop all-reduce gradient dp", "--explain"]
    assert main(arguments) == 1
    assert "what the proof uses" not in capsys.readouterr().out
