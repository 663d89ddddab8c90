"""What a theorem that is code says: queries for the solvers, checks on numbers, a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from placement_proofs.prove.smt import decide
from placement_proofs.verdict import Verdict


@dataclass(frozen=True)
class Query:
    """A claim as its negation in SMT-LIB 2: unsat if it holds; `text` has no check-sat.

    `premise` is the same without the negated goal: it must be satisfiable, or the claim is
    about nothing. A claim that something does not follow expects `sat`.
    """

    name: str
    logic: str
    declarations: str
    premises: tuple[str, ...]
    goal: str
    expected: str = "unsat"

    @property
    def premise(self) -> str:
        """Declarations and premises."""
        return self.declarations + "".join(f"(assert {p})\n" for p in self.premises)

    @property
    def text(self) -> str:
        """Premises and the negated goal."""
        return f"{self.premise}(assert (not {self.goal}))\n"


@dataclass(frozen=True)
class Finding:
    """The outcome of a theorem: its verdict, what it covers, what refutes it, its queries."""

    verdict: Verdict
    covers: str
    evidence: str = ""
    queries: tuple[Query, ...] = ()


Check = tuple[str, bool]
"""A check on numbers: what it says if it fails, and whether it holds."""


def conclude(
    covers: str, queries: Sequence[Query] = (), checks: Iterable[Check] = (), note: str = ""
) -> Finding:
    """Proved if every query is unsat and every check holds; the first that fails is told."""
    for text, holds in checks:
        if not holds:
            return Finding(Verdict.REFUTED, covers, text, tuple(queries))
    for query in queries:
        answer = decide(query.text).result
        if answer != query.expected:
            verdict = Verdict.UNKNOWN if answer == "unknown" else Verdict.REFUTED
            return Finding(verdict, covers, f"{query.name}: {answer}", tuple(queries))
    return Finding(Verdict.PROVED, covers, note, tuple(queries))


def reals(*names: str) -> str:
    """Declarations of real constants."""
    return "".join(f"(declare-const {name} Real)\n" for name in names)


def integers(*names: str) -> str:
    """Declarations of integer constants."""
    return "".join(f"(declare-const {name} Int)\n" for name in names)


@dataclass(frozen=True)
class Theorem:
    """A theorem that is code: what it says, its right form, and wrong ones that must fall."""

    name: str
    statement: str
    right: Callable[[], Finding]
    wrong: Mapping[str, Callable[[], Finding]]
