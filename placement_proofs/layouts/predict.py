"""Predictions for many layouts of many jobs at once: one pass over arrays for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.forms import Forms, forms
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.vector import Array, Compiled, compiled


@dataclass(frozen=True)
class Group:
    """Layouts with the same formulas: where they stand among all, and their columns."""

    at: Array
    forms: Forms
    compiled: Compiled
    columns: Mapping[str, Array]


@dataclass(frozen=True)
class Predictor:
    """Prepared formulas of some layouts; constants may then change often."""

    groups: tuple[Group, ...]
    count: int

    def __call__(self, constants: Constants) -> dict[str, Array]:
        """``peak`` (bytes) and ``step`` (seconds) of every layout."""
        found = {name: np.zeros(self.count) for name in ("peak", "step")}
        for group in self.groups:
            values = group.compiled({**group.columns, **constants.symbols})
            for name, column in found.items():
                column[group.at] = values[name]
        return found


def predictor(given: Sequence[tuple[Job, Layout]]) -> Predictor:
    """The formulas of the layouts.

    Raises:
        IllFormed: a layout does not fit its job, or has no plan.
    """
    members: dict[int, list[int]] = {}
    found: dict[int, Forms] = {}
    for i, (job, layout) in enumerate(given):
        one = forms(layout.kind, job)
        found[id(one)] = one
        members.setdefault(id(one), []).append(i)
    groups = [_group(found[k], at, [given[i] for i in at]) for k, at in members.items()]
    return Predictor(tuple(groups), len(given))


def _group(one: Forms, at: list[int], given: Sequence[tuple[Job, Layout]]) -> Group:
    rows = [{**job.symbols, **job.columns(layout)} for job, layout in given]
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    code = compiled({"peak": one.peak, "step": one.step}, tuple(columns))
    return Group(np.array(at), one, code, columns)
