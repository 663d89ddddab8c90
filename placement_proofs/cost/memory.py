"""Memory: bytes that a rank holds, by state, between steps and at the peak of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from placement_proofs.cost.accounting import Accounts
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.lifetimes import KINDS, Kept, Lifetimes
from placement_proofs.cost.measure import Measure, at, largest
from placement_proofs.cost.stored import stored_terms
from placement_proofs.cost.terms import OFF, Term, plain
from placement_proofs.cost.walk import named_position, position_at, positions_of
from placement_proofs.mesh import IntSizes, Sizes
from placement_proofs.placement import State
from placement_proofs.plan import LOOPED, Plan, Position
from placement_proofs.schedule import Moment, Pass, in_flight, moments

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
        saved: activations kept between passes when most micro-batches are in flight.
        transient: the largest holding of each kind that is dropped within a step.
        in_flight: micro-batches whose backward pass is still to come, at the most (passes of
            chunks if interleaved).
        waiting: beside them, micro-batches whose gradients of weights are still to come.
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
    waiting: N
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
            "waiting_for_weights": plain(self.waiting),
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

    def memory(self, position: Position) -> Memory[N]:
        """The memory of a position as the convention counts it."""
        accounts = Accounts(self.plan, self.measure, self.convention, self._on_device)
        return accounts.counted(self.placed(position), position)

    def _on_device(self, position: Position) -> list[Term[N]]:
        stored = stored_terms(self.plan, self.measure, self.convention, position)
        return [t for t in stored if t.why != OFF]

    def placed(self, position: Position) -> Memory[N]:
        """The memory of a position as the plan places it."""
        total = self.sizes.total
        stored = stored_terms(self.plan, self.measure, self.convention, position)
        device = [t for t in stored if t.why != OFF]
        by = _by_state(device, self.sizes)
        persistent = total(list(by.values()))
        folds = [self.fold(number) for number, _ in position.stages]
        flying = in_flight(self.plan, position, self.sizes)
        found = moments(self.plan, position, self.sizes)
        kept = self._kept(folds, found)
        return Memory(
            self.convention,
            position.name,
            (*stored, *kept),
            by,
            _by_state([t for t in stored if t.why == OFF], self.sizes),
            persistent,
            total([self.sizes.product([t.payload, t.times]) for t in kept]),
            self._transient(folds, position, found),
            flying,
            total(list(self._fullest(folds, found).waiting)),
            total([persistent, self._most(folds, position, found, KINDS)]),
        )

    def fold(self, number: int) -> Lifetimes[N]:
        if number not in self.folds:
            stage = self.plan.stages[number]
            self.folds[number] = Lifetimes(self.plan, stage, self.measure, self.convention)
        return self.folds[number]

    # within a step

    def _kept(self, folds: Sequence[Lifetimes[N]], found: Sequence[Moment[N]]) -> list[Term[N]]:
        """Activations between passes, when most are in flight, the pass that runs included."""
        full, waiting = self._held_counts(self._fullest(folds, found))
        terms: list[Term[N]] = []
        for fold, ahead, behind in zip(folds, full, waiting, strict=True):
            terms += self._saved(fold, Pass.FORWARD, ahead, "kept for backward")
            terms += self._saved(fold, Pass.BACKWARD, behind, "kept for the gradients of weights")
        return terms

    def _saved(self, fold: Lifetimes[N], after: Pass, turns: N, why: str) -> list[Term[N]]:
        if turns == self.sizes.dim(0):
            return []
        terms = []
        for saved in fold.kept[after.value]:
            times = self.sizes.product([turns, saved.copies])
            terms.append(
                Term(
                    Kept.ACTIVATIONS.value,
                    (),
                    after.value,
                    after.value,
                    "",
                    saved.block,
                    why + (" by the other copies" if saved.block else ""),
                    saved.names,
                    times,
                    saved.payload,
                    self.sizes.product([saved.payload, times]),
                )
            )
        return terms

    def _fullest(self, folds: Sequence[Lifetimes[N]], found: Sequence[Moment[N]]) -> Moment[N]:
        """The moment with most in flight, of these the one with most bytes (symbols: the first)."""
        if not isinstance(self.sizes, IntSizes):
            return found[0]
        most = sum(found[0].full), sum(found[0].waiting)
        equal = [m for m in found if (sum(m.full), sum(m.waiting)) == most]
        return max(equal, key=lambda m: self._others(folds, m, running=True))

    def _held_counts(self, moment: Moment[N]) -> tuple[list[N], list[N]]:
        """Passes that wait for backward, and for weights, with the one that runs (by stage)."""
        full, waiting = list(moment.full), list(moment.waiting)
        here = waiting if moment.kind is Pass.WEIGHTS else full
        here[moment.running] = self.sizes.total([here[moment.running], self.sizes.dim(1)])
        return full, waiting

    def _transient(
        self, folds: Sequence[Lifetimes[N]], position: Position, found: Sequence[Moment[N]]
    ) -> dict[str, N]:
        return {kind.value: self._most(folds, position, found, (kind,)) for kind in KINDS}

    def _most(
        self,
        folds: Sequence[Lifetimes[N]],
        position: Position,
        found: Sequence[Moment[N]],
        kinds: tuple[Kept, ...],
    ) -> N:
        """The largest sum of some kinds: one pass at its fullest, beside what the others hold."""
        sizes = self.sizes
        waits = Kept.ACTIVATIONS in kinds
        beside: dict[N, list[N]] = {}
        for moment in found:
            others = self._others(folds, moment) if waits else sizes.dim(0)
            points = self._points(folds, moment)
            beside.setdefault(others, []).extend(sizes.total([p[k] for k in kinds]) for p in points)
        most = [sizes.total([sizes.largest(p), others]) for others, p in beside.items() if p]
        parts = [sizes.largest(most)]
        if Kept.GATHERED in kinds:
            parts += self._fixed(folds, position)
        return sizes.total(parts)

    def _fixed(self, folds: Sequence[Lifetimes[N]], position: Position) -> list[N]:
        """Parameters that stay gathered over all micro-batches."""
        counts = [self.sizes.dim(count) for _, count in position.stages]
        pairs = zip(counts, folds, strict=True)
        return [self.sizes.product([count, fold.fixed]) for count, fold in pairs]

    def at_peak(self, position: Position) -> dict[str, N]:
        """What is held for a while when all of it together is most, by kind."""
        total = self.sizes.total
        folds = [self.fold(number) for number, _ in position.stages]
        found: dict[N, dict[Kept, N]] = {}
        for moment in moments(self.plan, position, self.sizes):
            others = self._others(folds, moment)
            for point in self._points(folds, moment):
                held = {**point, Kept.ACTIVATIONS: total([point[Kept.ACTIVATIONS], others])}
                found.setdefault(total(list(held.values())), held)
        zero = dict.fromkeys(KINDS, self.sizes.dim(0))
        fullest = found.get(self.sizes.largest(list(found)), zero)
        lasting = {Kept.GATHERED: self._fixed(folds, position)}
        return {k.value: total([fullest[k], *lasting.get(k, [])]) for k in KINDS}

    def _points(self, folds: Sequence[Lifetimes[N]], moment: Moment[N]) -> list[dict[Kept, N]]:
        """What the pass that runs holds, step by step; without a schedule, all passes."""
        passes = LOOPED if self.plan.schedule == "none" else (moment.kind.value,)
        return [point for name in passes for point in folds[moment.running].points[name]]

    def _others(
        self, folds: Sequence[Lifetimes[N]], moment: Moment[N], *, running: bool = False
    ) -> N:
        """Activations that the other passes hold; with ``running``, also what this one keeps."""
        full, waiting = moment.full, moment.waiting
        if running:
            full, waiting = map(tuple, self._held_counts(moment))
        parts = [
            self.sizes.product([count, fold.left[name.value]])
            for name, counts in ((Pass.FORWARD, full), (Pass.BACKWARD, waiting))
            for fold, count in zip(folds, counts, strict=True)
        ]
        return self.sizes.total(parts)


def _by_state(terms: Sequence[Term[N]], sizes: Sizes[N]) -> dict[str, N]:
    """Bytes by state, and of copies and buffers if there are any."""
    groups: dict[str, list[N]] = {state.value: [] for state in STORED}
    for term in terms:
        groups.setdefault(term.what, []).append(sizes.product([term.payload, term.times]))
    return {state: sizes.total(parts) for state, parts in groups.items()}
