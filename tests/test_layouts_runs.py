"""Measured runs: reading them, fitting constants to them, and judging predictions by them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from placement_proofs.errors import IllFormed
from placement_proofs.layouts import forms as forms_module
from placement_proofs.layouts import kernels
from placement_proofs.layouts.calibrate import Table, calibrate, fit, score, table
from placement_proofs.layouts.constants import NAMES, Constants, load_constants
from placement_proofs.layouts.evaluate import (
    evaluate,
    held_out_evaluation,
    judged,
    published,
    rule_order,
    spearman,
)
from placement_proofs.layouts.predict import predictor
from placement_proofs.layouts.runs import OOM, RAN, Run, read_runs
from placement_proofs.layouts.setting import Layout
from placement_proofs.layouts.setups import load_setup

HEAD = (
    "sweep,trial,model,seq_len,world_size,micro_batch,tensor,pipeline,checkpointing,kernel,"
    "sequence_parallel,outcome,step_time_s,mfu"
)
LINE = "s,1,llama-13b,2048,64,1,2,2,disabled,flash_attention2,False,ran,30.5,0.5"


def written(tmp_path, *lines, head=HEAD):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def read(tmp_path, *lines, head=HEAD):
    return read_runs(written(tmp_path, *lines, head=head), load_setup())


def test_a_run_is_a_layout_of_a_job(tmp_path):
    (run,) = read(tmp_path, LINE)
    assert run.layout == Layout(1, 2, 2, data=16, norm="eager")
    assert (run.job.name, run.job.gpus, run.job.global_batch) == ("llama-13b", 64, 2048)
    assert run.job.shape.sequence == 2048
    assert (run.outcome, run.step, run.mfu) == (RAN, 30.5, 0.5)


def test_optional_columns(tmp_path):
    head = f"{HEAD},global_batch,chunks,context,zero"
    (run,) = read(tmp_path, f"{LINE},512,2,4,0", head=head)
    assert run.job.global_batch == 512
    assert run.layout == Layout(1, 2, 2, 2, 4, 4, zero=0, norm="eager")


@pytest.mark.parametrize(
    ("old", "new", "place", "found"),
    [
        ("llama-13b", "llama-14b", "runs.csv:3: model", "'llama-14b'"),
        (",2048,", ",2k,", "runs.csv:3: seq_len", "'2k'"),
        (",64,", ",0,", "runs.csv:3: world_size", "'0'"),
        (",64,", ",6,", "runs.csv:3: world_size", "'6'"),
        ("disabled", "off", "runs.csv:3: checkpointing", "'off'"),
        ("flash_attention2", "flashy", "runs.csv:3: kernel", "'flashy'"),
        ("False", "no", "runs.csv:3: sequence_parallel", "'no'"),
        ("ran,", "done,", "runs.csv:3: outcome", "'done'"),
        ("30.5", "", "runs.csv:3: step_time_s", "''"),
        ("30.5", "nan", "runs.csv:3: step_time_s", "'nan'"),
        ("ran,", "oom,", "runs.csv:3: step_time_s", "'30.5'"),
        (",0.5", "", "runs.csv:3", "another number of fields"),
        (",1,2,2,", ",3,2,2,", "runs.csv:3", "48 sequences"),
    ],
)
def test_a_wrong_value_is_named_with_its_line_and_column(tmp_path, old, new, place, found):
    with pytest.raises(IllFormed) as error:
        read(tmp_path, LINE, LINE.replace(old, new, 1))
    assert str(error.value.place).endswith(place)
    assert found in error.value.found


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (HEAD.replace("kernel", "kernels"), "kernels"),
        (HEAD.replace(",outcome", ""), "add outcome"),
        (HEAD.replace("trial", "model"), "model"),
        ("", "none"),
    ],
)
def test_wrong_columns_are_named(tmp_path, head, part):
    with pytest.raises(IllFormed) as error:
        read(tmp_path, LINE, head=head)
    assert part in str(error.value)


def test_a_file_without_runs_or_without_text_is_refused(tmp_path):
    with pytest.raises(IllFormed, match="no runs"):
        read(tmp_path)
    with pytest.raises(IllFormed, match="CSV file"):
        read_runs(tmp_path / "none.csv", load_setup())


def test_a_setup_of_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[mine]\nmachine = "h100"\nzero = 3\n[mine.batch]\n4096 = 256\n'
        '[mine.models.small]\nbase = "llama-7b"\nlayers = 8\n'
        '[mine.kernels.flash3]\nattention = "flash-2"\nnorm = "fused"\n',
        encoding="utf-8",
    )
    setup = load_setup(str(path))
    assert setup.machine.device.name == "h100"
    assert (setup.batch, setup.models["small"].layers) == ({4096: 256}, 8)
    line = "s,1,small,4096,8,1,1,1,disabled,flash3,False,oom,,"
    (run,) = read_runs(written(tmp_path, line), setup)
    assert (run.layout.zero, run.job.global_batch) == (3, 256)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a = 1", "a setup is a table"),
        ("[a]\n[b]", "2 tables"),
        ("[a]\nmachine = 3", "a.machine"),
        ('[a]\nmachine = "a100-80gb"\nzero = true', "a.zero"),
        ('[a]\nmachine = "a100-80gb"\n[a.batch]\nx = 1', "a.batch"),
        ('[a]\nmachine = "a100-80gb"\n[a.kernels.k]\nattention = "quick"\nnorm = "eager"', "quick"),
        ("[a", "TOML"),
    ],
)
def test_a_wrong_setup_is_refused(tmp_path, text, part):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(IllFormed) as error:
        load_setup(str(path))
    assert part in str(error.value)


def test_constants_are_read_as_they_were_written(tmp_path):
    mine = Constants(logit=20.5, matrix=0.61, fitted='the "best" runs')
    path = tmp_path / "mine.toml"
    path.write_text(mine.to_toml(), encoding="utf-8")
    read = load_constants(str(path))
    assert read == replace(mine, fitted="the 'best' runs")
    assert load_constants("unfitted") == Constants()
    assert "sweeps" in load_constants().fitted


@pytest.mark.parametrize("text", ["matrix = -1", 'matrix = "x"', "speed = 1.0", "fitted = 2"])
def test_wrong_constants_are_refused(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(IllFormed, match=text.partition(" ")[0]):
        load_constants(str(path))
    with pytest.raises(IllFormed, match="unfitted"):
        load_constants("nothing")


# calibration on runs that follow from known constants

TRUE = Constants(
    logit=22.0, allocator=1.3, reserve=2.0**30, matrix=0.6, link=0.4, contention=0.2, launch=2.5e-5
)
SPACE = [
    Layout(b, t, p, data=64 // (t * p), recompute=r, norm="eager")
    for b in (1, 2, 4)
    for t in (1, 2, 4)
    for p in (1, 2, 4)
    for r in ("none", "full")
]


def made_up(constants, models=("llama-13b", "llama-30b"), noise=0.0):
    """Runs as they would be if the forms were right."""
    setup = load_setup()
    given = [(setup.job(m, 2048, 64, 2048), layout) for m in models for layout in SPACE]
    prepared = predictor(given)
    full = prepared.peak(constants) > setup.machine.device.memory
    steps = prepared.step(constants) * np.exp(noise * np.sin(np.arange(len(given))))
    return tuple(
        Run(f"made:{i}", job.name, str(i), job, layout, OOM, None, None)
        if full[i]
        else Run(f"made:{i}", job.name, str(i), job, layout, RAN, float(steps[i]), None)
        for i, (job, layout) in enumerate(given)
    )


@pytest.fixture(scope="module")
def known() -> Table:
    return table(made_up(TRUE))


def test_a_fit_finds_the_constants_behind_the_runs(known):
    found = fit(known, np.ones(len(known.runs), bool), Constants())
    for name in ("matrix", "link", "contention", "launch"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.01)
    assert found.logit == pytest.approx(TRUE.logit, rel=0.15)
    assert score(known, found, known.decided).accuracy > 0.98
    assert fit(known, np.ones(len(known.runs), bool), Constants()) == found


def test_outliers_do_not_move_a_fit(known):
    """A few runs that took twice as long leave the constants where they are."""
    slow = known.step.copy()
    slow[np.flatnonzero(known.ran)[::12]] *= 2
    found = fit(replace(known, step=slow), np.ones(len(known.runs), bool), Constants())
    assert found.matrix == pytest.approx(TRUE.matrix, rel=0.03)


def test_a_calibration_judges_each_model_by_the_others(known):
    found = calibrate(known)
    assert [h.model for h in found.held] == ["llama-13b", "llama-30b"]
    assert found.outside is not None
    assert found.outside.median < 0.01
    assert "llama-13b, llama-30b" in found.constants.fitted


def test_what_no_run_tells_stays(known):
    """On one node nothing is told about contention between nodes."""
    small = tuple(
        replace(run, job=replace(run.job, gpus=8), layout=replace(run.layout, data=data))
        for run in known.runs
        if (data := 8 // (run.layout.tensor * run.layout.pipeline))
    )
    given = table(small)
    found = fit(given, np.ones(len(small), bool), replace(Constants(), contention=0.77))
    assert found.contention == 0.77


def test_runs_that_all_ran_or_all_failed_fit_nothing(known):
    with pytest.raises(IllFormed, match="0 out of memory"):
        calibrate(table([run for run in known.runs if run.ran]))


# judging


def test_outcomes_choices_and_correlation_on_a_small_sweep(tmp_path):
    """Four layouts: predicted in the order a, b, c, d; a went out of memory, c was the fastest."""
    kernel = "flash_attention2 + RMS kernel"
    runs = read(
        tmp_path,
        f"s,a,llama-13b,2048,64,1,1,1,disabled,{kernel},False,oom,,",
        f"s,b,llama-13b,2048,64,1,1,2,disabled,{kernel},False,ran,33,",
        f"s,c,llama-13b,2048,64,1,2,1,disabled,{kernel},False,ran,30,",
        f"s,d,llama-13b,2048,64,1,2,2,disabled,{kernel},False,ran,36,",
    )
    given = table(runs)
    gib = 2.0**30
    found = judged(
        given,
        Constants(),
        peak=np.array([70, 50, 90, 20]) * gib,
        step=np.array([28.0, 33.0, 29.7, 40.0]),
    )
    memory = found.memory
    assert (memory.fits_ran, memory.fits_oom, memory.full_ran, memory.full_oom) == (2, 1, 1, 0)
    assert memory.accuracy == 0.5
    assert found.hard.count == 2
    assert found.always == 0.25
    assert found.steps.median == pytest.approx(0.01)
    (sweep,) = found.sweeps
    assert sweep.correlation == pytest.approx(1.0)
    assert (sweep.predicted.launches, sweep.predicted.regret) == (2, pytest.approx(0.1))
    assert sweep.predicted.regret_of_three == pytest.approx(0.1)
    assert (sweep.rules.launches, sweep.rules.regret) == (2, pytest.approx(0.1))
    assert (sweep.told.launches, sweep.told.regret) == (1, pytest.approx(0.1))


def test_repeated_runs_are_one_candidate(tmp_path):
    lines = [LINE.replace("30.5", str(x)) for x in (30, 31, 39)]
    slow = LINE.replace(",1,2,2,", ",2,2,2,").replace("30.5", "31.5")
    given = table(read(tmp_path, *lines, slow))
    found = judged(given, Constants(), np.zeros(4), np.array([5.0, 5.0, 5.0, 1.0]))
    assert found.sweeps[0].predicted.regret == pytest.approx(31.5 / 31 - 1)


def test_rank_correlation():
    assert spearman(np.array([1.0, 2, 3]), np.array([10.0, 20, 15])) == pytest.approx(0.5)
    assert spearman(np.array([1.0, 1, 2, 3]), np.array([1.0, 1, 2, 3])) == pytest.approx(1)
    assert np.isnan(spearman(np.array([1.0, 2]), np.array([1.0, 2])))
    assert np.isnan(spearman(np.array([1.0, 1, 1]), np.array([1.0, 2, 3])))


def test_the_rules_of_the_paper_order_layouts():
    order = [
        Layout(1, 1, 2),
        Layout(1, 2, 1),
        Layout(1, 1, 4),
        Layout(2, 1, 2),
        Layout(1, 1, 1, recompute="full"),
        Layout(1, 1, 1, norm="eager"),
        Layout(1, 1, 1, attention="eager", norm="eager"),
    ]
    assert sorted(reversed(order), key=rule_order) == order


def test_the_published_column(tmp_path):
    (run,) = read(tmp_path, LINE)
    right = replace(run, mfu=run.job.mfu(30.5))
    found = published([right, replace(right, mfu=right.mfu * 1.01)])
    assert (found.runs, found.exact) == (2, 1)
    assert found.most == pytest.approx(0.01, rel=0.02)
    assert published([replace(run, mfu=None)]) is None


# the published sweeps


@pytest.fixture(scope="module")
def measured() -> Table:
    from conftest import SHARED

    path = SHARED / "data" / "layout_runs.csv"
    if not path.is_file():
        pytest.skip("no file ../shared/data/layout_runs.csv beside the checkout")
    return table(read_runs(path, load_setup()))


def test_predictions_of_the_published_sweeps(measured):
    """In-sample for the shipped constants; no constant is fitted for the others."""
    fitted, plain = evaluate(measured, load_constants()), evaluate(measured, Constants())
    assert fitted.memory.accuracy > 0.98
    assert plain.memory.accuracy > 0.94
    assert fitted.hard.accuracy > plain.hard.accuracy > 0.75
    assert fitted.steps.median < 0.03
    assert fitted.correlation > 0.95
    assert all(sweep.fitted for sweep in fitted.sweeps)
    assert fitted.mean("predicted", "regret") <= fitted.mean("told", "regret")
    assert fitted.mean("predicted", "launches") < fitted.mean("rules", "launches")
    assert fitted.kernels.accuracy > 0.99
    assert fitted.always == pytest.approx(0.584, abs=0.001)


def test_the_shipped_constants_are_those_of_the_sweeps(measured):
    found = fit(measured, np.ones(len(measured.runs), bool), Constants())
    shipped = load_constants()
    for name in NAMES:
        assert getattr(found, name) == pytest.approx(getattr(shipped, name), rel=1e-3, abs=1e-9)


MUTANTS = {
    "logits": replace(load_constants(), logit=0.0),
    "allocator": replace(load_constants(), allocator=1.0),
    "launches": replace(load_constants(), launch=1e-9),
    "contention": replace(load_constants(), contention=0.0),
    "links": replace(load_constants(), link=1.0),
    "matrix products": replace(load_constants(), matrix=1.0),
    "element-wise": replace(load_constants(), memory=1e9),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_term_predictions_are_worse(measured, name):
    everything = np.ones(len(measured.runs), bool)
    right = score(measured, load_constants(), everything)
    wrong = score(measured, MUTANTS[name], everything)
    assert wrong.accuracy < right.accuracy - 0.01 or wrong.median > right.median + 0.005


KEPT = {
    "norms": ("NORM", {"eager": {"copies": 0}}),
    "scores": ("ATTENTION", {"eager": {"scores": 0}, "fused-softmax": {"scores": 0}}),
}


@pytest.mark.parametrize("name", KEPT)
def test_without_what_kernels_keep_outcomes_are_worse(measured, monkeypatch, name):
    kind, changes = KEPT[name]
    known = getattr(kernels, kind)
    changed = {k: replace(v, **changes.get(k, {})) for k, v in known.items()}
    monkeypatch.setattr(kernels, kind, changed)
    forms_module._forms.cache_clear()
    try:
        given = replace(measured, predicted=predictor([(r.job, r.layout) for r in measured.runs]))
        wrong = score(given, load_constants(), given.decided)
    finally:
        forms_module._forms.cache_clear()
    assert wrong.accuracy < score(measured, load_constants(), measured.decided).accuracy - 0.004


@pytest.mark.deep
def test_held_out_models_of_the_published_sweeps(measured):
    found = held_out_evaluation(measured)
    assert found.memory.accuracy > 0.98
    assert found.steps.median < 0.03
    assert found.mean("predicted", "launches") < 2


# commands


@pytest.fixture
def small_file(tmp_path):
    """Runs of two models as a file."""
    words = {("flash-2", "fused"): "flash_attention2 + RMS kernel"}
    words[("flash-2", "eager")] = "flash_attention2"
    again = {"none": "disabled", "full": "every_layer"}
    lines = [
        f"{run.sweep},{run.trial},{run.job.name},2048,64,{x.micro_batch},{x.tensor},{x.pipeline},"
        f"{again[x.recompute]},{words[x.attention, x.norm]},False,{run.outcome},{run.step or ''},"
        for run in made_up(TRUE)
        for x in [run.layout]
    ]
    return written(tmp_path, *lines)


def test_evaluate_says_what_is_in_sample(run, small_file):
    ran = run("layouts", "evaluate", str(small_file))
    assert ran.code == 0
    assert "not in the fit: llama-13b, llama-30b" in ran.out
    assert "always out of memory" in ran.out
    found = json.loads(run("layouts", "evaluate", str(small_file), "--held-out", "--json").out)
    assert found["schema"] == "placement-proofs/evaluation/1"
    held = found["evaluations"]["held out"]
    assert held["memory"]["accuracy"] > 0.95
    assert held["step time"]["median"] < 0.02
    assert len(found["recommendations"]) == 5


def test_runs_that_say_nothing_give_no_numbers(run, tmp_path):
    """One run, out of memory: no step time, no correlation, no choice; and valid JSON."""
    path = written(tmp_path, LINE.replace("ran,30.5,0.5", "oom,,"))
    ran = run("layouts", "evaluate", str(path))
    assert (ran.code, ran.err) == (0, "")
    text = run("layouts", "evaluate", str(path), "--json").out
    found = json.loads(text, parse_constant=pytest.fail)["evaluations"]["given"]
    assert found["step time"]["median"] is None
    assert (found["sweeps"], found["rank correlation"]) == ([], None)
    ran = run("layouts", "calibrate", str(path))
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_calibrate_writes_constants_that_evaluate_reads(run, small_file, tmp_path):
    out = tmp_path / "mine.toml"
    ran = run("layouts", "calibrate", str(small_file), "-o", str(out))
    assert ran.code == 0
    assert "held out: llama-13b" in ran.out
    ran = run("layouts", "evaluate", str(small_file), "--constants", str(out), "--json")
    found = json.loads(ran.out)["evaluations"]["given"]
    assert found["step time"]["median"] < 0.01
    assert all(sweep["fitted"] for sweep in found["sweeps"])


def test_a_wrong_file_is_one_line_and_exit_code_2(run, tmp_path):
    path = written(tmp_path, LINE.replace("disabled", "off"))
    for command in ("evaluate", "calibrate"):
        ran = run("layouts", command, str(path))
        assert (ran.code, ran.out) == (2, "")
        assert "runs.csv:2: checkpointing" in ran.err
        assert ran.err.count("\n") == 1
