"""Figures of measured runs, as arXiv 2311.05610 has them: the best MFU by one choice at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement_proofs.layouts.runs import Run
from placement_proofs.layouts.setting import Layout
from placement_proofs.render.svg import FAINT, MARGIN, RULE, Picture, Sheet, text_width

Key = Callable[[Run], str]

LABELS, LENGTH, VALUES = 214.0, 360.0, 330.0
BAR, STEP = 18.0, 24.0
FILLS = ("up", "down", "dots", "cross", "flat", "upright", "grid", "sparse")


@dataclass(frozen=True)
class Figure:
    """A figure of runs: which runs, and what is compared within each sweep.

    Attributes:
        name: of the file.
        title: what it shows.
        series: the word of a run in its sweep, such as its micro-batch.
        only: the runs that take part.
        note: which these are, in words.
    """

    name: str
    title: str
    series: Key
    only: Callable[[Run], bool] = lambda run: True
    note: str = "All runs."


def _kernel(run: Run) -> str:
    return f"{run.layout.attention}, {run.layout.norm} norms"


def _best_kernel(run: Run) -> bool:
    return run.layout.attention == "flash-2"


def _plain(run: Run) -> bool:
    return run.layout.recompute == "none"


FIGURES = (
    Figure(
        "micro_batch",
        "Best MFU by micro-batch",
        lambda run: f"micro-batch {run.layout.micro_batch}",
        _best_kernel,
        "Runs with flash-2 attention.",
    ),
    Figure(
        "recomputation",
        "Best MFU with and without recomputation",
        lambda run: {"none": "no recomputation", "full": "every layer again"}.get(
            run.layout.recompute, run.layout.recompute
        ),
    ),
    Figure(
        "kernels",
        "Best MFU by kernels, without recomputation",
        _kernel,
        _plain,
        "Runs without recomputation.",
    ),
    Figure(
        "tensor_pipeline",
        "Best MFU by tensor and pipeline degrees",
        lambda run: f"tensor {run.layout.tensor}, pipeline {run.layout.pipeline}",
        lambda run: _best_kernel(run) and _plain(run),
        "Runs with flash-2 attention, without recomputation.",
    ),
    Figure(
        "sequence_parallel",
        "Best MFU with and without sequence parallelism, by tensor degree",
        lambda run: (
            f"tensor {run.layout.tensor}, "
            + ("sequence-parallel" if run.layout.sequence else "plain")
        ),
        lambda run: _best_kernel(run) and _plain(run) and run.layout.tensor > 1,
        "Runs with flash-2 attention and tensor parallelism, without recomputation.",
    ),
)
"""Figures 2 to 5 and table 3 of arXiv 2311.05610, of whatever runs there are."""


def runs_data(figure: Figure, runs: Sequence[Run]) -> dict[str, Any]:
    """The best run of each series of each sweep, or that all of it went out of memory."""
    sweeps: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        if run.decided and figure.only(run):
            sweeps.setdefault(run.sweep, {}).setdefault(figure.series(run), []).append(run)
    groups = {
        sweep: [_bar(name, series[name]) for name in sorted(series, key=_natural)]
        for sweep, series in sweeps.items()
    }
    return {"schema": "placement-proofs/figure/1", "figure": figure.name, "sweeps": groups}


def _natural(text: str) -> list[tuple[int, str]]:
    """Numbers in a text sort by their size."""
    return [
        (int(word), "") if word.isdecimal() else (-1, word)
        for word in text.replace(",", "").split()
    ]


def _bar(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    timed = [(run.step, run) for run in runs if run.step is not None]
    if not timed:
        return {"series": name, "mfu": None, "runs": len(runs), "layout": ""}
    step, best = min(timed, key=lambda pair: pair[0])
    mfu = best.job.mfu(step)
    return {"series": name, "mfu": mfu, "runs": len(runs), "layout": _short(best.layout)}


def _short(layout: Layout) -> str:
    """Micro-batch, tensor, pipeline and switches."""
    words = [f"b={layout.micro_batch} t={layout.tensor} p={layout.pipeline}"]
    words += ["sequence-parallel"] if layout.sequence else []
    words += ["recompute"] if layout.recompute != "none" else []
    return " ".join(words)


def draw_runs(figure: Figure, data: Mapping[str, Any]) -> Picture:
    """Bars of MFU, sweep by sweep; what only went out of memory has none."""
    sheet = Sheet(figure.title)
    room = LABELS + LENGTH + VALUES
    y = sheet.heading(figure.title, room)
    said = "The fastest run of each kind in each sweep, with its layout; OOM: none of them ran."
    y = sheet.lines(MARGIN, y, f"{figure.note} {said}", room)
    bars = [bar for group in data["sweeps"].values() for bar in group if bar["mfu"]]
    if not bars:
        sheet.text(MARGIN, y + 10, "No run of these kinds was timed.", bold=True)
        return sheet.finished("No run of these kinds was timed.", data)
    most = max(bar["mfu"] for bar in bars)
    height = sum(STEP * (len(group) + 1) + 8 for group in data["sweeps"].values())
    scale = _grid(sheet, y + 12, height, most)
    y += 26
    names = sorted(
        {bar["series"] for group in data["sweeps"].values() for bar in group}, key=_natural
    )
    for sweep, group in data["sweeps"].items():
        sheet.text(MARGIN, y + 13, sweep, bold=True, room=LABELS + LENGTH)
        y += STEP
        best = max((bar["mfu"] or 0 for bar in group), default=0)
        for bar in group:
            fill = FILLS[names.index(bar["series"]) % len(FILLS)]
            _run_bar(sheet, y, bar, scale, fill, best)
            y += STEP
        y += 8
    return sheet.finished(_runs_alternative(data), data)


def _grid(sheet: Sheet, y: float, height: float, most: float) -> float:
    """Lines at round shares of the peak; returns pixels per unit."""
    scale = LENGTH / (math.ceil(most * 10) / 10)
    for tenth in range(math.ceil(most * 10) + 1):
        x = MARGIN + LABELS + tenth / 10 * scale
        sheet.line([(x, y + 6), (x, y + height + 8)], stroke=RULE, dash="2 3")
        sheet.text(x, y, f"{tenth * 10}%", anchor="middle", size=11, fill=FAINT)
    return scale


def _run_bar(
    sheet: Sheet, y: float, bar: Mapping[str, Any], scale: float, fill: str, best: float
) -> None:
    sheet.text(MARGIN + 10, y + 13, bar["series"], room=LABELS - 18)
    x = MARGIN + LABELS
    if bar["mfu"] is None:
        sheet.text(x + 6, y + 13, f"OOM ({bar['runs']} runs)", fill=FAINT)
        return
    wide = bar["mfu"] * scale
    first = bar["mfu"] == best
    sheet.rect(x, y, wide, BAR, fill=fill, thick=2 if first else 1, tip=f"{bar['mfu']:.1%}")
    label = f"{bar['mfu']:.1%}"
    sheet.text(x + wide + 8, y + 13, label, bold=first)
    sheet.text(
        x + wide + 16 + text_width(label, bold=True),
        y + 13,
        bar["layout"],
        size=11,
        fill=FAINT,
    )


def _runs_alternative(data: Mapping[str, Any]) -> str:
    parts = []
    for sweep, group in data["sweeps"].items():
        bars = ", ".join(
            f"{bar['series']} {bar['mfu']:.1%}" if bar["mfu"] else f"{bar['series']} OOM"
            for bar in group
        )
        parts.append(f"{sweep}: {bars}.")
    return " ".join(parts)
