"""Published faults: each in a faulty and a fixed form, with the verdicts that they must give.

A fault is a TOML file: where it was reported, what happened, the two forms as element programs,
and ``how`` they say it: by its ``mechanism``, with a ``stand-in`` for a concept that the programs
lack, or only by its ``effect``. ``[rejected]`` answers another question: which framework refuses
the combination, right or wrong. ``[composed]`` shows the fault as a deviation of a composition.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

from placement_proofs.checking import check
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import read_subject
from placement_proofs.program import Program
from placement_proofs.program.text import parse_program
from placement_proofs.prove import ProgramResult, explain, find_repairs, prove
from placement_proofs.verdict import Verdict

SCHEMA = "placement-proofs/faults/1"

HOMES = tuple(
    folder / "faults"
    for folder in (
        Path(__file__).parent / "_theories",
        Path(__file__).parent.parent / "theories",
    )
)
"""Where the faults stand: in an installed package, in a checkout."""

T = TypeVar("T")
How: TypeAlias = Literal["mechanism", "stand-in", "effect"]

_NEEDED = ("fault", "kind", "url", "about", "how", "expected", "faulty", "fixed")
_OPTIONAL = ("concept", "condition", "mesh", "factor", "rejected", "composed")


@dataclass(frozen=True)
class Rejection:
    """A framework that refuses a form, by which rule, and where it says so."""

    framework: str
    rule: str
    source: str
    faulty: bool
    fixed: bool


@dataclass(frozen=True)
class Composed:
    """The fault as deviations of a composition: refuted with them, proved without."""

    composition: str
    without: tuple[str, ...]
    model: str = "dense"
    condition: str = "gradient_integrity"
    loss: str = "mean"


@dataclass(frozen=True)
class Fault:
    """One report. ``expected`` is the verdict of the faulty form; the fixed one is proved.

    ``condition``, ``mesh`` and ``factor`` are those of the smallest counterexample.
    """

    name: str
    kind: str
    url: str
    about: str
    how: How
    concept: str
    expected: Verdict
    faulty: Program
    fixed: Program
    condition: str = ""
    mesh: tuple[tuple[str, int], ...] = ()
    factor: str = ""
    rejected: Rejection | None = None
    composed: Composed | None = None


@dataclass(frozen=True)
class Outcome:
    """What the prover says of both forms of a fault."""

    fault: Fault
    faulty: ProgramResult
    fixed: ProgramResult

    @property
    def as_expected(self) -> bool:
        """Both verdicts, and condition, mesh and factor of the counterexample."""
        fault, example = self.fault, self.faulty.counterexample
        verdicts = (self.faulty.verdict, self.fixed.verdict)
        if verdicts != (fault.expected, Verdict.PROVED):
            return False
        if example is None:
            return fault.expected is Verdict.PROVED
        right = (self.faulty.first_cause, dict(example.sizes)) == (
            fault.condition,
            dict(fault.mesh),
        )
        return right and (not fault.factor or example.factor == fault.factor)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        fault, example = self.fault, self.faulty.counterexample
        return {
            "fault": fault.name,
            "kind": fault.kind,
            "url": fault.url,
            "how": fault.how,
            "concept": fault.concept,
            "expected": fault.expected.value,
            "got": self.faulty.verdict.value,
            "fixed": self.fixed.verdict.value,
            "as_expected": self.as_expected,
            "condition": self.faulty.first_cause,
            "mesh": dict(example.sizes) if example else {},
            "factor": example.factor if example else "",
            "explanation": list(explain(fault.faulty, self.faulty)),
            "rejected": vars(fault.rejected) if fault.rejected else None,
        }


def all_faults() -> tuple[Path, ...]:
    """The files of the faults that come with the package, by name."""
    home = next((home for home in HOMES if home.is_dir()), None)
    return tuple(sorted(home.glob("*.toml"))) if home else ()


def find_fault(text: str) -> Path:
    """The file of a fault given by name or path.

    Raises:
        IllFormed: there is none.
    """
    if text.endswith(".toml") and Path(text).is_file():
        return Path(text)
    paths = {path.stem: path for path in all_faults()}
    if text not in paths:
        near = [name for name in paths if text and (text in name or name in text)]
        raise IllFormed(
            "fault",
            repr(text[:60]),
            f"{len(paths)} faults come with the package; a fault is one of them or a TOML file",
            f"did you mean {near[0]}?" if near else "see placement-proofs faults",
        )
    return paths[text]


def read_fault(path: Path) -> Fault:
    """Read the file of a fault.

    Raises:
        IllFormed: the file is no fault, or a form has no meaning.
    """
    table = _table(path)
    if table["how"] not in get_args(How) or (table["how"] == "mechanism") == ("concept" in table):
        raise _bad(path, "how", "how is mechanism, or stand-in or effect with the missing concept")
    place = path.name
    return Fault(
        str(table["fault"]),
        str(table["kind"]),
        str(table["url"]),
        str(table["about"]),
        cast(How, table["how"]),
        str(table.get("concept", "")),
        _expected(path, table["expected"]),
        parse_program(str(table["faulty"]), place=f"{place}, faulty"),
        parse_program(str(table["fixed"]), place=f"{place}, fixed"),
        str(table.get("condition", "")),
        tuple((str(axis), int(size)) for axis, size in table.get("mesh", {}).items()),
        str(table.get("factor", "")),
        _record(path, Rejection, table.get("rejected")),
        _record(path, Composed, table.get("composed")),
    )


def _table(path: Path) -> Mapping[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise IllFormed(
            str(path), str(error)[:80], "a fault is a TOML file", "correct it"
        ) from None
    wrong = [k for k in _NEEDED if k not in table]
    wrong += [k for k in table if k not in (*_NEEDED, *_OPTIONAL)]
    if wrong:
        raise _bad(path, ", ".join(wrong), f"a fault has {', '.join(_NEEDED)}; see docs/faults.md")
    return table


def _bad(path: Path, found: str, rule: str) -> IllFormed:
    return IllFormed(str(path), found, rule, "correct the file")


def _expected(path: Path, stated: Any) -> Verdict:
    verdicts = {"refuted": Verdict.REFUTED, "proved": Verdict.PROVED}
    if not isinstance(stated, dict) or stated.get("fixed") != "proved":
        raise _bad(path, "expected", "the fixed form is proved")
    if stated.get("faulty") not in verdicts:
        raise _bad(path, "expected", "the faulty form is refuted, or proved for a positive control")
    return verdicts[stated["faulty"]]


def _record(path: Path, kind: type[T], table: Any) -> T | None:
    if table is None:
        return None
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in dict(table).items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise _bad(path, str(error)[:80], f"the table says a {kind.__name__.lower()}") from None


def run_fault(fault: Fault) -> Outcome:
    """Prove or refute both forms."""
    return Outcome(fault, prove(fault.faulty), prove(fault.fixed))


def run_faults(paths: Iterable[Path]) -> Iterator[Outcome]:
    """Read and run faults one after the other."""
    for path in paths:
        yield run_fault(read_fault(path))


def repairs_of(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Proved repairs of the faulty form: what to change, and its extra traffic."""
    found = find_repairs(outcome.fault.faulty, outcome.faulty)
    return tuple((f"{repair.action}: {repair.text}", repair.cost) for repair in found)


def run_composed(composed: Composed) -> tuple[Verdict, str, Verdict]:
    """Verdict and condition with the deviations, and the verdict without them."""
    broken = check(
        read_subject(
            composed.composition,
            model=composed.model,
            loss=composed.loss,
            without=composed.without,
        )
    )
    whole = check(read_subject(composed.composition, model=composed.model, loss=composed.loss))
    cause = broken.failure.condition if broken.failure else ""
    return broken.verdict, cause, whole.verdict


@dataclass(frozen=True)
class Rate:
    """How many faults gave the expected verdicts, and how they are said."""

    faults: int
    as_expected: int
    by: Mapping[str, int]
    wrong: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "faults": self.faults,
            "as_expected": self.as_expected,
            **self.by,
            "wrong": list(self.wrong),
        }


def rate(outcomes: Iterable[Outcome]) -> Rate:
    """Count outcomes."""
    found = list(outcomes)
    by = {how: sum(o.fault.how == how for o in found) for how in get_args(How)}
    wrong = tuple(o.fault.name for o in found if not o.as_expected)
    return Rate(len(found), len(found) - len(wrong), by, wrong)
