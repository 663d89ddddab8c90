"""A plan on virtual ranks equals one device: strategies alone, the fields, the loop, failures."""

import json
from dataclasses import replace

import pytest

from placement_proofs.derive import derive
from placement_proofs.deviate import deviate, parse_deviation
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.layout import Collective
from placement_proofs.models import Shape, abstract, perceptron, transformer
from placement_proofs.plan import Phase, What
from placement_proofs.simulate import Held, simulate

SMALL = {"hidden": 8, "heads": 4, "kv_heads": 4, "ffn": 10, "vocabulary": 7, "sequence": 4}


def dense(**changes):
    return transformer(Shape(**SMALL | changes))


def moe(**changes):
    return dense(experts=2, gated=False, **changes)


def run(text, model, *, clipping=False, loss="mean", **options):
    return simulate(derive(parse(text), model, clipping=clipping, loss=loss), model, **options)


ALONE = [
    "single()",
    "data(dp=3)",
    "zero1(dp=3)",
    "zero2(dp=3)",
    "zero3(dp=3)",
    "fsdp(dp=2, reshard_after_forward=False)",
    "hsdp(dp_replicate=2, dp_shard=2)",
    "tensor(tp=4)",
    "tensor(tp=2, sequence=True)",
    "tensor(tp=2, vocabulary=False)",
    "tensor(tp=2, vocabulary=False, sequence=True)",
    "tensor(tp=4, replicate_kv=True)",
    "pipeline(pp=2, microbatches=3)",
    'pipeline(pp=2, microbatches=3, schedule="gpipe")',
    "context(cp=2)",
    'context(cp=2, method="ring")',
    "ulysses(sp=2)",
    "recompute('full')",
    "recompute('selective')",
    "accumulate(micro=3)",
    "offload('optimizer')",
    "offload('parameters', 'optimizer')",
]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("text", ALONE)
def test_every_strategy_alone_equals_one_device(text, optimizer):
    result = run(text, dense(), optimizer=optimizer)
    assert result.equal, str(result)


@pytest.mark.parametrize("text", ["expert(ep=2)", "tensor(tp=2)", "tensor(tp=2, sequence=True)"])
def test_experts(text):
    result = run(f"{text} * data(dp=2)", moe(), clipping=True)
    assert result.equal, str(result)


@pytest.mark.parametrize(("chunks", "micro"), [(2, 4), (2, 3), (2, 1), (3, 2)])
def test_interleaved_stages(chunks, micro):
    text = f'pipeline(pp=2, microbatches={micro}, schedule="interleaved", chunks={chunks})'
    result = run(text, dense(layers=2 * chunks, tied=True), clipping=True)
    assert result.equal, str(result)


@pytest.mark.parametrize("text", ["zero3(dp=3)", "tensor(tp=2) * data(dp=2)", "zero1(dp=4)"])
def test_the_abstract_model(text):
    assert run(text, abstract(7), clipping=True).equal


@pytest.mark.parametrize("loss", ["mean", "tokens", "sum"])
def test_every_loss(loss):
    text = "zero2(dp=2) * tensor(tp=2) * pipeline(pp=2, microbatches=2)"
    assert run(text, dense(), loss=loss, clipping=True).equal


FIVE = "zero3(dp=2) * tensor(tp=2, sequence=True) * context(cp=2) * pipeline(pp=2, microbatches=2)"


def test_five_axes_in_floats():
    plan_text = f"{FIVE} * recompute('full')"
    result = run(plan_text, dense(tied=True), field="float", clipping=True, optimizer="adam")
    assert result.equal, str(result)


@pytest.mark.parametrize(
    "text", ["zero2(dp=2)", "tensor(tp=2)", "zero3(dp=2) * accumulate(micro=2)"]
)
def test_small_models_in_fractions(text):
    small = perceptron(layers=1, hidden=2, ffn=3)
    assert run(text, small, field="fraction", steps=1, optimizer="adam").equal
    tiny = transformer(
        Shape(layers=1, hidden=2, heads=2, kv_heads=2, ffn=2, vocabulary=3, sequence=2)
    )
    assert run(text, tiny, field="fraction", steps=1).equal


def test_sizes_of_symbols():
    plan = derive(parse("zero3(dp=N) * accumulate(micro=m)"), dense())
    assert simulate(plan, dense(), sizes={"N": 2, "micro": 2}).equal
    assert simulate(plan, dense(), sizes={"dp": 3, "m": 1}).equal
    with pytest.raises(IllFormed, match=r"dp = N, which has no value.*give sizes=\{'dp': 2\}"):
        simulate(plan, dense(), sizes={"m": 2})


def test_what_cannot_be_simulated():
    with pytest.raises(IllFormed, match="one layer stands for many"):
        run("data(dp=2)", transformer(Shape(**SMALL), folded=True))
    with pytest.raises(IllFormed, match="at most 4,096"):
        run("data(dp=5000)", dense())
    with pytest.raises(IllFormed, match="at most 16,777,216"):
        run("data(dp=2)", abstract())
    with pytest.raises(IllFormed, match="field is one of modular, float, fraction"):
        run("data(dp=2)", dense(), field="real")


def test_a_head_in_two_is_a_failure():
    result = run("tensor(tp=3)", dense(ffn=12))
    assert not result.equal
    assert "part of a head" in result.failure
    assert str(result).startswith("cannot run")


def test_the_first_difference_is_named():
    plan = derive(parse("data(dp=2)"), dense())
    without = deviate(plan, parse_deviation("drop all-reduce gradient dp group=row"))
    result = simulate(without, dense())
    assert not result.equal
    assert result.difference.to_json() == {
        "tensor": "layer0.o.weight",
        "rank": {"dp": 0},
        "step": 1,
    }
    assert "layer0.o.weight on rank (dp=0) after step 1" in str(result)


def test_a_message_that_nobody_sends_is_a_deadlock():
    plan = derive(parse("pipeline(pp=2, microbatches=2)"), dense())
    silent = deviate(plan, parse_deviation("drop point-to-point activation pp"))
    assert "deadlock" in simulate(silent, dense()).failure


def test_meters_of_known_plans():
    psi = sum(t.size for t in _arrays(dense()))
    for text, payload in (("data(dp=2)", psi), ("hsdp(dp_replicate=2, dp_shard=1)", psi)):
        rank = run(text, dense()).ranks[0]
        axis = "dp" if "data" in text else "dp_replicate"
        counted = [t for line, t in rank.traffic.items() if line.axes == (axis,)]
        assert sum(t.payload for t in counted) == payload
        assert sum(t.ring for t in counted) == payload  # 2 (N-1)/N with N = 2
    tp = run("tensor(tp=2)", dense()).ranks[0].traffic
    reduced = [
        t.count
        for line, t in tp.items()
        if line.collective is Collective.ALL_REDUCE
        and line.what in (What.ACTIVATION, What.COTANGENT)
    ]
    assert sum(reduced) == 2 * 4 + 2  # four a layer, and embedding and head


def test_in_flight_micro_batches_are_held():
    """Activations at the peak grow with the micro-batches under gpipe, not under 1f1b."""
    held = {}
    for schedule in ("gpipe", "1f1b"):
        for m in (2, 4):
            text = f'pipeline(pp=2, microbatches={m}, schedule="{schedule}")'
            ranks = run(text, dense(), steps=1).ranks
            held[schedule, m] = ranks[0].held[Held.ACTIVATIONS]
    assert held["gpipe", 4] > held["gpipe", 2]
    assert held["1f1b", 4] == held["1f1b", 2] == held["gpipe", 2]


def test_traffic_is_that_of_one_step():
    one, three = (run("zero3(dp=2)", dense(), steps=n).ranks[0].traffic for n in (1, 3))
    assert one == three
    assert {line.phase for line in one} == {Phase.FORWARD, Phase.BACKWARD}


def test_results_are_json():
    result = run("zero1(dp=2) * tensor(tp=2)", dense())
    text = json.loads(json.dumps(result.to_json()))
    assert text["equal"] is True
    assert [r["coordinates"] for r in text["ranks"]][1] == {"dp": 0, "tp": 1}


def test_a_fault_of_a_later_step_needs_the_later_step():
    """Parameters that are not published differ from the first step on; momentum from the second."""
    plan = derive(parse("zero1(dp=2)"), dense())
    stale = deviate(plan, parse_deviation("drop all-gather parameter dp phase=update"))
    assert simulate(stale, dense(), steps=1).difference.step == 1


def test_accumulation_that_overwrites_keeps_the_last_micro_batch():
    plan = derive(parse("accumulate(micro=2)"), dense())
    wrong = deviate(plan, parse_deviation("overwrite accumulate gradient"))
    assert simulate(wrong, dense()).difference is not None
    once = derive(parse("accumulate(micro=1)"), dense())
    assert simulate(deviate(once, parse_deviation("overwrite accumulate")), dense()).equal


def test_a_plan_of_another_loss_differs():
    plan = derive(parse("data(dp=2)"), dense(), loss="sum")
    assert not simulate(replace(plan, loss="mean"), dense()).equal


def _arrays(model):
    from placement_proofs.mesh import IntSizes
    from placement_proofs.simulate.field import FIELDS

    (field,) = FIELDS["float"]()
    sizes = IntSizes({}, model.dims)
    return [field.zeros(tuple(sizes.dim(d) for d in t.shape)) for t in model.tensors]


def test_activations_that_wait_on_the_host_come_back():
    model = transformer(Shape())
    for text in ("data(dp=2)", "recompute('full')", "pipeline(pp=2, microbatches=2)"):
        plan = derive(parse(f"{text} * offload('activations')"), model)
        assert simulate(plan, model).equal


@pytest.mark.parametrize("groups", [("embedding", "norm"), ("column", "kv", "row")])
@pytest.mark.parametrize("text", ["zero3(dp=2) * tensor(tp=2, sequence=True)", "pipeline(pp=2)"])
def test_frozen_parameters_stay_as_they_are(text, groups):
    model = transformer(Shape())
    tensors = tuple(replace(t, trainable=t.group not in groups) for t in model.tensors)
    model = replace(model, tensors=tensors)
    assert simulate(derive(parse(text), model, clipping=True), model).equal
