"""Communication: bytes that a rank sends in one training step, by collective and axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

from placement_proofs.cost.convention import STATISTIC_BYTES, Convention
from placement_proofs.cost.measure import Measure, at, largest
from placement_proofs.cost.memory import largest_position
from placement_proofs.cost.terms import Term, plain
from placement_proofs.cost.walk import Visit, named_position, position_at, visits
from placement_proofs.layout import Collective, positions
from placement_proofs.mesh import IntSizes, Sizes
from placement_proofs.plan import RING, Buffer, Item, Plan, Position, Transfer, What

N = TypeVar("N")
Key: TypeAlias = tuple[str, tuple[str, ...]]
"""A collective and its axes."""


@dataclass(frozen=True)
class Communication(Generic[N]):
    """Traffic of one rank in one training step (bytes sent, ring algorithms).

    Attributes:
        convention: the bytes per element in force.
        position: the pipeline position of the rank.
        terms: one for each transfer of the plan.
        by: totals by collective and axes; host-link traffic is not in it.
        by_phase: the same by collective, axes and phase.
        total: bytes sent to other ranks.
        host: bytes over the link to the host, both ways.
    """

    convention: Convention
    position: str
    terms: tuple[Term[N], ...]
    by: Mapping[Key, N | Fraction]
    by_phase: Mapping[tuple[str, tuple[str, ...], str], N | Fraction]
    total: N | Fraction
    host: N | Fraction

    def to_json(self) -> dict[str, object]:
        """Totals and terms; bytes are integers, floats where they are not whole, or formulas."""
        return {
            "convention": self.convention.to_json(),
            "position": self.position,
            "bytes": [
                {"collective": kind, "axes": list(axes), "bytes": plain(sent)}
                for (kind, axes), sent in self.by.items()
            ],
            "total": plain(self.total),
            "host": plain(self.host),
            "terms": [term.to_json() for term in self.terms],
        }


def communication(
    plan: Plan, sizes: Sizes[N], convention: Convention, position: str | None = None
) -> Communication[N]:
    """The traffic of the ranks of a pipeline position.

    The position is the one with the largest memory unless it is named. Uneven shards: the payloads
    of the rank with the largest shards.

    Raises:
        IllFormed: the plan has no position of that name.
    """
    if position is None:
        where = largest_position(plan, sizes, convention)
    else:
        where = named_position(plan, position)
    return _communication(plan, largest(sizes), convention, where)


def communication_at(
    plan: Plan, sizes: IntSizes, convention: Convention, coordinates: Mapping[str, int]
) -> Communication[int]:
    """The traffic of the one rank at ``coordinates``, to the byte."""
    where = position_at(plan, sizes, coordinates)
    return _communication(plan, at(sizes, coordinates), convention, where)


def communication_terms(
    plan: Plan, sizes: Sizes[N], convention: Convention, position: str | None = None
) -> Iterator[tuple[Transfer, Term[N]]]:
    """Every transfer of the ranks of a pipeline position with its term."""
    if position is None:
        where = largest_position(plan, sizes, convention)
    else:
        where = named_position(plan, position)
    measure = largest(sizes)
    for visit in visits(plan, sizes, where):
        if isinstance(visit.step, Transfer):
            yield visit.step, _term(visit, visit.step, measure, convention)


def bytes_of_steps(
    plan: Plan, sizes: IntSizes, convention: Convention
) -> dict[int, int | Fraction]:
    """Bytes that a rank sends in a training step by each transfer, by the ``id`` of the step."""
    return {
        id(step): term.bytes
        for position in plan.positions
        for step, term in communication_terms(plan, sizes, convention, position.name)
    }


def _communication(
    plan: Plan, measure: Measure[N], convention: Convention, position: Position
) -> Communication[N]:
    terms = tuple(
        _term(visit, visit.step, measure, convention)
        for visit in visits(plan, measure.sizes, position)
        if isinstance(visit.step, Transfer)
    )
    sent = [t for t in terms if t.what != Collective.HOST.value]
    hosted = [t.bytes for t in terms if t.what == Collective.HOST.value]
    by = _totals(sent, lambda t: (t.what, t.axes), measure.sizes)
    by_phase = _totals(sent, lambda t: (t.what, t.axes, t.phase), measure.sizes)
    return Communication(
        convention,
        position.name,
        terms,
        by,
        by_phase,
        measure.sizes.total_exact(list(by.values())),
        measure.sizes.total_exact(hosted),
    )


K = TypeVar("K")


def _totals(
    terms: list[Term[N]], key: Callable[[Term[N]], K], sizes: Sizes[N]
) -> dict[K, N | Fraction]:
    groups: dict[K, list[N | Fraction]] = {}
    for term in terms:
        groups.setdefault(key(term), []).append(term.bytes)
    return {k: sizes.total_exact(values) for k, values in groups.items()}


def _term(visit: Visit[N], step: Transfer, measure: Measure[N], convention: Convention) -> Term[N]:
    sizes = measure.sizes
    payload = _total_payload(step, measure, convention)
    times = visit.times
    if step.repeats != 1:
        times = sizes.product([times, sizes.dim(step.repeats)])
    whole = sizes.product([payload, times])
    sent: N | Fraction = whole
    if not convention.payload:
        sent = ring(step.kind, step.axes, whole, sizes)
    return Term(
        step.kind.value,
        step.axes,
        step.where.phase.value,
        visit.section,
        step.where.unit,
        step.where.block,
        step.why,
        tuple(item.name for item in step.items),
        times,
        payload,
        sent,
    )


def _total_payload(step: Transfer, measure: Measure[N], convention: Convention) -> N:
    """Bytes of all items; flat ones are padded once, together."""
    sizes = measure.sizes
    if not step.flat:
        return sizes.total([_payload(i, step, measure, convention) for i in step.items])
    gathers = step.kind is Collective.ALL_GATHER
    parts = [measure.elements(i.shape, i.after if gathers else i.before) for i in step.items]
    ranks = positions(step.axes, sizes)
    padded = sizes.product([sizes.cdiv(sizes.total(parts), ranks), ranks])
    return sizes.product([padded, sizes.dim(width(step.items[0], convention))])


def ring(kind: Collective, axes: tuple[str, ...], payload: N, sizes: Sizes[N]) -> N | Fraction:
    """Bytes that a rank sends for a payload of so many bytes (the semantics page, section 6)."""
    factor, cyclic = RING[kind]
    if not cyclic:
        return payload
    ranks = positions(axes, sizes)
    others = sizes.difference(ranks, sizes.dim(1))
    return sizes.ratio(sizes.product([sizes.dim(factor), others, payload]), ranks)


def _payload(item: Item, step: Transfer, measure: Measure[N], convention: Convention) -> N:
    """The full tensor on the axes of the transfer; for all-to-all the rank's part (bytes)."""
    match step.kind:
        case Collective.ALL_GATHER:
            count = measure.padded(item.shape, item.after, item.before, step.axes, step.pad)
        case Collective.REDUCE_SCATTER:
            count = measure.padded(item.shape, item.before, item.after, step.axes)
        case Collective.BROADCAST:
            count = measure.elements(item.shape, item.after)
        case _:
            count = measure.elements(item.shape, item.before)
    return measure.sizes.product([count, measure.sizes.dim(width(item, convention))])


def width(item: Item, convention: Convention) -> int:
    """Bytes of one element of an item on its way."""
    match item.what:
        case What.PARAMETER:
            gathered = item.buffer is Buffer.GATHERED
            return convention.gathered if gathered else convention.parameter
        case What.GRADIENT:
            return convention.reduction
        case What.ACTIVATION | What.COTANGENT:
            return convention.activation
        case What.STATISTIC:
            return STATISTIC_BYTES
