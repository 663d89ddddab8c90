"""Figures of runs and of plans: what is drawn, as data; each is a well-formed picture."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.planned import planned
from placement_proofs.layouts.runs import OOM, RAN, Run
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.space import Choices
from placement_proofs.render.plan_figures import plan_figures
from placement_proofs.render.run_figures import FIGURES, draw_runs, runs_data
from placement_proofs.zoo import PRESETS

JOB = Job("llama-13b", PRESETS["llama-13b"], 512, 32, load_machine("a100-80gb"))
BY_NAME = {figure.name: figure for figure in FIGURES}


def ran(sweep, step, **layout):
    return Run("here", sweep, "", JOB, Layout(**layout), RAN if step else OOM, step, None)


RUNS = (
    ran("one", 30.0, micro_batch=1, tensor=2, data=16),
    ran("one", 20.0, micro_batch=1, tensor=1, data=32),
    ran("one", 25.0, micro_batch=2, tensor=1, data=32),
    ran("one", None, micro_batch=4, tensor=1, data=32),
    ran("one", 40.0, micro_batch=4, tensor=1, data=32, recompute="full"),
    ran("one", 10.0, micro_batch=1, data=32, attention="eager", norm="eager"),
    ran("two", 28.0, micro_batch=1, tensor=8, data=4, sequence=True),
    ran("two", 29.0, micro_batch=1, tensor=8, data=4),
)


def parsed(picture):
    """The picture as XML; its title and its text alternative are there."""
    root = ET.fromstring(picture.svg)
    assert root.get("role") == "img" and picture.title in root.get("aria-label")
    assert picture.alternative
    return root


def shown(name, sweep):
    bars = runs_data(BY_NAME[name], RUNS)["sweeps"][sweep]
    return {bar["series"]: bar["mfu"] for bar in bars}


def test_the_best_run_of_each_series_is_drawn():
    assert shown("micro_batch", "one") == {
        "micro-batch 1": JOB.mfu(20.0),
        "micro-batch 2": JOB.mfu(25.0),
        "micro-batch 4": JOB.mfu(40.0),
    }
    assert shown("tensor_pipeline", "one")["tensor 2, pipeline 1"] == JOB.mfu(30.0)
    assert shown("recomputation", "one")["every layer again"] == JOB.mfu(40.0)
    assert shown("kernels", "one")["eager, eager norms"] == JOB.mfu(10.0)
    assert shown("sequence_parallel", "two") == {
        "tensor 8, plain": JOB.mfu(29.0),
        "tensor 8, sequence-parallel": JOB.mfu(28.0),
    }


def test_what_only_went_out_of_memory_is_said_so():
    runs = [ran("one", None, micro_batch=4, data=32), ran("one", 9.0, data=32)]
    figure = BY_NAME["micro_batch"]
    picture = draw_runs(figure, runs_data(figure, runs))
    assert "OOM (1 runs)" in "".join(parsed(picture).itertext())
    assert "micro-batch 4 OOM" in picture.alternative
    empty = draw_runs(figure, runs_data(figure, runs[:1]))
    assert "No run of these kinds was timed." in "".join(parsed(empty).itertext())


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_figure_of_runs_is_well_formed(figure):
    data = runs_data(figure, RUNS)
    root = parsed(draw_runs(figure, data))
    texts = "".join(root.itertext())
    bars = [bar for group in data["sweeps"].values() for bar in group if bar["mfu"]]
    assert bars and all(f"{bar['mfu']:.1%}" in texts for bar in bars)


@pytest.fixture(scope="module")
def plan():
    choices = Choices(chunks=(1,), zero=(1,), recompute=("none",), context=(1,))
    return planned(JOB, Constants(), choices)


def test_the_figures_of_a_plan(plan):
    found = plan_figures(plan)
    assert set(found) == {"pareto", "memory", "schedule"}
    for picture in found.values():
        parsed(picture)
        json.dumps(dict(picture.data))
    memory = found["memory"].data
    assert sum(memory["memory"].values()) == pytest.approx(memory["peak"])
    front = found["pareto"].data["front"]
    assert len(front) + found["pareto"].data["others"] == len(plan.table)
    assert [p["peak"] for p in front] == sorted(p["peak"] for p in front)
    assert found["schedule"].data["positions"]


def test_without_anything_that_fits_only_the_front_is_drawn(plan):
    device = replace(JOB.machine.device, memory=10**9)
    job = replace(JOB, machine=replace(JOB.machine, device=device))
    small = planned(job, Constants(), Choices(chunks=(1,), zero=(1,), pipeline=(1,), context=(1,)))
    assert set(plan_figures(small)) == {"pareto"}


def test_the_commands_write_the_files(run, tmp_path):
    lines = [
        "sweep,model,seq_len,world_size,micro_batch,tensor,pipeline,checkpointing,kernel,"
        "sequence_parallel,outcome,step_time_s",
        "s,llama-13b,2048,64,1,1,1,disabled,flash_attention2,False,ran,30",
        "s,llama-13b,2048,64,2,1,1,disabled,flash_attention2,False,oom,",
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    found = run("layouts", "figures", str(path), "-o", str(tmp_path / "out"))
    assert found.code == 0, found.err
    names = {p.stem for p in (tmp_path / "out").iterdir()}
    assert names == {figure.name for figure in FIGURES}
    asked = ("--model", "llama-13b", "--gpus", "16", "--global-batch", "64", "--pipeline", "1,2")
    few = ("--zero", "1", "--context", "1", "--chunks", "1", "--recompute", "none")
    found = run("layouts", *asked, *few, "--figures", str(tmp_path / "plan"))
    assert (tmp_path / "plan" / "pareto.svg").read_text().startswith("<svg")
