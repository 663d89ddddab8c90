"""Large sweeps: many jobs, block by block, over any executor, resumable, to CSV or Parquet.

Every finished chunk is a file of its own beside the output, written elsewhere and moved into place;
when all are there they are put together in order. So an interrupted sweep goes on where it was, and
its file is the same, byte for byte, whoever computed the chunks and in whatever order.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from placement_proofs.errors import IllFormed
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.prepared import fingerprint
from placement_proofs.layouts.setting import Job
from placement_proofs.layouts.space import Block, Choices, space
from placement_proofs.layouts.table import evaluated
from placement_proofs.verdict import Verdict

ROWS = 100_000
"""Rows of a chunk at most."""

FORMATS = (".csv", ".parquet")

Columns: TypeAlias = Mapping[str, Sequence[Any]]

DEGREES = {
    "micro_batch": "b",
    "tensor": "t",
    "pipeline": "p",
    "data": "d",
    "context": "c",
    "expert": "e",
    "microbatches": "m",
}
"""Columns of the output by symbol."""

HEADER = (
    "model",
    "device",
    "cluster",
    "gpus",
    "sequence",
    "global_batch",
    *DEGREES,
    "chunks",
    "zero",
    "sequence_parallel",
    "recompute",
    "attention",
    "norm",
    "peak_bytes",
    "step_seconds",
    "mfu",
    "fits",
)
"""The columns of the output; there is a row for each layout whose class is proved."""


@dataclass(frozen=True)
class Task:
    """One chunk of a sweep: some layouts of one kind of one job."""

    number: int
    job: Job
    block: Block


@dataclass(frozen=True)
class Swept:
    """What a sweep did: rows of the output, chunks of it, and how many of these were there."""

    rows: int
    chunks: int
    found: int


def tasks(jobs: Iterable[Job], choices: Choices, *, rows: int = ROWS) -> tuple[Task, ...]:
    """The chunks of a sweep over all valid layouts of all jobs, in order."""
    parts = (
        (job, part) for job in jobs for b in space(job, choices).blocks for part in _cut(b, rows)
    )
    return tuple(Task(i, job, part) for i, (job, part) in enumerate(parts))


def _cut(block: Block, rows: int) -> Iterator[Block]:
    for start in range(0, len(block), rows):
        part = slice(start, start + rows)
        yield Block(block.kind, {name: column[part] for name, column in block.columns.items()})


def solved(task: Task, constants: Constants, folder: Path | None = None) -> Columns:
    """The rows of a chunk by column; none where the class is not proved."""
    job, block, kind = task.job, task.block, task.block.kind
    rows = evaluated(block, job, constants, folder)
    count = len(block) if rows.proof.verdict is Verdict.PROVED else 0
    same = {
        "model": job.name,
        "device": job.machine.device.name,
        "cluster": job.machine.cluster.name,
        "gpus": job.gpus,
        "sequence": job.shape.sequence,
        "global_batch": job.global_batch,
        "chunks": kind.chunks,
        "zero": kind.zero,
        "sequence_parallel": kind.sequence,
        "recompute": kind.recompute,
        "attention": kind.attention,
        "norm": kind.norm,
    }
    found: dict[str, Sequence[Any]] = {name: [value] * count for name, value in same.items()}
    found |= {name: block.columns[x][:count].tolist() for name, x in DEGREES.items()}
    found |= {"peak_bytes": rows.peak.tolist(), "step_seconds": rows.step.tolist()}
    found["mfu"] = [job.mfu(seconds) for seconds in rows.step.tolist()]
    found["fits"] = (rows.peak <= job.machine.device.memory).tolist()
    return {name: found[name] for name in HEADER}


def sweep(
    jobs: Sequence[Job],
    output: Path,
    constants: Constants,
    *,
    choices: Choices | None = None,
    executor: Executor | None = None,
    window: int = 16,
    folder: Path | None = None,
    rows: int = ROWS,
    watch: Callable[[Iterator[Path], int], Iterator[Path]] = lambda parts, _: parts,
) -> Swept:
    """All valid layouts of all jobs, evaluated, in a file.

    Args:
        jobs: what is swept.
        output: ends in ``.csv`` or ``.parquet``.
        constants: of the time model.
        choices: the values that are considered.
        executor: any executor of ``concurrent.futures``, such as that of a Dask client; without
            one the chunks are computed here.
        window: chunks that are under way at a time.
        folder: where formulas are kept from one process to the next.
        rows: of a chunk at most.
        watch: sees the finished chunks pass, with the number that was missing.

    Raises:
        IllFormed: the output is of no known format, exists already, or another sweep was begun.
    """
    _check_output(output)
    chosen = choices or Choices()
    every = tasks(jobs, chosen, rows=rows)
    parts = output.with_name(output.name + ".parts")
    _begin(parts, _digest(jobs, chosen, constants, rows))
    paths = {task.number: parts / f"{task.number:06d}{output.suffix}" for task in every}
    missing = [task for task in every if not paths[task.number].exists()]
    work = partial(solved, constants=constants, folder=folder)
    done = _computed(missing, executor, work, window)
    written = (_record(paths[number], columns) for number, columns in done)
    for _ in watch(written, len(missing)):
        pass
    count = _joined([paths[task.number] for task in every], output)
    shutil.rmtree(parts)
    return Swept(count, len(every), len(every) - len(missing))


def _check_output(output: Path) -> None:
    if output.suffix not in FORMATS:
        raise IllFormed(
            str(output),
            f"the suffix {output.suffix!r}",
            "a sweep writes .csv or .parquet",
            "name the file runs.csv",
        )
    if output.exists():
        raise IllFormed(
            str(output),
            "a file that exists",
            "a finished sweep is not overwritten",
            "remove it, or name another file",
        )
    if output.suffix == ".parquet":
        _arrow()


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise IllFormed(
            "--output",
            "a .parquet file without pyarrow",
            "Parquet is written by pyarrow",
            "pip install 'placement-proofs[parquet]', or write .csv",
        ) from None
    return pyarrow


def _digest(jobs: Sequence[Job], choices: Choices, constants: Constants, rows: int) -> str:
    text = "\n".join((fingerprint(), *map(repr, jobs), repr(choices), repr(constants), str(rows)))
    return hashlib.sha256(text.encode()).hexdigest()


def _begin(parts: Path, digest: str) -> None:
    """Make the folder of the chunks, or find it begun by the same sweep."""
    manifest = parts / "sweep.json"
    parts.mkdir(exist_ok=True)
    if manifest.exists():
        try:
            same = json.loads(manifest.read_text(encoding="utf-8")).get("sweep") == digest
        except (ValueError, AttributeError):
            same = False
        if not same:
            raise IllFormed(
                str(parts),
                "the chunks of another sweep",
                "only the same sweep can go on with them",
                "repeat its command, remove the folder, or name another output",
            )
    _moved(manifest, lambda path: path.write_text(json.dumps({"sweep": digest}) + "\n"))


def _moved(path: Path, write: Callable[[Path], object]) -> Path:
    """Write beside and move into place: what has the name is whole."""
    own = path.with_name(f"{path.name}.{os.getpid()}.part")
    write(own)
    os.replace(own, path)
    return path


def _computed(
    missing: Sequence[Task],
    executor: Executor | None,
    work: Callable[[Task], Columns],
    window: int,
) -> Iterator[tuple[int, Columns]]:
    """Chunks as they are finished."""
    if executor is None:
        yield from ((task.number, work(task)) for task in missing)
        return
    waiting = iter(missing)
    running: dict[Future[Columns], int] = {}
    while True:
        try:
            while len(running) < window and (task := next(waiting, None)):
                running[executor.submit(work, task)] = task.number
        except BrokenExecutor:
            yield from _finished(running, wait(running).done)
            raise
        if not running:
            return
        done = wait(running, return_when=FIRST_COMPLETED).done
        yield from _finished(running, done)
        for future in done & running.keys():
            future.result()


def _finished(
    running: dict[Future[Columns], int], done: Iterable[Future[Columns]]
) -> Iterator[tuple[int, Columns]]:
    """The results of those that did not fail, first of all: they are kept."""
    for future in done:
        if future.exception() is None:
            yield running.pop(future), future.result()


def _record(path: Path, columns: Columns) -> Path:
    if path.suffix == ".csv":
        return _moved(path, lambda own: _write_csv(own, columns))
    return _moved(path, lambda own: _write_parquet(own, columns))


def _write_csv(path: Path, columns: Columns) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(zip(*columns.values(), strict=True))


def _write_parquet(path: Path, columns: Columns) -> None:
    arrow = _arrow()
    arrow.parquet.write_table(arrow.table(dict(columns), schema=_schema(arrow)), path)


def _schema(arrow: Any) -> Any:
    """Texts, whole numbers, flags and figures."""
    texts = ("model", "device", "cluster", "recompute", "attention", "norm")
    kinds = dict.fromkeys(HEADER, arrow.int64()) | dict.fromkeys(texts, arrow.string())
    kinds |= dict.fromkeys(("peak_bytes", "step_seconds", "mfu"), arrow.float64())
    kinds |= dict.fromkeys(("sequence_parallel", "fits"), arrow.bool_())
    return arrow.schema([(name, kinds[name]) for name in HEADER])


def _joined(paths: Sequence[Path], output: Path) -> int:
    """All chunks in one file; returns its number of rows."""
    counts: list[int] = []
    join = _join_csv if output.suffix == ".csv" else _join_parquet
    _moved(output, lambda own: counts.append(join(paths, own)))
    return counts[0]


def _join_csv(paths: Sequence[Path], output: Path) -> int:
    count = 0
    with output.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(HEADER)
        for path in paths:
            text = path.read_text(encoding="utf-8")
            count += text.count("\n")
            file.write(text)
    return count


def _join_parquet(paths: Sequence[Path], output: Path) -> int:
    arrow, count = _arrow(), 0
    with arrow.parquet.ParquetWriter(output, _schema(arrow)) as writer:
        for path in paths:
            part = arrow.parquet.read_table(path)
            count += part.num_rows
            writer.write_table(part)
    return count
