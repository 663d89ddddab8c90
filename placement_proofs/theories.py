"""Theories: claims with the verdict that each must give, right and wrong ones side by side.

A theory is a TOML file with a title, a source and claims. A claim gives a ``composition`` (and
``without``, deviations from its derived plan) or an element ``program``, and the ``expect``-ed
verdict; ``condition`` names the condition that a refuted claim fails.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.verdict import CONDITIONS, Verdict

SCHEMA = "placement-proofs/theories/1"

HOMES = (Path(__file__).parent / "_theories", Path(__file__).parent.parent / "theories")
"""Where theories stand: in an installed package, in a checkout."""

_KEYS = ("name", "composition", "model", "profile", "without", "program", "expect", "condition")
_VERDICTS = (Verdict.PROVED, Verdict.REFUTED, Verdict.UNKNOWN)


@dataclass(frozen=True)
class Claim:
    """One claim: what is claimed, of what, and the verdict it must give."""

    name: str
    subject: Subject
    expect: Verdict
    condition: str = ""


@dataclass(frozen=True)
class Theory:
    """A theory: its file's stem, a title, where it comes from, and its claims."""

    name: str
    title: str
    source: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Outcome:
    """What a claim gave; it is as expected when verdict and failing condition are."""

    theory: str
    claim: Claim
    verdict: Verdict
    condition: str
    covers: str
    reason: str

    @property
    def as_expected(self) -> bool:
        """Whether the claim gives its verdict, and fails where it must fail."""
        expected = self.claim.condition
        return self.verdict is self.claim.expect and expected in ("", self.condition)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "theory": self.theory,
            "claim": self.claim.name,
            "subject": self.claim.subject.text,
            "without": list(self.claim.subject.deviations),
            "expected": self.claim.expect.value,
            "got": self.verdict.value,
            "condition": self.condition,
            "covers": self.covers,
            "reason": self.reason,
            "as_expected": self.as_expected,
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
    claims = table.get("claim", [])
    if not isinstance(claims, list) or not claims:
        raise IllFormed(str(path), "no claims", "a theory has claims", "write [[claim]] tables")
    read = tuple(_claim(f"{path}: claim {i}", c) for i, c in enumerate(claims, 1))
    return Theory(path.stem, str(table.get("title", "")), str(table.get("source", "")), read)


def _claim(place: str, table: Mapping[str, Any]) -> Claim:
    _check_claim(place, table)
    subject = _program(table, place) if "program" in table else _composition(table)
    return Claim(
        table["name"], subject, Verdict(table["expect"]), str(table.get("condition", ""))
    )


def _check_claim(place: str, table: Mapping[str, Any]) -> None:
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise IllFormed(
            place, repr(unknown[0]), f"a claim has {', '.join(_KEYS)}", "rename or remove it"
        )
    if "name" not in table or ("composition" in table) == ("program" in table):
        raise IllFormed(
            place,
            ", ".join(table) or "nothing",
            "a claim has a name, and a composition or a program",
            'write name = "..." and composition = "..."',
        )
    if table.get("expect") not in _VERDICTS:
        raise IllFormed(
            f"{place}: expect",
            repr(table.get("expect")),
            f"a claim gives {', '.join(_VERDICTS)}",
            'write expect = "proved"',
        )
    if table.get("condition", CONDITIONS[0]) not in CONDITIONS:
        raise IllFormed(
            f"{place}: condition",
            repr(table["condition"]),
            f"the conditions are {', '.join(CONDITIONS)}",
            "name one of them",
        )


def _composition(table: Mapping[str, Any]) -> Subject:
    return read_subject(
        table["composition"],
        model=table.get("model"),
        profile=table.get("profile", "paper"),
        without=table.get("without", ()),
    )


def _program(table: Mapping[str, Any], place: str) -> Subject:
    from placement_proofs.program_text import parse_program

    return Subject(table["name"], program=parse_program(table["program"], place))


def run_claims(theories: Iterable[Theory]) -> Iterator[Outcome]:
    """Check the claims of theories, one after another."""
    for theory in theories:
        for claim in theory.claims:
            yield _outcome(theory, claim)


def _outcome(theory: Theory, claim: Claim) -> Outcome:
    from placement_proofs.checking import check

    report = check(claim.subject)
    telling = [c for c in report.conditions.values() if c.verdict is report.verdict]
    return Outcome(
        theory.name,
        claim,
        report.verdict,
        report.failure.condition if report.failure else "",
        next((c.covers for c in telling if c.covers), ""),
        next((c.reason for c in telling if c.reason), ""),
    )
