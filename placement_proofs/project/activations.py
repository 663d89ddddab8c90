"""Activation edges of a plan as one element program: every conversion gives what it claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from placement_proofs.layout import (
    INVARIANT,
    PARTIAL,
    Collective,
    Entry,
    Kind,
    On,
    dual_layout,
    on_axis,
)
from placement_proofs.plan import (
    LOSS_STATISTICS,
    Action,
    Local,
    Phase,
    Plan,
    Run,
    Stage,
    Step,
    Transfer,
    What,
)
from placement_proofs.program import (
    ALWAYS,
    Expect,
    Guard,
    Move,
    Program,
    Reduce,
    Source,
    Take,
    Term,
)
from placement_proofs.program import Buffer as Copy
from placement_proofs.program import Step as ElementStep
from placement_proofs.project.names import owner

AGAIN = "again"
KINDS = (What.ACTIVATION, What.COTANGENT)


@dataclass(frozen=True)
class Edge:
    """One conversion on one axis: layouts before and after, and the movements that were found."""

    axis: str
    before: On
    after: On
    moves: tuple[str, ...]
    backward: bool
    why: str = ""

    @property
    def direction(self) -> str:
        return "activation gradient" if self.backward else "activation"


def edges(plan: Plan) -> dict[Edge, list[str]]:
    """The distinct edges of a plan, each with the names of the values that cross it."""
    found: dict[Edge, list[str]] = {}
    for stage in plan.stages:
        for name, edge in _stage_edges(plan, stage):
            found.setdefault(edge, []).append(name)
    return found


def _stage_edges(plan: Plan, stage: Stage) -> Iterator[tuple[str, Edge]]:
    received = {
        i.name
        for s in stage.forward
        if isinstance(s, Local) and s.action is Action.RECEIVE
        for i in s.items
    }
    dropped = {
        i.name
        for s in stage.forward
        if isinstance(s, Local) and s.action is Action.DROP
        for i in s.items
    }
    for phase in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD):
        steps = [s for _, s in stage.steps() if s.where.phase is phase]
        for out in _needed(steps):
            if out not in received and (phase is not Phase.RECOMPUTE or out in dropped):
                yield from _edge(plan, steps, out, phase is Phase.BACKWARD)
    yield from _messages(plan, stage)
    yield from _statistics(stage)


def _statistics(stage: Stage) -> Iterator[tuple[str, Edge]]:
    """Sums of a loss over vocabulary shards are whole on every rank before backward reads them."""
    for _, step in stage.steps():
        if isinstance(step, Run) and not step.backward:
            for name in (f"{step.out}.{n}" for n in LOSS_STATISTICS):
                for axis in step.statistics:
                    yield name, Edge(axis, PARTIAL, INVARIANT, _sums(stage, name, axis), False)


def _sums(stage: Stage, name: str, axis: str) -> tuple[str, ...]:
    return tuple(
        step.kind.value
        for _, step in stage.steps()
        if isinstance(step, Transfer)
        and axis in step.axes
        and any(i.what is What.STATISTIC and i.name == name for i in step.items)
    )


def _messages(plan: Plan, stage: Stage) -> Iterator[tuple[str, Edge]]:
    """What a stage receives must have been sent by a neighbour."""
    for _, step in stage.steps():
        if isinstance(step, Local) and step.action is Action.RECEIVE:
            item = step.items[0]
            shift = -1 if item.what is What.COTANGENT else 1
            sent = any(
                t.kind is Collective.POINT_TO_POINT and t.shift == shift
                for other in plan.stages
                if other is not stage
                for _, t in other.steps()
                if isinstance(t, Transfer)
            )
            moves = (Collective.ALL_GATHER.value,) if sent else ()
            here = On(Kind.SHARDED, 0)
            backward = item.what is What.COTANGENT
            yield item.name, Edge(plan.pipeline, here, INVARIANT, moves, backward)


def _needed(steps: list[Step]) -> list[str]:
    """Converted values that a step of the phase reads or makes."""
    names: dict[str, None] = {}
    for step in steps:
        if isinstance(step, Transfer | Local):
            for item in step.items:
                if item.what in KINDS and item.name != item.out:
                    names[max(item.name, item.out, key=len)] = None
        else:
            names |= dict.fromkeys(n for n in step.ins if "@" in n)
    return list(names)


def _edge(plan: Plan, steps: list[Step], out: str, backward: bool) -> Iterator[tuple[str, Edge]]:
    source = out.rpartition("@")[0]
    axis = out.rpartition("@")[2].partition(":")[0]
    before, after = plan.values[source].layout, plan.values[out].layout
    if backward:
        if not plan.values[source].needs_gradient:
            return
        before, after = dual_layout(after), dual_layout(before)
    moves = tuple(_moves(steps, source, out, backward))
    yield source, Edge(axis, on_axis(before, axis), on_axis(after, axis), moves, backward)


def _moves(steps: list[Step], source: str, out: str, backward: bool) -> Iterator[str]:
    """What the plan does between the two values, as movement names.

    A forward step that is repeated acts on the result; a backward step that is repeated adds its
    part of the gradient once more, which ``AGAIN`` marks.
    """
    what = What.COTANGENT if backward else What.ACTIVATION
    ends = (out, source) if backward else (source, out)
    crossing = (ends, (ends[1], ends[1]))
    crossed = False
    for step in steps:
        if isinstance(step, Transfer | Local) and any(
            i.what is what and (i.name, i.out) in crossing and not _passive(step)
            for i in step.items
        ):
            if backward and crossed and any((i.name, i.out) == ends for i in step.items):
                yield AGAIN
            crossed = True
            yield step.kind.value if isinstance(step, Transfer) else step.action.value


def _passive(step: Transfer | Local) -> bool:
    """Steps that touch a value without changing it."""
    if isinstance(step, Transfer):
        return step.kind in (Collective.POINT_TO_POINT, Collective.HOST)
    return step.action in (Action.DROP, Action.RECEIVE)


def project_activations(plan: Plan) -> tuple[Program, dict[str, list[str]]] | None:
    """All edges as one program; a second result maps each buffer to the values that cross."""
    found = edges(plan)
    if not found:
        return None
    steps: list[ElementStep] = []
    buffers: list[Copy] = []
    crossing: dict[str, list[str]] = {}
    for index, (edge, names) in enumerate(found.items()):
        name = f"y{index}"
        crossing[name] = names
        copies = range(1, len(_crossings(edge)))
        buffers += [Copy(name, ""), *(Copy(f"{name}_{i}", "") for i in copies)]
        steps += _write(name, f"v{index}", edge)
    axes = tuple(a for a in plan.mesh.names if any(e.axis == a for e in found))
    return Program(axes, (), (), tuple(buffers), tuple(steps)), crossing


def _write(buffer: str, family: str, edge: Edge) -> Iterator[ElementStep]:
    """The value as its layout says, the movements, and what every rank must then have.

    A shard is there at its owner and zero elsewhere: a gather that is missing leaves the zeros.
    """
    over = (edge.axis,) if edge.before.kind is Kind.PARTIAL else ()
    for index, moves in enumerate(_crossings(edge)):
        here = f"{buffer}_{index}" if index else buffer
        yield Source(here, family, over, g=_at(edge, edge.before), why=edge.direction)
        for move in moves:
            yield from _move(here, edge, move)
        if index:
            yield Move(buffer, here, add=True, why="added once more")
    if edge.after.kind is not Kind.PARTIAL:
        target = Term(family, over)
        yield Expect(buffer, "is", (target,), about=edge.direction, g=_at(edge, edge.after))
    if _unsliced(edge):
        elsewhere = Guard(at=((edge.axis, f"!{_owner(edge, edge.after)}"),))
        target = Term(family, over, "0")
        yield Expect(buffer, "is", (target,), about=edge.direction, g=elsewhere)


def _crossings(edge: Edge) -> list[tuple[str, ...]]:
    """The movements of each time the value crosses."""
    times: list[tuple[str, ...]] = [()]
    for move in edge.moves:
        times = [*times, ()] if move == AGAIN else [*times[:-1], (*times[-1], move)]
    return times


def _unsliced(edge: Edge) -> bool:
    """Every rank still has the whole value where it must have its part only."""
    whole = edge.before == INVARIANT and edge.after.kind is Kind.SHARDED
    return whole and Action.SLICE.value not in edge.moves


def _owner(edge: Edge, on: On) -> str:
    return owner(Entry((edge.axis,), on))


def _at(edge: Edge, on: On) -> Guard:
    return Guard(at=((edge.axis, _owner(edge, on)),)) if on.kind is Kind.SHARDED else ALWAYS


def _move(buffer: str, edge: Edge, move: str) -> Iterator[ElementStep]:
    axis = edge.axis
    match move:
        case Collective.ALL_REDUCE.value:
            yield Reduce(buffer, (axis,), why=move)
        case Collective.REDUCE_SCATTER.value:
            yield Reduce(buffer, (axis,), why=move)
        case Collective.ALL_GATHER.value:
            yield Take(buffer, axis, _owner(edge, edge.before), why=move)
        case Collective.ALL_TO_ALL.value:
            elsewhere = Guard(at=((axis, f"!{_owner(edge, edge.after)}"),))
            yield Take(buffer, axis, _owner(edge, edge.before), why=move)
            yield Move(buffer, buffer, coef="0", g=elsewhere, why=move)
