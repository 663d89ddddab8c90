"""The global gradient norm of a plan as an element program, given that gradients are right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from placement_proofs.layout import Kind
from placement_proofs.plan import Action, Local, Plan, PlanTensor, Stage, Transfer, What
from placement_proofs.program import Buffer as Copy
from placement_proofs.program import (
    Clip,
    Held,
    Move,
    Param,
    Program,
    Reduce,
    Source,
    Square,
    Term,
    Tick,
    Update,
)
from placement_proofs.program import Step as ElementStep
from placement_proofs.project.names import held

NORM = "q"


def project_norm(plan: Plan) -> tuple[Program, dict[str, list[str]]] | None:
    """One gradient per kind of tensor, squares as the plan groups and sums them, one clip.

    The gradients start as their targets, in the layout that the squares read: that they are right
    is another program's claim. The second result maps each parameter to its tensors.
    """
    kinds = _kinds(plan)
    if not any(kind.clipped or kind.squared for kind in kinds):
        return None
    steps: list[ElementStep] = []
    params, buffers, names = [], [], {}
    for index, (kind, tensors) in enumerate(kinds.items()):
        over, layout = kind.fed, kind.layout
        grad, param = f"g{index}", f"W{index}"
        names[param] = tensors
        family = f"c{index}"
        params.append(Param(param, (Term(family, over),), clip="norm"))
        buffers.append(Copy(f"w{index}", param, layout))
        steps.append(Source(grad, family, over, over, layout, why="gradient"))
    grads = {t: f"g{i}" for i, tensors in enumerate(kinds.values()) for t in tensors}
    steps += _second_copies(plan, grads)
    steps += _squares(plan, grads)
    for turn in range(max(kind.clipped for kind in kinds)):
        clipped = tuple(f"g{i}" for i, kind in enumerate(kinds) if kind.clipped > turn)
        steps.append(Clip(clipped, NORM, why="global norm"))
    steps += [Update(f"w{i}", f"g{i}") for i in range(len(kinds))]
    used = {a for kind in kinds for a in (*kind.fed, *(axis for axis, _ in kind.layout))}
    used |= {a for s in steps if isinstance(s, Reduce) for a in s.axes}
    axes = tuple(a for a in plan.mesh.names if a in used)
    program = Program(axes, (), tuple(params), tuple(buffers), (*steps, Tick()))
    return program, names


@dataclass(frozen=True)
class Alike:
    """Tensors that the norm cannot tell apart: fed, cut, squared and clipped alike."""

    fed: tuple[str, ...]
    layout: Held
    squared: tuple[str, ...]
    clipped: int


def _kinds(plan: Plan) -> dict[Alike, list[str]]:
    """Trainable tensors by kind; of a tied tensor, its first copy."""
    squared = _treated(plan, Action.SQUARE)
    clipped = _treated(plan, Action.CLIP)
    kinds: dict[Alike, list[str]] = {}
    for stage, tensor in _trained(plan):
        if stage not in plan.tied(tensor.name)[1:]:
            key = _key(stage, tensor.name)
            kind = Alike(
                _fed(tensor),
                _layout(plan, stage, tensor),
                tuple(squared.get(key, ())),
                len(clipped.get(key, ())),
            )
            kinds.setdefault(kind, []).append(key)
    return kinds


def _treated(plan: Plan, action: Action) -> dict[str, list[str]]:
    """Which steps of a kind treat each tensor, once for every time."""
    found: dict[str, list[str]] = {}
    for stage, step in _steps(plan, action):
        for item in step.items:
            found.setdefault(_key(stage, item.name), []).append(step.why)
    return found


def _steps(plan: Plan, action: Action) -> list[tuple[Stage, Local]]:
    """The steps of a kind; of squares with one name, the last, which replaces the others."""
    steps = [(g, s) for g, _, s in plan.steps() if isinstance(s, Local) and s.action is action]
    if action is not Action.SQUARE:
        return steps
    return list({(stage.name, step.why): (stage, step) for stage, step in steps}.values())


def _trained(plan: Plan) -> Iterator[tuple[Stage, PlanTensor]]:
    return ((s, t) for s in plan.stages for t in s.tensors if t.trainable)


def _second_copies(plan: Plan, grads: dict[str, str]) -> Iterator[Source]:
    """Copies of tied tensors that the plan squares as well: the same gradient once more."""
    squared = _treated(plan, Action.SQUARE)
    for stage, tensor in _trained(plan):
        key = _key(stage, tensor.name)
        if key in squared and key not in grads:
            first = next(g for k, g in grads.items() if k.endswith(f":{tensor.name}"))
            over = _fed(tensor)
            grads[key] = f"{first}_again"
            layout = _layout(plan, stage, tensor)
            yield Source(grads[key], f"c{first[1:]}", over, over, layout, why="gradient")


def _key(stage: Stage, name: str) -> str:
    return f"{stage.name}:{name}"


def _fed(tensor: PlanTensor) -> tuple[str, ...]:
    fed = [a for e in tensor.use if e.on.kind is Kind.REPLICATED for a in e.axes]
    return tuple(sorted(fed))


def _layout(plan: Plan, stage: Stage, tensor: PlanTensor) -> Held:
    """Shards of the gradient, and the pipeline position that holds the stage."""
    own = held(tensor.optimizer)
    if len(plan.stages) == 1:
        return own
    position = {plan.stages[0].name: "first", plan.stages[-1].name: "last"}
    return tuple(sorted((*own, (plan.pipeline, position.get(stage.name, "stage")))))


def _squares(plan: Plan, grads: dict[str, str]) -> Iterator[ElementStep]:
    """Partial sums by name, each summed over its axes, then added to the norm."""
    sources: dict[str, dict[str, None]] = {}
    for stage, step in _steps(plan, Action.SQUARE):
        group = sources.setdefault(step.why, {})
        keys = [_key(stage, item.name) for item in step.items]
        group |= dict.fromkeys(grads[k] for k in keys if k in grads)
    for index, (name, group) in enumerate((n, g) for n, g in sources.items() if g):
        local = f"q{index}"
        yield Square(local, tuple(group), why=name)
        for reduction in _reductions(plan, name):
            yield Reduce(local, reduction.axes, why=f"all-reduce of {name}")
        yield Move(NORM, local, add=index > 0, why="global norm")


def _reductions(plan: Plan, name: str) -> list[Transfer]:
    """The all-reduces of one partial norm, as the first stage that has them runs them."""
    for stage in plan.stages:
        found = [
            s
            for s in stage.after
            if isinstance(s, Transfer)
            and any(i.what is What.STATISTIC and i.name == name for i in s.items)
        ]
        if found:
            return found
    return []
