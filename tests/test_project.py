"""Projection: well-formed element programs, shared by tensors that are placed alike."""

from drawn import compositions
from hypothesis import given, settings

from placement_proofs.derive import derive
from placement_proofs.expression import parse
from placement_proofs.models import Shape, abstract, transformer
from placement_proofs.program import Reduce, Source, Use, validate
from placement_proofs.project import project
from placement_proofs.project.tensors import _flat

DEEP = transformer(Shape(layers=6, tied=True))
FOLDED = transformer(Shape(layers=6, tied=True), folded=True)


def programs(text, model=FOLDED, **options):
    return project(derive(parse(text), model, **options))


@settings(max_examples=40)
@given(compositions(experts=True))
def test_every_projection_is_well_formed(composition):
    plan = derive(composition, transformer(Shape(experts=4, tied=True)), clipping=True)
    for projected in project(plan):
        validate(projected.program)


def test_the_programs_of_a_plan_do_not_grow_with_depth():
    text = "zero3(dp=2) * tensor(tp=2, sequence=True)"
    deep, folded = programs(text, DEEP), programs(text, FOLDED)
    assert {p.program for p in deep} == {p.program for p in folded}


def test_work_does_not_depend_on_sizes():
    small, large = programs("zero3(dp=2)"), programs("zero3(dp=1000000)")
    assert small == large


def test_zero3_gathers_before_each_use():
    (projected, *_) = programs("zero3(dp=4)", abstract())
    uses = [s for s in _flat(projected.program.steps) if isinstance(s, Use)]
    assert {u.buf for u in uses} == {"u"}
    assert len(uses) == 2


def test_a_norm_under_sequence_parallelism_is_fed_by_all_of_tp():
    by_group = {g: p for p in programs("tensor(tp=2, sequence=True)") for g in p.groups}
    (source,) = [s for s in _flat(by_group["norm"].program.steps) if isinstance(s, Source)]
    assert source.over == ("tp",)
    (reduce,) = [s for s in _flat(by_group["norm"].program.steps) if isinstance(s, Reduce)]
    assert reduce.axes == ("tp",)


def test_experts_are_held_on_ep_and_fed_by_all_of_it():
    plan = "data(dp=2) * expert(ep=2)"
    by_group = {g: p for p in programs(plan, transformer(Shape(experts=4))) for g in p.groups}
    (source,) = [s for s in _flat(by_group["expert_in"].program.steps) if isinstance(s, Source)]
    assert (source.over, source.summed, source.held) == (("dp", "ep"), ("ep",), (("ep", "p"),))


def test_tokens_are_counted_and_reduced():
    (projected, *_) = programs("data(dp=2) * accumulate(micro=2)", abstract(), loss="tokens")
    steps = list(_flat(projected.program.steps))
    assert any(isinstance(s, Reduce) and s.buf == "k" for s in steps)
    assert projected.program.params[0].target[0].coef == "1/n"
