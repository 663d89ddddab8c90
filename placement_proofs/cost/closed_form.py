"""Closed forms: memory and traffic of a rank as formulas in the sizes of axes and model.

The walk is that of the integers, on symbols (:mod:`placement_proofs.cost.symbols`). With
``divides`` (the form that is shown) parts are plain quotients, right where all sizes divide;
without it they are ceilings, right everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from placement_proofs.cost import symbols
from placement_proofs.cost.communication import Communication, communication, ring
from placement_proofs.cost.convention import DEFAULT, Convention
from placement_proofs.cost.evaluation import evaluate
from placement_proofs.cost.exports import javascript
from placement_proofs.cost.memory import Memory, largest_position, memory
from placement_proofs.cost.sizes import sizes_of
from placement_proofs.cost.symbols import Expr
from placement_proofs.cost.terms import OFF, Term
from placement_proofs.cost.units import Amount
from placement_proofs.errors import IllFormed
from placement_proofs.layout import Collective, shard_axes
from placement_proofs.model import Model
from placement_proofs.plan import RING, Plan


@dataclass(frozen=True)
class Form:
    """One formula, with the terms that it is the sum of.

    Attributes:
        name: what it is, such as ``optimizer`` or ``all-gather over dp``.
        exact: the formula with its ring factors.
        terms: where it comes from; a peak has none, as it is a maximum.
        axes: the data axes, which grow in the asymptotic form; those of the model stay.
        leading: the asymptotic form where it is known: of traffic, with ring factors 1.
        unit: bytes, or seconds.
    """

    name: str
    exact: Expr
    terms: tuple[Term[Expr], ...]
    axes: tuple[Expr, ...]
    leading: Expr | None = None
    unit: str = "bytes"

    @property
    def asymptotic(self) -> Expr:
        """The leading term as the data axes grow; of traffic, ring factors become 1."""
        if self.leading is not None:
            return self.leading
        return symbols.asymptotic(self.exact, self.axes)

    @property
    def latex(self) -> str:
        """The exact form as LaTeX."""
        return symbols.latex(self.exact)

    def __repr__(self) -> str:
        return f"{self.name} = {self.exact}"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols of the exact form, sorted."""
        return tuple(symbols.symbols_of(self.exact))

    def _repr_latex_(self) -> str:
        """What a notebook shows."""
        return f"$\\displaystyle {self.latex}$"

    def put(self, values: Mapping[str, int | Fraction]) -> Form:
        """The form with numbers in place of some symbols; its terms stay as they are."""
        exact = symbols.neat(symbols.replaced(self.exact, values))
        open_axes = [axis for axis in self.axes if axis in exact.free_symbols]
        return replace(self, exact=exact, leading=symbols.asymptotic(exact, open_axes))

    def reasons(self) -> tuple[str, ...]:
        """Why the bytes are held or sent, with the phase, each reason once."""
        texts = (f"{t.why} ({t.phase})" if t.phase else t.why for t in self.terms)
        return tuple(dict.fromkeys(texts))

    def to_python(self, name: str) -> str:
        """The source of a function of that name which computes the form; it needs no sympy."""
        return symbols.python_source(name, self.exact, f"{self.name}, in {self.unit}.")

    def to_javascript(self) -> str:
        """A JavaScript expression of the exact form, on fractions of BigInts."""
        return javascript(self.exact)

    def to_json(self) -> dict[str, object]:
        """Exact and asymptotic text, LaTeX, symbols and terms."""
        return {
            "exact": str(self.exact),
            "asymptotic": str(self.asymptotic),
            "latex": self.latex,
            "symbols": symbols.symbols_of(self.exact),
            "terms": [term.to_json() for term in self.terms],
        }


@dataclass(frozen=True)
class ClosedForms:
    """The formulas of a plan on a model.

    Attributes:
        convention: the bytes per element in force; ``K`` stays a symbol.
        position: the pipeline position of the rank.
        divides: whether quotients stand for parts (all sizes divide) or ceilings do.
        memory: by state (``parameters``, ``gradients``, ``optimizer``), and off the device.
        persistent: all states on the device between steps.
        saved: activations kept for the backward pass.
        peak: the largest sum on the device within a step.
        communication: by collective and axes.
        traffic: all bytes sent to other ranks in a step.
        known: values of symbols that the composition, the model and the convention give.
        sizes_of_model: those of them that the model gives.
    """

    convention: Convention
    position: str
    divides: bool
    memory: Mapping[str, Form]
    persistent: Form
    saved: Form
    peak: Form
    communication: Mapping[str, Form]
    traffic: Form
    known: Mapping[str, int]
    sizes_of_model: Mapping[str, int]

    @property
    def axes_known(self) -> dict[str, int]:
        """The sizes of axes and of the loop that are numbers, by their symbols."""
        other = {*self.sizes_of_model, symbols.OPTIMIZER}
        return {name: size for name, size in self.known.items() if name not in other}

    def forms(self) -> Iterator[tuple[str, Form]]:
        """Every formula, with a name that is also a Python name."""
        for group, forms in (("memory", self.memory), ("communication", self.communication)):
            for name, form in forms.items():
                yield _identifier(f"{group} {name}"), form
        yield "memory_persistent", self.persistent
        yield "memory_saved_activations", self.saved
        yield "memory_peak", self.peak
        yield "communication_total", self.traffic

    def numbers(self, values: Mapping[str, int] | None = None) -> dict[str, Amount]:
        """Every formula with numbers for its symbols; ``values`` overrides what is known.

        Raises:
            IllFormed: a symbol has no value, or a value has no symbol.
        """
        given = self.values(values or {})
        return {name: Amount(symbols.number(f.exact, given)) for name, f in self.forms()}

    def arrays(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Every formula on arrays: ``values`` has a number or an array for each open symbol.

        Works on anything with arithmetic (numpy arrays broadcast); bytes are floats.

        Raises:
            IllFormed: a symbol has no value.
        """
        # Products of sizes leave 64 bits; as floats they keep 15 digits instead of overflowing.
        given: dict[str, Any] = {k: v * 1.0 for k, v in {**self.known, **values}.items()}
        if symbols.PARAMETERS in given:
            bytes_ = given[symbols.PARAMETERS] * self.convention.parameter
            given.setdefault(symbols.PARAMETER_BYTES, bytes_)
        try:
            return {name: evaluate(f.exact, given) for name, f in self.forms()}
        except KeyError as error:
            raise IllFormed(
                "arrays", f"no value for {error.args[0]}", "every symbol needs one", "give it"
            ) from None

    def values(self, values: Mapping[str, int]) -> dict[str, int | Fraction]:
        """The numbers that are known, and those given.

        Raises:
            IllFormed: a value has no symbol.
        """
        names = {n for _, form in self.forms() for n in symbols.symbols_of(form.exact)}
        names |= set(self.known) | {symbols.PARAMETERS}
        for name in values:
            if name not in names:
                raise IllFormed(
                    "numbers",
                    f"a value for {name}",
                    f"the symbols are {', '.join(sorted(names))}",
                    "give values to these",
                )
        given: dict[str, int | Fraction] = {**self.known, **values}
        if symbols.PARAMETERS in given and symbols.PARAMETER_BYTES not in values:
            bytes_ = given[symbols.PARAMETERS] * self.convention.parameter
            given[symbols.PARAMETER_BYTES] = bytes_
        return given

    def to_json(self) -> dict[str, object]:
        """Everything, formulas as texts."""
        return {
            "convention": self.convention.to_json(),
            "position": self.position,
            "divides": self.divides,
            "known": dict(self.known),
            "forms": {name: form.to_json() for name, form in self.forms()},
        }


def _identifier(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)


def data_axes(plan: Plan) -> tuple[str, ...]:
    """The axes that split the batch and no parameter while it is used."""
    held = {a for s in plan.stages for t in s.tensors for a in shard_axes(t.use)}
    return tuple(a for a in plan.mesh.names if a in plan.batch_axes and a not in held)


def closed_forms(
    plan: Plan,
    model: Model,
    convention: Convention = DEFAULT,
    *,
    position: str | None = None,
    divides: bool = True,
) -> ClosedForms:
    """The formulas of ``plan`` on ``model``, for the ranks of one pipeline position.

    Without ``position``: the one with the largest memory if the sizes are numbers, else the first.

    Raises:
        IllFormed: no such position, or a symbol of the composition names a size of the model.
    """
    sizes = symbols.symbolic_sizes(plan, model, divides=divides)
    where = position or _position(plan, model, convention)
    symbolic = replace(convention, optimizer=symbols.OPTIMIZER)
    held = memory(plan, sizes, symbolic, where)
    sent = communication(plan, sizes, symbolic, where)
    forms = _Forms(plan, sizes, convention, divides and symbols.PARAMETERS in model.dims)
    device = [t for t in held.terms if not t.phase and t.why != OFF]
    states = forms.states(held)
    whole = symbols.common([states[name].exact for name in held.by])
    persistent = Form("persistent", whole, tuple(device), forms.axes)
    peak = persistent.exact + (held.peak - held.persistent)
    saved = [t for t in held.terms if t.phase]
    network = forms.network(sent)
    return ClosedForms(
        convention,
        where,
        divides,
        states,
        persistent,
        forms.form("saved activations", held.saved, saved),
        Form("peak", peak, (), forms.axes),
        network | forms.host(sent),
        forms.total("total", list(network.values())),
        _known(plan, model, convention),
        {**model.dims, symbols.MICRO_BATCH: model.micro_batch},
    )


def _position(plan: Plan, model: Model, convention: Convention) -> str:
    if len(plan.positions) > 1:
        try:
            return largest_position(plan, sizes_of(plan, model), convention).name
        except IllFormed:
            pass
    return plan.positions[0].name


def _known(plan: Plan, model: Model, convention: Convention) -> dict[str, int]:
    """The numbers that stand in the composition, the model and the convention."""
    sizes = {f"N_{a.name}": a.size for a in plan.mesh.axes if isinstance(a.size, int)}
    loop = {symbols.MICRO: plan.micro} if isinstance(plan.micro, int) else {}
    widths = {symbols.OPTIMIZER: convention.optimizer}
    named = {**model.dims, symbols.MICRO_BATCH: model.micro_batch, **sizes, **loop, **widths}
    return {name: value for name, value in named.items() if isinstance(value, int)}


class _Forms:
    """Makes forms; traffic of the abstract model is shown in ``P``, bytes of its parameters."""

    def __init__(
        self, plan: Plan, sizes: symbols.SymSizes, convention: Convention, in_bytes: bool
    ) -> None:
        self.sizes = sizes
        self.axes = tuple(sizes.axes[a] for a in data_axes(plan))
        self.convention = convention
        self.in_bytes = in_bytes

    def form(self, name: str, expression: Expr, terms: Sequence[Term[Expr]]) -> Form:
        return Form(name, symbols.neat(expression), tuple(terms), self.axes)

    def states(self, held: Memory[Expr]) -> dict[str, Form]:
        """The states on the device, then those off it."""
        stored = [t for t in held.terms if not t.phase]
        found = {}
        for state, value in held.by.items():
            terms = [t for t in stored if t.what == state and t.why != OFF]
            found[state] = self.form(state, value, terms)
        for state, value in held.host.items():
            if value != 0:
                name = f"{state} off the device"
                terms = [t for t in stored if t.what == state and t.why == OFF]
                found[name] = self.form(name, value, terms)
        return found

    def network(self, sent: Communication[Expr]) -> dict[str, Form]:
        """Traffic between ranks, by collective and axes."""
        found = {}
        for kind, axes in sent.by:
            terms = [t for t in sent.terms if (t.what, t.axes) == (kind, axes)]
            name = f"{kind} over {'*'.join(axes)}"
            found[name] = self._traffic(name, Collective(kind), axes, terms)
        return found

    def host(self, sent: Communication[Expr]) -> dict[str, Form]:
        """Traffic over the link to the host, if any."""
        terms = [t for t in sent.terms if not t.axes]
        form = self._traffic("host-link", Collective.HOST, (), terms)
        return {form.name: form} if terms else {}

    def _traffic(
        self, name: str, kind: Collective, axes: tuple[str, ...], terms: Sequence[Term[Expr]]
    ) -> Form:
        """All payloads times one ring factor, where rings count: asymptotically a number."""
        payload = symbols.total(t.payload * t.times for t in terms)
        if self.in_bytes:
            each = symbols.symbol(symbols.PARAMETER_BYTES) / self.convention.parameter
            payload = symbols.replaced(payload, {symbols.PARAMETERS: each})
        payload = symbols.neat(payload)
        if self.convention.payload:
            return Form(name, payload, tuple(terms), self.axes, payload)
        factor, _ = RING[kind]
        exact = ring(kind, axes, payload, self.sizes)
        return Form(name, exact, tuple(terms), self.axes, factor * payload)

    def total(self, name: str, forms: Sequence[Form]) -> Form:
        """The sum, with common factors among the collectives of the same axes."""
        groups: dict[tuple[str, ...], list[Form]] = {}
        for form in forms:
            groups.setdefault(form.terms[0].axes, []).append(form)
        sums = symbols.total(symbols.common([f.exact for f in g]) for g in groups.values())
        leading = symbols.common([f.asymptotic for f in forms])
        return Form(name, sums, tuple(t for f in forms for t in f.terms), self.axes, leading)
