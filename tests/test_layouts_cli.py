"""``layouts`` as a user sees it: plans, refusals with their remedies, devices, sweeps."""

import csv
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

from placement_proofs.cli import layouts as module

FEW = ("--chunks", "1", "--zero", "1", "--recompute", "none,full", "--context", "1")
ASKED = ("--model", "llama-13b", "--gpus", "32", "--seq", "2048", "--global-batch", "512")


@pytest.fixture
def layouts(run):
    def ran(*arguments, few=FEW):
        return run("layouts", *arguments, *few)

    return ran


def plan(layouts, *more):
    found = layouts(*ASKED, *more, "--json")
    return json.loads(found.out), found.code


def test_a_plan_as_text(layouts):
    found = layouts(*ASKED, "--top", "3", "--pareto")
    assert found.code == 0 and not found.err
    for words in (
        "llama-13b on 32 x NVIDIA A100 SXM4 80 GB",
        "512 sequences of 2,048 tokens in a training step",
        "each class proved for all sizes of its axes",
        "the fastest that fit",
        "the winner",
        "time of a step",
        "memory of the fullest rank",
        "why it beats the next one: ",
        "the next one would win if",
        "front of memory and time",
        "not offered (layouts, rule)",
        "stages times chunks divide 40 layers",
        "assumptions",
    ):
        assert words in found.out, words


def test_a_plan_as_data(layouts):
    data, code = plan(layouts, "--top", "4")
    assert code == 0 and data["schema"] == "placement-proofs/layouts/1"
    offers = data["offers"]
    assert len(offers) == 4 and all(o["verdict"] == "proved" for o in offers)
    assert all(o["peak_bytes"] <= data["limit_bytes"] for o in offers)
    steps = [o["step_seconds"] for o in offers]
    assert steps == sorted(steps) and data["fit"] <= data["proved"] == data["valid"]
    assert sum(data["bill"]["time"].values()) == pytest.approx(steps[0])
    assert data["comparison"]["time"] and data["rejected"] and not data["withheld"]
    assert data["machine"]["sources"]["flops"].startswith("NVIDIA A100 data sheet")


def test_an_offered_expression_is_proved_by_check(layouts, run):
    data, _ = plan(layouts)
    text = data["offers"][0]["composition"]
    assert run("check", text, "--model", "llama-13b").out.startswith("PROVED")


def test_restrictions_restrict(layouts):
    data, _ = plan(layouts, "--tensor", "2", "--pipeline", "1,2", "--no-sequence")
    assert {o["layout"]["tensor"] for o in data["pareto"]} == {2}
    assert {o["layout"]["sequence"] for o in data["pareto"]} == {False}


def test_less_memory_to_fill_offers_less(layouts):
    whole, half = plan(layouts)[0], plan(layouts, "--memory", "0.5")[0]
    assert half["limit_bytes"] == whole["limit_bytes"] / 2 and half["fit"] < whole["fit"]


def test_why_not_gives_the_rule(layouts):
    found = layouts(*ASKED, "--why-not", "tensor=3")
    assert found.code == 1
    assert "no layout is valid" in found.out and "the degrees multiply to 32 ranks" in found.out
    found = layouts(*ASKED, "--why-not", "pipeline=16")
    assert "stages times chunks divide 40 layers" in found.out
    assert found.code == 1


def test_why_not_of_what_fits_compares_it_with_the_winner(layouts):
    found = layouts(*ASKED, "--why-not", "tensor=8,recompute=full")
    assert found.code == 0 and "the fastest of all" in found.out
    assert "why that one is faster: " in found.out and "the asked one would win if" in found.out
    best, _ = plan(layouts)
    degrees = best["offers"][0]["layout"]
    asked = ",".join(f"{k.replace('_', '-')}={degrees[k]}" for k in ("micro_batch", "tensor"))
    found = layouts(*ASKED, "--why-not", asked)
    assert "nothing is said against it" in found.out


def test_why_not_of_what_does_not_fit_says_what_takes_the_memory(layouts):
    found = layouts(*ASKED, "--why-not", "micro-batch=16,tensor=1,pipeline=1,recompute=none")
    assert found.code == 1
    assert "nothing fits 80.0 GiB" in found.out and "of it are saved activations" in found.out
    assert "tokens a sequence this fits" in found.out


def test_what_does_not_fit_names_the_nearest_and_what_would_fit(layouts, tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(
        '[device.small]\nmemory = 8e9\nflops = 100e12\nbandwidth = 1e12\ncluster = "dgx-a100"\n'
    )
    found = layouts(*ASKED, "--device", str(path), "--pipeline", "1")
    assert found.code == 1
    for words in ("nothing fits 7.5 GiB", "the nearest is", "it would fit with"):
        assert words in found.out, words
    data, code = plan(layouts, "--device", str(path), "--pipeline", "1")
    assert code == 1 and not data["offers"] and data["least_memory"]["peak_bytes"] > 8e9


def test_all_that_fit_go_to_a_file(layouts, tmp_path):
    path = tmp_path / "all.csv"
    data, _ = plan(layouts, "--csv", str(path))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == data["fit"] and rows[0]["composition"] == data["offers"][0]["composition"]
    assert float(rows[0]["step_seconds"]) == data["offers"][0]["step_seconds"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--model", "llama-13b"),
            "error: layouts: found no --gpus; a plan is of a model on devices, with a global "
            "batch; write --model llama-13b --gpus 64 --global-batch 2048 (see layouts -h)\n",
        ),
        (
            (*ASKED[:2], "--gpus", "many", "--global-batch", "8"),
            "error: --gpus: found 'many'; whole numbers from 1, with commas; write --gpus 1,2\n",
        ),
        (
            (*ASKED[:2], "--gpus", "8,16", "--global-batch", "8"),
            "error: layouts: found 2 jobs; a plan is of one job; give one model, device, number "
            "of devices, tokens and batch, or use layouts sweep\n",
        ),
        (
            (*ASKED, "--recompute", "some"),
            "error: --recompute: found 'some'; it is one of none, selective, full, or all; name "
            "some of these\n",
        ),
        (
            (*ASKED, "--why-not", "tensors=3"),
            "error: --why-not: found 'tensors=3'; a layout has micro_batch, tensor, pipeline, "
            "chunks, data, context, expert, zero, sequence, recompute, attention, norm; write "
            "--why-not tensor=3\n",
        ),
        (
            (*ASKED, "--device", "a100"),
            "error: --device: found 'a100'; a device is one of a100-80gb, a100-40gb, h100, h200, "
            "b200, mi300x, tpu-v5p; did you mean a100-80gb or a100-40gb?\n",
        ),
        (
            (*ASKED, "--csv", "nowhere/all.csv"),
            "error: --csv nowhere/all.csv: found no such folder; what is written goes to a folder "
            "that exists; make the folder, or correct the path\n",
        ),
        (
            ("sweep", *ASKED, "-o", "nowhere/all.csv"),
            "error: -o nowhere/all.csv: found no such folder; what is written goes to a folder "
            "that exists; make the folder, or correct the path\n",
        ),
        (
            ("--model", "perceptron", *ASKED[2:]),
            "error: --model: found 'perceptron'; a layout is of a transformer with layers, heads "
            "and a sequence; name one such as llama-13b, or give a TOML file or a config.json\n",
        ),
    ],
)
def test_refusals_in_full(layouts, arguments, message):
    found = layouts(*arguments, few=())
    assert (found.code, found.err) == (2, message)


def test_devices_with_sources(run):
    found = run("layouts", "devices")
    assert found.code == 0 and "mi300x" in found.out and "data sheet" in found.out
    data = json.loads(run("layouts", "devices", "--json").out)
    by_name = {row["device"]: row for row in data["devices"]}
    assert by_name["a100-80gb"]["flops"] == 312e12 and by_name["a100-80gb"]["node"] == 8


def test_a_sweep_of_two_sizes(layouts, tmp_path):
    path = tmp_path / "out.csv"
    some = ("sweep", *ASKED[:2], "--gpus", "8,16", "--global-batch", "64", "-o", str(path))
    found = layouts(*some)
    assert found.code == 0 and found.out.startswith(f"{path}: ")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert {row["gpus"] for row in rows} == {"8", "16"}
    again = layouts(*some)
    assert again.code == 2 and "a finished sweep is not overwritten" in again.err


class Dying(ThreadPoolExecutor):
    """Finishes three chunks; then a process of it dies."""

    def submit(self, *arguments, **named):
        self.count = getattr(self, "count", 0) + 1
        if self.count > 3:
            raise BrokenProcessPool("a process died")
        return super().submit(*arguments, **named)


def test_after_a_process_died_the_same_command_goes_on(layouts, tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    some = ("sweep", *ASKED, "-o", str(path))
    monkeypatch.setattr(module, "pool", lambda count: Dying(1))
    found = layouts(*some, "--jobs", "2")
    assert found.code == 2 and "repeat the command" in found.err and not path.exists()
    found = layouts(*some)
    assert found.code == 0 and "found from before" in found.out and path.exists()


def test_a_scheduler_needs_its_package(layouts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    path = tmp_path / "out.csv"
    found = layouts("sweep", *ASKED, "-o", str(path), "--scheduler", "tcp://nowhere:1")
    assert found.code == 2 and "pip install 'placement-proofs[distributed]'" in found.err


def test_help_has_examples(run):
    for arguments in (("layouts", "-h"), ("layouts", "sweep", "-h")):
        assert "Examples:" in run(*arguments).out
