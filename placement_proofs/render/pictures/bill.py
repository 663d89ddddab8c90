"""The pictures of a bill: memory as a waterfall, traffic as bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from placement_proofs.cost import communication, live_at_peak, memory
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.terms import plain
from placement_proofs.render.hatch import PHASES, STATES
from placement_proofs.render.pictures.drawn import Drawn
from placement_proofs.render.svg import FAINT, INK, MARGIN, RULE, Picture, Sheet, text_width
from placement_proofs.render.units import amount, bytes_text

Row = Mapping[str, Any]
NAMES, LENGTH, COUNT = 262.0, 420.0, 150.0
BAR, STEP = 22.0, 32.0


def memory_data(drawn: Drawn, widths: Convention, position: str | None = None) -> dict[str, Any]:
    """The memory of a rank (bytes), as ``check`` reports it, and what is live at the peak.

    Raises:
        IllFormed: no pipeline position has that name.
    """
    held = memory(drawn.bare, drawn.sizes, widths, position)
    at_peak = live_at_peak(drawn.bare, drawn.sizes, widths, held.position)
    data = {k: v for k, v in held.to_json().items() if k != "terms"} | {"at_peak": at_peak}
    return drawn.header("memory") | {"axes": _axes(drawn), "memory": data}


def traffic_data(drawn: Drawn, widths: Convention, position: str | None = None) -> dict[str, Any]:
    """The traffic of a rank in a step (bytes), by collective, axes and phase.

    Raises:
        IllFormed: no pipeline position has that name.
    """
    sent = communication(drawn.bare, drawn.sizes, widths, position)
    bars = [_bar(kind, axes, total, sent.by_phase) for (kind, axes), total in sent.by.items()]
    return drawn.header("traffic") | {
        "axes": _axes(drawn),
        "convention": sent.convention.to_json(),
        "position": sent.position,
        "bars": [bar for bar in bars if bar["bytes"]],
        "total": plain(sent.total),
        "host": plain(sent.host),
    }


def _axes(drawn: Drawn) -> dict[str, int]:
    return {name: drawn.sizes.axis(name) for name in drawn.plan.mesh.names}


def _bar(kind: str, axes: tuple[str, ...], total: object, phases: Mapping[Any, Any]) -> Row:
    own = {p: plain(v) for (k, a, p), v in phases.items() if (k, a) == (kind, axes) and v}
    return {"collective": kind, "axes": list(axes), "bytes": plain(total), "phases": own}


# --- memory --------------------------------------------------------------------------


def draw_memory(data: Row) -> Picture:
    """The picture of :func:`memory_data`."""
    held = data["memory"]
    sheet = Sheet(f"Memory of a rank: {data['composition']}")
    room = NAMES + LENGTH + COUNT
    y = sheet.heading(sheet.title, room)
    y = sheet.lines(MARGIN, y, _facts(data, held["convention"], held["position"]), room) + 4
    steps = _waterfall(held)
    scale = _scale(sheet, held["peak"], y, len(steps) * STEP + 14)
    y += 16
    for name, count, start, fill in steps:
        if fill:
            _bar_row(sheet, y, name, count, start, scale, fill)
        else:
            _subtotal(sheet, y, name, count, scale)
        y += STEP
    notes = [
        f"{kind} are {bytes_text(most)} at most, {bytes_text(held['at_peak'][kind])} at the peak."
        for kind, most in held["transient"].items()
        if most != held["at_peak"][kind]
    ]
    notes += [f"Off the device: {s} {bytes_text(n)}." for s, n in held["host"].items() if n]
    sheet.lines(MARGIN, y + 14, " ".join(n[0].upper() + n[1:] for n in notes), room, size=11)
    return sheet.finished(_memory_alternative(held), data)


def _waterfall(held: Row) -> list[tuple[str, int, int, str]]:
    """Name, bytes, start and hatching of every bar; sums start at zero and are not hatched."""
    steps, start = [], 0
    for state, count in held["device"].items():
        steps.append((state, count, start, STATES[state]))
        start += count
    steps.append(("between steps", held["persistent"], 0, ""))
    for kind, count in held["at_peak"].items():
        if held["transient"][kind]:
            steps.append((f"{kind}, at the peak", count, start, STATES[kind]))
            start += count
    return [*steps, ("peak of a step", held["peak"], 0, "")]


def _facts(data: Row, widths: Row, position: str) -> str:
    mesh = ", ".join(f"{axis}={size}" for axis, size in data["axes"].items()) or "one rank"
    where = f", pipeline position {position}" if position not in ("only", "") else ""
    per = f"{widths['parameter']}+{widths['gradient']}+{widths['optimizer']}"
    texts = [f"On model {data['model']}, mesh {mesh}{where}."]
    texts.append(
        f"Convention {widths['name']}: {per} bytes per parameter (parameter, gradient, optimizer)."
    )
    texts += [f"Loop differs from the derived plan: {text}." for text in data["without"]]
    return " ".join([*texts, *(f"{note}." for note in data["notes"])])


def _memory_alternative(held: Row) -> str:
    device = ", ".join(f"{state} {bytes_text(n)}" for state, n in held["device"].items())
    within = ", ".join(f"{kind} {bytes_text(n)}" for kind, n in held["at_peak"].items() if n)
    return (
        f"Between steps {bytes_text(held['persistent'])}: {device}. At the peak also: "
        f"{within or 'nothing'}. Peak {bytes_text(held['peak'])}."
    )


# --- traffic -------------------------------------------------------------------------


def draw_traffic(data: Row) -> Picture:
    """The picture of :func:`traffic_data`."""
    sheet = Sheet(f"Bytes sent by a rank in a step: {data['composition']}")
    room = NAMES + LENGTH + COUNT
    y = sheet.heading(sheet.title, room)
    y = sheet.lines(MARGIN, y, _facts(data, data["convention"], data["position"]), room)
    if not data["bars"] and not data["host"]:
        sheet.text(MARGIN, y + 10, "Nothing is communicated.", bold=True)
        return sheet.finished("Nothing is communicated.", data)
    y = _phases(sheet, data["bars"], y + 14)
    rows = len(data["bars"]) + 1 + bool(data["host"])
    scale = _scale(sheet, max(data["total"], data["host"]), y, rows * STEP + 14)
    y += 16
    for bar in data["bars"]:
        _stacked(sheet, y, bar, scale)
        y += STEP
    y = _subtotal(sheet, y, "total to other ranks", data["total"], scale)
    if data["host"]:
        _bar_row(sheet, y, "host link, both ways", data["host"], 0, scale, "sparse")
    return sheet.finished(_traffic_alternative(data), data)


def _phases(sheet: Sheet, bars: Sequence[Row], y: float) -> float:
    x = MARGIN
    for phase in dict.fromkeys(p for bar in bars for p in bar["phases"]):
        sheet.rect(x, y - 11, 26, 14, fill=PHASES[phase])
        sheet.text(x + 32, y, phase)
        x += 32 + text_width(phase) + 18
    return y + 18


def _stacked(sheet: Sheet, y: float, bar: Row, scale: float) -> None:
    name = f"{bar['collective']} over {'*'.join(bar['axes'])}"
    sheet.text(MARGIN, y + 15, name, room=NAMES - 8)
    x = MARGIN + NAMES
    for phase, count in bar["phases"].items():
        wide = max(1.5, count * scale)
        sheet.rect(x, y, wide, BAR, fill=PHASES[phase], tip=f"{phase}: {bytes_text(count)}")
        x += count * scale
    sheet.text(max(x, MARGIN + NAMES + 1.5) + 8, y + 15, amount(bar["bytes"]), halo=True)


def _traffic_alternative(data: Row) -> str:
    bars = (
        f"{bar['collective']} over {'*'.join(bar['axes'])} {bytes_text(bar['bytes'])}"
        for bar in data["bars"]
    )
    host = f", host link {bytes_text(data['host'])}" if data["host"] else ""
    return f"{'; '.join(bars)}. Total {bytes_text(data['total'])}{host}."


# --- bars ----------------------------------------------------------------------------


def _scale(sheet: Sheet, most: float, y: float, high: float) -> float:
    """Grid lines at round numbers of bytes; returns pixels per byte."""
    scale = LENGTH / max(1, most)
    tick = _round_tick(most / 4)
    count = 0
    while count * tick <= most * 1.001:
        x = MARGIN + NAMES + count * tick * scale
        sheet.line([(x, y + 10), (x, y + high)], stroke=RULE, dash="2 3")
        sheet.text(x, y + 4, bytes_text(count * tick), anchor="middle", size=11, fill=FAINT)
        count += 1
    return scale


def _round_tick(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least ``rough``."""
    power = 10.0 ** math.floor(math.log10(max(rough, 1)))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough)


def _bar_row(
    sheet: Sheet, y: float, name: str, count: float, start: float, scale: float, fill: str
) -> None:
    sheet.text(MARGIN, y + 15, name, room=NAMES - 8)
    x = MARGIN + NAMES + start * scale
    if count:
        sheet.rect(x, y, max(1.5, count * scale), BAR, fill=fill, tip=f"{name}: {count:,} bytes")
    sheet.text(x + max(1.5, count * scale) + 8, y + 15, amount(count), halo=True)


def _subtotal(sheet: Sheet, y: float, name: str, count: float, scale: float) -> float:
    sheet.text(MARGIN, y + 15, name, bold=True, room=NAMES - 8)
    wide = max(1.5, count * scale)
    sheet.rect(MARGIN + NAMES, y, wide, BAR, fill="#ffffff", stroke=INK, thick=2)
    sheet.text(MARGIN + NAMES + wide + 8, y + 15, amount(count), bold=True, halo=True)
    return y + STEP
