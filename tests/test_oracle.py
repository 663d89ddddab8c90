"""Every measured PyTorch step, to the byte, from its placement, model and profile.

Ring bytes by collective, axis and phase; stored bytes by state and rank; the peak of gathered
parameters. The measurements are in the shared folder; without it the tests skip.
"""

import itertools
import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from measured import (
    AGAIN,
    ANNOTATED,
    FSDP,
    JAX,
    NAMED_XLA,
    NOT_AS_PLACED,
    TORCH,
    Case,
    model_of,
)
from test_meters_equal_closed_forms import metered

from placement_proofs.cost import DEFAULT, communication_at, memory_at, sizes_of
from placement_proofs.cost.lifetimes import Kept
from placement_proofs.derive import derive
from placement_proofs.profile import PROFILES
from placement_proofs.simulate import simulate

AXES = {"dp_rep": "dp_replicate", "sub2": "sub"}
PHASES = {
    "forward": "fwd",
    "backward": "bwd",
    "recompute": "bwd",
    "reduce": "clip",
    "clip": "clip",
    "update": "opt",
}
"""Our phases by the names of the measurements; what ends the backward pass was timed as clip."""


def oracle(shared):
    return json.loads((shared / "data" / "oracle_results.json").read_text())


def planned(case, run, models):
    """The plan of a measured run, its model and its sizes."""
    shape = models[run["model"]]["cfg"]
    composition = case.composition(run["world"])
    plan = derive(composition, model_of(shape, 1), case.profile, clipping=case.clipping)
    return plan, sizes_of(plan, measured_model(plan, run, models))


def measured_model(plan, run, models):
    """The run's model with the sequences of one rank and micro-batch."""
    shape = models[run["model"]]["cfg"]
    parts = plan.micro
    for axis in plan.batch_axes:
        parts *= plan.mesh.size(axis)
    return model_of(shape, shape["batch"] // parts)


def places(plan):
    """The coordinates of all ranks, the last axis fastest."""
    names = plan.mesh.names
    ranges = [range(plan.mesh.size(n)) for n in names]
    return [dict(zip(names, at, strict=True)) for at in itertools.product(*ranges)]


def measured_traffic(run):
    """Ring bytes by collective, axis and phase; a pipeline's messages have one phase."""
    found = Counter()
    for o in run["ops_by_phase"]:
        if o["op"] != "recv":
            kind = o["op"].replace("_", "-").replace("send", "point-to-point")
            key = kind, AXES.get(o["axis"], o["axis"]), o["phase"]
            found[key] += o["ring_bytes_sent_per_rank"]
    return {k: v for k, v in found.items() if v}


def our_traffic(plan, sizes, case, rank):
    """The same from the closed form, in the measurements' words."""
    found = Counter()
    for (kind, axes, phase), sent in communication_at(
        plan, sizes, case.widths, rank
    ).by_phase.items():
        name = "*".join(axes)
        name = {"dp*sub": "dp_shard", "dp": "dp"}.get(name, name)
        message = kind == "point-to-point"
        found[kind, name, "schedule" if message else PHASES[phase]] += sent
    return {k: float(v) for k, v in found.items() if v}


def renamed(traffic, run):
    """Our axis ``dp`` under the name that the run has for it."""
    axis = "dp_shard" if "dp_shard" in run["mesh"] else "dp"
    return {(k, axis if a == "dp" else a, p): v for (k, a, p), v in traffic.items()}


def differences(case, run, models):
    """What is not as measured: a list of (what, ours, measured)."""
    plan, sizes = planned(case, run, models)
    ranks = places(plan)
    wrong = []
    ours = renamed(our_traffic(plan, sizes, case, ranks[0]), run)
    if ours != (theirs := measured_traffic(run)):
        wrong.append(("traffic", sorted(ours.items() ^ theirs.items(), key=str)))
    for rank, state in zip(ranks, run["state_bytes_by_rank"], strict=True):
        held = memory_at(plan, sizes, case.widths, rank).by
        mine = [held[k] for k in ("parameters", "gradients", "optimizer")]
        if mine != (torch := [state[k] for k in ("params", "grads", "optim_moments")]):
            wrong.append(("states", rank, mine, torch))
    mine, theirs = copies(case, run, plan, sizes)
    if mine != theirs:
        wrong.append(("copies", mine, theirs))
    if peak := run["unsharded_param_peak_bytes"]:
        held = memory_at(plan, sizes, case.widths, ranks[0])
        gathered = held.transient[Kept.GATHERED.value]
        if gathered != peak:
            wrong.append(("peak", gathered, peak))
    return wrong


def copies(case, run, plan, sizes):
    """Bytes of gradients held twice: ours, and what section 4 of the notes says.

    DDP's buckets are a second copy of exactly P, unless gradients are views into them.
    """
    held = memory_at(plan, sizes, case.widths, places(plan)[0]).by
    ddp = run["case"].startswith(("ddp", "zero1")) and "bucketview" not in run["case"]
    return held.get("gradient buckets", 0), run["state_bytes"]["grads"] if ddp else 0


def runs(shared):
    data = oracle(shared)
    torch = [c for c in data["cases"] if c["framework"].startswith("torch") and c["ok"]]
    return torch, data["models"]


def test_every_measured_step_is_reproduced(shared):
    torch, models = runs(shared)
    assert {run["case"] for run in torch} == set(TORCH)
    wrong = {
        (run["case"], run["model"], run["world"]): found
        for run in torch
        if (found := differences(TORCH[run["case"]], run, models))
    }
    assert not wrong
    assert len(torch) == 281
    assert sum(1 for run in torch if run["unsharded_param_peak_bytes"]) == 120


def messages(run):
    found = Counter()
    for o in run["ops"]:
        if o["op"] != "recv":
            found[o["op"].replace("_", "-").replace("send", "point-to-point")] += o["count"]
    return found


def test_the_number_of_messages(shared):
    """Counts by collective in all 281 steps."""
    torch, models = runs(shared)
    same = 0
    for run in torch:
        case = TORCH[run["case"]]
        plan, sizes = planned(case, run, models)
        ours = Counter()
        for term in communication_at(plan, sizes, case.widths, places(plan)[0]).terms:
            ours[term.what] += term.times
        assert ours == messages(run), (run["case"], run["model"], run["world"])
        same += 1
    assert same == 281


NAMED = {
    "torch-ddp": ("ddp", "ddp_ac", "ddp_ga_nosync"),
    "torch-zero1": ("zero1",),
    "torch-fsdp1": ("fsdp1_full_shard", "fsdp1_shard_grad_op"),
    "torch-fsdp2": ("fsdp2_raf_default",),
    "torch-fsdp2-resharded": (
        "fsdp2_raf_true",
        "fsdp2_raf_false",
        "fsdp2_clip",
        "fsdp2_mp_bf16",
        "fsdp2_ga_sync",
        "hsdp_raf_true",
        "fsdp2_tp",
        "fsdp2_tp_sp",
        "fsdp2_tp_spfull_clip",
    ),
    "torch-tp": ("tp_naive",),
    "torch-sp": ("tp_sp", "tp_sp_ac", "tp_sp_full_lossparallel", "tp_sp_full_clip", "tp"),
}
"""What the profiles that the product names reproduce as they are."""


@pytest.mark.parametrize("name", NAMED)
def test_a_named_profile_reproduces_its_stack(shared, name):
    torch, models = runs(shared)
    facts = {k: v for k, v in vars(PROFILES[name]).items() if k != "name"}
    compared = 0
    for run in (r for r in torch if r["case"] in NAMED[name]):
        case = replace(TORCH[run["case"]], facts=facts)
        assert not differences(case, run, models), (run["case"], run["model"], run["world"])
        compared += 1
    assert compared >= 4


FACTS = sorted({fact for case in TORCH.values() for fact in case.facts})


def other_messages(less, case, run, models):
    """Whether one case has another number of transfers than another."""
    plans = [planned(c, run, models)[0] for c in (less, case)]
    one, other = (sum(1 for _ in plan.transfers()) for plan in plans)
    return one != other


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_is_needed(shared, fact):
    """Without a fact, some step that has it is no longer reproduced."""
    torch, models = runs(shared)
    for run in torch:
        case = TORCH[run["case"]]
        if fact in case.facts:
            facts = {k: v for k, v in case.facts.items() if k != fact}
            less = replace(case, facts=facts)
            if differences(less, run, models) or other_messages(less, case, run, models):
                return
    pytest.fail(f"{fact} changes nothing")


def jax_cases(shared):
    """Every compiled JAX step with what it is in our terms, ``None`` where it is not as placed."""
    data = oracle(shared)
    for run in data["cases"]:
        if run["framework"].startswith("jax") and run["ok"]:
            numbers = [int(n) for n in re.findall(r"(?:dp|tp|zero1_)(\d+)", run["case"])]
            names = ("d", "t") if len(numbers) == 2 else ("n",)
            sizes = dict(zip(names, numbers, strict=True))
            table = {k.format(**sizes): (k, c) for k, c in JAX.items() if fits(k, sizes)}
            free = {
                k.format(**sizes)
                for k, model in NOT_AS_PLACED
                if fits(k, sizes) and model in ("*", run["model"])
            }
            assert run["case"] in table or run["case"] in free, run["case"]
            if run["case"] in free:
                yield run, "", None, data["models"]
                continue
            pattern, case = table[run["case"]]
            yield run, pattern, replace(case, text=case.text.format(**sizes)), data["models"]


def fits(pattern, sizes):
    return set(re.findall(r"{(\w)}", pattern)) == set(sizes)


def fused(run, case):
    """The sizes of tfm_div, with one product for queries, keys and values."""
    return run | {"model": "tfm_div"}, replace(case, facts=case.facts | {"share_inputs": True})


def test_jax_steps_whose_compiler_follows_the_placement(shared):
    """Ring bytes by collective and axis, parameters and moments (gradients are never stored)."""
    followed, free = 0, 0
    for run, _, case, models in jax_cases(shared):
        if case is None:
            free += 1
            continue
        if run["model"] == "tfm_fused":
            run, case = fused(run, case)
        assert not jax_differences(case, run, models), run["case"]
        followed += 1
    assert (followed, free) == (55, 18)


def test_the_profile_of_xla_reproduces_annotated_steps(shared):
    facts = {k: v for k, v in vars(PROFILES["xla"]).items() if k != "name"}
    compared = 0
    for run, pattern, case, models in jax_cases(shared):
        if case and pattern in NAMED_XLA and run["model"] != "tfm_fused":
            named = replace(case, facts=facts)
            assert not jax_differences(named, run, models), run["case"]
            compared += 1
    assert compared >= 30


def test_what_is_not_as_placed_differs(shared):
    """The steps that are listed with a reason are not reproduced by the facts of their class."""
    seen = set()
    for run, _, case, models in jax_cases(shared):
        pattern = run["case"] if case is None and run["model"] != "tfm_fused" else ""
        sizes = re.fullmatch(r"jax_fsdp(\d+)(_remat)?", pattern)
        if sizes:
            text = FSDP.format(n=sizes[1]) + (AGAIN if sizes[2] else "")
            assert jax_differences(Case(text, ANNOTATED), run, models)
            seen.add(bool(sizes[2]))
    assert seen == {True, False}


def trains(plan, model, sizes):
    """The plan trains as one device; its meters count what the closed forms say, every rank."""
    result = simulate(plan, model, optimizer="momentum")
    assert result.equal, str(result)
    for rank in result.ranks:
        sent, _ = metered(rank.traffic)
        here = communication_at(plan, sizes, DEFAULT, dict(rank.coordinates)).by_phase
        assert sent == {k: v for k, v in here.items() if v}


@pytest.mark.parametrize("remat", ["", "_remat"])
def test_annotated_steps_train_as_one_device(shared, remat):
    run, _, case, models = next(
        found for found in jax_cases(shared) if found[0]["case"] == f"jax_fsdp4{remat}" and found[2]
    )
    plan, sizes = planned(case, run, models)
    trains(plan, measured_model(plan, run, models), sizes)


def jax_differences(case, run, models):
    plan, sizes = planned(case, run, models)
    rank = places(plan)[0]
    sent = communication_at(plan, sizes, case.widths, rank).by
    ours = {(k, "*".join(a)): float(v) for (k, a), v in sent.items() if v}
    theirs = Counter()
    for o in run["ops"]:
        theirs[o["op"].replace("_", "-"), o["axis"]] += o["ring_bytes_sent_per_rank"]
    held = memory_at(plan, sizes, case.widths, rank).by
    states = (held["parameters"], held["optimizer"])
    measured = run["state_bytes"]["params"], run["state_bytes"]["optim_moments"]
    return ours != dict(theirs) or states != measured


@pytest.mark.parametrize("name", [n for n in TORCH if not n.startswith("single")])
def test_the_simulated_step_counts_the_same_bytes(shared, name):
    """The plan that gives the measured bytes trains as one device; its meters say the same."""
    torch, models = runs(shared)
    run = next(r for r in torch if r["case"] == name and r["model"] not in ("mlp_big", "mlp_deep"))
    case = TORCH[name]
    plan, sizes = planned(case, run, models)
    trains(plan, measured_model(plan, run, models), sizes)
