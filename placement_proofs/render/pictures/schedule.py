"""The picture of a pipeline's schedule: which position runs which micro-batch when, and bubbles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from placement_proofs.cost import bubble
from placement_proofs.errors import IllFormed
from placement_proofs.plan import Plan
from placement_proofs.render.pictures.drawn import Drawn
from placement_proofs.render.svg import FAINT, MARGIN, RULE, Picture, Sheet, text_width
from placement_proofs.schedule import Pass, law_of
from placement_proofs.schedule import bubble as idle_share
from placement_proofs.simulate.schedule import Slot, most_in_flight, timetable

Row = Mapping[str, Any]
HIGH, STEP = 26.0, 34.0
NAMES, GAP = 104.0, 75.0
UNITS = ((25.0, 34), (16.5, 57))
"""Pixels of a unit of time, and how many are then drawn; of more, the beginning and the end."""
FILLS = {"forward": "#ffffff", "backward": "#cfcfcf", "weights": "#e8e8e8"}
SAID = {"forward": "forward", "backward": "backward", "weights": "gradients of weights"}
MOST_POSITIONS = 16
MOST_SLOTS = 200_000


def schedule_data(drawn: Drawn) -> dict[str, Any]:
    """The passes of every position of the pipeline with their times (units of a forward pass).

    Raises:
        IllFormed: the composition has no pipeline, or one with too many passes.
    """
    plan, sizes = drawn.plan, drawn.sizes
    if plan.schedule == "none":
        raise IllFormed(
            drawn.subject.text,
            "no pipeline of two or more stages",
            "a schedule is that of a pipeline",
            "multiply by pipeline(pp=4, microbatches=8)",
        )
    ranks, micro = sizes.axis(plan.pipeline), sizes.dim(plan.micro)
    if ranks * micro * plan.chunks * 2 > MOST_SLOTS:
        raise IllFormed(
            drawn.subject.text,
            f"{ranks * micro * plan.chunks * 2:,} passes",
            f"a schedule is drawn of at most {MOST_SLOTS:,}",
            "draw one with fewer micro-batches",
        )
    rows = timetable(plan, sizes)
    idle: int | Fraction = bubble(plan, sizes)
    return drawn.header("schedule") | {
        "axis": plan.pipeline,
        "schedule": plan.schedule,
        "micro_batches": micro,
        "chunks": plan.chunks,
        "units": max(row[-1].stop for row in rows),
        "bubble": float(idle),
        "idle": _idle(rows),
        "law": _law(plan),
        "positions": [_position(row, ranks) for row in rows],
    }


def _law(plan: Plan) -> str:
    """Idle time per unit of work as a formula; empty where no position is to wait for others."""
    share = idle_share(law_of(plan))
    several = "/v" if plan.chunks > 1 else ""
    below = "m" if share.denominator == 1 else f"({share.denominator}m)"
    return f"(p-1)/{below}{several}" if share else ""


def _idle(rows: Sequence[Sequence[Slot]]) -> float:
    """Idle time of the first position per unit of its work, in the timetable."""
    work = sum(slot.length for slot in rows[0])
    return float(Fraction(max(row[-1].stop for row in rows) - work, work))


def _position(row: Sequence[Slot], ranks: int) -> Row:
    return {
        "in_flight": most_in_flight(row),
        "slots": [
            {
                "stage": slot.run.stage,
                "chunk": slot.run.stage // ranks,
                "micro": slot.run.micro,
                "backward": slot.run.backward,
                "kind": slot.run.kind.value,
                "start": slot.start,
                "length": slot.length,
            }
            for slot in row
        ],
    }


# --- drawing -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Clock:
    """The times that are drawn (as start and stop), and the width of a unit (pixels)."""

    unit: float
    windows: tuple[tuple[int, int], ...]

    @property
    def width(self) -> float:
        """The width of all windows and of the gap between them."""
        return self.left(len(self.windows) - 1) + self.span(-1) - self.left(0)

    def span(self, window: int) -> float:
        start, stop = self.windows[window]
        return (stop - start) * self.unit

    def left(self, window: int) -> float:
        """Where a window begins."""
        ahead = sum(self.span(i) + GAP for i in range(window))
        return MARGIN + NAMES + ahead

    def x(self, window: int, time: int) -> float:
        return self.left(window) + (time - self.windows[window][0]) * self.unit


def _clock(data: Row) -> _Clock:
    units, longest = data["units"], len(f"{data['micro_batches'] - 1}") + (data["chunks"] > 1)
    for wide, most in UNITS:
        if units <= most and (longest <= 2 or wide == UNITS[0][0]):
            return _Clock(wide, ((0, units),))
    wide, most = UNITS[0]
    ahead = most * 3 // 5
    return _Clock(wide, ((0, ahead), (units - (most - ahead - 3), units)))


def draw_schedule(data: Row) -> Picture:
    """The picture of :func:`schedule_data`."""
    sheet = Sheet(f"Schedule {data['schedule']}: {data['composition']}")
    clock = _clock(data)
    room = max(NAMES + clock.width, 560)
    y = sheet.heading(sheet.title, room)
    y = _legend(sheet, data, sheet.lines(MARGIN, y, _facts(data), room) + 6)
    top = y
    for number in _shown(len(data["positions"])):
        if number is None:
            hidden = len(data["positions"]) - MOST_POSITIONS + 1
            sheet.text(MARGIN, y + 17, f"… {hidden:,} more positions", bold=True)
        else:
            _draw_position(sheet, data, number, clock, y)
        y += STEP
    _times(sheet, clock, top, y)
    return sheet.finished(_alternative(data), data)


def _shown(count: int) -> list[int | None]:
    if count <= MOST_POSITIONS:
        return list(range(count))
    half = MOST_POSITIONS // 2
    return [*range(half), None, *range(count - half + 1, count)]


def _facts(data: Row) -> str:
    m, p, v = data["micro_batches"], len(data["positions"]), data["chunks"]
    parts = f", {v} chunks of layers a position" if v > 1 else ""
    law = data["law"]
    idle = f"Idle time per unit of work: {data['idle']:.4g}"
    if not law:
        idle += "; none where no position waits for the others at the update."
    elif math.isclose(data["idle"], data["bubble"]):
        idle += f" = {law} with p={p}, m={m:,}{f', v={v}' if v > 1 else ''}."
    else:
        idle += f" as drawn; {law} = {data['bubble']:.4g} where p divides m."
    return " ".join(
        [
            f"{p} positions on {data['axis']}{parts}, {m:,} micro-batches; every stage takes "
            "equally long, backward twice as long as forward, messages no time.",
            idle,
            *(f"{note}." for note in data["notes"]),
        ]
    )


def _legend(sheet: Sheet, data: Row, y: float) -> float:
    x = MARGIN
    for kind in _kinds(data):
        said = SAID[kind]
        _box(sheet, x, y - 12, 26, 16, kind, "0")
        sheet.text(x + 32, y, said)
        x += 32 + text_width(said) + 16
    sheet.rect(x, y - 12, 26, 16, stroke=RULE, dash="2 3")
    said = "bubble (idle); numbers are micro-batches"
    if data["chunks"] > 1:
        said += ", letters chunks of layers"
    sheet.text(x + 32, y, said)
    return y + 16


def _kinds(data: Row) -> list[str]:
    """The kinds of passes of a schedule, in the order of a micro-batch."""
    found = {slot["kind"] for position in data["positions"] for slot in position["slots"]}
    return [kind for kind in FILLS if kind in found]


def _box(
    sheet: Sheet,
    x: float,
    y: float,
    wide: float,
    high: float,
    kind: str,
    label: str,
    tip: str = "",
) -> None:
    sheet.rect(x, y, wide, high, fill=FILLS[kind], tip=tip)
    size, bold = 11 if wide > 20 else 10, kind == Pass.BACKWARD.value
    sheet.text(x + wide / 2, y + high / 2 + 4, label, anchor="middle", size=size, bold=bold)


def _draw_position(sheet: Sheet, data: Row, number: int, clock: _Clock, y: float) -> None:
    position = data["positions"][number]
    sheet.text(MARGIN, y + 12, f"{data['axis']}={number}", bold=True, room=NAMES - 8)
    flying = f"{position['in_flight']:,} in flight"
    sheet.text(MARGIN, y + 25, flying, size=10, fill=FAINT, room=NAMES - 8)
    for window, (start, stop) in enumerate(clock.windows):
        sheet.rect(clock.left(window), y, clock.span(window), HIGH, stroke=RULE, dash="2 3")
        for slot in position["slots"]:
            if start <= slot["start"] and slot["start"] + slot["length"] <= stop:
                _slot(sheet, data, slot, clock.x(window, slot["start"]), y, clock.unit)


def _slot(sheet: Sheet, data: Row, slot: Row, x: float, y: float, unit: float) -> None:
    letter = chr(ord("a") + slot["chunk"]) if data["chunks"] > 1 else ""
    tip = f"{SAID[slot['kind']]} of micro-batch {slot['micro']}, stage {slot['stage']}"
    label = f"{slot['micro']}{letter}"
    _box(sheet, x, y, slot["length"] * unit, HIGH, slot["kind"], label, tip)


def _times(sheet: Sheet, clock: _Clock, top: float, y: float) -> None:
    for window, (start, stop) in enumerate(clock.windows):
        for time in range(-(-start // 5) * 5, stop + 1, 5):
            x = clock.x(window, time)
            sheet.line([(x, y), (x, y + 4)], stroke=FAINT)
            sheet.text(x, y + 16, str(time), anchor="middle", size=11, fill=FAINT)
    if len(clock.windows) > 1:
        hidden = clock.windows[1][0] - clock.windows[0][1]
        middle = clock.left(1) - GAP / 2
        sheet.text(middle, (top + y) / 2 - 6, "…", anchor="middle", bold=True)
        sheet.text(middle, (top + y) / 2 + 10, f"{hidden:,} units", anchor="middle", size=11)
    sheet.text(MARGIN, y + 16, "time", size=11, fill=FAINT)


def _alternative(data: Row) -> str:
    orders = []
    for number, position in enumerate(data["positions"][:MOST_POSITIONS]):
        run = (f"{s['kind'][0].upper()}{s['micro']}" for s in position["slots"][:12])
        more = " ..." if len(position["slots"]) > 12 else ""
        orders.append(f"{data['axis']}={number}: {' '.join(run)}{more}")
    return (
        f"{len(data['positions'])} positions run {data['micro_batches']:,} micro-batches in "
        f"{data['units']:,} units of time, idle for {data['idle']:.4g} per unit of work. "
        f"F is forward, {', '.join(f'{k[0].upper()} {SAID[k]}' for k in _kinds(data)[1:])}. "
        f"{'; '.join(orders)}."
    )
