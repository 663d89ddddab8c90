"""A summary of measured runs against predictions: of a file of runs, or the one that is shipped.

The shipped one, ``summary.toml``, is of runs that come with arXiv 2311.05610; a test that has them
compares it, and writes it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from placement_proofs.layouts.calibrate import table
from placement_proofs.layouts.constants import Constants, load_constants
from placement_proofs.layouts.evaluate import Evaluation, evaluate, held_out_evaluation
from placement_proofs.layouts.evidence import Evidence, evidence
from placement_proofs.layouts.runs import Run, read_runs
from placement_proofs.layouts.setups import load_setup
from placement_proofs.toml_file import read_toml

DIGITS = 6
"""Digits of a share or a mean."""

HELD_OUT = "held out"
"""The way in which every model is predicted with constants fitted to the others."""


@dataclass(frozen=True)
class Way:
    """One way to predict, or to choose without predicting; ``None`` where it says nothing.

    Attributes:
        name: of the way.
        outcomes: the share of runs of which it says rightly whether they fit the memory.
        error: the median relative error of step times.
        launches: runs that are started until one runs, mean over sweeps.
        regret: by what share that one is slower than the best of its sweep, mean over sweeps.
    """

    name: str
    outcomes: float | None = None
    error: float | None = None
    launches: float | None = None
    regret: float | None = None


@dataclass(frozen=True)
class Pairs:
    """Measured pairs of runs that differ in what a recommendation is about, and nothing else.

    Attributes:
        rule: the recommendation, by name.
        pairs, hits: how many, and in how many the recommended run was faster.
        foretold: in how many the inequality says what was measured.
        best, sweeps: in how many sweeps the fastest run is as recommended, and of how many.
        median: by what share it was faster, in the median; ``None`` without pairs.
    """

    rule: str
    pairs: int
    hits: int
    foretold: int
    best: int
    sweeps: int
    median: float | None = None


@dataclass(frozen=True)
class Summary:
    """A summary: runs that memory decided, runs that ran, ways to predict, recommendations."""

    decided: int
    ran: int
    ways: tuple[Way, ...]
    rules: tuple[Pairs, ...]

    def to_toml(self) -> str:
        """A file that :func:`shipped` reads."""
        lines = [f"decided = {self.decided}", f"ran = {self.ran}"]
        for name, rows in (("ways", self.ways), ("rules", self.rules)):
            for row in rows:
                given = ((k, v) for k, v in asdict(row).items() if v is not None)
                lines += ["", f"[[{name}]]", *(f"{k} = {_value(v)}" for k, v in given)]
        return "\n".join([*lines, ""])


def _value(value: str | int | float) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def summary(path: Path) -> Summary:
    """The summary of a file of runs, with the shipped constants; the shipped one without a file.

    Raises:
        IllFormed: the file has no runs.
    """
    return summarized(read_runs(path, load_setup("paper"))) if path.is_file() else shipped()


@cache
def shipped() -> Summary:
    """The summary that comes with the package; it has the held-out way too."""
    found = read_toml(Path(__file__).with_name("summary.toml"))
    ways = tuple(Way(**row) for row in found["ways"])
    return Summary(found["decided"], found["ran"], ways, tuple(Pairs(**r) for r in found["rules"]))


def summarized(runs: Sequence[Run], *, held_out: bool = False) -> Summary:
    """The summary of runs; ``held_out`` also fits constants without each model."""
    given, constants = table(runs), load_constants()
    fitted, plain = evaluate(given, constants), evaluate(given, Constants())
    left = [_predicted(HELD_OUT, held_out_evaluation(given))] if held_out else []
    ways = (
        _predicted("fitted constants", fitted),
        _predicted("no fitted constant", plain),
        *left,
        Way("always out of memory", _short(fitted.always)),
        _chosen("rules of the paper", fitted, "rules"),
        _chosen("these, told what runs", fitted, "told"),
    )
    rules = tuple(
        Pairs(e.rule, e.pairs, e.hits, e.foretold, e.best, e.sweeps, _median(e))
        for e in evidence(runs, constants)
    )
    return Summary(fitted.memory.count, fitted.steps.runs, ways, rules)


def _median(found: Evidence) -> float | None:
    return _short(found.median) if found.pairs else None


def _predicted(name: str, found: Evaluation) -> Way:
    chosen = _chosen(name, found, "predicted")
    right, error = _short(found.memory.accuracy), _short(found.steps.median)
    return Way(name, right, error, chosen.launches, chosen.regret)


def _chosen(name: str, found: Evaluation, choice: str) -> Way:
    launches, regret = (_short(found.mean(choice, what)) for what in ("launches", "regret"))
    return Way(name, launches=launches, regret=regret)


def _short(value: float) -> float:
    return round(value, DIGITS)
