"""Simulation: a plan executed on virtual ranks and compared with one device, exactly.

The single device is the same machine on the plan of the empty composition: one rank, with the same
initial parameters and the same global batch.
"""

from __future__ import annotations

from collections.abc import Mapping

from placement_proofs.errors import IllFormed
from placement_proofs.model import Model
from placement_proofs.plan import Plan
from placement_proofs.simulate.compare import compare, runs
from placement_proofs.simulate.field import FIELDS
from placement_proofs.simulate.meters import Held, Line, Traffic
from placement_proofs.simulate.optimizers import OPTIMIZERS
from placement_proofs.simulate.ranks import world
from placement_proofs.simulate.result import Difference, RankMeters, Simulation

__all__ = ["Difference", "Held", "Line", "RankMeters", "Simulation", "Traffic", "simulate"]


def simulate(
    plan: Plan,
    model: Model,
    *,
    sizes: Mapping[str, int] | None = None,
    field: str = "modular",
    steps: int = 2,
    optimizer: str = "sgd",
    seed: int = 0,
) -> Simulation:
    """Run a plan for some training steps and compare every copy of every parameter with one device.

    Args:
        plan: what the ranks do; its layers must be written one by one (not folded).
        model: the model that the plan was derived from.
        sizes: integers for symbolic sizes, by axis, by symbol, or ``micro``.
        field: ``"modular"`` (exact up to a chance below 2^-20, modulo two primes), ``"float"``
            (float64, equal to 1e-9 of the largest element) or ``"fraction"`` (exact, small models).
        steps: training steps, each compared.
        optimizer: ``"sgd"``, ``"momentum"`` or ``"adam"``.
        seed: of the initial parameters and the batches.

    Raises:
        IllFormed: a size has no value, the layers are folded, or an option is unknown.

    A plan whose steps do not fit together (a shape, a missing copy, a deadlock) is a result:
    :attr:`Simulation.failure` says what it is.
    """
    _check_option("field", field, FIELDS)
    _check_option("optimizer", optimizer, OPTIMIZERS)
    here = world(plan, model, sizes or {})
    result: Simulation | None = None
    for arithmetic in FIELDS[field]():
        found = compare(*runs(here, model, arithmetic, OPTIMIZERS[optimizer], seed), steps)
        result = result or found
        if not found.equal:
            return found
    assert result is not None
    return result


def _check_option(name: str, value: str, known: Mapping[str, object]) -> None:
    if value not in known:
        raise IllFormed(
            f"simulate({name}=...)",
            repr(value),
            f"{name} is one of {', '.join(known)}",
            f"write {name}={next(iter(known))!r}",
        )
