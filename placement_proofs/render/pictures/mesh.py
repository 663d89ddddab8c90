"""The picture of a mesh: modes of each state on each axis, and what every rank holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from placement_proofs.render.hatch import STATES
from placement_proofs.render.svg import (
    FAINT,
    INK,
    MARGIN,
    RULE,
    Picture,
    Sheet,
    text_width,
    wrapped,
)

Row = Mapping[str, Any]
LETTERS = {
    "parameters": "P",
    "gathered parameters": "P*",
    "gradients": "G",
    "optimizer": "O",
    "activations": "A",
}
MEANINGS = {
    "parameters": "stored parameters",
    "gathered parameters": "copy gathered while in use",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations of the first micro-batch",
}
MODES = {
    "R": "replicated",
    "S": "sharded",
    "S*": "sharded, gathered for use",
    "stage": "each position has layers of its own",
}
CELL, BAR, LINE, GAP = 224.0, 56.0, 32.0, 6.0
COLUMNS = 4
LEAST = 5.0
"""Pixels of the thinnest slice."""


def draw_mesh(data: Row) -> Picture:
    """The picture of :func:`~placement_proofs.render.pictures.shards.mesh_data`."""
    columns = _columns(data)
    sheet = Sheet(f"Who holds what: {data['composition']} on model {data['model']}")
    room = max(3, columns) * (CELL + 12)
    y = sheet.heading(sheet.title, room)
    y = _facts(sheet, data, y, room)
    y = _table(sheet, data, y + 8, room)
    y = _legend(sheet, data, y + 14, room)
    _grid(sheet, data, y + 8, columns)
    hidden = data["world"] - len(data["ranks"])
    if hidden:
        sheet.lines(MARGIN, sheet.low + 22, _elided(data, hidden), room, fill=INK)
    return sheet.finished(_alternative(data, hidden), data)


def _columns(data: Row) -> int:
    """A mesh of two axes as it is; else whole turns of the innermost axis, where it is short."""
    lengths = [len(at) for at in data["shown"].values() if len(at) > 1]
    if len(lengths) == 2 and lengths[1] <= COLUMNS:
        return lengths[1]
    last = lengths[-1] if lengths and lengths[-1] <= COLUMNS else COLUMNS
    return min(len(data["ranks"]), COLUMNS // last * last)


def _facts(sheet: Sheet, data: Row, y: float, room: float) -> float:
    mesh = ", ".join(f"{axis}={size}" for axis, size in data["axes"].items()) or "one rank"
    named = [*data["tensors"], data["activation"]]
    shapes = "; ".join(f"{t['name']} {_shape(t['shape'])}" for t in named)
    texts = [f"Mesh {mesh}. Drawn: {shapes} (elements).", *(f"{n}." for n in data["notes"])]
    return sheet.lines(MARGIN, y, " ".join(texts), room)


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(f"{d:,}" for d in shape)


# --- the table of modes --------------------------------------------------------------


def _table(sheet: Sheet, data: Row, y: float, room: float) -> float:
    axes = list(data["axes"])
    widest = max([46.0, *(text_width(f"on {axis}", bold=True) + 16 for axis in axes)])
    wide = min(widest, (room - 92) / max(1, len(axes)))
    middles = {axis: MARGIN + 92 + wide * (i + 0.5) for i, axis in enumerate(axes)}
    sheet.text(MARGIN, y + 12, "mode of", bold=True)
    for axis, x in middles.items():
        sheet.text(x, y + 12, f"on {axis}", bold=True, anchor="middle", room=wide)
    y += 20
    for row in data["table"]:
        sheet.line([(MARGIN, y), (MARGIN + room, y)], stroke=RULE)
        y = sheet.lines(MARGIN, y + 15, f"{', '.join(row['groups'])}", room, size=11) - 13
        for state, modes in row["states"].items():
            y += 18
            sheet.text(MARGIN + 8, y, state)
            for axis, x in middles.items():
                sheet.text(x, y, modes[axis], anchor="middle", bold=modes[axis] != "R")
            said = row["elsewhere"].get(state, "")
            x = MARGIN + 92 + wide * len(axes) + 12
            sheet.text(x, y, said, room=MARGIN + room - x, fill=FAINT)
        y += 7
    sheet.line([(MARGIN, y), (MARGIN + room, y)], stroke=RULE)
    used = {m for row in data["table"] for modes in row["states"].values() for m in modes.values()}
    said = "; ".join(f"{m}: {text}" for m, text in MODES.items() if m in used)
    return sheet.lines(MARGIN, y + 18, said, room)


# --- legend --------------------------------------------------------------------------


def _legend(sheet: Sheet, data: Row, y: float, room: float) -> float:
    used = {part["state"] for rank in data["ranks"] for part in rank["parts"]}
    x = MARGIN
    for state, letter in LETTERS.items():
        if state not in used:
            continue
        said = f"{letter}: {MEANINGS[state]}"
        wide = 34 + text_width(said) + 14
        if x + wide > MARGIN + room:
            x, y = MARGIN, y + 22
        sheet.rect(x, y - 11, 26, 14, fill=STATES[state], dash=_dash(state))
        sheet.text(x + 34, y, said)
        x += wide
    return y + 10


def _dash(state: str) -> str | None:
    return "4 3" if state == "gathered parameters" else None


# --- ranks ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Look:
    """How all cells look: whether tensors are named, and how many lines the coordinates take."""

    named: bool
    lines: int

    def high(self, rank: Row) -> float:
        """The height of a rank's cell."""
        names = len({part["of"] for part in rank["parts"]}) if self.named else 0
        return 30 + LINE * len(rank["parts"]) + 17 * names + 15 * self.lines


def _grid(sheet: Sheet, data: Row, y: float, columns: int) -> None:
    look = _Look(len(data["tensors"]) > 1, max(map(_lines, data["ranks"])))
    before = -1
    for row in _rows(data["ranks"], columns):
        high = max(map(look.high, row))
        for i, rank in enumerate(row):
            sheet.rect(MARGIN + i * (CELL + 12), y, CELL, high, stroke=RULE)
            gap = rank["rank"] != before + 1
            _cell(sheet, rank, (MARGIN + i * (CELL + 12) + 8, y), look, gap)
            before = rank["rank"]
        y += high + 12


def _rows(ranks: Sequence[Row], columns: int) -> Iterator[Sequence[Row]]:
    for i in range(0, len(ranks), columns):
        yield ranks[i : i + columns]


def _at(rank: Row) -> str:
    return ", ".join(f"{axis}={i}" for axis, i in rank["coordinates"].items())


def _lines(rank: Row) -> int:
    """The lines below its number that a rank's coordinates take, if not beside it."""
    beside = text_width(f"… rank {rank['rank']}", bold=True) + text_width(_at(rank), 11)
    return 0 if beside <= CELL - 26 else len(wrapped(_at(rank), CELL - 16, 11))


def _cell(sheet: Sheet, rank: Row, corner: tuple[float, float], look: _Look, gap: bool) -> None:
    x, y = corner
    inner = CELL - 16
    sheet.text(x, y + 18, f"{'… ' if gap else ''}rank {rank['rank']}", bold=True)
    if look.lines:
        sheet.lines(x, y + 33, _at(rank), inner, size=11)
    else:
        sheet.text(x + inner, y + 18, _at(rank), size=11, anchor="end", fill=FAINT)
    y += 28 + 15 * look.lines
    for tensor, parts in groupby(rank["parts"], key=lambda part: part["of"]):
        if look.named:
            sheet.text(x, y + 11, tensor, size=11, fill=FAINT, room=inner)
            y += 17
        for part in parts:
            _part(sheet, part, x, y)
            y += LINE


def _part(sheet: Sheet, part: Row, x: float, y: float) -> None:
    if not part["state"]:
        sheet.text(x, y + 14, "not on this stage", size=11, fill=FAINT)
        return
    sheet.text(x, y + 17, LETTERS[part["state"]], bold=True)
    left = x + 22
    sheet.rect(left, y, BAR, LINE - GAP, stroke=RULE, fill="#f7f7f7")
    box = _box(part, left, y, BAR, LINE - GAP)
    said = _slice_text(part)
    if box is not None:
        tip = f"{MEANINGS[part['state']]} of {part['of']}: {said}"
        dash = "4 3" if part["elsewhere"] else _dash(part["state"])
        sheet.rect(*box, fill=STATES[part["state"]], dash=dash, tip=tip)
    room = CELL - 16 - 22 - BAR - 8
    if part["elsewhere"]:
        said = f"{part['elsewhere'][0]} {said}"
    sheet.text(left + BAR + 8, y + 17, said, size=11, room=room)


def _box(
    part: Row, x: float, y: float, wide: float, high: float
) -> tuple[float, float, float, float] | None:
    """The part in the rectangle of the whole: the first cut dim downwards, the second across."""
    down, across = _drawn_dims(part)
    top, bottom = _span(part, down, high)
    left, right = _span(part, across, wide)
    if any(low == high for low, high in part["slice"]):
        return None
    return x + left, y + top, right - left, bottom - top


def _drawn_dims(part: Row) -> tuple[int, int]:
    """Two dims of the tensor: those that are cut, else the first two."""
    count = len(part["whole"])
    cut = [i for i in range(count) if part["slice"][i] != part["whole"][i]]
    dims = sorted([*cut, *(i for i in range(count) if i not in cut)][:2])
    return (dims[0], dims[1]) if count > 1 else (-1, dims[0])


def _span(part: Row, dim: int, length: float) -> tuple[float, float]:
    """Where the part of one dim lies, and a few pixels at least."""
    if dim < 0:
        return 0.0, length
    low, high = part["whole"][dim]
    start, stop = ((edge - low) / (high - low) * length for edge in part["slice"][dim])
    missing = max(0.0, LEAST - (stop - start))
    start = max(0.0, min(start, length - LEAST))
    return start, min(length, stop + missing)


def _slice_text(part: Row) -> str:
    """A slice as Python writes it; ``:`` is a whole dim."""
    if part["slice"] == part["whole"]:
        return "whole"
    if any(low == high for low, high in part["slice"]):
        return "none of it"
    pairs = zip(part["slice"], part["whole"], strict=True)
    texts = [":" if held == whole else f"{held[0]}:{held[1]}" for held, whole in pairs]
    while len(texts) > 1 and texts[-1] == ":":
        texts.pop()
    return f"[{', '.join(texts)}]"


def _elided(data: Row, hidden: int) -> str:
    shown = (
        f"{axis} {', '.join(map(str, at[:-1]))}{', …, ' if len(at) > 1 else ''}{at[-1]} of {size}"
        for (axis, at), size in zip(data["shown"].items(), data["axes"].values(), strict=True)
        if len(at) < size
    )
    return f"… and {hidden:,} more ranks; drawn are the positions {'; '.join(shown)}."


def _alternative(data: Row, hidden: int) -> str:
    mesh = ", ".join(f"{axis}={size}" for axis, size in data["axes"].items()) or "one rank"
    first, last = data["ranks"][0], data["ranks"][-1]
    more = f", {hidden} of them not drawn" if hidden else ""
    ranks = [first] if first is last else [first, last]
    texts = [*map(_modes_told, data["table"]), *map(_told, ranks)]
    return f"{data['world']} ranks on the mesh {mesh}{more}. {' '.join(texts)}"


def _modes_told(row: Row) -> str:
    parts = []
    for state, modes in row["states"].items():
        said = [f"{mode} on {axis}" for axis, mode in modes.items()]
        said += [row["elsewhere"][state]] if state in row["elsewhere"] else []
        parts.append(f"{state} {', '.join(said) or 'whole'}")
    return f"Modes of {', '.join(row['groups'])}: {'; '.join(parts)}."


def _told(rank: Row) -> str:
    parts = (f"{p['state']} of {p['of']} {_slice_text(p)}" for p in rank["parts"] if p["state"])
    return f"Rank {rank['rank']} holds {'; '.join(parts)}."
