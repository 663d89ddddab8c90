"""What a replay reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from placement_proofs.replay.world import Element, Number, Rank

Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One obligation that failed on one rank, for one element.

    `step` is the path of the step in the program (indices from 0, one a loop level);
    `turns` the turns of the open loops, from 0. `dependent` marks a norm that is wrong only
    because the gradients already are.
    """

    condition: str
    step: Path
    rank: Rank
    element: Element
    turns: tuple[tuple[str, int], ...]
    tick: int
    expected: Number | None
    got: Number | None
    subject: str
    note: str = ""
    dependent: bool = False
    contributions: tuple[tuple[str, Number], ...] = ()


@dataclass
class Replay:
    """Outcome of a replay: all mismatches in order, and the number of obligations met."""

    sizes: dict[str, int]
    mismatches: list[Mismatch] = field(default_factory=list)
    obligations: dict[str, int] = field(default_factory=dict)

    def failed(self, condition: str) -> Mismatch | None:
        """The first mismatch of a condition."""
        return next((m for m in self.mismatches if m.condition == condition), None)


def step_name(path: Path) -> str:
    """The path of a step as people count: `3.2` is the second step of the third."""
    return ".".join(str(i + 1) for i in path)
