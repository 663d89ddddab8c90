"""Prover and simulator agree on drawn compositions and on their mutants.

The prover decides from placements, for all sizes; the simulator runs a real forward and backward
pass on virtual ranks, modulo primes. They share the plan and nothing else.
"""

from dataclasses import replace

import pytest
from drawn import compositions
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement_proofs.checking import known_sizes
from placement_proofs.conditions import conditions_of, prove_plan, verdict_of
from placement_proofs.cost import sizes_of
from placement_proofs.derive import derive
from placement_proofs.derive.fit import check_fit
from placement_proofs.deviate import deviate, mutants
from placement_proofs.errors import IllFormed
from placement_proofs.models import Shape, transformer
from placement_proofs.project.runnable import cannot_run
from placement_proofs.simulate import simulate
from placement_proofs.verdict import Verdict

SHAPE = Shape(
    layers=2,
    hidden=8,
    heads=4,
    kv_heads=4,
    ffn=8,
    vocabulary=7,
    sequence=8,
    experts=2,
    tied=True,
)
NORMED = replace(SHAPE, qk_norm=True, post_norm=True, top_k=2, shared_ffn=8)
LATENT = replace(
    SHAPE,
    kv_rank=3,
    q_rank=2,
    nope_dim=2,
    rope_dim=1,
    value_dim=2,
    dense_layers=1,
    expert_ffn=4,
)
MODELS = tuple(map(transformer, (SHAPE, NORMED, LATENT)))
RANKS = 16


def derived(composition, model):
    plan = derive(composition, model, clipping=True)
    sizes = sizes_of(plan, model)
    check_fit(plan, model, sizes)
    assume(sizes.product([sizes.axis(a) for a in plan.mesh.names]) <= RANKS)
    return plan


def proved(plan, known):
    """Whether the plan is right by proof: every condition proved, and every rank can run it.

    ``None`` where the ranks' buffers have no common layout: such a plan has no verdict.
    """
    verdict = verdict_of(conditions_of(prove_plan(plan, known)))
    assert verdict in (Verdict.PROVED, Verdict.REFUTED, Verdict.ILL_FORMED)
    if verdict is Verdict.ILL_FORMED:
        return None
    return verdict is Verdict.PROVED and not cannot_run(plan)


def agree(composition, model, choose):
    try:
        plan = derived(composition, model)
    except IllFormed:
        assume(False)
    known = known_sizes(composition)
    assert proved(plan, known)
    assert simulate(plan, model, steps=2).equal
    found = list(mutants(plan))
    if not found:
        return
    deviation = choose(found)
    try:
        deviated = deviate(plan, deviation)
    except IllFormed:  # the stage has no such group
        return
    told = proved(deviated, known), simulate(deviated, model, steps=2).equal
    assert told[0] in (None, told[1]), f"{composition!r} with {deviation}: proved, equal = {told}"


@settings(max_examples=100)
@given(compositions(experts=True), st.sampled_from(MODELS), st.data())
def test_prover_and_simulator_agree(composition, model, data):
    agree(composition, model, lambda found: data.draw(st.sampled_from(found)))


GROUPS = sorted({tensor.group for model in MODELS for tensor in model.tensors})


@settings(max_examples=60)
@given(compositions(experts=True), st.sampled_from(MODELS), st.data())
def test_they_agree_on_deviations_of_one_group(composition, model, data):
    def choose(found):
        of_gradients = [d for d in found if d.select.what in ("gradient", "parameter")]
        deviation = data.draw(st.sampled_from(of_gradients or found))
        group = data.draw(st.sampled_from(GROUPS))
        return replace(deviation, select=replace(deviation.select, group=group))

    agree(composition, model, choose)


@pytest.mark.deep
@settings(max_examples=5_000)
@given(compositions(experts=True), st.sampled_from(MODELS), st.data())
def test_prover_and_simulator_agree_on_thousands(composition, model, data):
    agree(composition, model, lambda found: data.draw(st.sampled_from(found)))
