"""Time of traffic as formulas: a latency ``alpha`` and a bandwidth ``beta`` for each route.

``alpha_dp`` is the latency of a step (seconds) and ``beta_dp`` the bytes a second that a rank sends
in collectives over ``dp``. An all-to-all has its own, as it takes another way over a node's links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from placement_proofs.cost import symbols
from placement_proofs.cost.closed_form import Form
from placement_proofs.cost.communication import communication_terms, ring
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.evaluation import evaluate
from placement_proofs.cost.sizes import sizes_of
from placement_proofs.cost.symbols import Expr, SymSizes
from placement_proofs.cost.terms import Term
from placement_proofs.cost.time import waits
from placement_proofs.cost.topology import Route, Topology
from placement_proofs.cost.units import Seconds
from placement_proofs.layout import Collective, positions
from placement_proofs.mesh import IntSizes
from placement_proofs.model import Model
from placement_proofs.plan import RING, Plan


@dataclass(frozen=True)
class TimeForms:
    """Seconds of a rank's traffic in a training step, as formulas.

    Attributes:
        lines: by collective, axes and phase.
        total: all of them: the exposed time at most.
        waiting: those that computation waits for: the exposed time at least.
        routes: the collective and the axes of each pair of symbols, by their common ending.
    """

    lines: tuple[Form, ...]
    total: Form
    waiting: Form
    routes: Mapping[str, tuple[Collective, tuple[str, ...]]]

    def forms(self) -> Iterator[tuple[str, Form]]:
        """Every formula, with a name that is also a Python name."""
        for form in self.lines:
            words = "".join(c if c.isalnum() else "_" for c in form.name)
            yield f"time_{words.replace('__', '_')}", form
        yield "time_exposed_at_most", self.total
        yield "time_exposed_at_least", self.waiting

    def numbers(self, values: Mapping[str, int | float | Fraction]) -> dict[str, Seconds]:
        """Every formula with numbers for its symbols.

        Raises:
            KeyError: a symbol has no value.
        """
        forms = dict(self.forms())
        return {k: Seconds(float(evaluate(f.exact, values))) for k, f in forms.items()}

    def links(
        self, topology: Topology, sizes: IntSizes, names: tuple[str, ...]
    ) -> dict[str, float]:
        """The values of all ``alpha`` (seconds) and ``beta`` (bytes a second) on a topology."""
        found: dict[str, float] = {}
        for ending, (kind, axes) in self.routes.items():
            alone = bool(axes) and positions(axes, sizes) == 1
            route = NONE if alone else topology.route(kind, axes, sizes, names)
            found |= {f"alpha_{ending}": route.latency, f"beta_{ending}": route.bandwidth}
        return found


NONE = Route("none", 0.0, math.inf, 1)
"""What a rank alone on its axes sends over: nothing."""


def sizes_at(plan: Plan, model: Model, values: Mapping[str, int | Fraction]) -> IntSizes:
    """The sizes of a plan as integers where the symbols of its formulas have these values.

    Raises:
        IllFormed: a symbol has no value, or the sizes do not fit the plan.
    """
    given = {k: int(v) for k, v in values.items()}
    named = {a.name: symbols.axis_symbol(a.name, a.size) for a in plan.mesh.axes}
    axes = {axis: given[name] for axis, name in named.items() if name in given}
    loop = plan.micro if isinstance(plan.micro, str) else symbols.MICRO
    dims = {name: given.get(name, size) for name, size in model.dims.items()}
    batch = given.get(symbols.MICRO_BATCH, model.micro_batch)
    here = replace(model, dims=dims, micro_batch=batch)
    return sizes_of(plan, here, axes=axes, micro=given.get(loop))


def ending_of(kind: Collective, axes: tuple[str, ...]) -> str:
    """How the symbols of a route end: its axes, and ``a2a`` for an all-to-all."""
    words = [axis.replace(":", "_") for axis in axes] or ["host"]
    own = {Collective.ALL_TO_ALL: ["a2a"], Collective.POINT_TO_POINT: ["p2p"]}
    return "_".join(words + own.get(kind, []))


def time_forms(
    plan: Plan,
    model: Model,
    convention: Convention,
    position: str,
    *,
    divides: bool = True,
) -> TimeForms:
    """The time of the traffic of the ranks of a pipeline position, as formulas.

    Raises:
        IllFormed: the plan has no such position, or a symbol names a size of the model.
    """
    sizes = symbols.symbolic_sizes(plan, model, divides=divides)
    groups: dict[_Key, list[Term[Expr]]] = {}
    for step, term in communication_terms(plan, sizes, convention, position):
        key = step.kind, step.axes, term.phase, waits(step)
        groups.setdefault(key, []).append(term)
    waiting = {key: terms for key, terms in groups.items() if key[3]}
    return TimeForms(
        tuple(_form(_name(key), {key: terms}, sizes) for key, terms in groups.items()),
        _form("exposed at most", groups, sizes),
        _form("exposed at least", waiting, sizes),
        {ending_of(kind, axes): (kind, axes) for kind, axes, _, _ in groups},
    )


_Key: TypeAlias = tuple[Collective, tuple[str, ...], str, bool]
"""A collective, its axes, its phase, and whether computation waits for it."""


def _name(key: _Key) -> str:
    kind, axes, phase, waiting = key
    over = f" over {'*'.join(axes)}" if axes else ""
    return f"{kind.value}{over}, {phase}{', waited for' if waiting else ''}"


def _form(name: str, groups: Mapping[_Key, Sequence[Term[Expr]]], sizes: SymSizes) -> Form:
    """The sum over routes: steps times their latency, and bytes by their bandwidth."""
    late: dict[str, list[Expr]] = {}
    sent: dict[str, list[Expr]] = {}
    for (kind, axes, _, _), terms in groups.items():
        ending = ending_of(kind, axes)
        times = symbols.total(t.times for t in terms)
        late.setdefault(ending, []).append(times * _steps(kind, axes, sizes))
        payload = symbols.total(t.payload * t.times for t in terms)
        sent.setdefault(ending, []).append(ring(kind, axes, payload, sizes))
    latencies = [_all(v) * symbols.quantity(f"alpha_{k}") for k, v in late.items()]
    transfers = [_all(v) / symbols.quantity(f"beta_{k}") for k, v in sent.items()]
    exact = symbols.total([*latencies, *transfers])
    return Form(name, exact, tuple(t for v in groups.values() for t in v), (), exact, "seconds")


def _all(parts: Sequence[Expr]) -> Expr:
    return symbols.neat(symbols.total(parts))


def _steps(kind: Collective, axes: tuple[str, ...], sizes: SymSizes) -> Expr:
    factor, cyclic = RING[kind]
    return factor * (positions(axes, sizes) - 1) if cyclic else sizes.dim(1)
