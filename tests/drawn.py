"""Random compositions for property tests: small sizes, every strategy."""

from hypothesis import strategies as st

from placement_proofs.composition import compose
from placement_proofs.strategies import (
    accumulate,
    context,
    data,
    expert,
    fsdp,
    hsdp,
    pipeline,
    recompute,
    tensor,
    ulysses,
    zero1,
    zero2,
    zero3,
)

SIZES = st.sampled_from([1, 2])


@st.composite
def data_parts(draw):
    kind = draw(st.sampled_from([data, zero1, zero2, zero3, fsdp, hsdp, None]))
    if kind is None:
        return []
    if kind is hsdp:
        return [hsdp(dp_replicate=draw(SIZES), dp_shard=draw(SIZES))]
    if kind is fsdp:
        return [fsdp(dp=draw(SIZES), reshard_after_forward=draw(st.booleans()))]
    return [kind(dp=draw(st.sampled_from([1, 2, 3])))]


@st.composite
def model_parts(draw):
    parts = []
    sequence = draw(st.sampled_from(["", "all-gather", "ring", "heads"]))
    if draw(st.booleans()):
        parts.append(
            tensor(
                tp=draw(SIZES),
                sequence=draw(st.booleans()),
                vocabulary=draw(st.booleans()),
                replicate_kv=sequence != "heads" and draw(st.booleans()),
            )
        )
    if sequence == "heads":
        parts.append(ulysses(sp=draw(SIZES)))
    elif sequence:
        parts.append(context(cp=draw(SIZES), method=sequence))
    return parts


@st.composite
def loop_parts(draw):
    if draw(st.booleans()):
        schedule = draw(st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-h2"]))
        return [pipeline(pp=draw(SIZES), microbatches=draw(SIZES), schedule=schedule)]
    return [accumulate(micro=draw(st.sampled_from([2, 3])))] if draw(st.booleans()) else []


@st.composite
def compositions(draw, experts=False):
    """A composition with at least one strategy, in a drawn order."""
    parts = draw(data_parts()) + draw(model_parts()) + draw(loop_parts())
    if experts and draw(st.booleans()):
        parts.append(expert(ep=draw(SIZES)))
    if draw(st.booleans()):
        parts.append(recompute(draw(st.sampled_from(["none", "selective", "full"]))))
    parts = draw(st.permutations(parts or [data(dp=2)]))
    return compose(*parts)
