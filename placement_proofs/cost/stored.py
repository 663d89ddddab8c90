"""States between steps: what a rank stores of every tensor, in copies, buckets and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from placement_proofs.cost.convention import Convention
from placement_proofs.cost.measure import Measure, shards
from placement_proofs.cost.terms import OFF, Term
from placement_proofs.layout import Layout, positions, shard_axes
from placement_proofs.mesh import Dim
from placement_proofs.placement import State
from placement_proofs.plan import Plan, PlanTensor, Position

N = TypeVar("N")

BUCKETS = "gradient buckets"
BUFFERS = "communication buffers"


def _why(axes: tuple[str, ...]) -> str:
    return f"sharded over {'*'.join(axes)}" if axes else "stored whole"


def stored_terms(
    plan: Plan, measure: Measure[N], convention: Convention, position: Position
) -> list[Term[N]]:
    """One term for each stored state of each tensor of a position, on the device or off it."""
    return _Stored(plan, measure, convention).terms(position)


class _Stored(Generic[N]):
    """Writes the terms of stored states."""

    def __init__(self, plan: Plan, measure: Measure[N], convention: Convention) -> None:
        self.plan = plan
        self.measure = measure
        self.sizes = measure.sizes
        self.convention = convention

    def terms(self, position: Position) -> list[Term[N]]:
        terms: list[Term[N]] = []
        for number, count in position.stages:
            tensors = self.plan.stages[number].tensors
            times = self.sizes.dim(count)
            for tensor in (t for t in tensors if not t.flat):
                terms += self._states(tensor, times)
            flat: dict[tuple[object, ...], list[PlanTensor]] = {}
            for t in (t for t in tensors if t.flat):
                key = (t.unit, t.times, t.stored, t.gradient, t.optimizer)
                flat.setdefault(key, []).append(t)
            for unit in flat.values():
                terms += self._flat(unit, times)
            terms += [self._bucketed(t, times) for t in tensors if t.bucketed]
        if self.plan.buffers:
            terms.append(self._buffers())
        return terms

    def _bucketed(self, tensor: PlanTensor, count: N) -> Term[N]:
        """The copy of a gradient in the bucket of its reduction."""
        width = self.sizes.dim(self.convention.gradient)
        whole = self.measure.elements(tensor.shape, shards(tensor.use))
        return self._held(
            BUCKETS,
            (tensor.name,),
            "copies for the reduction",
            self.sizes.product([count, self.sizes.dim(tensor.times)]),
            self.sizes.product([whole, width]),
        )

    def _buffers(self) -> Term[N]:
        one, width = self.sizes.dim(1), self.sizes.dim(self.convention.gathered)
        payload = self.sizes.product([self.sizes.dim(self.plan.buffers), width])
        return self._held(BUFFERS, (), "buffers of reductions", one, payload)

    def _held(self, what: str, names: tuple[str, ...], why: str, times: N, payload: N) -> Term[N]:
        held = self.sizes.product([payload, times])
        return Term(what, (), "", "", "", "", why, names, times, payload, held)

    def _flat(self, unit: Sequence[PlanTensor], count: N) -> list[Term[N]]:
        """The states of a unit whose shards are cut from one flat tensor, each rank an equal part.

        A state that is not sharded is held whole.
        """
        first = unit[0]
        layouts = _layouts(first)
        whole = self.sizes.total([self.measure.elements(t.shape, ()) for t in unit])
        times = self.sizes.product([count, self.sizes.dim(first.times)])
        names = tuple(t.name for t in unit)
        terms = []
        for state, width in self._widths(first):
            axes = shard_axes(layouts[state])
            part = self.sizes.cdiv(whole, positions(axes, self.sizes)) if axes else whole
            payload = self.sizes.product([part, width])
            held = self.sizes.product([payload, times])
            why = OFF if state.value in first.offloaded else _why(axes)
            terms.append(
                Term(state.value, axes, "", "", first.unit, "", why, names, times, payload, held)
            )
        return terms

    def _states(self, tensor: PlanTensor, count: N) -> list[Term[N]]:
        times = self.sizes.product([count, self.sizes.dim(tensor.times)])
        layouts = _layouts(tensor)
        cells = self._widths(tensor)
        return [self._state(tensor, state, layouts[state], width, times) for state, width in cells]

    def _widths(self, tensor: PlanTensor) -> list[tuple[State, N]]:
        """The states of a tensor, with bytes per element."""
        c = self.convention
        widths: list[tuple[State, Dim]] = [(State.PARAMETERS, c.parameter)]
        if tensor.trainable:
            widths += [(State.GRADIENTS, c.gradient), (State.OPTIMIZER, c.optimizer)]
        return [(state, self.sizes.dim(width)) for state, width in widths]

    def _state(
        self, tensor: PlanTensor, state: State, layout: Layout, width: N, times: N
    ) -> Term[N]:
        payload = self.sizes.product([self.measure.elements(tensor.shape, layout), width])
        axes = shard_axes(layout)
        why = OFF if state.value in tensor.offloaded else _why(axes)
        held = self.sizes.product([payload, times])
        names = (tensor.name,)
        return Term(state.value, axes, "", "", tensor.unit, "", why, names, times, payload, held)


def _layouts(tensor: PlanTensor) -> dict[State, Layout]:
    """The stored layout of each state of a tensor."""
    return {
        State.PARAMETERS: tensor.stored,
        State.GRADIENTS: tensor.gradient,
        State.OPTIMIZER: tensor.optimizer,
    }
