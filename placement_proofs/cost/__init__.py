"""Cost: memory and traffic of a plan, on integers and on symbols, by one walk.

Integers need nothing but the standard library; :mod:`placement_proofs.cost.closed_form` and
:mod:`placement_proofs.cost.compare` give formulas and load sympy.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

from placement_proofs import schedule
from placement_proofs.cost.communication import (
    Communication,
    bytes_of_steps,
    communication,
    communication_at,
)
from placement_proofs.cost.convention import CONVENTIONS, DEFAULT, Convention, convention
from placement_proofs.cost.memory import (
    Memory,
    largest_position,
    live_at_peak,
    memory,
    memory_at,
)
from placement_proofs.cost.sizes import sizes_of
from placement_proofs.cost.terms import Term
from placement_proofs.mesh import Sizes
from placement_proofs.plan import Plan

N = TypeVar("N")


def bubble(plan: Plan, sizes: Sizes[N]) -> N | Fraction:
    """Idle time of a pipeline per unit of work: ``(p - 1) / m``, over ``v`` chunks if interleaved.

    Forward pass, backward pass for inputs and backward pass for weights take equally long: zb-h1
    idles a third of that, zb-h2 nowhere (arXiv 2401.10241, table 2). Zero without a pipeline.
    """
    share = schedule.bubble(schedule.law_of(plan))
    if plan.schedule == "none" or not share:
        return sizes.dim(0)
    idle = sizes.difference(sizes.axis(plan.pipeline), sizes.dim(1))
    work = [sizes.dim(plan.micro), sizes.dim(plan.chunks)]
    if share != 1:
        idle = sizes.product([sizes.dim(share.numerator), idle])
        work.append(sizes.dim(share.denominator))
    return sizes.ratio(idle, sizes.product(work))


__all__ = [
    "CONVENTIONS",
    "DEFAULT",
    "Communication",
    "Convention",
    "Memory",
    "Term",
    "bubble",
    "bytes_of_steps",
    "communication",
    "communication_at",
    "convention",
    "largest_position",
    "live_at_peak",
    "memory",
    "memory_at",
    "sizes_of",
]
