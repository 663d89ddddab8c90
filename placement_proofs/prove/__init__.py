"""Prove or refute an element program, for all mesh sizes at once (the semantics page, 5)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from placement_proofs.errors import IllFormed
from placement_proofs.program import Program, validate
from placement_proofs.program.backward import derived
from placement_proofs.program.orders import has_orders, orders
from placement_proofs.prove import certificate as _certificate
from placement_proofs.prove.counterexample import Counterexample
from placement_proofs.prove.decide import decide, ill_formed, undecided
from placement_proofs.prove.engine import execute
from placement_proofs.prove.every_order import of_all
from placement_proofs.prove.explain import explain
from placement_proofs.prove.repair import Repair, find_repairs
from placement_proofs.prove.result import ProgramResult
from placement_proofs.prove.sizes import TooManyCases
from placement_proofs.prove.witness import witness

__all__ = [
    "Counterexample",
    "ProgramResult",
    "Repair",
    "certificate",
    "explain",
    "find_repairs",
    "prove",
    "witness",
]


def prove(
    program: Program,
    *,
    sizes: Mapping[str, int] | None = None,
    certify: bool = True,
    everywhere: bool = True,
) -> ProgramResult:
    """Decide every obligation of a program.

    `sizes` fixes axis sizes and loop lengths (next to those of the program): the verdict is
    then about those sizes, and says more when more was proved. `certify` has z3 decide the
    proved entries again; `everywhere` tells of a fault at which sizes it shows, which takes longer
    than to refute it. A program without meaning gives `ILL_FORMED`, never an exception;
    a refutation always carries a counterexample that was replayed.
    """
    given = {**dict(program.sizes), **(sizes or {})}
    try:
        validate(program)
        if has_orders(program):
            run = partial(prove, sizes=sizes, certify=certify, everywhere=everywhere)
            return of_all((order, run(order)) for order in orders(program, sizes))
        program = derived(program)
        _check_sizes(program, given)
        return decide(program, given, certify, everywhere)
    except IllFormed as error:
        return ill_formed(program, error)
    except TooManyCases as error:
        return undecided(program, str(error))


def _check_sizes(program: Program, given: Mapping[str, int]) -> None:
    names = program.axes + program.loops
    for name, size in given.items():
        if name not in names:
            raise IllFormed(
                "sizes",
                f"axis {name!r}",
                f"the program has the axes and loops {', '.join(names)}",
                "correct the name",
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise IllFormed(
                "sizes", f"{name}={size!r}", "a size is an integer >= 1", "give the number of ranks"
            )


def certificate(program: Program) -> str:
    """The obligations of a program as SMT-LIB 2, for all sizes; every answer must be unsat.

    For a program that is refuted some answer is sat. Raises `IllFormed`.
    """
    validate(program)
    return _certificate.script(execute(derived(program), dict(program.sizes)))
