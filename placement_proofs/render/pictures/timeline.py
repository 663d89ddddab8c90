"""The picture of a plan: a timeline from top to bottom, with a lane for each axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

from placement_proofs.cost import bytes_of_steps
from placement_proofs.cost.convention import Convention
from placement_proofs.errors import IllFormed
from placement_proofs.render.hatch import COLLECTIVES
from placement_proofs.render.pictures.drawn import Drawn
from placement_proofs.render.plan import (
    SECTIONS,
    change_text,
    grouped,
    names_text,
    operations_text,
    plan_json,
    why_text,
)
from placement_proofs.render.svg import FAINT, MARGIN, RULE, Picture, Sheet, fitted, text_width
from placement_proofs.render.units import amount

Row = Mapping[str, Any]
Span: TypeAlias = tuple[str, int, float, float]
"""A block, its copies, and where its steps begin and end."""
HOST = "host"
"""The lane of traffic between a rank and its host."""
ROW = 34.0
GUTTER = 26.0
COMPUTE = 190.0
SAID = 430.0
COUNT = 84.0
MOST_ROWS = 60
"""Steps that are drawn; of more, those in the middle are left out."""


def plan_data(drawn: Drawn, widths: Convention, stage: str | None = None) -> dict[str, Any]:
    """The steps of one stage in order; without ``stage``, of the first.

    Bytes are what a rank sends in a training step, under the convention ``widths``.

    Raises:
        IllFormed: no stage has that name.
    """
    plan, sizes = drawn.plan, drawn.sizes
    whole = plan_json(plan, drawn.subject.text, bytes_of_steps(plan, sizes, widths))
    names = [s["name"] for s in whole["stages"]]
    if stage is not None and stage not in names:
        raise IllFormed("stage", repr(stage), f"the stages are {', '.join(names)}", "name one")
    chosen = whole["stages"][names.index(stage) if stage else 0]
    steps = [
        _step(group, drawn)
        for _, rows in groupby(chosen["steps"], key=itemgetter("section"))
        for group in grouped(list(rows), every=False)
    ]
    return drawn.header("plan") | {
        "axes": {name: sizes.axis(name) for name in plan.mesh.names},
        "stages": names,
        "stage": chosen["name"],
        "micro_batches": sizes.dim(plan.micro),
        "schedule": plan.schedule,
        "convention": widths.name,
        "steps": steps,
    }


def _step(group: Sequence[Row], drawn: Drawn) -> dict[str, Any]:
    first = group[0]
    common = {
        "section": first["section"],
        "step": first["step"],
        "block": first["block"],
        "copies": drawn.sizes.dim(first["times"]),
    }
    if first["step"] == "run":
        return common | {"lanes": [], "what": operations_text(group)}
    axes = [axis.partition(":")[0] for axis in first.get("axes", ())]
    return common | {
        "lanes": axes or ([HOST] if first["step"] == "host-link" else []),
        "what": names_text(first["items"]),
        "change": change_text(first["items"]).strip().replace("->", "→"),
        "why": why_text(first),
        "bytes": first.get("bytes"),
    }


# --- drawing -------------------------------------------------------------------------


def draw_plan(data: Row) -> Picture:
    """The picture of :func:`plan_data`."""
    stage = f", stage {data['stage']}" if len(data["stages"]) > 1 else ""
    sheet = Sheet(f"One training step of {data['composition']}{stage}")
    lanes = _lanes(data)
    room = GUTTER + COMPUTE + sum(lanes.values()) + SAID + COUNT
    y = sheet.lines(MARGIN, sheet.heading(sheet.title, room), _facts(data), room) + 6
    middles = _heads(sheet, lanes, y)
    y += 14
    shown, hidden = _shown(data["steps"])
    top = y
    ground = len(sheet.body)
    section = ""
    spans: list[Span] = []
    for i, step in enumerate(shown):
        if hidden and i == MOST_ROWS // 2:
            y = _gap(sheet, y, hidden)
        if step["section"] != section:
            section = step["section"]
            y = _section(sheet, data, section, y, room)
        _draw_step(sheet, step, y, middles)
        spans.append((step["block"], step["copies"], y, y + ROW))
        y += ROW
    _brackets(sheet, spans)
    _lines(sheet, ground, middles.values(), top, y)
    sheet.text(MARGIN, y + 16, "time runs downwards", fill=FAINT, size=11)
    return sheet.finished(_alternative(data), data)


def _facts(data: Row) -> str:
    mesh = ", ".join(f"{axis}={size}" for axis, size in data["axes"].items()) or "one rank"
    micro = data["micro_batches"]
    loop = "one micro-batch" if micro == 1 else f"{micro:,} micro-batches"
    texts = [f"On model {data['model']}, mesh {mesh}, {loop}."]
    if len(data["stages"]) > 1:
        texts.append(f"Stages: {', '.join(data['stages'])}; schedule {data['schedule']}.")
    texts.append(f"Bytes: sent by a rank in a whole step, convention {data['convention']}.")
    texts += [f"Loop differs from the derived plan: {text}." for text in data["without"]]
    return " ".join([*texts, *(f"{note}." for note in data["notes"])])


def _lanes(data: Row) -> dict[str, float]:
    """Widths of the lanes of traffic, one for each axis, and one for the host if it is used."""
    used = {lane for step in data["steps"] for lane in step["lanes"]}
    names = [*data["axes"], *(n for n in used if n not in data["axes"])]
    return {name: max(54.0, text_width(name, bold=True) + 12) for name in names}


def _heads(sheet: Sheet, lanes: Mapping[str, float], y: float) -> dict[str, tuple[float, float]]:
    """The heads of all lanes; returns the middle and the width of each."""
    x = MARGIN + GUTTER
    sheet.text(x + COMPUTE / 2, y + 6, "computes", bold=True, anchor="middle")
    middles = {"": (x + COMPUTE / 2, COMPUTE - 12)}
    x += COMPUTE
    for name, wide in lanes.items():
        sheet.text(x + wide / 2, y + 6, name, bold=True, anchor="middle")
        middles[name] = (x + wide / 2, wide - 10)
        x += wide
    sheet.text(x + 8, y + 6, "collective or step, and what it moves", bold=True)
    sheet.text(x + SAID + COUNT, y + 6, "sent", bold=True, anchor="end")
    middles["said"] = (x + 8, SAID - 16)
    return middles


def _shown(steps: Sequence[Row]) -> tuple[Sequence[Row], int]:
    hidden = max(0, len(steps) - MOST_ROWS)
    half = MOST_ROWS // 2
    return ([*steps[:half], *steps[-half:]], hidden) if hidden else (steps, 0)


def _gap(sheet: Sheet, y: float, hidden: int) -> float:
    said = f"… {hidden:,} more steps, see placement-proofs explain"
    sheet.text(MARGIN + GUTTER, y + 20, said, bold=True)
    return y + ROW


def _section(sheet: Sheet, data: Row, section: str, y: float, room: float) -> float:
    y += 6
    micro = data["micro_batches"]
    often = f" ({micro:,} times)" if micro != 1 and section in ("forward", "backward") else ""
    sheet.rect(MARGIN, y, room, 20, fill="#ececec", stroke=None)
    sheet.text(MARGIN + 8, y + 14, f"{SECTIONS[section]}{often}", bold=True)
    return y + 26


def _draw_step(
    sheet: Sheet, step: Row, y: float, middles: Mapping[str, tuple[float, float]]
) -> None:
    x, room = middles["said"]
    if step["step"] == "run":
        middle, wide = middles[""]
        sheet.rect(middle - wide / 2, y + 3, wide, ROW - 8, fill="#ffffff")
        sheet.text(middle, y + 20, step["what"], anchor="middle", room=wide - 10, size=11)
        if fitted(step["what"], wide - 10, 11) != step["what"]:
            sheet.text(x, y + 20, step["what"], room=room, size=11, fill=FAINT)
        return
    if step["lanes"]:
        _transfer(sheet, step, y, [middles[lane] for lane in step["lanes"]])
    else:
        middle, wide = middles[""]
        sheet.rect(middle - 46, y + 3, 92, ROW - 8, fill="#ffffff", dash="4 3")
        sheet.text(middle, y + 20, step["step"], anchor="middle", size=11)
    sheet.labelled(x, y + 14, step["step"], step["what"], room=room)
    said = "; ".join(text for text in (step["change"], step["why"]) if text)
    sheet.text(x, y + 28, said, size=11, fill=FAINT, room=room)
    if step["bytes"] is not None:
        sheet.text(
            x + room + 8 + COUNT, y + 14, amount(step["bytes"]), anchor="end", room=COUNT - 4
        )


def _transfer(sheet: Sheet, step: Row, y: float, lanes: Sequence[tuple[float, float]]) -> None:
    xs = [x for x, _ in lanes]
    if len(xs) > 1:
        sheet.line([(min(xs), y + ROW / 2 - 1), (max(xs), y + ROW / 2 - 1)], thick=3)
    for x, wide in lanes:
        tip = f"{step['step']}: {step['what']}"
        fill = COLLECTIVES[step["step"]]
        sheet.rect(x - wide / 2, y + 3, wide, ROW - 8, fill=fill, tip=tip)


def _brackets(sheet: Sheet, spans: Sequence[Span]) -> None:
    """A bracket beside consecutive steps of one block that stands for several copies."""
    for block, copies, top, bottom in _runs(spans):
        if copies == 1:
            continue
        x = MARGIN + GUTTER - 6
        sheet.line([(x, top + 3), (x - 6, top + 3), (x - 6, bottom - 5), (x, bottom - 5)])
        middle = (top + bottom) / 2
        long, short = f"{block} \u00d7{copies:,}", f"\u00d7{copies:,}"
        fits = text_width(long, 11) <= bottom - top - 8
        sheet.turned(x - 10, middle, long if fits else short, room=bottom - top)


def _runs(
    spans: Sequence[Span],
) -> Iterator[tuple[str, int, float, float]]:
    current: tuple[str, int, float, float] | None = None
    for block, copies, top, bottom in spans:
        if current and current[:2] == (block, copies) and top == current[3]:
            current = (block, copies, current[2], bottom)
            continue
        if current:
            yield current
        current = (block, copies, top, bottom)
    if current:
        yield current


def _lines(sheet: Sheet, at: int, middles: Any, top: float, bottom: float) -> None:
    """The lanes themselves, below everything that is on them."""
    drawn = len(sheet.body)
    for x, _ in list(middles)[:-1]:
        sheet.line([(x, top), (x, bottom)], stroke=RULE)
    sheet.body[at:at] = sheet.body[drawn:]
    del sheet.body[-(len(middles) - 1) :]


def _alternative(data: Row) -> str:
    sections: dict[str, list[str]] = {}
    for step in data["steps"]:
        if step["lanes"]:
            said = f"{step['step']} over {'*'.join(step['lanes'])} of {step['what']}"
            sections.setdefault(step["section"], []).append(said)
    told = (f"{SECTIONS[name]}: {'; '.join(texts)}." for name, texts in sections.items())
    return f"{len(data['steps'])} steps. " + (" ".join(told) or "Nothing is communicated.")
