"""The picture of a pipeline's schedule: which position runs which micro-batch when, and bubbles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from placement_proofs.cost import bubble
from placement_proofs.cost.terms import plain
from placement_proofs.errors import IllFormed
from placement_proofs.render.pictures.drawn import Drawn
from placement_proofs.render.svg import FAINT, MARGIN, RULE, Picture, Sheet, text_width
from placement_proofs.simulate.schedule import Slot, most_in_flight, timetable

Row = Mapping[str, Any]
UNIT, HIGH, STEP = 25.0, 26.0, 34.0
NAMES = 104.0
MOST_UNITS = 34
"""Units of time that are drawn without a gap; of more, the beginning and the end."""
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
    return drawn.header("schedule") | {
        "axis": plan.pipeline,
        "schedule": plan.schedule,
        "micro_batches": micro,
        "chunks": plan.chunks,
        "units": max(row[-1].stop for row in rows),
        "bubble": plain(bubble(plan, sizes)),
        "positions": [_position(row, ranks) for row in rows],
    }


def _position(row: Sequence[Slot], ranks: int) -> Row:
    return {
        "in_flight": most_in_flight(row),
        "slots": [
            {
                "stage": slot.run.stage,
                "chunk": slot.run.stage // ranks,
                "micro": slot.run.micro,
                "backward": slot.run.backward,
                "start": slot.start,
                "length": slot.length,
            }
            for slot in row
        ],
    }


# --- drawing -------------------------------------------------------------------------


def draw_schedule(data: Row) -> Picture:
    """The picture of :func:`schedule_data`."""
    sheet = Sheet(f"Schedule {data['schedule']}: {data['composition']}")
    windows = _windows(data["units"])
    room = NAMES + UNIT * (sum(stop - start for start, stop in windows) + 3 * (len(windows) - 1))
    room = max(room, 560)
    y = sheet.heading(sheet.title, room)
    y = _legend(sheet, data, sheet.lines(MARGIN, y, _facts(data), room) + 6)
    top = y
    for number in _shown(len(data["positions"])):
        if number is None:
            hidden = len(data["positions"]) - MOST_POSITIONS + 1
            sheet.text(MARGIN, y + 17, f"… {hidden:,} more positions", bold=True)
        else:
            _draw_position(sheet, data, number, windows, y)
        y += STEP
    _times(sheet, data, windows, top, y)
    return sheet.finished(_alternative(data), data)


def _windows(units: int) -> list[tuple[int, int]]:
    """The times that are drawn, as start and stop."""
    if units <= MOST_UNITS:
        return [(0, units)]
    ahead = MOST_UNITS * 3 // 5
    return [(0, ahead), (units - (MOST_UNITS - ahead - 3), units)]


def _shown(count: int) -> list[int | None]:
    if count <= MOST_POSITIONS:
        return list(range(count))
    half = MOST_POSITIONS // 2
    return [*range(half), None, *range(count - half + 1, count)]


def _facts(data: Row) -> str:
    m, p, v = data["micro_batches"], len(data["positions"]), data["chunks"]
    parts = f", {v} chunks of layers a position" if v > 1 else ""
    idle = f"{data['bubble']:.4g}" if data["bubble"] else "0"
    texts = [
        f"{p} positions on {data['axis']}{parts}, {m:,} micro-batches; every stage takes equally "
        "long, backward twice as long as forward, messages no time.",
        f"Idle time per unit of work: {idle} = (p-1)/m{'/v' if v > 1 else ''}"
        f" with p={p}, m={m:,}{f', v={v}' if v > 1 else ''}."
        if _tight(data)
        else f"Idle time per unit of work is at least {idle} ((p-1)/m{'/v' if v > 1 else ''}).",
    ]
    return " ".join([*texts, *(f"{note}." for note in data["notes"])])


def _tight(data: Row) -> bool:
    """Whether the drawn schedule idles exactly as long as the formula says."""
    work = sum(slot["length"] for slot in data["positions"][0]["slots"])
    return math.isclose((data["units"] - work) / work, data["bubble"])


def _legend(sheet: Sheet, data: Row, y: float) -> float:
    x = MARGIN
    for backward, said in ((False, "forward"), (True, "backward")):
        _box(sheet, x, y - 12, 26, 16, backward, "0")
        sheet.text(x + 32, y, said)
        x += 32 + text_width(said) + 16
    sheet.rect(x, y - 12, 26, 16, stroke=RULE, dash="2 3")
    said = "bubble (idle); numbers are micro-batches"
    if data["chunks"] > 1:
        said += ", letters chunks of layers"
    sheet.text(x + 32, y, said)
    return y + 16


def _box(
    sheet: Sheet,
    x: float,
    y: float,
    wide: float,
    high: float,
    backward: bool,
    label: str,
    tip: str = "",
) -> None:
    sheet.rect(x, y, wide, high, fill="#cfcfcf" if backward else "#ffffff", tip=tip)
    sheet.text(
        x + wide / 2, y + high / 2 + 4, label, anchor="middle", size=11, bold=backward, room=wide
    )


def _draw_position(
    sheet: Sheet, data: Row, number: int, windows: Sequence[tuple[int, int]], y: float
) -> None:
    position = data["positions"][number]
    sheet.text(MARGIN, y + 12, f"{data['axis']}={number}", bold=True, room=NAMES - 8)
    flying = f"{position['in_flight']:,} in flight"
    sheet.text(MARGIN, y + 25, flying, size=10, fill=FAINT, room=NAMES - 8)
    for window in windows:
        start, stop = window
        x = _x(start, windows)
        sheet.rect(x, y, (stop - start) * UNIT, HIGH, stroke=RULE, dash="2 3")
        for slot in position["slots"]:
            if start <= slot["start"] and slot["start"] + slot["length"] <= stop:
                _slot(sheet, data, slot, x + (slot["start"] - start) * UNIT, y)


def _slot(sheet: Sheet, data: Row, slot: Row, x: float, y: float) -> None:
    letter = chr(ord("a") + slot["chunk"]) if data["chunks"] > 1 else ""
    way = "backward" if slot["backward"] else "forward"
    tip = f"{way} of micro-batch {slot['micro']}, stage {slot['stage']}"
    label = f"{slot['micro']}{letter}"
    _box(sheet, x, y, slot["length"] * UNIT, HIGH, slot["backward"], label, tip)


def _x(time: int, windows: Sequence[tuple[int, int]]) -> float:
    """Where a time is; between two windows there is room for a gap."""
    x = MARGIN + NAMES
    for start, stop in windows:
        if time <= stop:
            return x + (time - start) * UNIT
        x += (stop - start + 3) * UNIT
    return x


def _times(
    sheet: Sheet, data: Row, windows: Sequence[tuple[int, int]], top: float, y: float
) -> None:
    for start, stop in windows:
        first = -(-start // 5) * 5
        for time in range(first, stop + 1, 5):
            x = _x(time, [w for w in windows if w[0] >= start or w == windows[0]])
            x = _x(start, windows) + (time - start) * UNIT
            sheet.line([(x, y), (x, y + 4)], stroke=FAINT)
            sheet.text(x, y + 16, str(time), anchor="middle", size=11, fill=FAINT)
    if len(windows) > 1:
        left, right = _x(windows[0][1], windows), _x(windows[1][0], windows)
        hidden = windows[1][0] - windows[0][1]
        middle = (left + right) / 2
        sheet.text(middle, (top + y) / 2 - 6, "…", anchor="middle", bold=True)
        sheet.text(middle, (top + y) / 2 + 10, f"{hidden:,} units", anchor="middle", size=11)
    sheet.text(MARGIN, y + 16, "time", size=11, fill=FAINT)


def _alternative(data: Row) -> str:
    orders = []
    for number, position in enumerate(data["positions"][:MOST_POSITIONS]):
        run = (f"{'B' if s['backward'] else 'F'}{s['micro']}" for s in position["slots"][:12])
        more = " ..." if len(position["slots"]) > 12 else ""
        orders.append(f"{data['axis']}={number}: {' '.join(run)}{more}")
    return (
        f"{len(data['positions'])} positions run {data['micro_batches']:,} micro-batches in "
        f"{data['units']:,} units of time, idle for {data['bubble']:.4g} per unit of work. "
        f"F is forward, B backward. {'; '.join(orders)}."
    )
