"""All runs of a program: the obligations of every size class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement_proofs.program import Program
from placement_proofs.prove.algebra import Atoms
from placement_proofs.prove.forms import NeedCase, Symbols
from placement_proofs.prove.loops import NotInductive
from placement_proofs.prove.owners import unified
from placement_proofs.prove.semantics import run
from placement_proofs.prove.sizes import MAX_RUNS, TooManyCases, refine, size_classes
from placement_proofs.prove.state import Obligation, SizeClass, State


@dataclass(frozen=True)
class Run:
    """One finished run."""

    size: SizeClass
    state: State

    @property
    def failed(self) -> list[Obligation]:
        """The obligations that do not hold."""
        return [o for o in self.state.obligations if not o.holds]


@dataclass(frozen=True)
class Runs:
    """The runs of a program, which together cover all sizes (or the fixed ones)."""

    symbols: Symbols
    runs: tuple[Run, ...]

    @property
    def holds(self) -> bool:
        """Whether every obligation of every run holds."""
        return not any(r.failed for r in self.runs)

    @property
    def bounded(self) -> tuple[str, ...]:
        """Loops that were only unrolled to a few lengths."""
        return tuple(sorted({loop for r in self.runs for loop in r.size.bounded}))


def execute(program: Program, sizes: Mapping[str, int]) -> Runs:
    """Run every size class.

    Raises `IllFormed` if a step has no meaning in one, `TooManyCases` if they are too many.
    """
    symbols = Symbols(Atoms())
    program = unified(program, sizes)
    todo = size_classes(program, sizes)
    done: list[Run] = []
    started = 0
    while todo:
        started += 1
        if started > MAX_RUNS:
            raise TooManyCases
        size = todo.pop()
        state = State(program, symbols, size)
        try:
            run(state, program.steps)
        except (NeedCase, NotInductive) as reason:
            todo.extend(refine(size, reason))
        else:
            done.append(Run(size, state))
    return Runs(symbols, tuple(done))
