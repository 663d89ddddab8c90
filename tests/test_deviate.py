"""Deviations: their text, what they do to a plan, and that the simulator notices each mutant."""

import pytest

from placement_proofs.checking import check
from placement_proofs.derive import derive
from placement_proofs.deviate import (
    Deviation,
    Selector,
    deviate,
    mutants,
    parse_deviation,
)
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.inputs import read_subject
from placement_proofs.models import Shape, abstract, transformer
from placement_proofs.plan import Action, Local, Transfer
from placement_proofs.simulate import simulate
from placement_proofs.verdict import Verdict

SMALL = {
    "layers": 1,
    "hidden": 4,
    "heads": 2,
    "kv_heads": 2,
    "ffn": 6,
    "vocabulary": 6,
    "sequence": 4,
}


def dense(**changes):
    return transformer(Shape(**SMALL | changes))


def plan_of(text, model=None, **options):
    return derive(parse(text), model or dense(), **options)


HSDP = "hsdp(dp_replicate=2, dp_shard=2)"

TEXTS = [
    "drop all-reduce gradient dp group=norm",
    "duplicate all-gather parameter dp phase=backward nth=1",
    "rescale reduce-scatter gradient dp*cp by=1/(dp*cp)",
    "regroup all-reduce gradient dp to=tp",
    "reorder all-reduce gradient tp to=last",
    "overwrite accumulate gradient tensor=layer0.q.weight",
    "drop all-reduce cotangent tp stage=stage0",
    "drop scale 'why=mean over the batch'",
    "drop",
    "insert all-reduce gradient tp group=norm",
    "insert all-reduce statistic dp why=squares:",
    "replace reduce-scatter cotangent tp with=slice",
    "regroup square gradient group=norm to=squares:tp",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trip(text):
    assert str(parse_deviation(text)) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "a deviation begins with one of drop, duplicate"),
        ("forget all-reduce", "a deviation begins with one of drop, duplicate"),
        ("drop 'all-reduce", "a deviation begins with"),
        ("drop all-reduce colour=red", "the keys are axes, by, group"),
        ("drop all-reduce nth=x", "nth is a number from 0"),
        ("drop all-reduce phase=noon", "a phase is one of forward, backward"),
        ("rescale all-reduce", "rescale takes a factor"),
        ("rescale all-reduce by=__import__('os')", "rescale takes a factor"),
        ("regroup all-reduce", "regroup takes axes"),
        ("reorder all-reduce to=nowhere", "reorder takes one of to=earlier"),
        ("drop all-reduce by=2", "drop takes no argument"),
    ],
)
def test_texts_that_mean_nothing(text, rule):
    with pytest.raises(IllFormed, match=rule):
        parse_deviation(text)


def test_nothing_selected_says_what_there_is():
    with pytest.raises(IllFormed) as caught:
        deviate(plan_of("data(dp=2)"), parse_deviation("drop all-reduce gradient tp"))
    assert caught.value.found == "no such step in the plan"
    assert "all-reduce gradient dp phase=reduce" in caught.value.rule


def test_an_action_that_does_not_apply():
    with pytest.raises(IllFormed, match="overwrite to accumulate"):
        deviate(plan_of("data(dp=2)"), parse_deviation("overwrite all-reduce gradient"))


@pytest.mark.parametrize("text", ["regroup all-reduce to=ep", "rescale all-reduce by=1/ep"])
def test_arguments_name_axes_of_the_mesh(text):
    with pytest.raises(IllFormed, match=r"found ep; the plan has dp, tp"):
        deviate(plan_of("data(dp=2) * tensor(tp=2)"), parse_deviation(text))


def test_a_factor_of_zero_is_a_number_and_one_over_zero_is_not():
    plan = plan_of("data(dp=2)")
    zeroed = deviate(plan, parse_deviation("rescale all-reduce gradient by=0"))
    assert not simulate(zeroed, dense()).equal
    with pytest.raises(IllFormed, match="rescale takes a factor"):
        parse_deviation("rescale all-reduce gradient by=1/0")


def test_a_group_is_dropped_from_a_transfer_and_the_others_stay():
    plan = plan_of("data(dp=2)")
    changed = deviate(plan, parse_deviation("drop all-reduce gradient dp group=norm"))
    names = {i.name for t in changed.transfers() for i in t.items}
    assert not any("norm" in name for name in names)
    before = {i.name for t in plan.transfers() for i in t.items}
    assert before - names == {name for name in before if "norm" in name}


def test_a_dropped_conversion_passes_its_value_on():
    plan = plan_of("tensor(tp=2)")
    changed = deviate(plan, parse_deviation("drop all-reduce activation tp nth=0"))
    aliases = [
        step
        for _, _, step in changed.steps()
        if isinstance(step, Local) and step.why.startswith("dropped: ")
    ]
    assert [a.action for a in aliases] == [Action.ALIAS]
    assert len(list(plan.transfers())) == len(list(changed.transfers())) + 1


def test_the_plan_itself_does_not_change():
    plan = plan_of("data(dp=2)")
    steps = list(plan.steps())
    for deviation in mutants(plan):
        deviate(plan, deviation)
    assert list(plan.steps()) == steps


def test_reorder_moves_within_the_section():
    plan = plan_of("data(dp=2)")
    changed = deviate(plan, parse_deviation("reorder all-reduce gradient dp nth=0 to=last"))
    assert isinstance(changed.stages[0].after[-1], Transfer)
    assert sorted(map(repr, changed.stages[0].after)) == sorted(map(repr, plan.stages[0].after))


def test_mutants_leave_out_axes_of_size_one():
    assert not list(mutants(plan_of("data(dp=1)")))
    assert [d for d in mutants(plan_of("data(dp=N)")) if d.select.axes]


def test_selectors_are_texts_too():
    select = Selector("all-reduce", "gradient", ("dp", "cp"), group="norm", nth=2)
    assert str(select) == "all-reduce gradient dp*cp group=norm nth=2"
    assert Deviation("rescale", select, "1/dp").argument == "1/dp"


CASES = [
    ("data(dp=2)", dense(), "mean"),
    ("zero1(dp=2) * accumulate(micro=2)", dense(), "mean"),
    ("zero2(dp=2) * accumulate(micro=2)", dense(), "tokens"),
    ("zero3(dp=2)", dense(), "mean"),
    (HSDP, dense(), "mean"),
    ("tensor(tp=2, sequence=True) * zero3(dp=2)", dense(), "mean"),
    ("tensor(tp=2, replicate_kv=True) * data(dp=2)", dense(kv_heads=1), "tokens"),
    ("pipeline(pp=2, microbatches=2) * data(dp=2)", dense(layers=2, tied=True), "mean"),
    ("context(cp=2) * zero2(dp=2)", dense(), "sum"),
    ("ulysses(sp=2) * data(dp=2)", dense(), "mean"),
    ("expert(ep=2) * zero1(dp=2)", dense(experts=2, gated=False), "mean"),
    ("recompute('full') * tensor(tp=2, sequence=True)", dense(), "mean"),
    ("offload('parameters', 'optimizer') * zero3(dp=2)", dense(), "mean"),
    ("offload('optimizer') * zero1(dp=2)", dense(), "mean"),
    ("zero3(dp=2) * tensor(tp=2)", abstract(5), "mean"),
]


def idempotent(deviation):
    """Doubled transfers that read one buffer and write another: the copy is the same again.

    These are the gathers of parameters (they read the stored shard), and copies over the host link
    (they read the side they come from).
    """
    kinds = (("all-gather", "parameter"), ("host-link", "parameter"), ("host-link", "gradient"))
    doubled = deviation.action == "duplicate"
    return doubled and (deviation.select.kind, deviation.select.what) in kinds


@pytest.mark.parametrize(("text", "model", "loss"), CASES, ids=[f"{c[0]}" for c in CASES])
def test_every_transfer_dropped_or_doubled_is_noticed(text, model, loss):
    plan = plan_of(text, model, clipping=True, loss=loss)
    for deviation in mutants(plan):
        if deviation.action == "reorder":
            continue
        result = simulate(deviate(plan, deviation), model, optimizer="momentum")
        assert result.equal == idempotent(deviation), f"{deviation}: {result}"
        assert parse_deviation(str(deviation)) == deviation


def test_reductions_commute_among_themselves_and_not_with_the_update():
    plan = plan_of(HSDP)
    found = {
        (d.argument, simulate(deviate(plan, d), dense()).equal)
        for d in mutants(plan)
        if d.action == "reorder" and d.select.phase == "reduce"
    }
    assert found == {("first", True), ("last", False)}


# --- what a plan does not have ------------------------------------------------------------

COUNTED = {
    "insert all-reduce gradient tp group=norm": ("data(dp=2) * tensor(tp=2)", "tp"),
    "insert all-reduce statistic dp": ("data(dp=2)", "dp"),
    "insert all-reduce gradient tp tensor=layers.norm1.weight": ("tensor(tp=2)", "tp"),
}


@pytest.mark.parametrize("text", COUNTED)
def test_an_inserted_reduction_counts_too_often(text):
    composition, factor = COUNTED[text]
    report = check(read_subject(composition, without=[text]))
    assert report.verdict is Verdict.REFUTED
    assert report.failure.counterexample["factor"] == factor


def test_an_inserted_reduction_is_a_step_of_the_plan_once():
    plan = plan_of("data(dp=2) * tensor(tp=2)")
    longer = deviate(plan, parse_deviation("insert all-reduce gradient tp group=norm"))
    (added,) = [t for t in longer.transfers() if t.why == "inserted"]
    assert {i.name.rpartition(".")[0].rpartition(".")[2] for i in added.items} == {
        "norm1",
        "norm2",
        "final_norm",
    }
    assert simulate(plan, dense()).equal
    assert not simulate(longer, dense()).equal


def test_squares_are_counted_in_another_partial_norm():
    text = "regroup square gradient group=norm to=squares:tp"
    report = check(read_subject("data(dp=2) * tensor(tp=2)", without=[text]))
    assert report.failure.condition == "norm_integrity"


REPLACED = {
    "replace reduce-scatter cotangent tp with=slice": "tensor(tp=2, sequence=True)",
    "replace alias cotangent tensor=layers.o.out@tp:I with=all-reduce": "tensor(tp=2)",
}


@pytest.mark.parametrize("text", REPLACED)
def test_another_movement_in_its_place_is_noticed(text):
    report = check(read_subject(REPLACED[text], without=[text]))
    assert (report.verdict, report.failure.condition) == (Verdict.REFUTED, "contract")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("insert all-reduce gradient qq", "the plan has dp, tp"),
        ("insert all-reduce gradient tp group=none", "insert takes a collective"),
        ("insert scale gradient tp", "insert takes a collective"),
        ("replace accumulate gradient with=all-reduce", "without axes"),
        ("regroup square gradient to=squares:no", "another partial norm"),
    ],
)
def test_what_cannot_be_inserted_or_replaced(text, rule):
    with pytest.raises(IllFormed, match=rule):
        check(read_subject("data(dp=2) * tensor(tp=2)", without=[text]))
