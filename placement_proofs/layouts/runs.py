"""Measured runs: a table of layouts with what became of them.

Columns, in any order: ``sweep`` (runs among which one chooses), ``trial`` (any text), ``model``,
``seq_len`` (tokens), ``world_size`` (ranks), ``micro_batch`` (sequences), ``tensor``, ``pipeline``
(degrees), ``checkpointing`` (disabled, selective, every_layer), ``kernel`` (a word of the setup),
``sequence_parallel`` (True, False), ``outcome`` (ran, oom, kernel-unavailable, error),
``step_time_s`` (seconds), ``mfu`` (fraction of the device's peak). May be absent: ``trial``,
``mfu``, and ``global_batch`` (sequences), ``chunks``, ``context``, ``expert``, ``zero``.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from placement_proofs.errors import IllFormed
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.setups import Setup

RAN, OOM = "ran", "oom"
OUTCOMES = (RAN, OOM, "kernel-unavailable", "error")
CHECKPOINTING = {"disabled": "none", "selective": "selective", "every_layer": "full"}
REQUIRED = (
    "sweep",
    "model",
    "seq_len",
    "world_size",
    "micro_batch",
    "tensor",
    "pipeline",
    "checkpointing",
    "kernel",
    "sequence_parallel",
    "outcome",
    "step_time_s",
)
OPTIONAL = ("trial", "mfu", "global_batch", "chunks", "context", "expert", "zero")


@dataclass(frozen=True)
class Run:
    """One measured run.

    Attributes:
        place: file and line.
        sweep, trial: of what it is part, and its own name.
        job, layout: what was run.
        outcome: one of ``OUTCOMES``.
        step: seconds of a training step, where it ran.
        mfu: the published fraction of peak FLOP/s, where given.
    """

    place: str
    sweep: str
    trial: str
    job: Job
    layout: Layout
    outcome: str
    step: float | None
    mfu: float | None

    @property
    def ran(self) -> bool:
        """Whether it ran."""
        return self.outcome == RAN

    @property
    def decided(self) -> bool:
        """Whether memory decided: it ran, or went out of memory."""
        return self.outcome in (RAN, OOM)


def read_runs(path: Path, setup: Setup) -> tuple[Run, ...]:
    """The runs of a CSV file.

    Raises:
        IllFormed: a column is missing or unknown, or a value has no meaning (with its line).
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise IllFormed(str(path), str(error), "a CSV file in UTF-8", "correct it") from None
    reader = csv.DictReader(text.splitlines(), strict=True)
    _check_columns(path, reader.fieldnames or ())
    try:
        runs = tuple(_Row(f"{path}:{reader.line_num}", row, setup).run() for row in reader)
    except csv.Error as error:
        raise IllFormed(
            f"{path}:{reader.line_num}", str(error), "comma-separated values", "correct the line"
        ) from None
    if not runs:
        raise IllFormed(str(path), "no runs", "a line for each run below the names", "add runs")
    return runs


def _check_columns(path: Path, names: object) -> None:
    found = list(names) if isinstance(names, list | tuple) else []
    missing = [n for n in REQUIRED if n not in found]
    unknown = [n for n in found if n not in (*REQUIRED, *OPTIONAL)]
    if missing or unknown or len(set(found)) < len(found):
        raise IllFormed(
            f"{path}:1",
            f"columns {', '.join(map(str, found)) or 'none'}"[:200],
            f"runs have the columns {', '.join(REQUIRED)}, and may have {', '.join(OPTIONAL)}",
            f"add {', '.join(missing)}" if missing else "rename or remove the others",
        )


@dataclass(frozen=True)
class _Row:
    """A line of the table, read field by field."""

    place: str
    row: Mapping[str | None, str | list[str] | None]
    setup: Setup

    def run(self) -> Run:
        if None in self.row or None in self.row.values():
            raise IllFormed(
                self.place, "another number of fields", "one for each column", "correct the line"
            )
        outcome = self.word("outcome", OUTCOMES)
        step = self.positive("step_time_s")
        if (outcome == RAN) != (step is not None):
            raise self.wrong("step_time_s", "seconds where the run ran, and nowhere else")
        job = self.job()
        layout = self.layout()
        try:
            job.microbatches(layout)
        except IllFormed as error:
            raise IllFormed(
                self.place, str(error), "a run is a layout of its job", "correct the line"
            ) from None
        text = self.text
        return Run(
            self.place,
            text("sweep"),
            text("trial"),
            job,
            layout,
            outcome,
            step,
            self.positive("mfu"),
        )

    def job(self) -> Job:
        sequence = self.number("seq_len")
        model = self.word("model", tuple(self.setup.models))
        known = self.setup.batch.get(sequence)
        batch = self.number("global_batch", known)
        return self.setup.job(model, sequence, self.number("world_size"), batch)

    def layout(self) -> Layout:
        number = self.number
        degrees = {name: number(name, 1) for name in ("chunks", "context", "expert")}
        t, p = number("tensor"), number("pipeline")
        used = t * p * degrees["context"] * degrees["expert"]
        if number("world_size") % used:
            raise self.wrong("world_size", f"a multiple of the product of degrees, {used}")
        attention, norm = self.setup.kernels[self.word("kernel", tuple(self.setup.kernels))]
        return Layout(
            number("micro_batch"),
            t,
            p,
            data=number("world_size") // used,
            zero=number("zero", self.setup.zero),
            sequence=self.word("sequence_parallel", ("True", "False")) == "True",
            recompute=CHECKPOINTING[self.word("checkpointing", tuple(CHECKPOINTING))],
            attention=attention,
            norm=norm,
            **degrees,
        )

    def text(self, column: str) -> str:
        return str(self.row.get(column, "")).strip()

    def wrong(self, column: str, rule: str) -> IllFormed:
        found = repr(self.text(column))[:60] if column in self.row else "no such column"
        return IllFormed(f"{self.place}: {column}", found, rule, "correct the line")

    def word(self, column: str, known: tuple[str, ...]) -> str:
        found = self.text(column)
        if found not in known:
            raise self.wrong(column, f"one of {', '.join(known)}")
        return found

    def number(self, column: str, default: int | None = None) -> int:
        found = self.text(column)
        if not found and default is not None:
            return default
        if not (found.isascii() and found.isdigit() and 1 <= int(found) <= 10**9) and not (
            column == "zero" and found == "0"
        ):
            raise self.wrong(column, "a whole number from 1")
        return int(found)

    def positive(self, column: str) -> float | None:
        found = self.text(column)
        if not found:
            return None
        try:
            value = float(found)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise self.wrong(column, "a positive number, or nothing")
        return value


def sweeps(runs: tuple[Run, ...]) -> Iterator[tuple[str, tuple[Run, ...]]]:
    """The runs of each sweep, in the order of the file."""
    for name in dict.fromkeys(run.sweep for run in runs):
        yield name, tuple(run for run in runs if run.sweep == name)
