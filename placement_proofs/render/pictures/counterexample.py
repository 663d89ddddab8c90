"""The picture of a counterexample: who holds what before and after the step to blame."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.render.svg import FAINT, MARGIN, RULE, Picture, Sheet, wrapped
from placement_proofs.report import Report

Row = Mapping[str, Any]
RANK, GAVE, HELD, SAID = 116.0, 170.0, 204.0, 150.0
LINE = 17.0
MOST_RANKS = 16
MOST_LINES = 6
"""Values of one rank at one moment; of more, a count."""

_INDEX = re.compile(r"(\w+)=(\d+)")


def counterexample_data(report: Report) -> dict[str, Any]:
    """The counterexample of a report: contributions, moments around the blamed step, outcome.

    Raises:
        IllFormed: the report refutes nothing.
    """
    if report.failure is None:
        raise IllFormed(
            report.subject,
            f"the verdict {report.verdict.value}",
            "a counterexample belongs to a refutation",
            "draw a subject that check refutes",
        )
    found = report.failure.to_json()
    return {
        "schema": "placement-proofs/picture/1",
        "picture": "counterexample",
        "composition": report.subject,
        "without": list(report.deviations),
        "model": report.model,
        "notes": list(report.notes),
        "counterexample": found,
    }


def draw_counterexample(data: Row) -> Picture:
    """The picture of :func:`counterexample_data`."""
    found = data["counterexample"]
    sheet = Sheet(f"{_words(found['condition'])} fails: {data['composition']}")
    moments = _distinct(found)
    given = any(_alone(found, name) for name in found["contributions"])
    look = _Look(GAVE if given else 0.0, len(moments))
    y = sheet.heading(sheet.title, look.room)
    y = sheet.lines(MARGIN, y, _facts(data, found), look.room) + 8
    y = _heads(sheet, moments, look, y)
    shown = list(range(len(moments[0]["ranks"]))) if moments else [0]
    for number in _ranks(found, shown):
        y = _rank(sheet, found, moments, number, look, y)
    if len(shown) > MOST_RANKS:
        sheet.text(MARGIN, y + 14, f"… and {len(shown) - MOST_RANKS} more ranks")
        y += 20
    y += 14
    for sentence in _explanation(data):
        y = sheet.lines(MARGIN, y, sentence, look.room, fill="#1a1a1a") + 2
    return sheet.finished(_alternative(data, moments), data)


def _explanation(data: Row) -> Iterator[str]:
    """The sentences of the prover; where the loop deviates, the deviation is to blame."""
    for sentence in data["counterexample"]["explanation"]:
        if data["without"] and sentence.startswith(("The step to blame", "A step is missing")):
            yield f"The deviation is to blame: {' or '.join(data['without'])}."
        else:
            yield sentence


@dataclass(frozen=True)
class _Look:
    """The width of the column of contributions, and the number of moments."""

    gave: float
    moments: int

    @property
    def room(self) -> float:
        return max(620.0, RANK + self.gave + self.moments * HELD + SAID)

    def x(self, moment: int) -> float:
        return MARGIN + RANK + self.gave + moment * HELD


def _words(condition: str) -> str:
    return condition.replace("_", " ").capitalize()


def _distinct(found: Row) -> list[Row]:
    """The moments that tell something.

    A step that only compares changes nothing: one moment. The check is left out where nothing has
    changed since the blamed step, and it stands alone where that one does not run at these sizes;
    nothing is shown where no buffer is involved.
    """
    moments = found["moments"]
    if not any(rank["holds"] for moment in moments for rank in moment["ranks"]):
        return []
    if len(moments) == 1:
        return list(moments)
    before, after, *check = moments
    if before["step"] == found["step"] and before["ranks"] == after["ranks"]:
        return [{**before, "when": "at"}]
    return [before, after, *(m for m in check if m["ranks"] != after["ranks"])]


def _facts(data: Row, found: Row) -> str:
    sizes = ", ".join(f"{k}={v}" for k, v in {**found["mesh"], **found["turns"]}.items())
    texts = [f"Smallest mesh that shows it: {sizes or 'one rank'}."]
    if found["tensors"]:
        more = f" and {len(found['tensors']) - 3} more" if len(found["tensors"]) > 3 else ""
        texts.append(f"{found['subject']} is {', '.join(found['tensors'][:3])}{more}.")
    texts += [f"The loop differs from the derived plan: {text}." for text in data["without"]]
    others = [f"{n} = {v}" for n, v in found["contributions"].items() if not _alone(found, n)]
    if others:
        more = f" and {len(others) - 6} more" if len(others) > 6 else ""
        texts.append(f"One device adds up {', '.join(others[:6])}{more}.")
    return " ".join(texts)


def _alone(found: Row, name: str) -> bool:
    """Whether the index of a contribution such as ``c[dp=0, mb=1]`` names a single rank."""
    ranks = [r["rank"] for m in found["moments"][:1] for r in m["ranks"]]
    return sum(_own(name, rank) for rank in ranks) == 1


# --- the head of the table -----------------------------------------------------------


def _heads(sheet: Sheet, moments: Sequence[Row], look: _Look, y: float) -> float:
    sheet.text(MARGIN, y + 12, "rank", bold=True)
    if look.gave:
        sheet.text(MARGIN + RANK, y + 12, "contributes", bold=True)
    low = y + 12
    for i, moment in enumerate(moments):
        x = look.x(i)
        sheet.text(x, y + 12, _moment_name(moment), bold=True, room=HELD - 10)
        lines = wrapped(_step_text(moment), HELD - 16, 11)
        for k, line in enumerate(lines):
            sheet.text(x, y + 27 + k * 14, line, size=11, fill=FAINT)
        low = max(low, y + 27 + (len(lines) - 1) * 14)
    sheet.text(look.x(len(moments)) - 16, y + 12, "outcome", bold=True)
    sheet.line([(MARGIN, low + 8), (MARGIN + look.room, low + 8)], stroke=RULE)
    return low + 16


def _moment_name(moment: Row) -> str:
    if moment["when"] == "at the check":
        return f"check, step {moment['step']}"
    return f"{moment['when']} step {moment['step']}"


def _step_text(moment: Row) -> str:
    turns = ", ".join(f"{k}={v}" for k, v in moment["turns"].items())
    return f"{moment['text']}{f' (turn {turns})' if turns else ''}"


# --- one rank ------------------------------------------------------------------------


def _ranks(found: Row, numbers: Sequence[int]) -> Sequence[int]:
    """The ranks that are drawn; the one where the fault shows is among them."""
    kept = list(numbers[:MOST_RANKS])
    ranks = [r["rank"] for m in found["moments"][:1] for r in m["ranks"]]
    wrong = ranks.index(found["rank"]) if found["rank"] in ranks else 0
    return kept if wrong in kept or not kept else [*kept[:-1], wrong]


def _rank(
    sheet: Sheet, found: Row, moments: Sequence[Row], number: int, look: _Look, y: float
) -> float:
    rank = moments[0]["ranks"][number]["rank"] if moments else found["rank"]
    terms = found["contributions"].items() if look.gave else ()
    gave = [f"{n} = {v}" for n, v in terms if _own(n, rank) and _alone(found, n)]
    held = [list(_lines(m["ranks"][number]["holds"])) for m in moments]
    wrong = rank == found["rank"]
    count = min(MOST_LINES + 1, max(2 if wrong else 1, len(gave), *map(len, held)))
    high = count * LINE + 8
    name = ", ".join(f"{k}={v}" for k, v in rank.items()) or "the rank"
    sheet.text(MARGIN, y + 18, name, bold=wrong, room=RANK - 8)
    _texts(sheet, MARGIN + RANK, y, gave, GAVE - 12)
    for i, lines in enumerate(held):
        last = wrong and i == len(held) - 1
        sheet.rect(look.x(i), y, HELD - 30, high, thick=2.5 if last else 1)
        if last:
            sheet.rect(look.x(i), y, 9, high, fill="wrong")
        bold = {line for line in lines if last and line.endswith(f"= {found['got']}")}
        _texts(sheet, look.x(i) + 16, y, lines, HELD - 52, bold)
        if i + 1 < len(held):
            x = look.x(i) + HELD - 28
            sheet.line([(x, y + high / 2), (x + 24, y + high / 2)], arrow=True)
    if wrong:
        said = [f"expected {found['expected']}", f"got {found['got']}: wrong"]
        _texts(sheet, look.x(len(held)) - 16, y, said, SAID + 8, set(said))
    return y + high + 8


def _texts(
    sheet: Sheet,
    x: float,
    y: float,
    lines: Sequence[str],
    room: float,
    bold: Collection[str] = (),
) -> None:
    shown = lines if len(lines) <= MOST_LINES + 1 else lines[:MOST_LINES]
    for i, line in enumerate(shown):
        sheet.text(x, y + 17 + i * LINE, line, room=room, bold=line in bold)
    if len(shown) < len(lines):
        more = f"… {len(lines) - len(shown)} more"
        sheet.text(x, y + 17 + len(shown) * LINE, more, room=room)


def _own(name: str, rank: Mapping[str, int]) -> bool:
    """Whether a contribution such as ``c[dp=0, mb=1]`` is made by a rank."""
    index = {axis: int(at) for axis, at in _INDEX.findall(name)}
    return all(rank[axis] == at for axis, at in index.items() if axis in rank)


def _lines(holds: Sequence[Row]) -> Iterator[str]:
    """``g = 3``; parts of a tensor are told apart where they differ."""
    buffers: dict[str, dict[str, str]] = {}
    for cell in holds:
        buffers.setdefault(cell["buffer"], {})[cell["element"]] = cell["value"]
    for name, cells in buffers.items():
        if len(set(cells.values())) == 1 and len(cells) > 1:
            yield f"{name} = {next(iter(cells.values()))}"
        else:
            yield from (f"{name}{f' [{e}]' if e else ''} = {value}" for e, value in cells.items())
    if not holds:
        yield "nothing"


def _alternative(data: Row, moments: Sequence[Row]) -> str:
    told = []
    for moment in moments:
        ranks = (
            f"{', '.join(f'{k}={v}' for k, v in r['rank'].items()) or 'the rank'} has "
            f"{', '.join(_lines(r['holds']))}"
            for r in moment["ranks"][:MOST_RANKS]
        )
        told.append(f"{_moment_name(moment).capitalize()}, {moment['text']}: {'; '.join(ranks)}.")
    return " ".join([*told, *_explanation(data)])
