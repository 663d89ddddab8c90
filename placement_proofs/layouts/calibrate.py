"""Constants fitted to measured runs: memory to what ran and what did not, time to step times.

Both fits are deterministic. What no run tells (contention where all runs are on one node) keeps
its value from before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placement_proofs.errors import IllFormed
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.predict import Predictor, Watch, predictor
from placement_proofs.layouts.runs import OOM, Run
from placement_proofs.layouts.vector import Array

Flags = NDArray[np.bool_]

GIB = 2**30

SOFT = 0.03
"""Width of the step between fitting and not, as a share of the memory: runs so far on the wrong
side count, those far on the right one do not."""

MEMORY: dict[str, tuple[float, float, float]] = {
    "logit": (2.0, 64.0, 1.0),
    "allocator": (1.0, 2.0, 0.1),
    "reserve": (0.0, 8.0 * GIB, GIB),
}
"""Fitted constants of memory: lowest, highest, first step of the search."""

TIME: dict[str, tuple[float, float, float]] = {
    "matrix": (0.05, 1.0, 0.7),
    "link": (0.01, 1.0, 0.5),
    "contention": (1e-4, 10.0, 0.1),
    "launch": (1e-7, 1e-2, 2e-5),
}
"""Fitted constants of time: lowest, highest, where the search begins."""

ROBUST = 0.03
"""Relative errors of step times above this count by their size instead of its square."""


@dataclass(frozen=True)
class Table:
    """Runs as arrays beside their prepared formulas.

    Attributes:
        predicted: the formulas.
        capacity: bytes of the devices.
        decided: whether memory decided the outcome; ``oom``: that it was too small.
        ran: whether the run ran; ``step``: its seconds (1 elsewhere).
        models: names of the models.
    """

    runs: tuple[Run, ...]
    predicted: Predictor
    capacity: Array
    decided: Flags
    oom: Flags
    ran: Flags
    step: Array
    models: tuple[str, ...]

    def of(self, model: str) -> Flags:
        """The runs of a model."""
        return np.array([name == model for name in self.models])


def table(runs: Sequence[Run], watch: Watch = lambda items, _: items) -> Table:
    """Runs with their formulas; ``watch`` passes them on, and may show how far they are."""
    return Table(
        tuple(runs),
        predictor([(run.job, run.layout) for run in runs], watch),
        np.array([float(run.job.machine.device.memory) for run in runs]),
        np.array([run.decided for run in runs]),
        np.array([run.outcome == OOM for run in runs]),
        np.array([run.ran for run in runs]),
        np.array([run.step or 1.0 for run in runs]),
        tuple(run.job.name for run in runs),
    )


@dataclass(frozen=True)
class Score:
    """How well constants describe runs: shares of right outcomes, relative errors of step times."""

    accuracy: float
    median: float
    p90: float

    def to_json(self) -> dict[str, float]:
        """Fields by name."""
        return {"memory accuracy": self.accuracy, "step median": self.median, "step p90": self.p90}


@dataclass(frozen=True)
class HeldOut:
    """A model whose runs were left out of the fit, the constants of the others, and their score."""

    model: str
    constants: Constants
    score: Score


@dataclass(frozen=True)
class Calibration:
    """Fitted constants, their score on the runs of the fit, and on models left out of it.

    Attributes:
        constants: fitted on all runs.
        inside: the score on these runs.
        held: by model left out; empty where all runs are of one model.
        outside: the score on all runs, each with the constants of the other models.
    """

    constants: Constants
    inside: Score
    held: tuple[HeldOut, ...]
    outside: Score | None

    def to_json(self) -> dict[str, object]:
        """Constants and scores."""
        return {
            "constants": self.constants.to_json(),
            "in-sample": self.inside.to_json(),
            "held out by model": [
                {"model": h.model, "constants": h.constants.to_json(), **h.score.to_json()}
                for h in self.held
            ],
            "held out": self.outside.to_json() if self.outside else None,
        }


def calibrate(
    given: Table, start: Constants | None = None, done: Callable[[str], object] = lambda name: None
) -> Calibration:
    """Constants for runs, with the error on each model when the others are fitted.

    Args:
        given: the runs.
        start: the values of constants that the runs do not tell.
        done: told the name of each fit that is finished.

    Raises:
        IllFormed: the runs have no step times, or no run that went out of memory.
    """
    start = start or Constants()
    _check(given)
    names = list(dict.fromkeys(given.models))
    everything = np.ones(len(given.runs), bool)
    constants = replace(fit(given, everything, start), fitted=_said(given))
    done("all runs")
    held = []
    for name in names if len(names) > 1 else []:
        others = fit(given, ~given.of(name), start)
        held.append(HeldOut(name, others, score(given, others, given.of(name))))
        done(f"without {name}")
    outside = _outside(given, held) if held else None
    return Calibration(constants, score(given, constants, everything), tuple(held), outside)


def fit(given: Table, among: Flags, start: Constants) -> Constants:
    """Constants fitted to some of the runs."""
    return fit_time(given, among, fit_memory(given, among, start))


def _check(given: Table) -> None:
    if not given.ran.any() or not given.oom.any():
        raise IllFormed(
            "runs",
            f"{int(given.ran.sum())} that ran, {int(given.oom.sum())} out of memory",
            "constants are fitted to step times, and to what fits and what does not",
            "give runs of both kinds",
        )


def _said(given: Table) -> str:
    sweeps = ", ".join(dict.fromkeys(run.sweep for run in given.runs))
    counts = f"{int(given.decided.sum())} outcomes, {int(given.ran.sum())} step times"
    return f"{counts} of the sweeps {sweeps}"


def score(given: Table, constants: Constants, among: Flags) -> Score:
    """The score of constants on some of the runs."""
    fits = given.predicted.peak(constants) <= given.capacity
    error = np.abs(given.predicted.step(constants) / given.step - 1)
    return _score(given, ~fits, error, among)


def _score(given: Table, full: Flags, error: Array, among: Flags) -> Score:
    decided, ran = given.decided & among, given.ran & among
    right = (full == given.oom)[decided]
    errors = error[ran]
    return Score(
        float(right.mean()) if right.size else float("nan"),
        float(np.median(errors)) if errors.size else float("nan"),
        float(np.quantile(errors, 0.9)) if errors.size else float("nan"),
    )


def _outside(given: Table, held: Sequence[HeldOut]) -> Score:
    full = np.zeros(len(given.runs), bool)
    error = np.zeros(len(given.runs))
    for one in held:
        here = given.of(one.model)
        full[here] = (given.predicted.peak(one.constants) > given.capacity)[here]
        error[here] = np.abs(given.predicted.step(one.constants) / given.step - 1)[here]
    return _score(given, full, error, np.ones(len(given.runs), bool))


# memory


def fit_memory(given: Table, among: Flags, start: Constants) -> Constants:
    """The constants of memory, by a pattern search on a smooth count of wrong outcomes."""
    here = given.decided & among
    side = np.where(given.oom, 1.0, -1.0)[here]

    def loss(constants: Constants) -> float:
        above = np.log(given.predicted.peak(constants) / given.capacity)[here]
        return float(np.logaddexp(0, -side * above / SOFT).mean())

    best, least = start, loss(start)
    scale = 1.0
    while scale > 0.05:
        moved = False
        for name, (low, high, step) in MEMORY.items():
            for sign in (1, -1):
                value = min(high, max(low, getattr(best, name) + sign * scale * step))
                tried = replace(best, **{name: value})
                if (found := loss(tried)) < least - 1e-9:
                    best, least, moved = tried, found, True
        scale = scale if moved else scale / 2
    return best


# time


def fit_time(given: Table, among: Flags, start: Constants) -> Constants:
    """The constants of time, by Gauss-Newton steps on the logarithm of step times, robustly."""
    here = given.ran & among
    names = list(TIME)

    def errors(x: Array) -> Array:
        step = given.predicted.step(_with(start, names, x))
        return np.log(step / given.step)[here]

    low, high, first = (np.log([TIME[n][i] for n in names]) for i in range(3))
    x, jacobian = _descend(errors, first, low, high)
    told = np.abs(jacobian).max(axis=0) > 1e-6
    return _with(start, [n for n, t in zip(names, told, strict=True) if t], x[told])


def _with(start: Constants, names: Sequence[str], x: Array) -> Constants:
    values = {n: float(v) for n, v in zip(names, np.exp(x), strict=True)}
    return replace(start, **values)  # type: ignore[arg-type]


def _descend(
    errors: Callable[[Array], Array], x: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Levenberg-Marquardt on a pseudo-Huber loss within bounds; the point and its Jacobian."""
    r, damping = errors(x), 1e-3
    jacobian = _jacobian(errors, x, r)
    for _ in range(ROUNDS):
        weight = 1 / np.sqrt(1 + (r / ROBUST) ** 2)
        normal = jacobian.T @ (jacobian * weight[:, None])
        gradient = jacobian.T @ (r * weight)
        while damping < 1e6:
            ridge = np.diag(damping * np.diag(normal) + 1e-9)
            step = np.clip(-np.linalg.solve(normal + ridge, gradient), -0.7, 0.7)
            tried = np.clip(x + step, low, high)
            found = errors(tried)
            if _loss(found) < _loss(r):
                break
            damping *= 5
        else:
            return x, jacobian
        done = float(np.abs(tried - x).max()) < 1e-4
        x, r, damping = tried, found, max(damping / 5, 1e-6)
        if done:
            return x, jacobian
        jacobian = _jacobian(errors, x, r)
    return x, jacobian


ROUNDS = 30


def _jacobian(errors: Callable[[Array], Array], x: Array, r: Array) -> Array:
    nudges = 1e-4 * np.eye(len(x))
    return np.stack([(errors(x + nudge) - r) / 1e-4 for nudge in nudges], axis=1)


def _loss(r: Array) -> float:
    return float((np.sqrt(1 + (r / ROBUST) ** 2) - 1).sum())
