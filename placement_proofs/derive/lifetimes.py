"""When activations and their gradients may be dropped: inserted into the bodies of a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from placement_proofs.layout import Collective, Layout, dual_layout
from placement_proofs.model import Half, backward_reads
from placement_proofs.plan import (
    Action,
    Item,
    Local,
    PlanValue,
    Run,
    Step,
    Transfer,
    What,
    Where,
)

Held = tuple[str, What]
"""A value or its gradient: the name and which of the two."""


def reads(step: Step) -> list[Held]:
    """The activations and activation gradients that a step reads."""
    if isinstance(step, Run):
        if not step.backward:
            return [(name, What.ACTIVATION) for name in step.ins]
        saved = [step.ins[i] for i in backward_reads(step.kind, step.half)]
        saved += [name for name, _ in step.internals]
        return [(step.out, What.COTANGENT), *((name, What.ACTIVATION) for name in saved)]
    kinds = (What.ACTIVATION, What.COTANGENT)
    receiving = isinstance(step, Local) and step.action is Action.RECEIVE
    receiving = receiving or _fetches(step)
    return [(i.name, i.what) for i in step.items if i.what in kinds and not receiving]


def writes(step: Step) -> list[Held]:
    """The activations and activation gradients that a step makes or adds to."""
    if isinstance(step, Run):
        if step.backward:
            made = () if step.half is Half.WEIGHTS else step.ins
            return [(name, What.COTANGENT) for name in made]
        out = [step.out, *(name for name, _ in step.internals)]
        return [(name, What.ACTIVATION) for name in out]
    if isinstance(step, Transfer) and step.shift and not _fetches(step):
        return []
    kinds = (What.ACTIVATION, What.COTANGENT)
    return [(i.out, i.what) for i in step.items if i.what in kinds]


def _fetches(step: Step) -> bool:
    """Whether a step brings values back from the host."""
    return isinstance(step, Transfer) and step.kind is Collective.HOST and step.shift == 1


def with_drops(
    bodies: Sequence[Sequence[Step]],
    values: Mapping[str, PlanValue],
    given_again: Set[str] = frozenset(),
) -> list[list[Step]]:
    """The bodies of one pass, in order, with a drop after the last read of all that is held.

    ``given_again`` are values that recomputation gives beside what it is for: they were kept.
    """
    return [
        _dropping(
            steps, values, _kept([s for later in bodies[i + 1 :] for s in later], given_again)
        )
        for i, steps in enumerate(bodies)
    ]


def _kept(later: Sequence[Step], given_again: Set[str]) -> set[Held]:
    """What the bodies after one read of it."""
    made_again: set[Held] = set()
    kept: set[Held] = set()
    for step in later:
        kept |= set(reads(step)) - made_again
        made_again |= {(n, what) for n, what in writes(step) if n not in given_again}
    return kept


def _dropping(
    steps: Sequence[Step], values: Mapping[str, PlanValue], kept: set[Held]
) -> list[Step]:
    last: dict[Held, int] = {}
    for i, step in enumerate(steps):
        for held in (*reads(step), *writes(step)):
            if held not in kept and _counts(held, values):
                last[held] = i
    ends: dict[int, list[Held]] = {}
    for held, i in last.items():
        ends.setdefault(i, []).append(held)
    result: list[Step] = []
    for i, step in enumerate(steps):
        result.append(step)
        if i in ends:
            result.append(_drop(ends[i], values, step.where))
    return result


def _counts(held: Held, values: Mapping[str, PlanValue]) -> bool:
    """Token ids are not counted, nor gradients of values that need none."""
    value = values[held[0]]
    return not value.integer and (held[1] is What.ACTIVATION or value.needs_gradient)


def _drop(held: Sequence[Held], values: Mapping[str, PlanValue], where: Where) -> Local:
    return Local(Action.DROP, tuple(_item(name, what, values[name]) for name, what in held), where)


def _item(name: str, what: What, value: PlanValue) -> Item:
    layout: Layout = value.layout if what is What.ACTIVATION else dual_layout(value.layout)
    return Item(name, what, value.shape, layout, layout, name)
