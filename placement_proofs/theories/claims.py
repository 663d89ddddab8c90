"""Theories: claims with the verdict that each must give, right and wrong ones side by side.

A theory is a TOML file with a title, a source and claims. A claim has a ``name`` and a ``verdict``
(of all, or of the ``condition`` that it names), and is about one of three things: a
``composition`` (with ``without``, deviations from its derived plan), an element ``program``, or a
``theorem`` in code (one of its ``wrong`` forms, if named). A refuted claim may state the
``factor`` and ``mesh`` of its counterexample, and another mesh where it shows ``also``.
``mutant`` (deviations) or ``against`` (the name of another claim) says what must give the opposite
verdict, where none is found by itself. What is out of reach stands in ``[[open]]`` tables with its
reason. A file of one element program with claims is a theory too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.theorems import Theorem, find_theorem
from placement_proofs.toml_file import read_toml
from placement_proofs.verdict import CONDITIONS, Verdict

SCHEMA = "placement-proofs/theories/2"

_PACKAGE = Path(__file__).parent.parent
HOMES = (_PACKAGE / "_theories", _PACKAGE.parent / "theories")
"""Where theories stand: in an installed package, in a checkout."""

_KEYS = (
    "name",
    "composition",
    "model",
    "profile",
    "loss",
    "without",
    "program",
    "theorem",
    "wrong",
)
_STATED = ("verdict", "condition", "factor", "mesh", "also", "mutant", "against")
_ABOUT = ("composition", "program", "theorem")
_VERDICTS = (Verdict.PROVED, Verdict.REFUTED, Verdict.UNKNOWN)


@dataclass(frozen=True)
class Claim:
    """One claim: what is claimed, of what, and the verdict that it must give."""

    name: str
    subject: Subject | None
    verdict: Verdict
    condition: str = ""
    factor: str = ""
    mesh: tuple[tuple[str, int], ...] = ()
    also: tuple[tuple[str, int], ...] = ()
    theorem: Theorem | None = None
    wrong: str = ""
    mutant: tuple[str, ...] = ()
    against: str = ""

    @property
    def about(self) -> str:
        """The text of what the claim is about."""
        if self.subject is not None:
            return self.subject.text
        assert self.theorem is not None
        return f"not {self.wrong}" if self.wrong else self.theorem.statement


@dataclass(frozen=True)
class Open:
    """A claim that is not proved here, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Theory:
    """A theory: its file's stem, a title, where it comes from, its claims, what is open."""

    name: str
    title: str
    source: str
    claims: tuple[Claim, ...]
    open: tuple[Open, ...] = ()


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
    table = read_toml(path)
    if "program" in table:
        return _program_file(path)
    claims = table.get("claim", [])
    if not isinstance(claims, list) or not claims:
        raise IllFormed(str(path), "no claims", "a theory has claims", "write [[claim]] tables")
    read = tuple(_claim(f"{path}: claim {i}", c) for i, c in enumerate(claims, 1))
    left = tuple(Open(str(o["name"]), str(o["reason"])) for o in table.get("open", ()))
    return Theory(path.stem, str(table.get("title", "")), str(table.get("source", "")), read, left)


def _program_file(path: Path) -> Theory:
    from placement_proofs.program.text import load_file

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
    named = str(table.get("theorem", ""))
    wrong = str(table.get("wrong", ""))
    return Claim(
        str(table["name"]),
        None if named else _subject(place, table),
        _verdict(table.get("verdict"), f"{place}: verdict"),
        str(table.get("condition", "")),
        str(table.get("factor", "")),
        tuple(table.get("mesh", {}).items()),
        tuple(table.get("also", {}).items()),
        find_theorem(named, wrong, place) if named else None,
        wrong,
        tuple(table.get("mutant", ())),
        str(table.get("against", "")),
    )


def _subject(place: str, table: Mapping[str, Any]) -> Subject:
    return _program(table, place) if "program" in table else _composition(table)


def _check_claim(place: str, table: Mapping[str, Any]) -> None:
    known = (*_KEYS, *_STATED)
    unknown = sorted(set(table) - set(known)) if isinstance(table, dict) else ["claim"]
    if unknown:
        raise IllFormed(
            place, repr(unknown[0]), f"a claim has {', '.join(known)}", "rename or remove it"
        )
    if "name" not in table or sum(key in table for key in _ABOUT) != 1:
        raise IllFormed(
            place,
            ", ".join(table) or "nothing",
            "a claim has a name, and a composition or a program or a theorem",
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
        loss=table.get("loss"),
        without=table.get("without", ()),
    )


def _program(table: Mapping[str, Any], place: str) -> Subject:
    from placement_proofs.program.text import parse_program

    return Subject(str(table["name"]), program=parse_program(str(table["program"]), place=place))
