"""``check --explain``: the steps that a proof uses, by unsat cores and by deleting each."""

import json
from dataclasses import replace

import pytest
from conftest import ROOT

from placement_proofs.cli import main
from placement_proofs.inputs import read_subject
from placement_proofs.needed import minimal, needs
from placement_proofs.program.text import parse_program
from placement_proofs.prove import prove, smt
from placement_proofs.prove.edits import replaced
from placement_proofs.prove.uses import uses
from placement_proofs.theories import find_theory, read_theory
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
        proofs = [proof for group in told["cores"] for proof in group["proofs"]]
        assert {"gradient_integrity", "state_consistency"} <= {p["condition"] for p in proofs}
        assert all(step["rule"] for proof in proofs for step in proof["steps"])
    else:
        assert "what the proof needs (none can be deleted)" in out
        assert "without it: gradient integrity, at dp=2, step=1" in out
        assert "what each proof follows from" in out
        assert "a sum over ranks: own contributions become all" in out


def test_nothing_is_explained_of_a_refutation(capsys):
    arguments = ["check", "data(dp=8)", "--without", "drop all-reduce gradient dp", "--explain"]
    assert main(arguments) == 1
    assert "what the proof needs" not in capsys.readouterr().out


LOOP = """
axes dp
loops step mb
spec W = c[dp,mb]/(dp*mb)
copy m of W held=dp:p
copy w of W
loop step {
  use w
  loop mb {
    if mb.first: grad g = c[dp,mb] x=1/mb
    if mb.!first: grad g += c[dp,mb] x=1/mb
  }
  grad h = c[dp,mb]
  mean g dp to=p
  update m g
  set w m
  take w dp p
  tick
}
"""


def test_cores_are_the_steps_that_a_proof_follows_from():
    text = LOOP.replace("  grad h = c[dp,mb]\n", "  grad h = d[dp]\n  sum h dp\n")
    found = {(u.condition, u.subject): u for u in uses(parse_program(text))}
    gradient = [step for _, step, _ in found["gradient_integrity", "W"].steps]
    assert gradient == [
        "if mb.first: grad g = c[dp,mb] x=1/mb",
        "if mb.!first: grad g += c[dp,mb] x=1/mb",
        "mean g dp to=p",
    ]
    state = [step for _, step, _ in found["state_consistency", "w"].steps]
    assert state == ["update m g", "set w m", "take w dp p"]
    assert all(use.minimal for use in found.values()), "what h is does not matter"


@pytest.mark.parametrize("name", ["data", "zero", "tensor", "context"])
def test_every_proved_claim_has_cores_of_steps_that_are_needed(name):
    """Without a step of a minimal core something fails, or nothing runs.

    Only where no step passes on what would do without it: a slice of what is read by its owner.
    """
    tried = 0
    for claim in read_theory(find_theory(name)).claims:
        if claim.verdict is not Verdict.PROVED or claim.subject.program is None:
            continue
        program = claim.subject.program
        for use in uses(program):
            assert use.steps or use.condition == "state_consistency"
            for path, text, _ in use.steps if use.minimal else ():
                left = replace(program, steps=replaced(program.steps, path, ()))
                without = prove(left, certify=False, everywhere=False)
                assert without.verdict is not Verdict.PROVED, (claim.name, use.condition, text)
                tried += 1
    assert tried > 3


def test_a_core_is_minimal_only_where_every_deletion_is_satisfiable():
    block = "(declare-const x Real)\n" + "".join(f"(declare-const {n} Bool)\n" for n in "abc")
    block += "(assert (=> a (> x 1.0)))\n(assert (=> b (< x 0.0)))\n(assert (=> c (> x 2.0)))\n"
    core = smt.core(block, ["a", "b", "c"])
    assert core.minimal and len(core.labels) == 2 and "b" in core.labels
    assert smt.core(block, ["a", "c"]) is None
