"""Named deviations of a plan: what if a training loop forgets, repeats, or misplaces a step.

A deviation is one line of text, such as ``drop all-reduce gradient dp group=norm``; the deviated
plan is a plan like any other. Its later layouts still claim what was forgotten: readers that
execute it notice by a wrong value, a shape that does not fit, or a message that nobody sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement_proofs.deviation import (
    ACTIONS,
    MOVES,
    WORDS,
    Deviation,
    Selector,
    parse_deviation,
    words_of,
)
from placement_proofs.errors import IllFormed
from placement_proofs.layout import Collective
from placement_proofs.mesh import parent
from placement_proofs.plan import (
    Action,
    Item,
    Local,
    Plan,
    Run,
    Stage,
    Step,
    Transfer,
    What,
)

__all__ = ["ACTIONS", "MOVES", "Deviation", "Selector", "deviate", "mutants", "parse_deviation"]

_VALUES = (What.ACTIVATION, What.COTANGENT)


@dataclass(frozen=True)
class _Found:
    """A selected step: where it is, and which of its items."""

    stage: int
    section: str
    index: int
    items: tuple[int, ...]


def _found(plan: Plan, select: Selector) -> list[_Found]:
    result = []
    for number, stage in enumerate(plan.stages):
        groups = {t.name: t.group for t in stage.tensors}
        for section in ("before", "forward", "backward", "after"):
            for i, step in enumerate(getattr(stage, section)):
                if isinstance(step, Run) or select.stage not in ("", stage.name):
                    continue
                items = _matching(step, select, groups)
                if items is not None:
                    result.append(_Found(number, section, i, items))
    return result if select.nth is None else result[select.nth : select.nth + 1]


def _matching(
    step: Transfer | Local, select: Selector, groups: Mapping[str, str]
) -> tuple[int, ...] | None:
    """The items of a step that are selected; ``None`` if the step is not."""
    axes = step.axes if isinstance(step, Transfer) else ()
    wanted = (
        (select.kind, _kind(step)),
        (select.phase, step.where.phase.value),
        (select.why, step.why),
        (select.axes, axes),
    )
    if any(asked and asked != has for asked, has in wanted):
        return None
    items = tuple(i for i, item in enumerate(step.items) if _fits(item, select, groups))
    return items if items or not (step.items or select.what or select.group) else None


def _fits(item: Item, select: Selector, groups: Mapping[str, str]) -> bool:
    return (
        select.what in ("", WORDS[item.what])
        and select.tensor in ("", item.name)
        and select.group in ("", groups.get(item.name, ""))
    )


def _kind(step: Transfer | Local) -> str:
    return step.kind.value if isinstance(step, Transfer) else step.action.value


def deviate(plan: Plan, deviation: Deviation) -> Plan:
    """The plan with a deviation at every selected step.

    Raises:
        IllFormed: nothing is selected (the message lists what could be), or the action does not
            apply to what is.
    """
    _check_names(plan, deviation)
    if deviation.action == "insert":
        return _inserted(plan, deviation)
    found = _found(plan, deviation.select)
    if not found:
        raise IllFormed(
            f"deviation {deviation}",
            "no such step in the plan",
            f"the plan has {_choices(plan)}",
            "select one of them",
        )
    for one in reversed(found):
        plan = _apply(plan, one, deviation)
    return plan


def _check_names(plan: Plan, deviation: Deviation) -> None:
    """The argument of rescale and regroup names axes of the mesh (or loops) only."""
    squares = deviation.select.kind == Action.SQUARE.value
    if deviation.action not in ("rescale", "regroup") or squares:
        return
    subsets = tuple(name for name, _ in plan.mesh.subsets)
    known = (*plan.mesh.names, *subsets, *(("micro",) if deviation.action == "rescale" else ()))
    unknown = [w for w in words_of(deviation.argument) if not w.isdigit() and w not in known]
    if unknown:
        raise IllFormed(
            f"deviation {deviation}",
            ", ".join(unknown),
            f"the plan has {', '.join(known) or 'no axes'}",
            "name one of them",
        )


def _choices(plan: Plan) -> str:
    """What could be selected, each once."""
    seen: dict[str, None] = {}
    for _, _, step in plan.steps():
        if isinstance(step, Transfer) and step.items:
            what = WORDS[step.items[0].what]
            seen[str(Selector(_kind(step), what, step.axes, phase=step.where.phase.value))] = None
        elif isinstance(step, Local) and step.action in (Action.SCALE, Action.ACCUMULATE):
            seen[_kind(step)] = None
    return ", ".join(seen) or "no transfers"


def _apply(plan: Plan, found: _Found, deviation: Deviation) -> Plan:
    stage = plan.stages[found.stage]
    steps: list[Step] = list(getattr(stage, found.section))
    step = steps[found.index]
    assert not isinstance(step, Run)
    if deviation.action == "reorder":
        _move(steps, found.index, deviation.argument)
    elif deviation.action == "regroup" and isinstance(step, Local):
        _joined(steps, found, step, deviation)
    else:
        steps[found.index : found.index + 1] = _instead(step, found.items, deviation)
    sections: dict[str, Any] = {found.section: tuple(steps)}
    changed = replace(stage, **sections)
    stages = (*plan.stages[: found.stage], changed, *plan.stages[found.stage + 1 :])
    return replace(plan, stages=stages)


def _move(steps: list[Step], index: int, where: str) -> None:
    step = steps.pop(index)
    target = {"earlier": max(0, index - 1), "later": index + 1, "first": 0}.get(where, len(steps))
    steps.insert(target, step)


def _instead(step: Transfer | Local, chosen: tuple[int, ...], deviation: Deviation) -> list[Step]:
    """The steps that take the place of one step."""
    items = tuple(step.items[i] for i in chosen)
    others = tuple(item for i, item in enumerate(step.items) if i not in chosen)
    rest: list[Step] = [replace(step, items=others)] if others else []
    match deviation.action:
        case "drop":
            return [*rest, *_passed_on(step, items)]
        case "duplicate":
            return [step, replace(step, items=tuple(map(_again, items)))]
        case "rescale":
            return _rescaled(step, items, deviation.argument)
        case "regroup" if isinstance(step, Transfer):
            return [*rest, replace(step, items=items, axes=tuple(deviation.argument.split("*")))]
        case "replace":
            return [*rest, *_replaced(step, items, deviation)]
        case "overwrite" if isinstance(step, Local) and step.action is Action.ACCUMULATE:
            return [*rest, replace(step, items=items, overwrite=True)]
    raise IllFormed(
        f"deviation {deviation}",
        f"a step {_kind(step)}",
        "regroup applies to transfers and squares, overwrite to accumulate",
        "select another step",
    )


def _replaced(step: Transfer | Local, items: tuple[Item, ...], deviation: Deviation) -> list[Step]:
    """Another movement of the same items; its axes are those of the step, or of the conversion."""
    kind, why = deviation.argument, f"instead of {_kind(step)}"
    if kind in {action.value for action in Action}:
        return [Local(Action(kind), items, step.where, why)]
    axes = step.axes if isinstance(step, Transfer) else _converted(items)
    if not axes:
        raise IllFormed(
            f"deviation {deviation}",
            f"a step {_kind(step)} without axes",
            "a collective takes the place of one, or of a conversion of an activation",
            "select another step",
        )
    return [Transfer(Collective(kind), axes, items, step.where, why)]


def _converted(items: tuple[Item, ...]) -> tuple[str, ...]:
    """The axes of a conversion, which the name of its result says."""
    names = [max(i.name, i.out, key=len) for i in items]
    return tuple(dict.fromkeys(n.rpartition("@")[2].partition(":")[0] for n in names if "@" in n))


def _joined(steps: list[Step], found: _Found, step: Local, deviation: Deviation) -> None:
    """Squares that are counted in another partial norm."""
    there = [
        index
        for index, other in enumerate(steps)
        if isinstance(other, Local)
        and other.action is step.action is Action.SQUARE
        and other.why == deviation.argument
    ]
    if not there:
        raise IllFormed(
            f"deviation {deviation}",
            deviation.argument,
            "squares are regrouped to another partial norm of the same stage",
            "name it by its reason, as in to=squares:tp",
        )
    chosen = tuple(step.items[i] for i in found.items)
    others = tuple(i for i in step.items if i not in chosen)
    joined = steps[there[-1]]
    assert isinstance(joined, Local)
    steps[there[-1]] = replace(joined, items=(*joined.items, *chosen))
    steps[found.index] = replace(step, items=others)


def _inserted(plan: Plan, deviation: Deviation) -> Plan:
    """A collective that the plan does not have: of gradients before their scale, or of squares."""
    select = deviation.select
    known = {kind.value for kind in Collective}
    stages = tuple(_with(stage, select) for stage in plan.stages)
    if select.kind not in known or not select.axes or stages == plan.stages:
        raise IllFormed(
            f"deviation {deviation}",
            "nothing to insert there",
            "insert takes a collective, gradient or statistic, and axes",
            'write "insert all-reduce gradient tp group=norm"',
        )
    unknown = set(map(parent, select.axes)) - set(plan.mesh.names)
    if unknown:
        raise IllFormed(
            f"deviation {deviation}",
            ", ".join(sorted(unknown)),
            f"the plan has {', '.join(plan.mesh.names) or 'no axes'}",
            "name one of them",
        )
    return replace(plan, stages=stages)


def _with(stage: Stage, select: Selector) -> Stage:
    groups = {t.name: t.group for t in stage.tensors}
    after: list[Step] = []
    done: set[Item] = set()
    for step in stage.after if select.stage in ("", stage.name) else ():
        made = _new(step, select, groups, done)
        behind = isinstance(step, Local) and step.action is Action.SQUARE
        after += [s for s in ((step, made) if behind else (made, step)) if s is not None]
    return replace(stage, after=tuple(after) or stage.after)


_READERS = (Action.SCALE, Action.SQUARE, Action.CLIP, Action.UPDATE)
"""Steps that read the gradients that the plan has reduced."""


def _new(
    step: Step, select: Selector, groups: Mapping[str, str], done: set[Item]
) -> Transfer | None:
    """The inserted collective next to the step that its items come from first."""
    if not isinstance(step, Local) or select.kind not in {kind.value for kind in Collective}:
        return None
    items: tuple[Item, ...] = ()
    if step.action in _READERS and select.what == WORDS[What.GRADIENT]:
        fitting = (i for i in step.items if _fits(i, select, groups))
        items = tuple(i for i in fitting if i.name not in {d.name for d in done})
        done |= set(items)
    elif step.action is Action.SQUARE and select.what == WORDS[What.STATISTIC]:
        norm = step.why if select.why in ("", step.why) else ""
        items = (Item(norm, What.STATISTIC, (), (), (), norm),) if norm else ()
    if not items:
        return None
    return Transfer(Collective(select.kind), select.axes, items, step.where, "inserted")


def _passed_on(step: Transfer | Local, items: tuple[Item, ...]) -> list[Step]:
    """Values whose conversion is dropped go on as they are; a message is just not sent."""
    if isinstance(step, Transfer) and step.shift:
        return []
    values = tuple(i for i in items if i.what in _VALUES and i.out != i.name)
    return [Local(Action.ALIAS, values, step.where, f"dropped: {step.why}")] if values else []


def _again(item: Item) -> Item:
    """An item of a repeated step: a converted activation is converted once more."""
    return replace(item, name=item.out) if item.what is What.ACTIVATION else item


def _rescaled(step: Transfer | Local, items: tuple[Item, ...], factor: str) -> list[Step]:
    """A scale after the step (of a message: before it is sent)."""
    sent = isinstance(step, Transfer) and step.shift != 0
    scaled = tuple(i if sent else replace(i, name=i.out, before=i.after) for i in items)
    scale = Local(Action.SCALE, scaled, step.where, "rescaled", factor)
    return [scale, step] if sent else [step, scale]


def mutants(plan: Plan) -> Iterator[Deviation]:
    """Deviations of single steps: every transfer dropped and doubled, and more for gradients.

    Gradient reductions are also rescaled, regrouped to another axis and moved; scales are dropped
    and doubled; accumulations overwrite. Transfers over axes of size one and scales by one are left
    out.
    """
    turns: Counter[Selector] = Counter()
    for stage, _, step in plan.steps():
        if isinstance(step, Run) or not step.items or _alone(plan, step):
            continue
        axes = step.axes if isinstance(step, Transfer) else ()
        what, phase = WORDS[step.items[0].what], step.where.phase.value
        select = Selector(_kind(step), what, axes, phase=phase, stage=stage.name)
        one = replace(select, nth=turns[select])
        turns[select] += 1
        yield from _mutations(plan, step, one)


def _mutations(plan: Plan, step: Transfer | Local, select: Selector) -> Iterable[Deviation]:
    if isinstance(step, Transfer):
        yield Deviation("drop", select)
        yield Deviation("duplicate", select)
        if step.items[0].what is What.GRADIENT and step.axes:
            yield from _of_gradients(plan, step, select)
    elif step.action is Action.SCALE:
        yield Deviation("drop", select)
        yield Deviation("duplicate", select)
    elif step.action is Action.ACCUMULATE and plan.micro != 1:
        yield Deviation("overwrite", select)


def _of_gradients(plan: Plan, step: Transfer, select: Selector) -> Iterable[Deviation]:
    yield Deviation("rescale", select, f"1/({'*'.join(map(parent, step.axes))})")
    for axis in plan.mesh.names:
        if axis not in map(parent, step.axes) and plan.mesh.size(axis) != 1:
            yield Deviation("regroup", select, axis)
    yield Deviation("reorder", select, "first")
    yield Deviation("reorder", select, "last")


def _alone(plan: Plan, step: Transfer | Local) -> bool:
    """Whether a collective has one member, or a scale is by one."""
    sizes = plan.mesh.sizes() | {"micro": plan.micro, "1": 1}
    if isinstance(step, Transfer):
        return bool(step.axes) and all(sizes[parent(axis)] == 1 for axis in step.axes)
    return step.action is Action.SCALE and all(sizes.get(w) == 1 for w in words_of(step.factor))
