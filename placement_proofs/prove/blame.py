"""Which step to blame, and how a step reads in a message."""

from __future__ import annotations

from collections.abc import Iterator

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
from placement_proofs.program.print import step_text
from placement_proofs.prove.counterexample import Counterexample
from placement_proofs.replay import Path


def paths(steps: tuple[Step, ...], prefix: Path = ()) -> Iterator[tuple[Path, Step]]:
    """Every step with its path, in program order."""
    for index, step in enumerate(steps):
        path = (*prefix, index)
        yield path, step
        if isinstance(step, Loop):
            yield from paths(step.body, path)


def step_texts(program: Program) -> dict[Path, str]:
    """How each step reads."""
    return {path: step_text(step) for path, step in paths(program.steps)}


def writes(step: Step) -> tuple[str, ...]:
    """The buffers that a step writes."""
    match step:
        case Source(dst=dst) | Init(dst=dst) | Sample(dst=dst):
            return (dst,)
        case Move(dst=dst) | Apply(dst=dst) | Square(dst=dst):
            return (dst,)
        case Reduce(buf=buf) | Take(buf=buf) | Slice(buf=buf) | Scale(buf=buf) | Update(buf=buf):
            return (buf,)
        case Clip(bufs=bufs):
            return bufs
        case Use() | Tick() | Expect() | Cover() | Loop():
            return ()


def reads(step: Step) -> tuple[str, ...]:
    """The buffers whose value an obligation of a step is about."""
    match step:
        case Update(grad=grad):
            return (grad,)
        case Clip(by=by):
            return (by,)
        case Use(buf=buf) | Expect(buf=buf):
            return (buf,)
        case _:
            return ()


def first_cause(program: Program, condition: str, example: Counterexample) -> Path:
    """The step to blame for a failed obligation, without trying repairs.

    It is the last step before the obligation that wrote what the obligation reads. Where
    that only made the local contributions, or for state that nothing wrote, a step is missing
    and the obligation itself is named, unless the turns of a loop were mixed up.
    """
    failed = example.step
    steps = dict(paths(program.steps))
    names = set(reads(steps[failed]))
    if condition == "state_consistency" or not names:
        return failed
    before = [
        path
        for path, step in steps.items()
        if path < failed and names & set(writes(step)) and not isinstance(step, Update | Clip)
    ]
    looped = [path for path in before if isinstance(steps[path], Source) and len(path) > 1]
    if looped and any(f"{loop} last" in example.factor for loop in program.loops):
        return looped[-1]
    if not before or isinstance(steps[before[-1]], Source | Init | Sample):
        return failed
    return before[-1]
