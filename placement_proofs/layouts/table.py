"""Evaluated layouts as a table of columns: bytes of the fullest rank and seconds of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.prepared import Prepared, prepared
from placement_proofs.layouts.proofs import ClassProof
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.space import Block, Space
from placement_proofs.layouts.vector import Array
from placement_proofs.verdict import Verdict


@dataclass(frozen=True)
class Rows:
    """One block with its results: bytes of the fullest rank, seconds of a step, by row."""

    block: Block
    proof: ClassProof
    peak: Array
    step: Array


@dataclass(frozen=True)
class Table:
    """All layouts of a job whose class is proved, with their results.

    Attributes:
        space: the valid layouts, proved or not.
        rows: the proved ones, block by block.
        withheld: counts of layouts whose class is not proved, with the proof.
        peak: bytes of the fullest rank, of all rows.
        step: seconds of a training step, of all rows.
    """

    space: Space
    rows: tuple[Rows, ...]
    withheld: tuple[tuple[int, ClassProof], ...]
    peak: Array
    step: Array

    @property
    def job(self) -> Job:
        """Whose layouts they are."""
        return self.space.job

    def __len__(self) -> int:
        return len(self.peak)

    @property
    def classes(self) -> int:
        """The number of distinct compositions that are proved."""
        return len({rows.proof.composition for rows in self.rows})

    def at(self, row: int) -> tuple[Layout, ClassProof]:
        """The layout of a row, and the proof of its class."""
        starts = np.cumsum([0, *(len(r.block) for r in self.rows)])
        which = int(np.searchsorted(starts, row, side="right")) - 1
        rows = self.rows[which]
        return rows.block.layout(row - int(starts[which])), rows.proof

    def column(self, name: str) -> NDArray[np.int64]:
        """A degree of all rows by its symbol: b, t, p, c, e, d or m."""
        parts = [rows.block.columns[name] for rows in self.rows]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def evaluated(block: Block, job: Job, constants: Constants, folder: Path | None = None) -> Rows:
    """One block evaluated, if its class is proved; otherwise with no results."""
    ready = prepared(block.kind, job, folder)
    peak, step = results(ready, block, job, constants)
    return Rows(block, ready.proof, peak, step)


def results(ready: Prepared, block: Block, job: Job, constants: Constants) -> tuple[Array, Array]:
    """Bytes of the fullest rank and seconds of a step, by row; empty for what is not proved."""
    if ready.formulas is None:
        return np.empty(0), np.empty(0)
    columns = {name: column.astype(np.float64) for name, column in block.columns.items()}
    found = ready.formulas({**job.symbols, **constants.symbols, **columns})
    return found["peak"], found["step"]


def table(
    space: Space,
    constants: Constants,
    *,
    executor: Executor | None = None,
    folder: Path | None = None,
    watch: Callable[[Iterator[Rows], int], Iterator[Rows]] = lambda rows, _: rows,
) -> Table:
    """All layouts of a space, evaluated block by block.

    ``executor`` spreads the blocks over processes; ``watch`` sees the results pass, with their
    number (for a progress bar).
    """
    work = partial(evaluated, job=space.job, constants=constants, folder=folder)
    passing = executor.map(work, space.blocks) if executor else map(work, space.blocks)
    every = list(watch(iter(passing), len(space.blocks)))
    return gathered(space, every)


def gathered(space: Space, every: Sequence[Rows]) -> Table:
    """The table of a space from the results of its blocks."""
    proved = tuple(r for r in every if r.proof.verdict is Verdict.PROVED)
    others = (r for r in every if r.proof.verdict is not Verdict.PROVED)
    withheld = tuple((len(r.block), r.proof) for r in others)
    peaks, steps = ([getattr(r, name) for r in proved] for name in ("peak", "step"))
    empty = np.empty(0)
    return Table(
        space,
        proved,
        withheld,
        np.concatenate(peaks) if peaks else empty,
        np.concatenate(steps) if steps else empty,
    )
