"""Edited programs: the candidate repairs are built from these."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement_proofs.program import Guard, Loop, Move, Program, Source, Step
from placement_proofs.program.print import step_text
from placement_proofs.prove.blame import paths
from placement_proofs.replay import Path, step_name


@dataclass(frozen=True)
class Edit:
    """A change of a program: what it does, where, in words, and its extra traffic."""

    action: str
    step: Path
    text: str
    cost: str
    program: Program


def replaced(steps: tuple[Step, ...], at: Path, new: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with the one at a path replaced by others."""
    head, rest = at[0], at[1:]
    here = steps[head]
    if not rest:
        return (*steps[:head], *new, *steps[head + 1 :])
    assert isinstance(here, Loop)
    inner = replace(here, body=replaced(here.body, rest, new))
    return (*steps[:head], inner, *steps[head + 1 :])


def plain(step: Step) -> str:
    """A step as text, without its label."""
    return step_text(replace(step, why=""))


def swap(program: Program, at: Path, new: tuple[Step, ...], action: str, cost: str = "0") -> Edit:
    """The program with a step replaced."""
    old = dict(paths(program.steps))[at]
    texts = "; ".join(plain(step) for step in new)
    text = f"replace '{plain(old)}' by '{texts}'"
    steps = replaced(program.steps, at, new)
    return Edit(action, at, text, cost, replace(program, steps=steps))


def insert(
    program: Program,
    at: Path,
    new: tuple[Step, ...],
    action: str,
    cost: str = "0",
    *,
    after: bool = False,
) -> Edit:
    """The program with steps before (or after) a step."""
    here = dict(paths(program.steps))[at]
    steps = replaced(program.steps, at, (here, *new) if after else (*new, here))
    texts = "; ".join(plain(step) for step in new)
    text = f"{'after' if after else 'before'} step {step_name(at)}: '{texts}'"
    return Edit(action, at, text, cost, replace(program, steps=steps))


def accumulated(step: Source | Move, loop: str) -> tuple[Step, Step]:
    """A write that overwrites in the first turn of a loop and adds in the others."""
    first = Guard(step.g.sizes, (*step.g.turns, (loop, "first")), step.g.at)
    later = Guard(step.g.sizes, (*step.g.turns, (loop, "!first")), step.g.at)
    return replace(step, add=False, g=first), replace(step, add=True, g=later)


def innermost(program: Program, at: Path) -> str:
    """The innermost loop around a step, or nothing."""
    loops = [s.axis for p, s in paths(program.steps) if isinstance(s, Loop) and at[: len(p)] == p]
    return loops[-1] if loops and len(at) > 1 else ""


def ring(passes: int, axes: tuple[str, ...]) -> str:
    """Ring traffic per rank and element: 2(N-1)/N for an all-reduce, (N-1)/N for a gather."""
    if not axes:
        return "0"
    size = "*".join(f"N_{axis}" for axis in axes)
    group = size if len(axes) == 1 else f"({size})"
    head = f"{passes}*" if passes > 1 else ""
    return f"{head}({size}-1)/{group} * bytes"
