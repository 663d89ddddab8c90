"""Profiles: facts in which training stacks differ, as data. Only derivation reads a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement_proofs.errors import IllFormed


@dataclass(frozen=True)
class Profile:
    """Facts about a training stack; the defaults are the paper's plan.

    Attributes:
        name: the stack that the facts describe.
        share_inputs: consumers of one value share its conversion (one all-reduce for q, k and v);
            without it each consumer converts by itself.
        root_spans_step: the unit that holds embedding, final norm and head is gathered once, for
            the forward and the backward pass.
        keep_last_unit: the unit used last in the forward pass is not released before backward.
        scatter_gradients: a gradient whose consumer is sharded is reduce-scattered; without it,
            it is all-reduced and sliced (torch's ZeRO-1).
        sync_each_micro: gradients are reduced after every micro-batch, whatever their mode.
        recompute_all: recomputation repeats every step of a block, also those whose results
            backward does not read.
        root_spans_pass: the root unit is gathered at the start of a pass and released at its end.
        one_unit: all tensors are one gather unit, the root.
        gathers_once: a copy gathered in the forward pass serves the backward pass too;
            recomputation gathers what it runs once more.
        regathered: with it, kinds of operations whose parameters are gathered once more for their
            backward step all the same.
        flat_units: what is sharded of the tensors of a unit is cut from one flat tensor, padded
            once.
        padded_copies: a gathered copy keeps the padding of the wire.
        regather_axes: after the forward pass a gathered copy is cut to its part on these axes, and
            gathered over them alone before the backward pass.
        defer_reductions: the sum over micro-batches stays whole; it is reduced after the last one.
        hooked_reductions: reductions of that sum start as the backward pass ends, in its phase.
        one_bucket: gradients of all units are reduced in one message (fewer messages, same bytes).
        bucket_caps: gradients are reduced in buckets that are closed when they have that many
            elements: the first bucket, then the others (same bytes). Folded layers stay units.
        bucket_copies: the buckets hold a copy of the gradients beside the stored one.
        buffers: elements of communication buffers that are held all the time.
        adds_in_place: kernels add gradients where they are stored, without a fresh copy.
        tensor_units: every tensor is a gather unit of its own.
        persistent_below: parameters of fewer elements are stored whole, their optimizer state is
            not: they are published after the update instead of gathered before uses.
        resolve_first: a gradient that is pending on axes of the model is summed there before it is
            scattered over others (DTensor resolves partial sums first).
        optimizer_reads: how often the optimizer reads a gradient; where no scatter needs the sum
            over an axis of the model, the sum is not kept and each read all-reduces it again.
        norm_vector: the global norm is reduced as one number per tensor, once for each axis.
        whole_tensors: the optimizer's part is whole tensors: the largest first, each to the rank
            with the least so far; each is published by a broadcast of its owner.
        one_broadcast: an owner broadcasts all its tensors in one message.
        whole_ends: embedding and head work on whole sequences; sequence parallelism is of the
            layers between them.
        bias_on_partial: the bias after a row projection is added to the pending sum (in equal
            parts), so that its gradient needs no reduction.
        regather_inputs: sequence parallelism keeps the shard of a region's input and gathers it
            once more in the backward pass (arXiv 2205.05198, section 4.2.2).
        reports_loss: the mean loss of all ranks is worked out in every step (one number).
        whole_gradients: groups whose stored gradient is whole where the parameter is a shard.
        eager: kinds of operations whose kernels keep their intermediate results for the backward
            pass: norms a float32 copy and the normalised value, attention its scores, the loss
            float32 logits and log-probabilities.
        fused: kinds of operations whose kernels keep nothing but inputs and outputs.
    """

    name: str = "paper"
    share_inputs: bool = True
    root_spans_step: bool = False
    keep_last_unit: bool = False
    scatter_gradients: bool = True
    sync_each_micro: bool = False
    recompute_all: bool = False
    root_spans_pass: bool = False
    one_unit: bool = False
    flat_units: bool = False
    padded_copies: bool = False
    regather_axes: tuple[str, ...] = ()
    defer_reductions: bool = False
    hooked_reductions: bool = False
    one_bucket: bool = False
    resolve_first: bool = False
    optimizer_reads: int = 0
    norm_vector: bool = False
    whole_tensors: bool = False
    whole_ends: bool = False
    bias_on_partial: bool = False
    regather_inputs: bool = False
    reports_loss: bool = False
    whole_gradients: tuple[str, ...] = ()
    bucket_caps: tuple[int, ...] = ()
    bucket_copies: bool = False
    buffers: int = 0
    adds_in_place: bool = False
    tensor_units: bool = False
    persistent_below: int = 0
    one_broadcast: bool = False
    gathers_once: bool = False
    regathered: tuple[str, ...] = ()
    eager: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()


PAPER = Profile()

_CAPS = (2**18, 25 * 2**18)
"""DDP's buckets: 1 MiB, then 25 MiB, here of float32 gradients (torch 2.13, ``bucket_cap_mb``)."""
_DDP = Profile("torch-ddp", hooked_reductions=True, bucket_caps=_CAPS, bucket_copies=True)
_FSDP2 = Profile(
    "torch-fsdp2",
    root_spans_step=True,
    padded_copies=True,
    hooked_reductions=True,
    resolve_first=True,
    norm_vector=True,
    whole_ends=True,
    bias_on_partial=True,
    whole_gradients=("embedding",),
)
_SEQUENCE = Profile(
    "torch-sp",
    optimizer_reads=3,
    norm_vector=True,
    whole_ends=True,
    bias_on_partial=True,
    whole_gradients=("embedding",),
)

PROFILES = {
    profile.name: profile
    for profile in (
        PAPER,
        _DDP,
        _FSDP2,
        replace(_FSDP2, name="torch-fsdp2-resharded", root_spans_step=False, root_spans_pass=True),
        Profile("torch-fsdp1", root_spans_step=True, flat_units=True, hooked_reductions=True),
        replace(_DDP, name="torch-zero1", scatter_gradients=False, whole_tensors=True),
        Profile("torch-tp", share_inputs=False, whole_gradients=("embedding",)),
        _SEQUENCE,
        Profile("megatron", regather_inputs=True, flat_units=True, adds_in_place=True),
        Profile(
            "xla",
            share_inputs=False,
            scatter_gradients=False,
            reports_loss=True,
            gathers_once=True,
            regathered=("norm",),
        ),
        Profile(
            "deepspeed",
            hooked_reductions=True,
            one_unit=True,
            flat_units=True,
            buffers=2 * 500_000_000,
        ),
        Profile(
            "deepspeed-zero3",
            hooked_reductions=True,
            tensor_units=True,
            flat_units=True,
            persistent_below=100_000,
            buffers=500_000_000,
        ),
    )
}
"""Profiles by name; each differs from the paper's plan only in the facts it names.

XLA: what its partitioner makes of sharding annotations on CPU (jax 0.10.2): whole gradients are
all-reduced and cut, parameters are gathered once, those of norms once more. DeepSpeed: defaults of
its configuration (``reduce_bucket_size`` 5e8 elements, two of them where reductions overlap;
``stage3_param_persistence_threshold`` 1e5). Megatron-LM: its distributed optimizer cuts flat
buckets, and a kernel accumulates the gradients of weights in float32
(``gradient_accumulation_fusion``); the widths are those of the convention ``megatron``.
"""

KERNELS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "eager-norm": ("eager", ("norm", "head_norm")),
    "eager-attention": ("eager", ("attention", "latent_attention")),
    "eager-loss": ("eager", ("loss",)),
    "fused-attention": ("fused", ("attention", "latent_attention")),
}
"""Kernels that may be added to the name of a profile: a fact, and the kinds of operations."""


def profile(name: str, place: str = "--profile") -> Profile:
    """A profile by name; kernels follow it after a plus sign.

    Raises:
        IllFormed: no profile or no kernel has that name.

    >>> profile("torch-fsdp2+eager-norm").eager
    ('norm', 'head_norm')
    """
    stack, *kernels = name.split("+")
    for given, known in ((stack, PROFILES), *((k, KERNELS) for k in kernels)):
        if given not in known:
            raise IllFormed(
                place,
                repr(name),
                f"profiles are {', '.join(PROFILES)}; kernels to add are {', '.join(KERNELS)}",
                "name one of them, such as torch-fsdp2+eager-norm",
            )
    found = PROFILES[stack]
    for fact, kinds in (KERNELS[k] for k in kernels):
        facts: dict[str, Any] = {fact: (*getattr(found, fact), *kinds)}
        found = replace(found, **facts)
    return replace(found, name=name)


REASONS = {
    "share_inputs": "consumers of one value share its conversion, or each converts by itself",
    "root_spans_step": "the root unit stays gathered from the forward to the backward pass",
    "keep_last_unit": "the unit used last is not released before the backward pass",
    "scatter_gradients": "gradients are reduce-scattered, or all-reduced and then cut",
    "sync_each_micro": "gradients are reduced after every micro-batch",
    "recompute_all": "recomputation repeats also what backward does not read",
    "root_spans_pass": "the root unit is gathered for whole passes",
    "one_unit": "the whole model is one gather unit",
    "flat_units": "a unit is one flat tensor, padded once",
    "padded_copies": "gathered copies keep the padding of the wire",
    "regather_axes": "a part of the gathered copy stays; backward gathers over fewer ranks",
    "defer_reductions": "whole gradients are summed over micro-batches and reduced once",
    "hooked_reductions": "reductions run in the backward pass, not after it",
    "one_bucket": "gradients of all units travel in one message",
    "resolve_first": "sums over axes of the model come before the scatter",
    "optimizer_reads": "a sum that is not kept is all-reduced at every read",
    "norm_vector": "the global norm travels as one number per tensor and axis",
    "whole_tensors": "owners of whole tensors broadcast them",
    "whole_ends": "embedding and head work on whole sequences",
    "bias_on_partial": "the row bias is added before the sum is settled",
    "regather_inputs": "inputs of sequence-parallel regions are gathered again in backward",
    "reports_loss": "the loss of all ranks is reported",
    "bucket_caps": "gradients are reduced in buckets of a size",
    "bucket_copies": "buckets hold a second copy of the gradients",
    "buffers": "communication buffers are held all the time",
    "adds_in_place": "kernels add gradients where they are stored",
    "tensor_units": "every tensor is gathered by itself",
    "persistent_below": "small parameters stay whole on every rank",
    "one_broadcast": "an owner sends all its tensors in one message",
    "gathers_once": "one gathered copy serves both passes",
    "regathered": "some kinds of parameters are gathered again for backward",
    "eager": "kernels keep their intermediate results",
    "fused": "kernels keep nothing but inputs and outputs",
    "whole_gradients": "some gradients are stored whole where the parameter is a shard",
}
"""What each fact does, in words, by the names of the fields."""
