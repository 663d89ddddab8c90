"""Memory: bytes that a rank holds, by state, between steps and at the peak of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from placement_proofs.cost.accounting import Accounts
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.lifetimes import KINDS, Kept, Lifetimes
from placement_proofs.cost.measure import Measure, at, largest
from placement_proofs.cost.terms import OFF, Term, plain
from placement_proofs.cost.walk import named_position, position_at, positions_of
from placement_proofs.layout import Layout, positions, shard_axes
from placement_proofs.mesh import Dim, IntSizes, Sizes
from placement_proofs.placement import State
from placement_proofs.plan import Plan, PlanTensor, Position, in_flight

N = TypeVar("N")

STORED = (State.PARAMETERS, State.GRADIENTS, State.OPTIMIZER)


@dataclass(frozen=True)
class Memory(Generic[N]):
    """Memory of one rank (bytes).

    Attributes:
        convention: the bytes per element in force.
        position: the pipeline position of the rank.
        terms: one for each stored state of each tensor, and the activations kept for backward.
        by: states held on the device between steps: parameters, gradients, optimizer.
        host: states held off the device, on the host or on NVMe.
        persistent: all bytes on the device between steps.
        saved: activations kept from the forward to the backward pass, all micro-batches in flight
            (interleaved: the chunks share what is in flight evenly, rounded up).
        transient: the largest holding of each kind that is dropped within a step.
        in_flight: micro-batches that are kept at the same time (chunks of them if interleaved).
        peak: the largest sum of everything on the device within a step.
    """

    convention: Convention
    position: str
    terms: tuple[Term[N], ...]
    by: Mapping[str, N]
    host: Mapping[str, N]
    persistent: N
    saved: N
    transient: Mapping[str, N]
    in_flight: N
    peak: N

    def to_json(self) -> dict[str, object]:
        """Totals and terms; bytes are integers or the texts of formulas."""
        return {
            "convention": self.convention.to_json(),
            "position": self.position,
            "device": {state: plain(v) for state, v in self.by.items()},
            "host": {state: plain(v) for state, v in self.host.items()},
            "persistent": plain(self.persistent),
            "saved_activations": plain(self.saved),
            "transient": {kind: plain(v) for kind, v in self.transient.items()},
            "in_flight": plain(self.in_flight),
            "peak": plain(self.peak),
            "terms": [term.to_json() for term in self.terms],
        }


def memory(
    plan: Plan, sizes: Sizes[N], convention: Convention, position: str | None = None
) -> Memory[N]:
    """The memory of the ranks of a pipeline position.

    The position is the one with the largest peak unless it is named (with symbols: the first).
    Uneven shards: the sizes of the rank with the largest shards.

    Raises:
        IllFormed: the plan has no position of that name.
    """
    walk = _Walk(plan, largest(sizes), convention)
    if position is not None:
        return walk.memory(named_position(plan, position))
    found = [walk.memory(p) for p in positions_of(plan, sizes)]
    most = sizes.largest([m.peak for m in found])
    return next(m for m in found if m.peak == most)


def memory_at(
    plan: Plan, sizes: IntSizes, convention: Convention, coordinates: Mapping[str, int]
) -> Memory[int]:
    """The memory of the one rank at ``coordinates``, to the byte."""
    where = position_at(plan, sizes, coordinates)
    return _Walk(plan, at(sizes, coordinates), convention).memory(where)


def live_at_peak(
    plan: Plan, sizes: IntSizes, convention: Convention, position: str
) -> dict[str, int]:
    """Bytes held for a while at the peak of a step, by kind; with the states they are the peak.

    Raises:
        IllFormed: the plan has no position of that name.
    """
    where = named_position(plan, position)
    return _Walk(plan, largest(sizes), convention).at_peak(where)


def largest_position(plan: Plan, sizes: Sizes[N], convention: Convention) -> Position:
    """The position with the largest peak (with symbols: the first)."""
    found = positions_of(plan, sizes)
    if len(found) == 1:
        return found[0]
    return named_position(plan, memory(plan, sizes, convention).position)


class _Walk(Generic[N]):
    """Stages of a plan, each folded once."""

    def __init__(self, plan: Plan, measure: Measure[N], convention: Convention) -> None:
        self.plan = plan
        self.measure = measure
        self.sizes = measure.sizes
        self.convention = convention
        self.folds: dict[int, Lifetimes[N]] = {}
        self.stored: dict[int, list[Term[N]]] = {}

    def memory(self, position: Position) -> Memory[N]:
        """The memory of a position as the convention counts it."""
        accounts = Accounts(self.plan, self.measure, self.convention, self._on_device)
        return accounts.counted(self.placed(position), position)

    def _on_device(self, position: Position) -> list[Term[N]]:
        return [t for t in self._stored(position) if t.why != OFF]

    def placed(self, position: Position) -> Memory[N]:
        """The memory of a position as the plan places it."""
        total = self.sizes.total
        stored = self._stored(position)
        device = [t for t in stored if t.why != OFF]
        by = _by_state(device, self.sizes)
        persistent = total(list(by.values()))
        folds = [self.fold(number) for number, _ in position.stages]
        flying = in_flight(self.plan, position, self.sizes)
        kept = self._kept(folds, position, flying)
        return Memory(
            self.convention,
            position.name,
            (*stored, *kept),
            by,
            _by_state([t for t in stored if t.why == OFF], self.sizes),
            persistent,
            total([self.sizes.product([t.payload, t.times]) for t in kept]),
            self._transient(folds, position, flying),
            flying,
            total([persistent, self._most(folds, position, flying, KINDS)]),
        )

    def fold(self, number: int) -> Lifetimes[N]:
        if number not in self.folds:
            stage = self.plan.stages[number]
            self.folds[number] = Lifetimes(self.plan, stage, self.measure, self.convention)
        return self.folds[number]

    # states between steps

    def _stored(self, position: Position) -> list[Term[N]]:
        terms: list[Term[N]] = []
        for number, count in position.stages:
            tensors = self.plan.stages[number].tensors
            times = self.sizes.dim(count)
            for tensor in (t for t in tensors if not t.flat):
                terms += self._states(tensor, times)
            for unit in dict.fromkeys(t.unit for t in tensors if t.flat):
                terms += self._flat([t for t in tensors if t.flat and t.unit == unit], times)
        return terms

    def _flat(self, unit: Sequence[PlanTensor], count: N) -> list[Term[N]]:
        """The states of a unit that is stored as one flat tensor, each rank an equal part."""
        first = unit[0]
        axes = shard_axes(first.stored)
        whole = self.sizes.total([self.measure.elements(t.shape, ()) for t in unit])
        part = self.sizes.cdiv(whole, positions(axes, self.sizes))
        times = self.sizes.product([count, self.sizes.dim(first.times)])
        names = tuple(t.name for t in unit)
        terms = []
        for state, width in self._widths(first):
            payload = self.sizes.product([part, width])
            held = self.sizes.product([payload, times])
            why = OFF if state.value in first.offloaded else _why(axes)
            terms.append(
                Term(state.value, axes, "", "", first.unit, "", why, names, times, payload, held)
            )
        return terms

    def _states(self, tensor: PlanTensor, count: N) -> list[Term[N]]:
        times = self.sizes.product([count, self.sizes.dim(tensor.times)])
        layouts = {
            State.PARAMETERS: tensor.stored,
            State.GRADIENTS: tensor.gradient,
            State.OPTIMIZER: tensor.optimizer,
        }
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

    # within a step

    def _kept(self, folds: Sequence[Lifetimes[N]], position: Position, flying: N) -> list[Term[N]]:
        chunks = self.plan.chunks
        turns = flying if chunks == 1 else self.sizes.cdiv(flying, self.sizes.dim(chunks))
        terms = []
        for fold, (_, count) in zip(folds, position.stages, strict=True):
            for block, names, payload, copies in fold.saved:
                times = self.sizes.product([turns, copies, self.sizes.dim(count)])
                held = self.sizes.product([payload, times])
                why = "kept for backward" + (" by the other copies" if block else "")
                terms.append(
                    Term(
                        Kept.ACTIVATIONS.value,
                        (),
                        "forward",
                        "forward",
                        "",
                        block,
                        why,
                        names,
                        times,
                        payload,
                        held,
                    )
                )
        return terms

    def _transient(
        self, folds: Sequence[Lifetimes[N]], position: Position, flying: N
    ) -> dict[str, N]:
        return {kind.value: self._most(folds, position, flying, (kind,)) for kind in KINDS}

    def _most(
        self,
        folds: Sequence[Lifetimes[N]],
        position: Position,
        flying: N,
        kinds: tuple[Kept, ...],
    ) -> N:
        """The largest sum of some kinds: one micro-batch at its fullest, the others in waiting."""
        total = self.sizes.total
        points = [total([p[k] for k in kinds]) for fold in folds for p in fold.points]
        lasting = self._lasting(folds, position, flying)
        return total([self.sizes.largest(points), *(n for k in kinds for n in lasting[k])])

    def at_peak(self, position: Position) -> dict[str, N]:
        """What is held for a while when all of it together is most, by kind."""
        total = self.sizes.total
        folds = [self.fold(number) for number, _ in position.stages]
        points = {total(list(p.values())): p for fold in folds for p in fold.points}
        fullest = points.get(self.sizes.largest(list(points)), {})
        lasting = self._lasting(folds, position, in_flight(self.plan, position, self.sizes))
        fresh = {k: [fullest[k]] if fullest else [] for k in KINDS}
        return {k.value: total([*fresh[k], *lasting[k]]) for k in KINDS}

    def _lasting(
        self, folds: Sequence[Lifetimes[N]], position: Position, flying: N
    ) -> dict[Kept, list[N]]:
        """What is held beside one micro-batch: the others in waiting, copies gathered for all."""
        lasting: dict[Kept, list[N]] = {kind: [] for kind in KINDS}
        if self.plan.schedule != "none":
            lasting[Kept.ACTIVATIONS].append(self._waiting(folds, position, flying))
        counts = [self.sizes.dim(count) for _, count in position.stages]
        pairs = zip(counts, folds, strict=True)
        lasting[Kept.GATHERED] += [self.sizes.product([count, f.fixed]) for count, f in pairs]
        return lasting

    def _waiting(self, folds: Sequence[Lifetimes[N]], position: Position, flying: N) -> N:
        """Activations of the other micro-batches in flight; chunks share them evenly."""
        sizes = self.sizes
        each = [
            sizes.product([sizes.dim(count), fold.after_forward])
            for fold, (_, count) in zip(folds, position.stages, strict=True)
        ]
        others = sizes.difference(flying, sizes.dim(1))
        waiting = sizes.product([others, sizes.total(each)])
        chunks = self.plan.chunks
        return waiting if chunks == 1 else sizes.cdiv(waiting, sizes.dim(chunks))


def _why(axes: tuple[str, ...]) -> str:
    return f"sharded over {'*'.join(axes)}" if axes else "stored whole"


def _by_state(terms: Sequence[Term[N]], sizes: Sizes[N]) -> dict[str, N]:
    """Bytes by state."""
    groups: dict[str, list[N]] = {state.value: [] for state in STORED}
    for term in terms:
        groups[term.what].append(sizes.product([term.payload, term.times]))
    return {state: sizes.total(parts) for state, parts in groups.items()}
