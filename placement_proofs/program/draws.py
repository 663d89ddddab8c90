"""Random streams: which draw of a stream each `Sample` is, the same for every reader.

The counter of a stream is the number of draws before it in program order. Where only the ranks at
one position draw, they are ahead from then on (`counted`). Draws in a loop are
one family with the turns as indices; a step of the specification starts the streams anew
under new numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from placement_proofs.errors import IllFormed
from placement_proofs.program import ALWAYS, Axes, Loop, Program, Sample, Step, Tick
from placement_proofs.program.rules import sources

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A draw: the family of its numbers, and the loops whose turns draw new ones."""

    family: str
    loops: Axes


def draws(program: Program) -> dict[Path, Drawn]:
    """The draw that each `Sample` of a program is; raises `IllFormed` for a vain replay."""
    found: dict[Path, Drawn] = {}
    counters: dict[str, int] = {}
    latest: dict[str, tuple[str, Drawn]] = {}
    for path, step, loops in _samples(program.steps, (), ()):
        if step.replay:
            found[path] = _replayed(step, latest, path, loops)
        else:
            number = counters.get(step.stream, 0) if step.number is None else step.number
            counters[step.stream] = number + 1
            name = f"{step.stream}.n{number}" if number else step.stream
            found[path] = Drawn(name, loops)
        latest[step.dst] = (step.stream, found[path])
    return found


def _replayed(step: Sample, latest: dict[str, tuple[str, Drawn]], path: Path, loops: Axes) -> Drawn:
    stream, drawn = latest.get(step.replay, ("", Drawn("", ())))
    found = f"replay={step.replay}, which was not drawn from {step.stream}"
    if stream == step.stream and not set(drawn.loops) <= set(loops):
        found = f"replay={step.replay}, which was drawn in a loop over {', '.join(drawn.loops)}"
    elif stream == step.stream:
        return drawn
    raise IllFormed(
        f"step {'.'.join(str(i + 1) for i in path)}",
        found,
        "a counter is set back to where a buffer was drawn from the same stream, in the same turn",
        "name that buffer, inside the loop",
    )


def _samples(
    steps: tuple[Step, ...], prefix: Path, loops: Axes
) -> Iterator[tuple[Path, Sample, Axes]]:
    for index, step in enumerate(steps):
        path = (*prefix, index)
        if isinstance(step, Sample):
            yield path, step, loops
        elif isinstance(step, Loop):
            ticks = any(isinstance(inner, Tick) and inner.g == ALWAYS for inner in step.body)
            yield from _samples(step.body, path, loops if ticks else (*loops, step.axis))


@dataclass
class _Ahead:
    """Where some ranks have drawn more often: their position, and how much more."""

    at: tuple[str, str]
    more: int = 0


def counted(program: Program) -> Program:
    """The program in which ranks that are ahead in a stream draw other numbers than the rest."""
    found: dict[str, tuple[str, str]] = {}
    for path, step, _ in _samples(program.steps, (), ()):
        for at in step.g.at if step.number is None else ():
            place = f"step {'.'.join(str(i + 1) for i in path)}"
            if len(step.g.at) > 1 or found.setdefault(step.stream, at) != at:
                raise IllFormed(
                    place,
                    f"draws from {step.stream!r} at two positions",
                    "one position of one axis may be ahead in a stream",
                    "use one stream for each",
                )
    if not found:
        return program
    ahead = {stream: _Ahead(at) for stream, at in found.items()}
    return replace(program, steps=tuple(_counted(program.steps, ahead, {})))


def _counted(
    steps: tuple[Step, ...], ahead: dict[str, _Ahead], counters: dict[str, int]
) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, Loop):
            yield replace(step, body=tuple(_counted(step.body, ahead, counters)))
        elif not isinstance(step, Sample) or step.stream not in ahead or step.replay:
            yield step
        else:
            yield from _apart(step, ahead[step.stream], counters)


def _apart(step: Sample, ahead: _Ahead, counters: dict[str, int]) -> Iterator[Sample]:
    """A draw of the ranks that are ahead, and one of the others."""
    number = counters.get(step.stream, 0)
    if step.g.at:
        yield replace(step, number=number + ahead.more)
        ahead.more += 1
        return
    counters[step.stream] = number + 1
    if not ahead.more:
        yield replace(step, number=number)
        return
    axis, position = ahead.at
    for there, more in ((position, ahead.more), (_opposite(position), 0)):
        guard = replace(step.g, at=((axis, there),))
        yield replace(step, number=number + more, g=guard)


def _opposite(position: str) -> str:
    return position[1:] if position.startswith("!") else f"!{position}"


def drawn_families(program: Program) -> frozenset[str]:
    """The families of numbers that one device draws."""
    return frozenset(drawn.family for drawn in draws(program).values())


def flag_families(program: Program) -> frozenset[str]:
    """The count families whose members are 0 or 1."""
    return frozenset(s.family for s in sources(program.steps) if s.flag)
