"""Layouts that are offered are proved; composing refuses those that are refused."""

import random
from dataclasses import replace

import pytest

from placement_proofs.checking import check
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject
from placement_proofs.layouts import prepared, proofs
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.devices import load_machine, machines
from placement_proofs.layouts.planned import planned
from placement_proofs.layouts.proofs import proof_of
from placement_proofs.layouts.setting import Job, Kind, Layout
from placement_proofs.layouts.space import RULES, Choices, concrete, divisors, space
from placement_proofs.models import Shape, transformer
from placement_proofs.render.layouts import plan_text
from placement_proofs.verdict import Verdict

DENSE = Shape(12, 96, 12, 4, 256, 64, 48, fused_attention=True)
MOE = replace(DENSE, experts=6, top_k=2)
MACHINE = load_machine("a100-80gb")


def job(shape=DENSE, gpus=24, batch=48):
    return Job("small", shape, batch, gpus, MACHINE)


def checked(layout, what):
    """The verdict on a layout as anyone would check it: its expression on the model."""
    composition = concrete(layout, what)
    model = transformer(what.shape, name=what.name, folded=True)
    model = replace(model, micro_batch=layout.micro_batch)
    return check(Subject(repr(composition), composition, model)).verdict


def drawn(found, count, seed):
    draw = random.Random(seed)
    blocks = draw.choices(found.blocks, weights=list(map(len, found.blocks)), k=count)
    return [block.layout(draw.randrange(len(block))) for block in blocks]


@pytest.mark.parametrize(
    ("shape", "choices"),
    [
        (DENSE, Choices(chunks=(1, 3), recompute=("full",))),
        (MOE, Choices(chunks=(1,), recompute=("none",), zero=(1, 3))),
    ],
)
def test_every_class_of_layouts_is_proved_and_so_are_its_layouts(shape, choices):
    what = job(shape)
    found = space(what, choices)
    assert len(found) > 500
    for block in found.blocks:
        proof = proof_of(block.kind, what)
        assert proof.verdict is Verdict.PROVED and proof.covers.startswith("all sizes of")
    for layout in drawn(found, 25, seed=len(found)):
        assert checked(layout, what) is Verdict.PROVED, layout


def anything(draw, what):
    """A layout of the right number of ranks that need not divide anything else."""
    t, p, c, e = (draw.choice(divisors(what.gpus)) for _ in range(4))
    if not what.shape.experts or draw.random() < 0.5:
        e = 1
    if what.gpus % (t * p * c * e):
        return anything(draw, what)
    return Layout(
        draw.choice((1, 2, 3, 4, 5)),
        t,
        p,
        draw.choice((1, 1, 2)) if p > 1 else 1,
        what.gpus // (t * p * c * e),
        c,
        e,
        draw.randrange(4),
        t > 1 and draw.random() < 0.5,
        draw.choice(("none", "selective", "full")),
    )


def broken(layout, what):
    """The rules that one layout breaks, by source, as the planner sees them."""
    found = space(
        what,
        Choices(
            (layout.micro_batch,),
            (layout.tensor,),
            (layout.pipeline,),
            (layout.context,),
            (layout.expert,),
            (layout.data,),
            (layout.chunks,),
            (layout.zero,),
            (layout.sequence,),
            (layout.recompute,),
        ),
    )
    assert len(found) + sum(found.rejected.values()) == 1, "each layout once"
    return {rule.source for rule in RULES if rule.name in found.rejected}


@pytest.mark.parametrize("shape", [DENSE, MOE])
def test_the_rules_refuse_what_composing_and_deriving_refuse_and_nothing_else(shape):
    draw, what = random.Random(7), job(shape)
    seen = {"composition": 0, "valid": 0}
    for _ in range(80):
        layout = anything(draw, what)
        sources = broken(layout, what)
        try:
            verdict = checked(layout, what)
        except IllFormed:
            assert sources == {"composition"}, layout
            seen["composition"] += 1
        else:
            assert verdict is Verdict.PROVED and "composition" not in sources, layout
            seen["valid"] += 1
    assert min(seen.values()) > 10, "both directions are tried"


@pytest.mark.parametrize("name", [rule.name for rule in RULES if rule.source == "composition"])
def test_without_any_rule_a_layout_is_offered_that_composing_refuses(name, monkeypatch):
    """A mutant for each rule: with the rule gone, something invalid is offered."""
    from placement_proofs.layouts import space as module

    rest = tuple(rule for rule in RULES if rule.name != name)
    monkeypatch.setattr(module, "RULES", rest)
    what = job(DENSE if name == "sequence" else MOE)
    wrong = {
        "ranks": Choices(context=(16,), tensor=(1,), pipeline=(1,), expert=(1,)),
        "heads": Choices(tensor=(8,), micro_batch=(2,)),
        "kv-heads": Choices(tensor=(3,), micro_batch=(1,)),
        "layers": Choices(pipeline=(8,), chunks=(1,), micro_batch=(1,)),
        "sequence": Choices(context=(5,), micro_batch=(1,)),
        "experts": Choices(expert=(4,), micro_batch=(1,)),
        "routing": Choices(context=(6,), micro_batch=(1,), expert=(1,)),
        "batch": Choices(micro_batch=(5,), tensor=(1,), pipeline=(1,), context=(1,)),
    }[name]
    if name == "heads":
        what = replace(what, shape=replace(MOE, kv_heads=12, heads=12, hidden=96))
        monkeypatch.setattr(module, "RULES", tuple(r for r in rest if r.name != "kv-heads"))
    if name == "sequence":
        what = replace(what, gpus=40)
    found = space(what, replace(wrong, zero=(0,), recompute=("none",)))
    assert len(found)
    with pytest.raises(IllFormed):
        checked(found.blocks[0].layout(0), what)


def test_interleaving_and_kernels_have_rules_of_their_own():
    found = space(job(), Choices(pipeline=(4,), chunks=(3,), micro_batch=(16,), data=(3,)))
    assert not len(found) and "interleaving" in found.rejected
    eager = Choices(attention=("fused-softmax",), tensor=(4,), micro_batch=(1,), zero=(1,))
    assert space(job(), eager).rejected.keys() >= {"kernel"}
    assert "sharding" in space(job(), Choices(pipeline=(12,), tensor=(2,))).rejected


def test_a_class_that_is_not_proved_is_not_offered(monkeypatch):
    unknown = proofs.ClassProof("zero3(dp='d')", Verdict.UNKNOWN, reason="as a test wants")
    real = proof_of
    monkeypatch.setattr(
        prepared, "proof_of", lambda kind, job: unknown if kind.zero == 3 else real(kind, job)
    )
    monkeypatch.setattr(prepared, "_made", prepared._made.__wrapped__)
    few = Choices(recompute=("none",), context=(1,), chunks=(1,), zero=(1, 3))
    found, plan = space(job(), few), planned(job(), Constants(), few)
    assert 0 < len(plan.table) < len(found)
    assert all(offer.layout.zero != 3 for offer in plan.front)
    assert sum(count for count, _ in plan.table.withheld) == len(found) - len(plan.table)
    assert {proof.reason for _, proof in plan.table.withheld} == {"as a test wants"}
    assert "unknown: zero3(dp='d'): as a test wants" in plan_text(plan, top=1)


def test_layouts_that_differ_in_kernels_share_a_proof():
    a, b = Kind(tensor=True), Kind(tensor=True, attention="eager", norm="eager")
    assert proof_of(a, job()) is proof_of(b, job())


def test_reasons_have_counts_and_words():
    text = dict((words, count) for count, words in space(job()).reasons())
    assert text["the tensor degree divides 4 key-value heads"] > 0


def test_a_layout_is_offered_once():
    found = space(job(MOE))
    layouts = [block.layout(i) for block in found.blocks for i in range(0, len(block), 7)]
    assert len(set(layouts)) == len(layouts)
    assert all(layout.world == 24 for layout in layouts)


def test_every_device_has_sources_for_its_figures():
    names = {m.device.name for m in machines()}
    assert names >= {"a100-40gb", "a100-80gb", "h100", "h200", "b200", "mi300x", "tpu-v5p"}
    for machine in machines():
        assert {k for k, _ in machine.device.sources} == {"memory", "flops", "bandwidth"}
        assert len(machine.cluster.source) > 20
        assert machine.device.memory > 30e9 and machine.cluster.between.bandwidth > 1e9


OWN = """
[device.mine]
memory = 24e9
flops = 100e12
bandwidth = 1e12
[cluster.box]
ranks_per_node = 4
inside = { latency = "2 us", bandwidth = "50 GB/s" }
between = { latency = "20 us", bandwidth = "5 GB/s" }
"""


def test_a_device_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    machine = load_machine(str(path))
    assert (machine.device.memory, machine.cluster.node) == (24_000_000_000, 4)
    assert (machine.cluster.name, machine.cluster.between.bandwidth) == ("box", 5e9)
    path.write_text('[device.mine]\nmemory=24e9\nflops=1e14\nbandwidth=1e12\ncluster="dgx-h100"')
    assert load_machine(str(path)).cluster.name == "dgx-h100"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("flops = 100e12", "flops = true"),
            "device.mine: flops: found True; a number of dense bfloat16 FLOP/s, at least 1; write "
            "flops = 312e12",
        ),
        (
            ("flops = 100e12", "flops = 0"),
            "device.mine: flops: found 0; a number of dense bfloat16 FLOP/s, at least 1; write "
            "flops = 312e12",
        ),
        (
            ("memory = 24e9\n", ""),
            "device.mine: memory: found nothing; a number of bytes, at least 1; write memory = "
            "80e9",
        ),
        (
            ("bandwidth = 1e12", "bandwith = 1e12"),
            "device.mine: bandwith: found 1000000000000.0; the keys are title, memory, flops, "
            "bandwidth, cluster, sources; did you mean bandwidth?",
        ),
        (
            ('inside = { latency = "2 us", bandwidth = "50 GB/s" }', "inside = 3"),
            'cluster.box: inside: found 3; a table; write inside = {latency = "3.4 us", '
            'bandwidth = "300 GB/s"}',
        ),
    ],
)
def test_wrong_device_files_are_refused_with_the_place(tmp_path, change, message):
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace(*change))
    with pytest.raises(IllFormed) as error:
        load_machine(str(path))
    assert str(error.value) == f"{path}: {message}"


def test_a_cluster_of_a_file_and_of_a_name():
    assert load_machine("h100", "dgx-a100").cluster.between.bandwidth == 25e9
    assert load_machine("h100", "tpu-v5p-pod").cluster.node == 8960
    assert load_machine("h200").cluster.name == "dgx-h100"
    assert load_machine("h100", "examples/topology.toml").cluster.node > 1


def test_unknown_devices_and_clusters_are_refused(tmp_path):
    with pytest.raises(IllFormed, match="did you mean h100"):
        load_machine("H100")
    with pytest.raises(IllFormed, match="--cluster: found 'ring'"):
        load_machine("h100", "ring")
    with pytest.raises(IllFormed, match="no cluster; a device stands in a cluster"):
        path = tmp_path / "mine.toml"
        path.write_text(OWN[: OWN.index("[cluster")])
        load_machine(str(path))
    with pytest.raises(IllFormed, match="no such file"):
        load_machine("nowhere.toml")
