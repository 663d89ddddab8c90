"""Whether the ranks of a plan can run it at all: shards that fit, and no rank that waits forever.

The algebra of element programs has values, not shapes or messages. A plan that is right there and
cannot run is found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from placement_proofs.layout import Collective, Entry, Kind, Layout
from placement_proofs.plan import Action, Buffer, Item, Local, Plan, Stage, Step, Transfer, What


def cannot_run(plan: Plan) -> str:
    """Why some rank stops or waits forever; empty where every rank reaches the end of the step."""
    for reason in (*_misfits(plan), *_hangs(plan), *_unread(plan)):
        return reason
    return ""


def _misfits(plan: Plan) -> Iterator[str]:
    """A collective whose input is not cut the way it expects."""
    for stage in plan.stages:
        held: dict[tuple[str, What, Buffer | None], frozenset[Entry]] = {}
        for _, step in stage.steps():
            if isinstance(step, Transfer | Local) and not _ends(step):
                for item in step.items:
                    yield from _misfit(plan, step, item, held)


def _ends(step: Step) -> bool:
    return isinstance(step, Local) and step.action in (Action.DROP, Action.RELEASE, Action.RECEIVE)


def _misfit(
    plan: Plan,
    step: Transfer | Local,
    item: Item,
    held: dict[tuple[str, What, Buffer | None], frozenset[Entry]],
) -> Iterator[str]:
    """Shards that a step opens must be there; shards that it makes must not be there yet."""
    if item.what not in (What.ACTIVATION, What.COTANGENT, What.GRADIENT):
        return
    before, after = _cut(item.before), _cut(item.after)
    now = held.get((item.name, item.what, item.buffer), before)
    opened, made = before - after, after - before
    if not opened <= now or made & now:
        what = step.kind.value if isinstance(step, Transfer) else step.action.value
        yield f"{what} of {item.what.value} {item.name}, which is not sharded as it expects"
    out = (item.out, item.what, item.buffer)
    if isinstance(step, Local) and step.action is Action.ACCUMULATE:
        out = (item.name, item.what, Buffer.TOTAL)
    held[out] = (now - opened) | made


def _cut(layout: Layout) -> frozenset[Entry]:
    return frozenset(e for e in layout if e.on.kind is Kind.SHARDED)


def _hangs(plan: Plan) -> Iterator[str]:
    """Collectives over stages that not all stages enter, or not in the same order."""
    if len(plan.stages) < 2:
        return
    everyone = [[s for s in _calls(plan, stage, plan.pipeline)] for stage in plan.stages]
    first = everyone[0]
    for stage, calls in zip(plan.stages, everyone, strict=True):
        if calls != first:
            yield f"{plan.stages[0].name} and {stage.name} enter different collectives over stages"
    tied = [[s for s in _calls(plan, stage, "")] for stage in (plan.stages[0], plan.stages[-1])]
    if tied[0] != tied[1]:
        yield "the first and the last stage enter different collectives"


def _calls(plan: Plan, stage: Stage, axis: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Collectives over the pipeline axis; with an empty axis, over its ends as well, in order."""
    ends = f"{plan.pipeline}:tied"
    wanted = {axis} if axis else {plan.pipeline, ends}
    for _, step in stage.steps():
        if (
            isinstance(step, Transfer)
            and step.kind is not Collective.POINT_TO_POINT
            and wanted & set(step.axes)
        ):
            yield ",".join(i.name for i in step.items), step.axes


def _unread(plan: Plan) -> Iterator[str]:
    """Messages sent and messages expected, by direction."""
    balance: Counter[int] = Counter()
    for _, _, step in plan.steps():
        if isinstance(step, Transfer) and step.kind is Collective.POINT_TO_POINT:
            balance[step.shift] += 1
        if isinstance(step, Local) and step.action is Action.RECEIVE:
            balance[-1 if step.items[0].what is What.COTANGENT else 1] -= 1
    for shift, count in balance.items():
        if count:
            more = "more messages are sent than received" if count > 0 else "a message is missing"
            yield f"{more} {'forward' if shift == 1 else 'backward'} between stages"
