"""Predictions for many layouts of many jobs at once: one pass over arrays for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.forms import SLOWEST, Forms, forms
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.vector import Array, Compiled, compiled

QUANTITIES: Mapping[str, Callable[[Forms], object]] = {
    "peak": lambda made: made.peak,
    "step": lambda made: made.step,
    "slowest": lambda made: made.time[SLOWEST],
}
"""Bytes of the fullest rank, seconds of a training step, and of its slowest stage's work."""


Watch: TypeAlias = Callable[[Iterator[Any], int], Iterator[Any]]
"""Passes items on; it is told their number."""


@dataclass(frozen=True)
class Group:
    """Layouts with the same formulas: where they stand among all, and their columns."""

    at: NDArray[np.intp]
    codes: Mapping[str, Compiled]
    columns: Mapping[str, Array]


@dataclass(frozen=True)
class Predictor:
    """Prepared formulas of some layouts; constants may then change often."""

    groups: tuple[Group, ...]
    count: int

    def peak(self, constants: Constants) -> Array:
        """Bytes of the fullest rank of every layout."""
        return self._values("peak", constants)

    def step(self, constants: Constants) -> Array:
        """Seconds of a training step of every layout."""
        return self._values("step", constants)

    def slowest(self, constants: Constants) -> Array:
        """Seconds that the slowest stage of every layout works in a training step."""
        return self._values("slowest", constants)

    def _values(self, name: str, constants: Constants) -> Array:
        found = np.zeros(self.count)
        for group in self.groups:
            code = group.codes[name]
            found[group.at] = code({**group.columns, **constants.symbols})[name]
        return found


def predictor(
    given: Sequence[tuple[Job, Layout]], watch: Watch = lambda items, _: items
) -> Predictor:
    """The formulas of the layouts; ``watch`` passes them on, and may show how far they are.

    Raises:
        IllFormed: a layout does not fit its job, or has no plan.
    """
    members: dict[int, list[int]] = {}
    made: dict[int, Forms] = {}
    for i, (job, layout) in watch(iter(enumerate(given)), len(given)):
        one = forms(layout.kind, job)
        made[id(one)] = one
        members.setdefault(id(one), []).append(i)
    groups = [_group(made[k], at, [given[i] for i in at]) for k, at in members.items()]
    return Predictor(tuple(groups), len(given))


def _group(made: Forms, at: list[int], given: Sequence[tuple[Job, Layout]]) -> Group:
    rows = [{**job.symbols, **job.columns(layout)} for job, layout in given]
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    codes = {n: compiled({n: get(made)}, tuple(columns)) for n, get in QUANTITIES.items()}
    return Group(np.array(at), codes, columns)
