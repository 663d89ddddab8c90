"""Figures of a plan of layouts: the front of memory and time, the winner's memory, a schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement_proofs.inputs import Subject
from placement_proofs.layouts.planned import Planned
from placement_proofs.layouts.rank import pareto
from placement_proofs.models import transformer
from placement_proofs.render.layouts import gib, seconds
from placement_proofs.render.pictures import picture_schedule
from placement_proofs.render.svg import FAINT, INK, MARGIN, RULE, Picture, Sheet

LABELS, LENGTH, VALUES = 150.0, 400.0, 80.0
BAR, STEP = 18.0, 24.0


def plan_figures(plan: Planned) -> dict[str, Picture]:
    """The figures of a plan by name; without a layout that fits, of the front alone."""
    found = {"pareto": draw_pareto(plan)}
    if len(plan.order):
        found["memory"] = draw_memory(plan)
        schedule = draw_schedule(plan)
        found |= {"schedule": schedule} if schedule else {}
    return found


def pareto_data(plan: Planned) -> dict[str, Any]:
    """Memory and step time of all layouts, those of the front, and the limit (bytes, seconds)."""
    table = plan.table
    front = [int(row) for row in pareto(table)]
    return {
        "schema": "placement-proofs/figure/1",
        "figure": "pareto",
        "limit": plan.limit,
        "front": [
            {
                "layout": str(table.at(row)[0]),
                "peak": float(table.peak[row]),
                "step": float(table.step[row]),
            }
            for row in front
        ],
        "others": len(table) - len(front),
    }


WIDE, HIGH, LEFT = 620.0, 380.0, 64.0
MOST_POINTS = 2000
"""Other layouts that are drawn, evenly taken of all that are in the window."""


def draw_pareto(plan: Planned) -> Picture:
    """Step time against memory: the front as steps, other layouts as points, the device's limit."""
    data = pareto_data(plan)
    job = plan.job
    sheet = Sheet(f"Memory and time of the layouts of {job.name} on {job.gpus} devices")
    y = sheet.heading(sheet.title, LEFT + WIDE)
    y = sheet.lines(
        MARGIN,
        y,
        "Each point is a layout; no layout is left of and below a point of the line. "
        f"Dashed: {gib(plan.limit)} of the device.",
        LEFT + WIDE,
    )
    window = _window(plan, data)
    axes = _Axes(window, MARGIN + LEFT, y + 6)
    axes.draw(sheet, "memory of the fullest rank (GiB)", "seconds of a step")
    _cloud(sheet, plan, axes)
    _front(sheet, data["front"], axes)
    x = axes.x(plan.limit / 2**30)
    sheet.line([(x, axes.top), (x, axes.top + HIGH)], dash="6 4", thick=2)
    return sheet.finished(_pareto_alternative(data), data)


def _window(plan: Planned, data: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Least and most memory (GiB) and seconds that are drawn: the front, and half as much again."""
    front = data["front"]
    peaks = [point["peak"] / 2**30 for point in front] or [1.0]
    steps = [point["step"] for point in front] or [1.0]
    most = max(min(max(peaks), 2.5 * plan.limit / 2**30), 1.2 * plan.limit / 2**30)
    return 0.0, most * 1.05, min(steps) * 0.9, min(max(steps), 4 * min(steps)) * 1.1


@dataclass(frozen=True)
class _Axes:
    """A frame with scales."""

    window: tuple[float, float, float, float]
    left: float
    top: float

    def x(self, value: float) -> float:
        low, high, _, _ = self.window
        return self.left + (value - low) / (high - low) * WIDE

    def y(self, value: float) -> float:
        _, _, low, high = self.window
        return self.top + (1 - (value - low) / (high - low)) * HIGH

    def inside(self, x: float, y: float) -> bool:
        a, b, c, d = self.window
        return a <= x <= b and c <= y <= d

    def draw(self, sheet: Sheet, across: str, up: str) -> None:
        a, b, c, d = self.window
        for value in _ticks(a, b):
            x = self.x(value)
            sheet.line([(x, self.top), (x, self.top + HIGH)], stroke=RULE, dash="2 3")
            sheet.text(x, self.top + HIGH + 16, f"{value:g}", anchor="middle", size=11, fill=FAINT)
        for value in _ticks(c, d):
            y = self.y(value)
            sheet.line([(self.left, y), (self.left + WIDE, y)], stroke=RULE, dash="2 3")
            sheet.text(self.left - 6, y + 4, f"{value:g}", anchor="end", size=11, fill=FAINT)
        sheet.rect(self.left, self.top, WIDE, HIGH)
        sheet.text(self.left + WIDE / 2, self.top + HIGH + 36, across, anchor="middle")
        sheet.turned(MARGIN + 10, self.top + HIGH / 2, up, room=HIGH, size=12)


def _ticks(low: float, high: float) -> list[float]:
    """Some round numbers between two."""
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= (high - low) / 6)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def _cloud(sheet: Sheet, plan: Planned, axes: _Axes) -> None:
    points = zip((plan.table.peak / 2**30).tolist(), plan.table.step.tolist(), strict=True)
    shown = [(x, y) for x, y in points if axes.inside(x, y)]
    every = max(1, len(shown) // MOST_POINTS)
    for x, y in shown[::every]:
        sheet.rect(axes.x(x) - 1.5, axes.y(y) - 1.5, 3, 3, fill="#9a9a9a", stroke=None)


def _front(sheet: Sheet, front: Sequence[Mapping[str, Any]], axes: _Axes) -> None:
    """Steps through the front; a mark and, where there is room, the layout at each point."""
    inside = [p for p in front if axes.inside(p["peak"] / 2**30, p["step"])]
    line: list[tuple[float, float]] = []
    if inside and inside[0] is not front[0]:
        line.append((axes.x(inside[0]["peak"] / 2**30), axes.top))
    for point in inside:
        x, y = axes.x(point["peak"] / 2**30), axes.y(point["step"])
        line += [(x, line[-1][1]), (x, y)] if line else [(x, y)]
    if len(line) > 1:
        sheet.line(line, thick=2)
    for point in inside:
        x, y = axes.x(point["peak"] / 2**30), axes.y(point["step"])
        sheet.rect(x - 4, y - 4, 8, 8, fill=INK, tip=_told(point))
    _legend(sheet, inside, axes)


def _told(point: Mapping[str, Any]) -> str:
    return f"{gib(point['peak'])}, {seconds(point['step'])}: {point['layout']}"


NAMED = 10
"""Layouts of the front that have a number and a line below the frame."""


def _legend(sheet: Sheet, points: Sequence[Mapping[str, Any]], axes: _Axes) -> None:
    """Numbers at some layouts of the front, spread over it, and what they are."""
    count = min(NAMED, len(points))
    chosen = sorted({round(i * (len(points) - 1) / max(1, count - 1)) for i in range(count)})
    y = axes.top + HIGH + 60
    for number, index in enumerate(chosen, 1):
        point = points[index]
        x, up = axes.x(point["peak"] / 2**30), axes.y(point["step"])
        sheet.text(x + 6, up - 6, str(number), bold=True)
        sheet.labelled(MARGIN, y, str(number), _told(point), room=LEFT + WIDE)
        y += 18


def _pareto_alternative(data: Mapping[str, Any]) -> str:
    points = "; ".join(
        f"{p['layout']}: {gib(p['peak'])}, {seconds(p['step'])}" for p in data["front"][:20]
    )
    return f"The front has {len(data['front'])} layouts: {points}. {data['others']} others."


STATE_FILLS = {
    "parameters": "up",
    "gradients": "down",
    "optimizer": "cross",
    "saved activations": "dots",
    "within a layer": "flat",
    "logits": "upright",
    "reserve": "sparse",
}


def draw_memory(plan: Planned) -> Picture:
    """The memory of the winner's fullest rank as a waterfall, up to the device's limit."""
    bill = plan.bill
    assert bill is not None, "something fits"
    room = LABELS + LENGTH + VALUES
    sheet = Sheet(f"Memory of the fullest rank: {plan.job.name}, {bill.layout}")
    y = sheet.heading(sheet.title, room)
    y = sheet.lines(
        MARGIN, y, f"Pipeline position {bill.fullest}; dashed: {gib(plan.limit)}.", room
    )
    y += 8
    scale = LENGTH / max(bill.peak, plan.limit)
    x, top = MARGIN + LABELS, y
    right = MARGIN + LABELS + LENGTH + 70
    for item in bill.memory:
        sheet.text(MARGIN, y + 13, item.name, room=LABELS - 10)
        wide = max(1.5, item.value * scale)
        sheet.rect(x, y, wide, BAR, fill=STATE_FILLS.get(item.name, "grid"), tip=gib(item.value))
        sheet.text(right, y + 13, gib(item.value), anchor="end")
        x += item.value * scale
        y += STEP
    sheet.text(MARGIN, y + 13, "total", bold=True)
    sheet.rect(MARGIN + LABELS, y, bill.peak * scale, BAR, fill="blank", thick=2)
    sheet.text(right, y + 13, gib(bill.peak), anchor="end", bold=True)
    limit = MARGIN + LABELS + plan.limit * scale
    sheet.line([(limit, top - 4), (limit, y + BAR + 6)], dash="6 4", thick=2)
    parts = ", ".join(f"{item.name} {gib(item.value)}" for item in bill.memory)
    data = {"schema": "placement-proofs/figure/1", "figure": "memory", **bill.to_json()}
    return sheet.finished(f"{parts}; total {gib(bill.peak)} of {gib(plan.limit)}.", data)


def draw_schedule(plan: Planned) -> Picture | None:
    """The timeline of the fastest pipeline that fits, if there is one."""
    deep = plan.table.column("p")[plan.order] > 1
    if not deep.any():
        return None
    offer = plan.offer(int(plan.order[deep.argmax()]))
    model = transformer(plan.job.shape, name=plan.job.name, folded=True)
    return picture_schedule(Subject(repr(offer.composition), offer.composition, model))
