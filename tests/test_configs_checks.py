"""The checks of ``tests/data/config_checks.yaml``: a file that must be told of, and its twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from config_files import BASES, Edits, data, write

from placement_proofs.configs import IMPORTERS, detect, load
from placement_proofs.errors import IllFormed
from placement_proofs.models import Shape, transformer

CHECKS: Mapping[int, Mapping[str, Any]] = data("config_checks.yaml")
KINDS = ("mathematics", "rejected", "ignored", "unlikely", "refused")
NUMBER = 25


@dataclass(frozen=True)
class Case:
    """Edits of a format's base that must give a finding of a kind, and edits that must not.

    The kind ``refused`` is a file without meaning: ``rule`` is then a part of the message.
    """

    check: int
    format: str
    kind: str
    rule: str
    bad: Edits
    good: Edits = field(default_factory=dict)
    model: Mapping[str, int] = field(default_factory=dict)
    world: int | None = 8
    bad_world: int | None = -1

    def __str__(self) -> str:
        return f"{self.check}-{self.format}-{self.rule.replace(' ', '_')}"

    def found(self, folder: Path, edits: Edits, world: int | None) -> list[tuple[str, str]]:
        """Kind and rule of all that is said about a file."""
        file = write(folder, self.format, edits)
        model = transformer(Shape(**self.model)) if self.model else None
        assert detect(file) == self.format
        try:
            findings = load(file, world=world, model=model).findings
        except IllFormed as error:
            assert error.place.startswith(file.name), "a refusal has a place"
            return [("refused", str(error))]
        assert all(f.place.startswith(file.name) and f.source for f in findings)
        return [(f.kind, f.rule) for f in findings]

    def told(self, found: list[tuple[str, str]]) -> bool:
        """Whether the finding is among those found."""
        if self.kind == "refused":
            return any(kind == "refused" and self.rule in text for kind, text in found)
        return (self.kind, self.rule) in found


CASES = [Case(n, **case) for n, check in CHECKS.items() for case in check["cases"]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_told_and_its_twin_is_not(case: Case, tmp_path: Path) -> None:
    ranks = case.world if case.bad_world == -1 else case.bad_world
    bad = case.found(tmp_path, case.bad, ranks)
    good = case.found(tmp_path, case.good, case.world)
    assert case.told(bad), bad
    assert not case.told(good) and "refused" not in [kind for kind, _ in good], good


def test_every_check_has_cases_for_every_format_it_applies_to() -> None:
    assert list(CHECKS) == list(range(1, NUMBER + 1))
    formats = {importer.name for importer in IMPORTERS}
    assert set(BASES) == formats
    for number, check in CHECKS.items():
        told = {case.format for case in CASES if case.check == number}
        absent = [name for names in check.get("absent", {}).values() for name in names]
        assert told and told | set(absent) == formats and not told & set(absent), number
        assert len(absent) == len(set(absent))


def test_every_kind_occurs() -> None:
    assert {case.kind for case in CASES} == set(KINDS)


@pytest.mark.parametrize("format", BASES)
def test_bases_have_nothing_wrong(format: str, tmp_path: Path) -> None:
    found = load(write(tmp_path, format, {}), world=8).findings
    assert {f.kind for f in found} <= {"unlikely"}
