"""Costs on integers: the facts of the papers, conventions, exact ranks, folded models."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction

import pytest

from placement_proofs.cost import (
    CONVENTIONS,
    DEFAULT,
    bubble,
    communication,
    convention,
    memory,
    memory_at,
    sizes_of,
)
from placement_proofs.cost.convention import ESTIMATORS
from placement_proofs.cost.lifetimes import Lifetimes
from placement_proofs.cost.measure import largest
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, abstract, transformer

PSI = 7_500_000_000


def costs(text, model, name="zero-paper", position=None):
    plan = derive(parse(text), model)
    sizes = sizes_of(plan, model)
    held = memory(plan, sizes, convention(name), position)
    return held, communication(plan, sizes, convention(name), held.position)


@pytest.mark.parametrize(
    ("text", "gb"),
    [("data(dp=64)", 120), ("zero1(dp=64)", 31.4), ("zero2(dp=64)", 16.6), ("zero3(dp=64)", 1.9)],
)
def test_zero_paper_memory(text, gb):
    held, _ = costs(text, abstract(PSI))
    assert round(held.persistent / 1e9, 1) == gb


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("data(dp=64)", 2),
        ("zero1(dp=64)", 2),
        ("zero2(dp=64)", 2),
        ("zero3(dp=64)", 3),
        ("fsdp(dp=64)", 3),
        ("fsdp(dp=64, reshard_after_forward=False)", 2),
    ],
)
def test_zero_paper_traffic(text, times):
    _, sent = costs(text, abstract(PSI))
    assert sent.total == Fraction(times * 63, 64) * 2 * PSI


def test_hybrid_sharding_splits_traffic_by_axis():
    _, sent = costs("hsdp(dp_replicate=2, dp_shard=4)", abstract(PSI))
    size = 2 * PSI
    assert dict(sent.by) == {
        ("all-gather", ("dp_shard",)): 2 * size * 3 // 4,
        ("reduce-scatter", ("dp_shard",)): size * 3 // 4,
        ("all-reduce", ("dp_replicate",)): size // 4,
    }


SHAPE = Shape(layers=4, hidden=16, ffn=32, heads=4, vocabulary=32, sequence=8)


def test_tensor_parallelism_all_reduces_four_times_a_layer():
    _, sent = costs("tensor(tp=4, vocabulary=False)", transformer(SHAPE))
    layers = [t for t in sent.terms if t.block.startswith("layer")]
    phases = [t.phase for t in layers if t.block == "layer1"]
    assert phases.count("forward") == 2
    assert phases.count("backward") == 2
    assert len(sent.terms) == 4 * SHAPE.layers
    payload = SHAPE.sequence * SHAPE.hidden * DEFAULT.activation
    assert {t.payload for t in sent.terms} == {payload}
    assert sent.total == 4 * SHAPE.layers * payload * 2 * 3 // 4


def test_sequence_parallelism_moves_the_same_bytes_in_halves():
    model = transformer(SHAPE)
    _, plain = costs("tensor(tp=4)", model)
    _, sequence = costs("tensor(tp=4, sequence=True)", model)

    def activations(sent):
        found = {}
        for t in sent.terms:
            if t.block.startswith("layer") and t.phase in ("forward", "backward"):
                found[t.what] = found.get(t.what, 0) + t.bytes
        return found

    whole = activations(plain)["all-reduce"]
    halves = activations(sequence)
    assert set(halves) == {"all-gather", "reduce-scatter"}
    assert halves["all-gather"] == halves["reduce-scatter"]
    assert sum(halves.values()) == whole
    norms = [t for t in sequence.terms if t.phase == "reduce"]
    assert {t.what for t in norms} == {"all-reduce"}
    assert {n.split(".")[-2] for t in norms for n in t.names} == {"norm1", "norm2", "final_norm"}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_pipeline_sends_twice_per_boundary_and_micro_batch(schedule):
    text = f'pipeline(pp=4, microbatches=8, schedule="{schedule}")'
    model = transformer(SHAPE)
    boundary = SHAPE.sequence * SHAPE.hidden * DEFAULT.activation
    sent = [costs(text, model, position=f"position{r}")[1].total for r in range(4)]
    assert sent == [8 * boundary, 16 * boundary, 16 * boundary, 8 * boundary]
    assert sum(sent) == 2 * 3 * 8 * boundary


@pytest.mark.parametrize(
    ("schedule", "idle"),
    [
        ('schedule="gpipe"', Fraction(3, 8)),
        ('schedule="1f1b"', Fraction(3, 8)),
        ('schedule="interleaved", chunks=2', Fraction(3, 16)),
    ],
)
def test_bubble(schedule, idle):
    model = transformer(replace(SHAPE, layers=8))
    plan = derive(parse(f"pipeline(pp=4, microbatches=8, {schedule})"), model)
    assert bubble(plan, sizes_of(plan, model)) == idle
    single = derive(parse("single()"), model)
    assert bubble(single, sizes_of(single, model)) == 0


def test_schedules_keep_micro_batches_in_flight():
    model = transformer(SHAPE, folded=True)
    keep = {
        s: costs(f'pipeline(pp=4, microbatches=8, schedule="{s}")', model, position="middle")[0]
        for s in ("gpipe", "1f1b")
    }
    assert [keep[s].in_flight for s in ("gpipe", "1f1b")] == [8, 3]
    assert keep["gpipe"].saved * 3 == keep["1f1b"].saved * 8


def test_conventions_change_every_number():
    totals = {}
    for name in CONVENTIONS:
        held, sent = costs("zero2(dp=4) * tensor(tp=2)", transformer(SHAPE), name)
        totals[name] = (*held.by.values(), held.persistent, held.peak, sent.total, held.saved)
        assert name in str(held.convention)
    assert totals["fp32-gradients"][1] == 2 * totals["zero-paper"][1]
    assert totals["fp32"][0] == 2 * totals["zero-paper"][0]
    assert totals["megatron"][-1] > totals["fp32-gradients"][-1], "logits in float32"
    estimators = {c.name for c in ESTIMATORS}
    own = {name: total for name, total in totals.items() if name not in estimators}
    assert len(set(own.values())) == len(own)
    assert len(set(totals.values())) >= len(totals) - 4, "some differ in what this model lacks"


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("zero-paper", 16),
        ("fp32-gradients", 18),
        ("fp32", 16),
        ("bf16-only", 8),
        ("adam-8bit", 10),
        ("sgd-momentum", 12),
        ("cast", 16),
        ("cast-reduce-16", 16),
    ],
)
def test_bytes_per_parameter(name, total):
    held, _ = costs("single()", abstract(1000), name)
    assert held.persistent == total * 1000


def test_unknown_convention():
    with pytest.raises(IllFormed, match="the conventions are zero-paper, fp32-gradients"):
        convention("fp64")


def test_offloaded_states_are_counted_on_the_host():
    held, sent = costs('zero3(dp=4) * offload("optimizer", to="nvme")', abstract(1000))
    assert held.by["optimizer"] == 0
    assert held.host["optimizer"] == 12 * 250
    assert held.persistent == 4 * 250
    assert sent.host == 2 * 250 + 2 * 250
    assert all(kind != "host-link" for kind, _ in sent.by)


def test_ring_attention_is_named():
    _, sent = costs('context(cp=2, method="ring")', transformer(SHAPE))
    assert any(t.why.startswith("ring attention") for t in sent.terms)


def test_clipping_costs_scalars():
    model = abstract(1000)
    plan = derive(parse("zero3(dp=4)"), model, clipping=True)
    sent = communication(plan, sizes_of(plan, model), DEFAULT)
    (term,) = [t for t in sent.terms if t.phase == "clip"]
    assert term.payload == 4
    assert term.bytes == 6


def coordinates(plan, sizes):
    names = plan.mesh.names
    return [
        dict(zip(names, place, strict=True))
        for place in itertools.product(*(range(sizes[a]) for a in names))
    ]


def test_every_rank_of_an_uneven_mesh_holds_its_part():
    model = transformer(Shape(layers=2, hidden=12, ffn=7, vocabulary=11, sequence=6))
    plan = derive(parse("zero3(dp=3) * tensor(tp=2)"), model)
    sizes = sizes_of(plan, model)
    ranks = coordinates(plan, {"dp": 3, "tp": 2})
    held = [memory_at(plan, sizes, DEFAULT, r) for r in ranks]
    most = memory(plan, sizes, DEFAULT)
    assert len({h.persistent for h in held}) > 1
    assert max(h.persistent for h in held) <= most.persistent
    shared = {"embedding", "head", "column", "kv", "row"}
    sharded = [t for t in plan.stages[0].tensors if t.group in shared]
    for tensor in sharded:
        whole = sizes.dim(tensor.shape[0]) * sizes.dim(tensor.shape[1])
        parts = [t for h in held for t in h.terms if t.names == (tensor.name,)]
        assert sum(t.payload for t in parts if t.what == "parameters") == 2 * whole


@pytest.mark.parametrize("text", ["zero3(dp={n}) * tensor(tp={n})", "pipeline(pp={n})"])
def test_work_does_not_depend_on_sizes(text):
    work = set()
    for n in (4, 2**19):
        shape = Shape(layers=n, hidden=2**20, heads=2**10, ffn=2**22)
        model = transformer(shape, folded=True)
        plan = derive(parse(text.format(n=n)), model)
        sizes = sizes_of(plan, model)
        folds = [Lifetimes(plan, stage, largest(sizes), DEFAULT) for stage in plan.stages]
        sent = communication(plan, sizes, DEFAULT)
        held = memory(plan, sizes, DEFAULT)
        work.add(
            (len(sent.terms), len(held.terms), *(len(p) for f in folds for p in f.points.values()))
        )
    assert len(work) == 1


def _median(text, model):
    plan = derive(parse(text), model)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        sizes = sizes_of(plan, model)
        held = memory(plan, sizes, DEFAULT)
        communication(plan, sizes, DEFAULT, held.position)
        times.append(time.perf_counter() - start)
    return sorted(times)[4]


def test_five_axes_take_milliseconds():
    text = (
        "zero3(dp=2) * expert(ep=2) * context(cp=2) * tensor(tp=2, sequence=True)"
        " * pipeline(pp=4, microbatches=8)"
    )
    shape = Shape(layers=8, hidden=16, heads=4, experts=4, sequence=16)
    assert _median(text, transformer(shape, folded=True)) < 0.1


@pytest.mark.parametrize(
    ("text", "axes", "found"),
    [
        ("zero3(dp=N)", {}, "axis dp: found the symbol N"),
        ("zero3(dp=N)", {"dp": 0}, "axis dp: found 0"),
        ("zero3(dp=N)", {"N": -3}, "axis dp: found -3"),
        ("accumulate(micro=m)", {}, "micro-batches: found 'm'"),
        ("pipeline(pp=3, microbatches=2)", {}, "size L/pp: found 4 / 3"),
        ("pipeline(pp=2, microbatches=2)", {"pp": 4}, "axis pp: found 4 for a plan of 2 stages"),
        ("pipeline(pp=p, microbatches=2)", {"p": 1}, "axis pp: found 1"),
    ],
)
def test_sizes_that_are_not_sizes(text, axes, found):
    model = transformer(SHAPE, folded=True)
    plan = derive(parse(text), model)
    with pytest.raises(IllFormed, match=found):
        sizes_of(plan, model, axes=axes)


def test_symbols_get_their_numbers():
    model = transformer(SHAPE, folded=True)
    plan = derive(parse("zero3(dp=N) * pipeline(pp=p, microbatches=m)"), model)
    sizes = sizes_of(plan, model, axes={"N": 4, "p": 2}, micro=6)
    other = derive(parse("zero3(dp=4) * pipeline(pp=2, microbatches=6)"), model)
    expected = memory(other, sizes_of(other, model), DEFAULT)
    assert memory(plan, sizes, DEFAULT).peak == expected.peak


def test_an_unknown_position_is_named():
    with pytest.raises(IllFormed, match="the plan has the positions only"):
        costs("data(dp=2)", abstract(10), position="middle")


def test_json_is_plain():
    import json

    held, sent = costs("zero3(dp=3)", abstract(1000))
    text = json.dumps({"memory": held.to_json(), "communication": sent.to_json()})
    assert '"name": "zero-paper"' in text


def test_integers_load_neither_sympy_nor_numpy():
    code = (
        "import sys, placement_proofs.cost as c, placement_proofs.derive\n"
        "print([m for m in ('sympy', 'numpy', 'z3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
