"""Closed forms at every rank equal what the simulator's meters counted, exactly."""

from collections import Counter
from fractions import Fraction

import pytest

from placement_proofs.cost import DEFAULT, communication_at, memory_at, sizes_of
from placement_proofs.cost.convention import STATISTIC_BYTES
from placement_proofs.cost.lifetimes import Kept
from placement_proofs.derive import derive
from placement_proofs.expression import parse
from placement_proofs.layout import Collective
from placement_proofs.models import Shape, perceptron, transformer
from placement_proofs.placement import State
from placement_proofs.plan import Buffer, What
from placement_proofs.profile import PROFILES
from placement_proofs.simulate import Held, simulate

EVEN = {"layers": 2, "hidden": 8, "heads": 4, "kv_heads": 4, "ffn": 16, "vocabulary": 16}
UNEVEN = EVEN | {"ffn": 13, "vocabulary": 11}


def width(line):
    match line.what:
        case What.PARAMETER:
            return DEFAULT.gathered if line.buffer is Buffer.GATHERED else DEFAULT.parameter
        case What.GRADIENT:
            return DEFAULT.reduction
        case What.STATISTIC:
            return STATISTIC_BYTES
    return DEFAULT.activation


def metered(traffic):
    """Bytes by collective, axes and phase, and bytes over the host link."""
    sent, host = Counter(), 0
    for line, counted in traffic.items():
        if line.collective is Collective.HOST:
            host += counted.ring * width(line)
        else:
            sent[line.collective.value, line.axes, line.phase.value] += counted.ring * width(line)
    return {key: value for key, value in sent.items() if value}, host


def check(text, model, profile="paper", clipping=False):
    composition = parse(text)
    plan = derive(composition, model, PROFILES[profile], clipping=clipping)
    result = simulate(plan, model, optimizer="momentum")
    assert result.equal, str(result)
    sizes = sizes_of(plan, model)
    for rank in result.ranks:
        here = dict(rank.coordinates)
        check_traffic(communication_at(plan, sizes, DEFAULT, here), rank)
        check_memory(memory_at(plan, sizes, DEFAULT, here), rank, plan)


def check_traffic(form, rank):
    sent, host = metered(rank.traffic)
    closed = {key: Fraction(value) for key, value in form.by_phase.items() if value}
    assert sent == closed
    assert host == form.host


def check_memory(form, rank, plan, widths=DEFAULT):
    parameters, optimizer = (
        form.by[s.value] + form.host[s.value] for s in (State.PARAMETERS, State.OPTIMIZER)
    )
    offloaded = {state for stage in plan.stages for t in stage.tensors for state in t.offloaded}
    tensors = [t for stage in plan.stages for t in stage.tensors]
    padded = any(t.padded for t in tensors)  # the simulator holds copies without their padding
    flat = any(t.flat for t in tensors)  # the simulator stores the tensors of a unit apart
    if not offloaded and not flat:
        assert rank.held[Held.PARAMETERS] * widths.parameter == parameters
        assert rank.held[Held.OPTIMIZER] * widths.optimizer == optimizer
        gathered = form.transient[Kept.GATHERED.value]
        if not padded:
            assert rank.held[Held.GATHERED] * widths.gathered == gathered
    flowing = form.transient[Kept.ACTIVATIONS.value]
    assert rank.held[Held.FLOWING] * widths.activation == flowing


TEXTS = [
    "data(dp=3)",
    "zero1(dp=3)",
    "zero2(dp=3) * accumulate(micro=2)",
    "zero3(dp=3)",
    "fsdp(dp=2, reshard_after_forward=False)",
    "hsdp(dp_replicate=2, dp_shard=3)",
    "tensor(tp=4)",
    "tensor(tp=2, sequence=True) * zero3(dp=3)",
    "tensor(tp=4, replicate_kv=True) * zero2(dp=2)",
    "tensor(tp=2, vocabulary=False, sequence=True) * data(dp=2)",
    'pipeline(pp=2, microbatches=4, schedule="gpipe") * zero1(dp=2)',
    "pipeline(pp=2, microbatches=3) * tensor(tp=2, sequence=True)",
    "zero3(dp=2) * pipeline(pp=2, microbatches=3) * tensor(tp=2)",
    "pipeline(pp=2, microbatches=5, schedule='zb-h1') * zero2(dp=2)",
    "zero3(dp=2) * pipeline(pp=2, microbatches=3, schedule='zb-h2') * tensor(tp=2, sequence=True)",
    "pipeline(pp=2, microbatches=3, schedule='zb-h1') * recompute('full') * zero1(dp=2)",
    "context(cp=2) * zero3(dp=2, shard_over=('dp', 'cp'))",
    "context(cp=2, method='ring') * zero2(dp=2)",
    "ulysses(sp=2) * zero1(dp=2)",
    "recompute('full') * zero3(dp=2)",
    "recompute('selective') * tensor(tp=2)",
    "offload('optimizer') * zero2(dp=2)",
    "offload('parameters', 'optimizer') * zero3(dp=2)",
]


@pytest.mark.parametrize("shape", [EVEN, UNEVEN], ids=["divisible", "not"])
@pytest.mark.parametrize("text", TEXTS)
def test_every_rank_counts_what_the_closed_form_says(text, shape):
    check(text, transformer(Shape(**shape)), clipping=True)


@pytest.mark.parametrize("profile", PROFILES)
def test_under_every_profile(profile):
    tied = transformer(Shape(**UNEVEN, tied=True, bias=True))
    check("zero3(dp=2) * tensor(tp=2)", tied, profile)
    check("zero1(dp=3) * pipeline(pp=2, microbatches=2)", tied, profile, clipping=True)


def test_interleaved_stages_and_experts():
    deep = transformer(Shape(**UNEVEN | {"layers": 4}, tied=True))
    check('pipeline(pp=2, microbatches=4, schedule="interleaved", chunks=2) * data(dp=2)', deep)
    moe = transformer(Shape(**UNEVEN, gated=False, experts=2))
    check("expert(ep=2) * zero1(dp=2) * tensor(tp=2)", moe)
    check("zero3(dp=3) * tensor(tp=2)", perceptron(hidden=7, ffn=9))
