"""Published faults: verdicts, how they are said, repairs, explanations, rejections, compositions.

The encodings are ours, and were written by people who knew the expected verdict: they test the
engine and what it can express, not blind detection.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pytest
from agreement import agreement

from placement_proofs.cli import main
from placement_proofs.errors import IllFormed
from placement_proofs.faults import (
    Outcome,
    all_faults,
    find_fault,
    rate,
    read_fault,
    repairs_of,
    run_composed,
    run_fault,
)
from placement_proofs.program.text import format_program, parse_program
from placement_proofs.prove import explain
from placement_proofs.verdict import Verdict

NAMES = [path.stem for path in all_faults()]


@cache
def outcome(name: str) -> Outcome:
    """The outcome of a fault, run once."""
    return run_fault(read_fault(find_fault(name)))


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_get_their_verdicts(name: str) -> None:
    found = outcome(name)
    assert found.fault.name == name
    assert found.faulty.verdict is found.fault.expected, found.faulty.to_json()
    assert found.fixed.verdict is Verdict.PROVED, found.fixed.to_json()
    assert found.as_expected, found.to_json()


@pytest.mark.parametrize("name", NAMES)
def test_replay_agrees_with_both_forms(name: str) -> None:
    fault = outcome(name).fault
    for program in (fault.faulty, fault.fixed):
        assert not agreement(program).trouble
        assert parse_program(format_program(program)) == program


def test_most_faults_are_said_by_their_mechanism() -> None:
    counted = rate(map(outcome, NAMES))
    assert counted.faults == counted.as_expected == len(NAMES) >= 150
    assert counted.by["mechanism"] >= 145
    assert counted.by["effect"] <= 2
    kinds = Counter(outcome(name).fault.expected for name in NAMES)
    assert kinds[Verdict.PROVED] == 8


def test_most_refuted_faults_have_a_repair() -> None:
    refuted = [o for o in map(outcome, NAMES) if o.faulty.verdict is Verdict.REFUTED]
    repaired = {o.fault.name: repairs_of(o) for o in refuted}
    assert not sorted(name for name, found in repaired.items() if not found)
    assert all(cost for found in repaired.values() for _, cost in found)


PUBLISHED = {
    "titan-ep-2x": "scale g 1/ep",
    "mcore-final-ln-sp": "sum g tp",
    "olmo-ac-rng": "sample r = dropout key=dp replay=m",
    "fleetx-sp-dropout": "sample mask = dropout key=tp",
    "dtensor-rng": "sample w = init index=tp",
    "wg-skip-rank0": "max bad dp",
    "ddp-join-uneven": "scale g 1/has.all",
    "fsdp-cpuoffload-ga": "if mb.!first: add g t",
    "fsdp2-divide-degree1": "by 'scale g 1/(fs*ep)'",
    "ds-pp-zero1-ga": "move 'sum g dp' behind the loop over mb",
    "titan-pp-scale-grads-ema": "move 'scale g 1/mb' behind the loop over acc",
    "mcore-lmhead-untied": "add ga gb; set gb ga",
    "lightning-fsdp-resume": "take m.whole dp file; slice m.whole dp p",
    "areal-moments-dropped": "set m file",
    "automodel-clip-ep-te": "square q = g; square q.1 = h; sum q.1 ep; add q q.1",
    "mcore-vocab-uneven": "cover rows over tp up",
    "torchft-diloco-sign": "add o d x=-1",
    "verl-sp-ga": "count n in all turns of mb first",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_repair_is_proposed(name: str) -> None:
    assert any(PUBLISHED[name] in change for change, _ in repairs_of(outcome(name)))


LOSS = "A loss curve may hide it: "
ADAM = f"{LOSS}Adam divides by the gradient's own size, and a constant factor cancels."

MESSAGES = {
    "titan-ep-2x": (
        "The gradient of X, as its copy w is updated, is not x[edp,ep]/(edp*ep).",
        "On edp=1, ep=2, step=1, rank edp=0, ep=0 holds 12 where one device has 6"
        " (with x[edp=0, ep=0] = 5, x[edp=0, ep=1] = 7).",
        "Got over expected: ep.",
        "It shows at every ep >= 2.",
        "The step to blame is 1.3, 'mean g edp to=p'.",
        ADAM,
    ),
    "mcore-final-ln-sp": (
        "The gradient of W, as its copy w is updated, is not l.w[dp,tp]/dp.",
        "On dp=1, tp=2, step=1, rank dp=0, tp=0 holds 3 where one device has 8"
        " (with l.w[dp=0, tp=0] = 3, l.w[dp=0, tp=1] = 5).",
        "Got over expected: 1 for l.w[own tp]; 0 for l.w[other tp].",
        "It shows at every tp >= 2.",
        "The step to blame is 1.3, 'mean g dp'.",
        f"{LOSS}every rank still trains, on its own part, and its loss falls.",
    ),
    "automodel-router-detached": (
        "The gradient of R, as its copy w is updated, is not l.w[ep]/ep + a.w[ep]/ep.",
        "The backward of 'edge p = gather s ep' is stop; its adjoint, as the value is used,"
        " is scatter.",
        "On ep=1, step=1, rank ep=0 holds 5 where one device has 8"
        " (with l.w[ep=0] = 3, a.w[ep=0] = 5).",
        "Got over expected: 1 for a.w; 0 for l.w.",
        "It shows at all sizes.",
        "The step to blame is 1.4, 'mean g ep'.",
        f"{LOSS}the other terms are right, and a model trains without this one.",
    ),
    "fsdp2-divide-degree1": (
        "The gradient of X, as its copy w is updated, is not x[fs,ep]/(fs*ep).",
        "On fs=1, ep=2, step=1, rank fs=0, ep=0 holds 12 where one device has 6"
        " (with x[ep=0, fs=0] = 5, x[ep=1, fs=0] = 7).",
        "Got over expected: ep.",
        "It shows at fs = 1 (of 1 to 5); every ep >= 2.",
        "The step to blame is 1.4, 'if fs > 1: scale g 1/(fs*ep)'.",
        ADAM,
    ),
    "hf-avg-tokens-devices": (
        "The gradient of W, as its copy w is updated, is not c[dp]/n.",
        "On dp=2, step=1, rank dp=0 holds 34/15 where one device has 9/4"
        " (with c[dp=0] = 7, c[dp=1] = 11).",
        "Got over expected: n/(dp*n[dp=0]).",
        "It shows at every dp >= 2.",
        "The step to blame is 1.4, 'mean g dp'.",
        f"{LOSS}every token still counts, with a weight that depends on where it is.",
    ),
    "fsdp-clip-noshard": (
        "The squared norm q does not count every element of g once.",
        "On dp=2, step=1, rank dp=0 holds 32 where one device has 16.",
        "Got over expected: dp.",
        "It shows at every dp >= 2.",
        "The step to blame is 1.5, 'sum q dp'.",
        "A loss curve hides it: training is clipped as if the threshold were another one,"
        " and not at all differently where nothing is clipped.",
    ),
    "fleetx-sp-dropout": (
        "The numbers of mask (dropout of sequence shards) do not differ on the ranks of tp"
        " and agree on all others.",
        "On tp=2, rank tp=1 draws 2, the number of another rank whose data differ.",
        "It shows at every tp >= 2.",
        "A step is missing before step 2, 'expect mask drawn axes=tp"
        " about=dropout-of-sequence-shards', or it is wrong.",
        "A loss curve hides it: every rank's numbers look random on their own.",
    ),
    "ds-lamb-zero": (
        "The optimizer of W needs whole tensors; w is a shard.",
        "On dp=2, rank dp=0 has 1 of the 2 elements.",
        "It shows at every dp >= 2.",
        "The step to blame is 2, 'mean g dp to=p'.",
    ),
    "openinstruct-zero2-boundary": (
        "The gradient of W, as its copy w is updated, is not c[dp,mb]/(dp*mb).",
        "On dp=1, step=1, mb=2, rank dp=0 holds 5/2 where one device has 4"
        " (with c[dp=0, mb=0] = 3, c[dp=0, mb=1] = 5).",
        "Got over expected: 1 for c[mb last]; 0 for c[other mb].",
        "It shows at every mb >= 2.",
        "The step to blame is 1.2.3, 'set g t'.",
        f"{LOSS}every step still trains, on one turn of the loop.",
    ),
    "mcore-overlap-gather-stale": (
        "The copy v of W is read when it is not the current version.",
        "On dp=1, step=2, rank dp=0 holds 2 where one device has 5.",
        "It shows at every step >= 2.",
        "A step is missing before step 1.1, 'use v', or it is wrong.",
        "A loss curve hides it at first: a copy drifts away slowly, step by step.",
    ),
    "fsdp2-tp-uneven-load": (
        "The rows are not cut over dp so that every rank has equally many rows.",
        "On dp=2, rows=1, rank dp=1 has 0 rows where the first has 1.",
        "It shows at every dp >= 2; rows = 1, 3, 5 (of 1 to 5).",
        "A step is missing before step 1, 'cover rows over dp up even"
        ' why="the loader of a full state takes equal shards"\', or it is wrong.',
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_whole_messages(name: str) -> None:
    found = outcome(name)
    assert explain(found.fault.faulty, found.faulty) == MESSAGES[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_refutation_is_explained(name: str) -> None:
    found = outcome(name)
    said = explain(found.fault.faulty, found.faulty)
    if found.faulty.verdict is Verdict.REFUTED:
        assert any("shows at" in text for text in said)
        assert any("step" in text for text in said[2:])
    else:
        assert said == ()


def test_what_a_framework_rejects_is_another_answer() -> None:
    rejecting = [o.fault for o in map(outcome, NAMES) if o.fault.kind == "unsupported-rejected"]
    assert len(rejecting) == 9
    for fault in rejecting:
        assert fault.rejected is not None
        assert fault.rejected.source == fault.url
        assert fault.rejected.faulty
    right = [f.name for f in rejecting if f.expected is Verdict.PROVED]
    assert right == ["hf-dtensor-ddp-reject", "hf-fsdp-tp-reject"]


COMPOSED = [name for name in NAMES if outcome(name).fault.composed]


def test_faults_of_compositions_are_shown_there_too() -> None:
    assert len(COMPOSED) >= 60


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_faults(name: str) -> None:
    composed = outcome(name).fault.composed
    assert composed is not None
    expected = (Verdict.REFUTED, composed.condition, Verdict.PROVED)
    assert run_composed(composed) == expected


# --- command and files ---------------------------------------------------------------


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "titan-ep-2x", "olmo-ac-rng"]) == 0
    shown = capsys.readouterr().out
    assert "2 faults, every one as expected (2 by mechanism)" in shown
    assert "Got over expected: ep." in shown


def test_check_reads_the_faulty_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(find_fault("titan-ep-2x"))]) == 1
    shown = capsys.readouterr().out
    assert "(faulty form): gradient integrity fails" in shown
    assert "may hide it: Adam divides by the gradient's own size" in shown
    assert "rescale: before step 1.4: 'scale g 1/ep': proved; no traffic" in shown


def test_the_command_fails_on_a_wrong_verdict(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    text = find_fault("titan-ep-2x").read_text().replace('factor = "ep"', 'factor = "2"')
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    assert main(["faults", str(path)]) == 1
    assert "1 of 1 fault differ: titan-ep-2x" in capsys.readouterr().out


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "titan-ep-2x", "--json", "--repair"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "placement-proofs/faults/1"
    assert said["rate"]["as_expected"] == 1
    (row,) = said["faults"]
    assert (row["factor"], row["mesh"]) == ("ep", {"edp": 1, "ep": 2})
    assert row["repairs"][0] == {"change": "rescale: before step 1.4: 'scale g 1/ep'", "cost": "0"}


BAD = {
    'how = "magic"': "how is mechanism, or stand-in or effect with the missing concept",
    'concept = "none"': "how is mechanism, or stand-in or effect with the missing concept",
    'colour = "red"': "a fault has fault, kind, url",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_file_is_refused(line: str, tmp_path) -> None:
    text = find_fault("titan-ep-2x").read_text()
    how = line.startswith("how")
    text = text.replace('how = "mechanism"', line) if how else f"{line}\n{text}"
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(IllFormed, match=BAD[line]):
        read_fault(path)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(IllFormed, match="did you mean titan-ep-2x"):
        find_fault("titan-ep")
