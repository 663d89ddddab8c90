"""Counterexamples: the smallest mesh on which a replay shows the fault."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.program import Program
from placement_proofs.program.rules import delay
from placement_proofs.prove.sizes import cut_offs
from placement_proofs.replay import Mismatch, Path, Replay, replay, step_name, work
from placement_proofs.replay.world import Number

BUDGET = 30_000
"""Rank-element-turns that a search may replay."""
GIVEN_BUDGET = 2_000
"""The same for one replay at sizes that the user gave: a small part of what a check may take."""
MAX_DEVICES = 36
SEED = 20_231


@dataclass(frozen=True)
class Counterexample:
    """A replayed failure: everything is concrete, with small integers as contributions.

    `sizes` are the sizes of the mesh axes, `lengths` those of the loops; `turns` is where in
    the loops it happened (from 0). `factor` is got over expected in closed form, `shows_at`
    the sizes at which the fault shows; `at_given` whether it shows at the sizes that were
    asked for (None if none were).
    """

    condition: str
    sizes: tuple[tuple[str, int], ...]
    lengths: tuple[tuple[str, int], ...]
    rank: tuple[tuple[str, int], ...]
    turns: tuple[tuple[str, int], ...]
    subject: str
    contributions: tuple[tuple[str, str], ...]
    expected: str
    got: str
    note: str
    step: Path
    step_text: str
    factor: str = ""
    shows_at: str = ""
    at_given: bool | None = None

    @property
    def devices(self) -> int:
        """Number of ranks of the mesh."""
        product = 1
        for _, size in self.sizes:
            product *= size
        return product

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "condition": self.condition,
            "mesh": dict(self.sizes),
            "turns": dict(self.lengths),
            "rank": dict(self.rank),
            "at_turn": dict(self.turns),
            "subject": self.subject,
            "contributions": dict(self.contributions),
            "expected": self.expected,
            "got": self.got,
            "note": self.note,
            "step": step_name(self.step),
            "step_text": self.step_text,
            "factor": self.factor,
            "shows_at": self.shows_at,
            "at_given_sizes": self.at_given,
        }


def meshes(program: Program, limits: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """All meshes and loop lengths up to the limits, by device count, then turns."""
    most = max(3, delay(program) + 2)
    loops = sorted(
        itertools.product(*(range(1, min(limits[name], most) + 1) for name in program.loops)),
        key=lambda lengths: (sum(lengths), lengths),
    )
    for devices in range(1, MAX_DEVICES + 1):
        shapes = list(_shapes(program.axes, devices, limits))
        for lengths in loops:
            for shape in shapes:
                yield {**shape, **dict(zip(program.loops, lengths, strict=True))}


def _shapes(
    axes: tuple[str, ...], devices: int, limits: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    if not axes:
        if devices == 1:
            yield {}
        return
    for size in range(min(devices, limits[axes[0]]), 0, -1):
        if devices % size == 0:
            for rest in _shapes(axes[1:], devices // size, limits):
                yield {axes[0]: size, **rest}


def try_replay(program: Program, sizes: Mapping[str, int], seed: int | None) -> Replay | None:
    """A replay, or None where the program has no meaning on that mesh."""
    try:
        return replay(program, sizes, seed)
    except IllFormed:
        return None


def search(
    program: Program, conditions: set[str], given: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """The smallest mesh that shows each condition failing, if the budget suffices."""
    limits = {name: min(limit, given.get(name, limit)) for name, limit in cut_offs(program).items()}
    found: dict[str, dict[str, int]] = {}
    spent = 0
    for sizes in meshes(program, limits):
        if not _alike(sizes, given):
            continue
        spent += work(program, sizes)
        if spent > BUDGET or len(found) == len(conditions):
            break
        outcome = try_replay(program, sizes, SEED)
        if outcome is None:
            continue
        for condition in conditions - set(found):
            if outcome.failed(condition) is not None:
                found[condition] = sizes
    return found


def _alike(sizes: Mapping[str, int], given: Mapping[str, int]) -> bool:
    """Axes that are given as one stay one."""
    return all(sizes[name] == 1 for name, size in given.items() if size == 1)


def complete(program: Program, given: Mapping[str, int]) -> dict[str, int] | None:
    """The given sizes with loops of two turns where they are free, if all axes are given."""
    if any(axis not in given for axis in program.axes):
        return None
    return {**dict.fromkeys(program.loops, 2), **given}


def shows_on(program: Program, sizes: Mapping[str, int], condition: str) -> bool | None:
    """Whether a condition fails on a mesh; None if it is too large to replay.

    The algebra has decided at these sizes already; a cheap replay is a second opinion.
    """
    if work(program, sizes) > GIVEN_BUDGET:
        return None
    outcome = _replay_on(program, tuple(sizes.items()))
    return outcome is not None and outcome.failed(condition) is not None


@lru_cache(maxsize=64)
def _replay_on(program: Program, sizes: tuple[tuple[str, int], ...]) -> Replay | None:
    return try_replay(program, dict(sizes), SEED)


def describe(
    program: Program, condition: str, sizes: Mapping[str, int], step_text: Mapping[Path, str]
) -> Counterexample | None:
    """The replay on one mesh in small integers, as data."""
    for seed in (None, SEED):
        outcome = try_replay(program, sizes, seed)
        mismatch = outcome.failed(condition) if outcome is not None else None
        if mismatch is not None:
            return _described(program, mismatch, sizes, step_text)
    return None


def _described(
    program: Program, found: Mismatch, sizes: Mapping[str, int], step_text: Mapping[Path, str]
) -> Counterexample:
    return Counterexample(
        condition=found.condition,
        sizes=tuple((axis, sizes[axis]) for axis in program.axes),
        lengths=tuple((loop, sizes[loop]) for loop in program.loops),
        rank=tuple(zip(program.axes, found.rank, strict=True)),
        turns=found.turns,
        subject=found.subject,
        contributions=tuple((name, str(value)) for name, value in found.contributions),
        expected=_text(found.expected),
        got=_text(found.got),
        note=found.note,
        step=found.step,
        step_text=step_text.get(found.step, ""),
    )


def _text(value: Number | None) -> str:
    return "nothing" if value is None else str(value)
