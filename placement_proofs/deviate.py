"""Named deviations of a plan: what if a training loop forgets, repeats, or misplaces a step.

A deviation is one line of text, such as ``drop all-reduce gradient dp group=norm``; the deviated
plan is a plan like any other. Its later layouts still claim what was forgotten: readers that
execute it notice by a wrong value, a shape that does not fit, or a message that nobody sends.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.layout import Collective
from placement_proofs.mesh import parent
from placement_proofs.plan import (
    Action,
    Item,
    Local,
    Phase,
    Plan,
    Run,
    Step,
    Transfer,
    What,
)

ACTIONS = ("drop", "duplicate", "rescale", "regroup", "reorder", "overwrite")
MOVES = ("earlier", "later", "first", "last")

_KINDS = {kind.value for kind in (*Collective, *Action)}
_WHAT = {what.value.replace("activation gradient", "cotangent"): what for what in What}
_WORDS = {what: word for word, what in _WHAT.items()}
_ARGUMENTS = {"rescale": "by", "regroup": "to", "reorder": "to"}
_VALUES = (What.ACTIVATION, What.COTANGENT)


@dataclass(frozen=True)
class Selector:
    """Which steps of a plan, and which of their items; what is empty selects everything.

    Attributes:
        kind: a collective or a local action, such as ``all-reduce`` or ``accumulate``.
        what: parameter, gradient, activation, cotangent or statistic.
        axes: the axes of a transfer, all of them and in its order.
        group: a parameter group; tensor: the name of a parameter or value.
        phase: forward, backward, recompute, reduce, clip or update.
        why: the step's reason; stage: the name of a pipeline stage.
        nth: only the step with this number among those selected, from 0.
    """

    kind: str = ""
    what: str = ""
    axes: tuple[str, ...] = ()
    group: str = ""
    tensor: str = ""
    phase: str = ""
    why: str = ""
    stage: str = ""
    nth: int | None = None

    def __str__(self) -> str:
        words = [self.kind, self.what, "*".join(self.axes)]
        for name in ("group", "tensor", "phase", "why", "stage", "nth"):
            value = getattr(self, name)
            words.append("" if value in ("", None) else shlex.quote(f"{name}={value}"))
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Deviation:
    """One deviation: an action on the selected steps.

    ``argument`` is the factor of ``rescale`` (``by=1/dp``), the axes of ``regroup`` (``to=tp``), or
    where ``reorder`` moves a step in its section (``to=earlier``, later, first, last).
    """

    action: str
    select: Selector
    argument: str = ""

    def __str__(self) -> str:
        key = _ARGUMENTS.get(self.action)
        words = [self.action, str(self.select), f"{key}={self.argument}" if key else ""]
        return " ".join(word for word in words if word)


def parse_deviation(text: str) -> Deviation:
    """Read a deviation; the inverse of ``str``.

    Raises:
        IllFormed: a word or a key is unknown, or the action's argument is missing.

    >>> print(parse_deviation("drop all-reduce gradient dp group=norm"))
    drop all-reduce gradient dp group=norm
    """
    try:
        action, *words = shlex.split(text)
    except ValueError:
        action, words = "", []
    if action not in ACTIONS:
        raise IllFormed(
            "deviation",
            repr(text[:80]),
            f"a deviation begins with one of {', '.join(ACTIONS)}",
            'write "drop all-reduce gradient dp"',
        )
    found: dict[str, str] = {}
    for word in words:
        key, value = _word(word, text)
        found[key] = value
    argument = found.pop(_ARGUMENTS.get(action, "by"), "")
    _check_argument(action, argument, text)
    return Deviation(action, _selector(found, text), argument)


def _word(word: str, text: str) -> tuple[str, str]:
    """The field of a selector that a word fills, and its value."""
    key, equals, value = word.partition("=")
    known = {f.name for f in fields(Selector)} | set(_ARGUMENTS.values())
    if equals:
        if key in known:
            return key, value
        raise IllFormed(
            "deviation", repr(word), f"the keys are {', '.join(sorted(known))}", text[:80]
        )
    if word in _KINDS:
        return "kind", word
    return ("what" if word in _WHAT else "axes"), word


def _selector(found: Mapping[str, str], text: str) -> Selector:
    nth = found.get("nth")
    phases = [phase.value for phase in Phase]
    if (nth is not None and not nth.isdigit()) or found.get("phase", "forward") not in phases:
        raise IllFormed(
            "deviation",
            repr(text[:80]),
            f"nth is a number from 0; a phase is one of {', '.join(phases)}",
            "correct it or leave it out",
        )
    words = {key: value for key, value in found.items() if key not in ("nth", "axes", "to", "by")}
    axes = tuple(a for a in found.get("axes", "").split("*") if a)
    return Selector(**words, axes=axes, nth=None if nth is None else int(nth))


def _check_argument(action: str, argument: str, text: str) -> None:
    key = _ARGUMENTS.get(action)
    wrong = bool(argument) != bool(key) or (action == "reorder" and argument not in MOVES)
    if wrong or (action == "rescale" and not _is_factor(argument)):
        rules = {
            "rescale": "rescale takes a factor of numbers and axes: by=1/(dp*micro)",
            "regroup": "regroup takes axes: to=tp or to=dp*tp",
            "reorder": f"reorder takes one of {', '.join('to=' + m for m in MOVES)}",
        }
        rule = rules.get(action, f"{action} takes no argument")
        raise IllFormed("deviation", repr(text[:80]), rule, "see placement-proofs simulate --help")


def _is_factor(text: str) -> bool:
    below = _words(text.partition("/")[2] or "1")
    return all(w.isdigit() or w.isidentifier() for w in _words(text)) and "0" not in below


def _words(text: str) -> list[str]:
    """The words of a factor such as ``1/(dp*micro)``, or of a product of axes."""
    return [w.strip() for part in text.split("/", 1) for w in part.strip().strip("()").split("*")]


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
        select.what in ("", _WORDS[item.what])
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
    found = _found(plan, deviation.select)
    _check_names(plan, deviation)
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
    if deviation.action not in ("rescale", "regroup"):
        return
    subsets = tuple(name for name, _ in plan.mesh.subsets)
    known = (*plan.mesh.names, *subsets, *(("micro",) if deviation.action == "rescale" else ()))
    unknown = [w for w in _words(deviation.argument) if not w.isdigit() and w not in known]
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
            what = _WORDS[step.items[0].what]
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
        case "overwrite" if isinstance(step, Local) and step.action is Action.ACCUMULATE:
            return [*rest, replace(step, items=items, overwrite=True)]
    raise IllFormed(
        f"deviation {deviation}",
        f"a step {_kind(step)}",
        "regroup applies to transfers, overwrite to accumulate",
        "select another step",
    )


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
        what, phase = _WORDS[step.items[0].what], step.where.phase.value
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
    return step.action is Action.SCALE and all(sizes.get(w) == 1 for w in _words(step.factor))
