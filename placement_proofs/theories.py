"""Theories: claims with the verdict that each must give, right and wrong ones side by side.

A theory is a TOML file with a title, a source and claims. A claim has a ``name``, a ``composition``
(and ``without``, deviations from its derived plan) or an element ``program``, and a ``verdict``: of
all, or of the ``condition`` that it names. A refuted claim may state the ``factor`` and ``mesh`` of
its counterexample. A file of one element program with claims is a theory too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.report import Report
from placement_proofs.verdict import CONDITIONS, Verdict

SCHEMA = "placement-proofs/theories/1"

HOMES = (Path(__file__).parent / "_theories", Path(__file__).parent.parent / "theories")
"""Where theories stand: in an installed package, in a checkout."""

_KEYS = ("name", "composition", "model", "profile", "without", "program")
_STATED = ("verdict", "condition", "factor", "mesh")
_VERDICTS = (Verdict.PROVED, Verdict.REFUTED, Verdict.UNKNOWN)


@dataclass(frozen=True)
class Claim:
    """One claim: what is claimed, of what, and the verdict that it must give."""

    name: str
    subject: Subject
    verdict: Verdict
    condition: str = ""
    factor: str = ""
    mesh: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Theory:
    """A theory: its file's stem, a title, where it comes from, and its claims."""

    name: str
    title: str
    source: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Outcome:
    """A claim and the report on its subject."""

    theory: str
    claim: Claim
    report: Report

    @property
    def verdict(self) -> Verdict:
        """The verdict of the condition that the claim names, or of all."""
        conditions = self.report.conditions
        if not self.claim.condition:
            return self.report.verdict
        found = conditions.get(self.claim.condition)
        return found.verdict if found else Verdict.NOT_APPLICABLE

    @property
    def as_expected(self) -> bool:
        """Whether the claim gives its verdict, with the counterexample that it states."""
        claim, found = self.claim, self.counterexample
        mesh = found.get("mesh", {})
        return (
            self.verdict is claim.verdict
            and claim.factor in ("", found.get("factor"))
            and all(mesh.get(axis) == size for axis, size in claim.mesh)
        )

    @property
    def counterexample(self) -> Mapping[str, Any]:
        """The counterexample as plain data; empty where there is none."""
        return self.report.failure.counterexample if self.report.failure else {}

    @property
    def covers(self) -> str:
        """What a proof covers, or why there is none."""
        same = [c for c in self.report.conditions.values() if c.verdict is self.report.verdict]
        return next((c.reason or c.covers for c in same if c.reason or c.covers), "")

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        claim = self.claim
        return {
            "theory": self.theory,
            "claim": claim.name,
            "subject": claim.subject.text,
            "without": list(claim.subject.deviations),
            "condition": claim.condition,
            "expected": claim.verdict.value,
            "got": self.verdict.value,
            "as_expected": self.as_expected,
            "covers": self.covers,
            "counterexample": dict(self.counterexample) or None,
        }


def all_theories() -> tuple[Path, ...]:
    """The files of the theories that come with the package, by name."""
    home = next((home for home in HOMES if home.is_dir()), None)
    return tuple(sorted(home.glob("*.toml"))) if home else ()


def find_theory(text: str) -> Path:
    """The file of a theory given by path or name.

    Raises:
        IllFormed: there is none.
    """
    if text.endswith(".toml") and Path(text).is_file():
        return Path(text)
    named = {path.stem: path for path in all_theories()}
    if text not in named:
        raise IllFormed(
            "theory",
            repr(text[:80]),
            f"the theories are {', '.join(named)}",
            "name one of them or give the path of a TOML file",
        )
    return named[text]


def read_theory(path: Path) -> Theory:
    """Read a theory's file.

    Raises:
        IllFormed: the file is no theory; the message says where.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IllFormed(str(path), str(error), "the file is TOML in UTF-8", "correct it") from None
    if "program" in table:
        return _program_file(path)
    claims = table.get("claim", [])
    if not isinstance(claims, list) or not claims:
        raise IllFormed(str(path), "no claims", "a theory has claims", "write [[claim]] tables")
    read = tuple(_claim(f"{path}: claim {i}", c) for i, c in enumerate(claims, 1))
    return Theory(path.stem, str(table.get("title", "")), str(table.get("source", "")), read)


def _program_file(path: Path) -> Theory:
    from placement_proofs.program_text import load_file

    file = load_file(path)
    subject = Subject(str(path), program=file.program)
    claims = tuple(
        Claim(
            c.condition.replace("_", " ") or "all",
            subject,
            _verdict(c.verdict, f"{path}: verdict"),
            c.condition,
            c.factor,
            c.mesh,
        )
        for c in file.claims
    )
    if not claims:
        raise IllFormed(str(path), "no claims", "a theory has claims", "write [[claim]] tables")
    return Theory(path.stem, "", "", claims)


def _claim(place: str, table: Mapping[str, Any]) -> Claim:
    _check_claim(place, table)
    program = table.get("program")
    return Claim(
        str(table["name"]),
        _composition(table) if program is None else _program(table, place),
        _verdict(table.get("verdict"), f"{place}: verdict"),
        str(table.get("condition", "")),
        str(table.get("factor", "")),
        tuple(table.get("mesh", {}).items()),
    )


def _check_claim(place: str, table: Mapping[str, Any]) -> None:
    known = (*_KEYS, *_STATED)
    unknown = sorted(set(table) - set(known)) if isinstance(table, dict) else ["claim"]
    if unknown:
        raise IllFormed(
            place, repr(unknown[0]), f"a claim has {', '.join(known)}", "rename or remove it"
        )
    if "name" not in table or ("composition" in table) == ("program" in table):
        raise IllFormed(
            place,
            ", ".join(table) or "nothing",
            "a claim has a name, and a composition or a program",
            'write name = "..." and composition = "..."',
        )
    if table.get("condition", CONDITIONS[0]) not in CONDITIONS:
        raise IllFormed(
            f"{place}: condition",
            repr(table["condition"]),
            f"the conditions are {', '.join(CONDITIONS)}",
            "name one of them",
        )


def _verdict(found: object, place: str) -> Verdict:
    if found not in _VERDICTS:
        raise IllFormed(
            place,
            repr(found),
            f"a claim gives {', '.join(_VERDICTS)}",
            'write verdict = "proved"',
        )
    return Verdict(str(found))


def _composition(table: Mapping[str, Any]) -> Subject:
    return read_subject(
        str(table["composition"]),
        model=table.get("model"),
        profile=table.get("profile", "paper"),
        without=table.get("without", ()),
    )


def _program(table: Mapping[str, Any], place: str) -> Subject:
    from placement_proofs.program_text import parse_program

    return Subject(str(table["name"]), program=parse_program(str(table["program"]), place=place))


def run_claims(theories: Iterable[Theory]) -> Iterator[Outcome]:
    """Check the claims of theories, one after another."""
    from placement_proofs.checking import check

    for theory in theories:
        for claim in theory.claims:
            yield Outcome(theory.name, claim, check(claim.subject))
