"""The global gradient norm of a plan as an element program, given that gradients are right."""

from __future__ import annotations

from collections.abc import Iterator

from placement_proofs.layout import Kind, shard_axes
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
    if not any(isinstance(s, Local) and s.action is Action.CLIP for _, _, s in plan.steps()):
        return None
    steps: list[ElementStep] = []
    params, buffers, names = [], [], {}
    for index, (kind, tensors) in enumerate(kinds.items()):
        over, layout = kind
        grad, param = f"g{index}", f"W{index}"
        names[param] = tensors
        family = f"c{index}"
        params.append(Param(param, (Term(family, over),), clip="norm"))
        buffers.append(Copy(f"w{index}", param, layout))
        summed = tuple(a for a in over)
        steps.append(Source(grad, family, over, summed, layout, why="gradient"))
    grads = {t: f"g{i}" for i, tensors in enumerate(kinds.values()) for t in tensors}
    steps += _squares(plan, grads)
    all_grads = tuple(f"g{i}" for i in range(len(kinds)))
    steps.append(Clip(all_grads, NORM, why="global norm"))
    steps += [Update(f"w{i}", f"g{i}") for i in range(len(kinds))]
    used = {a for over, layout in kinds for a in (*over, *(axis for axis, _ in layout))}
    used |= {a for s in steps if isinstance(s, Reduce) for a in s.axes}
    axes = tuple(a for a in plan.mesh.names if a in used)
    program = Program(axes, (), tuple(params), tuple(buffers), (*steps, Tick()))
    return program, names


Kind_ = tuple[tuple[str, ...], Held]


def _kinds(plan: Plan) -> dict[Kind_, list[str]]:
    """Trainable tensors by the axes that feed them and by their layout, stages included."""
    kinds: dict[Kind_, list[str]] = {}
    seen: set[str] = set()
    for stage in plan.stages:
        for tensor in stage.tensors:
            if tensor.trainable and (stage.name, tensor.name) and tensor.name not in seen:
                kinds.setdefault((_fed(tensor), _layout(plan, stage, tensor)), []).append(
                    _key(stage, tensor)
                )
                if _is_tied(plan, tensor.name):
                    seen.add(tensor.name)
    return kinds


def _key(stage: Stage, tensor: PlanTensor) -> str:
    return f"{stage.name}:{tensor.name}"


def _is_tied(plan: Plan, name: str) -> bool:
    users = [s for s in plan.stages for t in s.tensors if t.name == name and t.times == 1]
    return len(users) > 1


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
    for stage, _, step in plan.steps():
        if isinstance(step, Local) and step.action is Action.SQUARE:
            group = sources.setdefault(step.why, {})
            keys = [f"{stage.name}:{item.name}" for item in step.items]
            group |= dict.fromkeys(grads[k] for k in keys if k in grads)
    for index, (name, group) in enumerate((n, g) for n, g in sources.items() if g):
        local = f"q{index}"
        yield Square(local, tuple(group), why=name)
        for step in _reductions(plan, name):
            yield Reduce(local, step.axes, why=f"all-reduce of {name}")
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


def norm_axes(tensor: PlanTensor) -> tuple[str, ...]:
    """The axes over which squares of a tensor's gradient have to be summed."""
    return shard_axes(tensor.optimizer)
