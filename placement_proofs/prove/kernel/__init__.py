"""A small checker of the polynomial core, from a certificate alone: standard library only.

A certificate (plain data) has the steps of a program, the normal form that its gradients, norms
and contracts must reach, bounds on degrees, and an evaluation table. At each point of the table
(sizes, turns, positions of owners) the kernel runs the steps on every rank in fractions and
compares; every number carries a bound on its degree in each size, so that the kernel finds by
itself how many points make agreement at the points agreement everywhere (cut-off theorem), and
asks the table for just these. Loops repeat: a turn in the middle is an affine map of what is
there, and doing its linear part twice must be the same as once (looked at on a unit for every
buffer and rank); then a few turns stand for any number. Free counts take the values of a simplex
of points, which fixes a polynomial of its degree.

Identities of rational functions that theorems rest on are certificates too (`identities`).

The core is `numbers` (degrees), `machine` (control flow, induction), `points` (grids) and this
module; `steps` and `obligations` read what a step means. None of them imports anything else of
the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from placement_proofs.prove.kernel.identities import SCHEMA as IDENTITIES
from placement_proofs.prove.kernel.identities import check_identities
from placement_proofs.prove.kernel.machine import Cert, Machine
from placement_proofs.prove.kernel.numbers import Degrees, Rejected, Undecided
from placement_proofs.prove.kernel.obligations import OBLIGATIONS
from placement_proofs.prove.kernel.points import grid, simplex
from placement_proofs.prove.kernel.steps import STEPS, Step

__all__ = ["SCHEMA", "Rejected", "Undecided", "check", "entry", "machines"]

SCHEMA = "placement-proofs/certificate/2"


def check(cert: Cert) -> dict[str, Any]:
    """Check one certificate: its degree bounds, its table, and agreement at every point.

    Raises:
        Rejected: a coefficient differs, or the certificate has no meaning.
    """
    if cert.get("schema") not in (SCHEMA, IDENTITIES):
        raise Rejected(f"the schema is not {SCHEMA}, and not {IDENTITIES}")
    try:
        return check_identities(cert) if cert["schema"] == IDENTITIES else _check(cert)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Rejected(f"the certificate has no meaning: {type(error).__name__} {error}") from None


def _check(cert: Cert) -> dict[str, Any]:
    names = [*cert["axes"], *cert["loops"], "counts"]
    if len(names) > len(set(names)):
        raise Rejected(f"the names of axes and loops are not distinct: {names}")
    degrees, table = cert["degrees"], iter(cert["table"])
    points = compared = 0
    bound = dict.fromkeys(degrees, 0)
    for machine in machines(cert, degrees):
        bound = {name: max(bound[name], top) for name, top in machine.degrees().items()}
        if machine.counts:
            continue
        if next(table, None) != entry(machine):
            raise Rejected(f"the table is not that of the program at {dict(machine.sizes)}")
        points, compared = points + 1, compared + machine.compared
    if bound != degrees:
        raise Rejected(f"the degree bounds are {bound}, not {degrees}")
    if next(table, None) is not None:
        raise Rejected("the table has more points than the degrees ask for")
    return {"points": points, "compared": compared, "degrees": bound}


def machines(cert: Cert, degrees: Mapping[str, int]) -> Iterator[Machine]:
    """The steps run at every point; where there are counts, for a simplex of their values."""
    for sizes, at in grid(cert, degrees):
        machine = evaluate(cert, sizes, at)
        yield machine
        for counts in simplex(len(machine.atoms), degrees["counts"]) if machine.atoms else ():
            if any(counts):
                yield evaluate(cert, sizes, at, counts)


def evaluate(
    cert: Cert, sizes: Mapping[str, int], at: Mapping[str, int], counts: Degrees = ()
) -> Machine:
    """Run a certificate's steps at one point; something must be compared."""
    machine = Machine(cert, sizes, at, counts)
    machine.run(cert["steps"], _do)
    if not machine.compared or set(cert["normal_form"]) - machine.reached:
        raise Rejected(f"nothing is compared, or not all, at {dict(sizes)}")
    return machine


def entry(machine: Machine) -> list[Any]:
    """The line of the table for a point: the point, and the values that were compared there."""
    return [[*machine.sizes.values(), *machine.at.values()], sorted(machine.values)]


def _do(m: Machine, step: Step) -> None:
    """Run one step."""
    known = {**STEPS, **OBLIGATIONS}
    if step["op"] not in known:
        raise Rejected(f"there is no step {step['op']}")
    known[step["op"]](m, step)
