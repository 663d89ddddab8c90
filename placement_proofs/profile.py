"""Profiles: facts in which training stacks differ, as data. Only derivation reads a profile."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    name: str = "paper"
    share_inputs: bool = True
    root_spans_step: bool = False
    keep_last_unit: bool = False
    scatter_gradients: bool = True
    sync_each_micro: bool = False
    recompute_all: bool = False


PAPER = Profile()

PROFILES = {
    profile.name: profile
    for profile in (
        PAPER,
        Profile("torch-fsdp2", root_spans_step=True),
        Profile("torch-fsdp1", root_spans_step=True, keep_last_unit=True),
        Profile("torch-zero1", scatter_gradients=False),
        Profile("torch-tp", share_inputs=False),
    )
}
"""Profiles by name; each differs from the paper's plan only in the facts it names."""
