"""Accounting: what a convention counts otherwise than the plan places it.

Estimators differ less in arithmetic than in what they count. Here the memory of a plan is counted
again as a convention says: embedding and head on other pipeline positions, one micro-batch in
flight, a buffer for gathered tensors, results that a kernel makes again, layers alone, a reserve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from placement_proofs.cost.convention import Convention, Ends
from placement_proofs.cost.measure import Measure, shards
from placement_proofs.cost.terms import OFF, Term
from placement_proofs.layout import shard_axes
from placement_proofs.plan import Plan, PlanTensor, Position, Run

if TYPE_CHECKING:
    from placement_proofs.cost.memory import Memory

N = TypeVar("N")

TABLES = ("embedding", "positions", "head")
"""Groups of tensors at the ends of a model."""
BUFFER = "gather buffer"
"""The name of what is held for the largest gathered tensor."""


@dataclass(frozen=True)
class Accounts(Generic[N]):
    """Counts the memory of a plan as its convention says.

    Attributes:
        plan, measure, convention: what is counted, on which sizes, and how.
        stored: the terms of the states on the device, by position.
    """

    plan: Plan
    measure: Measure[N]
    convention: Convention
    stored: Callable[[Position], Sequence[Term[N]]]

    def counted(self, held: Memory[N], position: Position) -> Memory[N]:
        """The memory of a position as the convention counts it (bytes)."""
        if self.convention.plain:
            return held
        sizes = self.measure.sizes
        states = self._states(position)
        skipped = self._uncounted()
        kept = [self._kept(t, held.in_flight, skipped) for t in held.terms if t.phase]
        saved = sizes.total([t.bytes for t in kept])  # type: ignore[misc]
        by = self._by(states)
        persistent = sizes.total(list(by.values()))
        passing = sizes.difference(held.peak, sizes.total([held.persistent, held.saved]))
        off = [t for t in held.terms if t.why == OFF]
        return replace(
            held,
            terms=(*states, *off, *kept),
            by=by,
            persistent=persistent,
            saved=saved,
            peak=sizes.total([persistent, passing, saved]),
        )

    def _by(self, states: Sequence[Term[N]]) -> Mapping[str, N]:
        names = dict.fromkeys(t.what for t in states)
        total: Any = self.measure.sizes.total
        return {name: total([t.bytes for t in states if t.what == name]) for name in names}

    # states

    def _states(self, position: Position) -> list[Term[N]]:
        own = list(self.stored(position))
        match self.convention.ends:
            case Ends.LEFT_OUT:
                own = [t for t in own if not self._of(t, TABLES)]
            case Ends.SHARED:
                own = [t for t in own if not self._of(t, ("embedding", "head"))]
                own = [*self._table(), *own]
            case Ends.AVERAGED:
                own = self._averaged()
        return [*own, *self._buffer()]

    def _of(self, term: Term[N], groups: Sequence[str]) -> bool:
        named = {t.name for s in self.plan.stages for t in s.tensors if t.group in groups}
        return not named.isdisjoint(term.names)

    def _table(self) -> list[Term[N]]:
        """The states of the embedding, from the position that has it."""
        for position in self.plan.positions:
            found = [t for t in self.stored(position) if self._of(t, ("embedding",))]
            if found:
                return found
        return []

    def _averaged(self) -> list[Term[N]]:
        """The states of all positions by the number of positions."""
        if self.plan.schedule == "none":
            return list(self.stored(self.plan.positions[0]))
        sizes = self.measure.sizes
        count = sizes.axis(self.plan.pipeline)
        found = []
        for position in self.plan.positions:
            middle = position.index not in (0, None)
            turns = sizes.difference(count, sizes.dim(2)) if middle else sizes.dim(1)
            for term in self.stored(position):
                held: Any = term.bytes
                part = sizes.ratio(sizes.product([held, turns]), count)
                found.append(replace(term, bytes=part, why=f"{term.why}, averaged over stages"))
        return found

    def _buffer(self) -> list[Term[N]]:
        """A buffer for the largest tensor that is gathered, if any is."""
        width = self.convention.gather
        tensors = [t for s in self.plan.stages for t in s.tensors if _gathered(t)]
        if not width or not tensors:
            return []
        sizes = self.measure.sizes
        parts = [self.measure.elements(t.shape, shards(t.use)) for t in tensors]
        held = sizes.product([sizes.largest(parts), sizes.dim(width)])
        why = f"the largest gathered tensor at {width} bytes an element"
        return [Term(BUFFER, (), "", "", "", "", why, (), sizes.dim(1), held, held)]

    # activations

    def _kept(self, term: Term[N], flying: N, skipped: set[str]) -> Term[N]:
        """A term of activations with what is not counted taken out, and the reserve put in."""
        sizes = self.measure.sizes
        payload = sizes.difference(term.payload, self._remade(term, skipped))
        held: Any = sizes.product([payload, term.times])
        if self.convention.one_in_flight:
            held = sizes.ratio(held, flying)
        reserve = self.convention.reserve
        if reserve != 1:
            held = sizes.ratio(
                sizes.product([held, sizes.dim(reserve.numerator)]), sizes.dim(reserve.denominator)
            )
        return replace(term, payload=payload, bytes=held)

    def _remade(self, term: Term[N], skipped: set[str]) -> N:
        """Bytes of the values that the convention does not count."""
        sizes, names = self.measure.sizes, skipped & set(term.names)
        values = [v for n, v in self.plan.values.items() if n in names]
        parts = [self.measure.elements(v.shape, v.layout) for v in values]
        widths = [sizes.dim(self.convention.width(v.mask, v.logits, v.wide)) for v in values]
        return sizes.total([sizes.product(pair) for pair in zip(parts, widths, strict=True)])

    def _uncounted(self) -> set[str]:
        c, names = self.convention, set[str]()
        if c.fused_gate:
            names |= _gates(self.plan)
        if not c.attention_inputs:
            names |= _attended(self.plan)
        return names | _of_ends(self.plan) if c.layers_only else names


def _gathered(tensor: PlanTensor) -> bool:
    return bool(set(shard_axes(tensor.stored)) - set(shard_axes(tensor.use)))


def _runs(plan: Plan) -> list[Run]:
    return [s for stage in plan.stages for s in stage.forward if isinstance(s, Run)]


def _gates(plan: Plan) -> set[str]:
    """Results of activation functions that nothing but a product reads."""
    runs = _runs(plan)
    read = {n for r in runs if r.kind != "multiply" for n in r.ins}
    return {r.out for r in runs if r.kind == "activation"} - read


def _attended(plan: Plan) -> set[str]:
    """What nothing but an attention reads."""
    runs = _runs(plan)
    read = {n for r in runs if "heads" not in dict(r.attrs) for n in r.ins}
    return {n for r in runs if "heads" in dict(r.attrs) for n in r.ins} - read


def _of_ends(plan: Plan) -> set[str]:
    """What nothing but the blocks of embedding and head make for themselves or read."""
    tables = {t.name for s in plan.stages for t in s.tensors if t.group in TABLES}
    blocks = {r.where.block for r in _runs(plan) if tables & set(r.params)}
    ends = [r for r in _runs(plan) if r.where.block in blocks]
    inner = {n for r in _runs(plan) if r.where.block not in blocks for n in r.ins}
    own = {name for r in ends for name, _ in r.internals}
    return (own | {n for r in ends for n in (*r.ins, r.out)}) - inner
