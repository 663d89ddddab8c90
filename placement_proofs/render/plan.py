"""A plan step by step, as plain data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from placement_proofs.cost.terms import plain
from placement_proofs.layout import Layout
from placement_proofs.mesh import Dim
from placement_proofs.plan import Action, Item, Local, Plan, Run, Step, Transfer
from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, section, sections
from placement_proofs.render.units import amount

SCHEMA = "placement-proofs/plan/1"

SECTIONS = {
    "before": "before the loop, once a step",
    "forward": "forward, once a micro-batch",
    "backward": "backward, once a micro-batch",
    "weights": "gradients of weights, once a micro-batch",
    "after": "after the loop, once a step",
}
BOOKKEEPING = (Action.ALIAS, Action.DROP, Action.RELEASE, Action.RECEIVE, Action.SLICE)
"""Local steps that only rename, cut or free what a rank holds."""

Row = dict[str, Any]


def plan_json(plan: Plan, subject: str, bytes_of: Mapping[int, object]) -> Row:
    """A plan as plain data; ``bytes_of`` has the bytes of transfers by the ``id`` of the step."""
    return {
        "schema": SCHEMA,
        "composition": subject,
        "mesh": plan.mesh.sizes(),
        "micro_batches": plan.micro,
        "schedule": plan.schedule,
        "stages": [
            {
                "name": stage.name,
                "steps": [
                    {"section": name, **_row(step, bytes_of.get(id(step)))}
                    for name, step in stage.steps()
                ],
            }
            for stage in plan.stages
        ],
    }


def _row(step: Step, count: object) -> Row:
    where = step.where
    common = {"phase": where.phase.value, "block": where.block, "times": where.times}
    match step:
        case Transfer():
            row = {
                "step": step.kind.value,
                "axes": list(step.axes),
                "items": [_item(item) for item in step.items],
                "bytes": None if count is None else plain(count),
                "why": step.why,
            }
        case Run():
            ins = [*step.ins, *step.params]
            row = {"step": "run", "op": step.kind, "out": step.out, "ins": ins}
        case Local():
            row = {
                "step": step.action.value,
                "items": [_item(item) for item in step.items],
                "factor": step.factor,
                "why": step.why,
            }
    return row | common


def _item(item: Item) -> Row:
    return {
        "name": item.name,
        "what": item.what.value,
        "before": layout_text(item.before),
        "after": layout_text(item.after),
    }


def layout_text(layout: Layout) -> str:
    """A layout in words: ``dp:S(0), tp:P``; ``I`` where it is invariant on every axis.

    The loop over micro-batches, which cuts every batch, is left out.
    """
    return ", ".join(str(e) for e in layout if e.axes != ("micro",)) or "I"


def plan_text(data: Row, *, every: bool = False, paint: Paint = PLAIN) -> str:
    """The text of :func:`plan_json`; ``every`` shows bookkeeping steps and each operation too."""
    mesh = ", ".join(f"{name}={size}" for name, size in data["mesh"].items()) or "one rank"
    title = f"{data['composition']}\nmesh {mesh}; {_micro(data['micro_batches'], data['schedule'])}"
    return sections([title, *_stages(data, every, paint)])


def _micro(micro: Dim, schedule: str) -> str:
    loop = "one micro-batch" if micro == 1 else f"{micro} micro-batches"
    return loop if schedule == "none" else f"{loop}, schedule {schedule}"


def _stages(data: Row, every: bool, paint: Paint) -> Iterator[str]:
    for stage in data["stages"]:
        prefix = f"stage {stage['name']}: " if len(data["stages"]) > 1 else ""
        for name, rows in groupby(stage["steps"], key=lambda row: row["section"]):
            lines = list(_lines(list(rows), every))
            if lines:
                yield section(paint.strong(prefix + SECTIONS[name]), columns(lines, right=(3,)))


def grouped(rows: Iterable[Row], every: bool) -> Iterator[list[Row]]:
    """The steps to show, one by one; operations of a block that follow each other together."""
    hidden = {action.value for action in BOOKKEEPING}
    shown = [r for r in rows if every or r["step"] not in hidden]
    if every:
        yield from ([row] for row in shown)
        return
    for running, found in groupby(shown, key=lambda r: r["step"] == "run" and r["block"]):
        group = list(found)
        yield from ([row] for row in group) if running is False else [group]


def _lines(rows: Sequence[Row], every: bool) -> Iterator[Sequence[str]]:
    for group in grouped(rows, every):
        yield _runs(group) if group[0]["step"] == "run" else _line(group[0])


def _line(row: Row) -> Sequence[str]:
    count = "" if row.get("bytes") is None else amount(row["bytes"])
    items = f"{names_text(row['items'])}{change_text(row['items'])}"
    return (row["step"], "*".join(row.get("axes", ())), items, count, why_text(row))


def why_text(row: Mapping[str, Any]) -> str:
    """The reason of a step, with the factor of a scale."""
    return row["why"] if row.get("factor", "1") == "1" else f"{row['why']}, times {row['factor']}"


def _runs(rows: Sequence[Row]) -> Sequence[str]:
    times = rows[0]["times"]
    copies = f" ({times} times)" if times != 1 else ""
    return ("run", "", f"{rows[0]['block']}{copies}: {operations_text(rows)}")


def operations_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Operations that run after each other: ``norm, 3 linear``."""
    return ", ".join(_counted([row["op"] for row in rows]))


def _counted(kinds: Iterable[str]) -> Iterator[str]:
    for kind, group in groupby(kinds):
        count = len(list(group))
        yield kind if count == 1 else f"{count} {kind}"


def names_text(items: Sequence[Mapping[str, Any]]) -> str:
    """The first item of a step, and how many more there are."""
    if not items:
        return ""
    more = f" and {len(items) - 1} more" if len(items) > 1 else ""
    return f"{items[0]['what']} {items[0]['name']}{more}"


def change_text(items: Sequence[Mapping[str, Any]]) -> str:
    """The layouts of the first item before and after, where they differ."""
    if not items or items[0]["before"] == items[0]["after"]:
        return ""
    return f"  {items[0]['before']} -> {items[0]['after']}"
