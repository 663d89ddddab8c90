"""Exact replay of an element program on a concrete mesh, with the standard library only.

It shares nothing with the prover but the program. Every rank is run, every element, every
turn, in integers and fractions; what one device would do is computed next to it, and each
obligation is compared on the spot.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

from placement_proofs.program import (
    Apply,
    Clip,
    Cover,
    Expect,
    Init,
    Loop,
    Move,
    Program,
    Reduce,
    Sample,
    Scale,
    Slice,
    Source,
    Square,
    Step,
    Take,
    Tick,
    Update,
    Use,
)
from placement_proofs.program.backward import derived
from placement_proofs.replay.checks import cover, expect, update, use
from placement_proofs.replay.machine import Machine, Stop, Watch
from placement_proofs.replay.owners import unified
from placement_proofs.replay.result import Mismatch, Path, Replay, step_name
from placement_proofs.replay.steps import local
from placement_proofs.replay.transfers import transfer
from placement_proofs.replay.world import World, owner_pairs

__all__ = ["Mismatch", "Path", "Replay", "replay", "step_name", "work"]


def work(program: Program, sizes: Mapping[str, int]) -> int:
    """Rank-element-turns of a replay, the measure of its cost."""
    pairs = [axis for axis, _ in owner_pairs(unified(derived(program), sizes))]
    turns = math.prod(sizes[loop] for loop in program.loops)
    return math.prod(sizes[axis] for axis in (*program.axes, *pairs)) * turns


def replay(
    program: Program,
    sizes: Mapping[str, int],
    seed: int | None = None,
    *,
    stop: bool = False,
    watch: Watch | None = None,
) -> Replay:
    """Run a program on a mesh of the given sizes (all axes and loops).

    `seed=None` uses small primes as free values, else large random integers. With `stop`
    the run ends at the first mismatch. `watch` is called before and after every step that runs.
    Raises `IllFormed` if a step has no meaning there.
    """
    program = unified(derived(program), sizes)
    machine = Machine(program, World(program, sizes, seed), stop, watch)
    with contextlib.suppress(Stop):
        _run(machine, program.steps, ())
    return machine.result


def _run(machine: Machine, steps: tuple[Step, ...], prefix: Path) -> None:
    for index, step in enumerate(steps):
        machine.path = (*prefix, index)
        if machine.open(step.g):
            machine.seen("before")
            _step(machine, step)
            machine.path = (*prefix, index)
            machine.seen("after")


def _step(machine: Machine, step: Step) -> None:
    match step:
        case Loop():
            _loop(machine, step)
        case Source() | Init() | Sample() | Scale() | Move() | Apply() | Square() | Clip():
            local(machine, step)
        case Reduce() | Take() | Slice():
            transfer(machine, step)
        case Use():
            use(machine, step)
        case Update():
            update(machine, step)
        case Expect():
            expect(machine, step)
        case Cover():
            cover(machine, step)
        case Tick():
            machine.advance()


def _loop(machine: Machine, step: Loop) -> None:
    path = machine.path
    for turn in range(machine.world.sizes[step.axis]):
        machine.turns[step.axis] = turn
        _run(machine, step.body, path)
    del machine.turns[step.axis]
