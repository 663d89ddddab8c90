"""Repairs that move or write several steps at once: norms, arguments, copies, the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placement_proofs.program import (
    Apply,
    Clip,
    Expect,
    Init,
    Loop,
    Move,
    Program,
    Reduce,
    Slice,
    Source,
    Square,
    Step,
    Take,
)
from placement_proofs.prove.blame import paths
from placement_proofs.prove.edits import Edit, plain, replaced, ring, swap
from placement_proofs.replay import Path


def blocks(program: Program) -> Iterator[Edit]:
    """Candidates, each a change in one place."""
    yield from _clipped_once(program)
    for before, after in zip(_all(program), _all(program)[1:], strict=False):
        yield from _reduced_arguments(program, before, after)
    yield from _written_back(program)
    yield from _by_its_owners(program)
    yield from _other_source(program)
    yield from _other_ranks(program)
    yield from _weighed(program)


def agreed(program: Program) -> tuple[Program, str, int] | None:
    """The program whose copies agree at the start, in words, and how many steps that takes."""
    varied = [(b.name, axis) for b in program.buffers for axis in b.vary]
    taken = tuple(Take(name, axis, "first") for name, axis in varied)
    if not taken:
        return None
    texts = "; ".join(map(plain, taken))
    return replace(program, steps=(*taken, *program.steps)), f"first '{texts}', then ", len(taken)


def _all(program: Program) -> list[tuple[Path, Step]]:
    return list(paths(program.steps))


def _clipped_once(program: Program) -> Iterator[Edit]:
    """A norm and its clipping move behind the loop around them."""
    for path, loop in paths(program.steps):
        if not isinstance(loop, Loop):
            continue
        moved = tuple(s for s in loop.body if isinstance(s, Square | Clip))
        kept = tuple(s for s in loop.body if s not in moved)
        if any(isinstance(s, Clip) for s in moved) and kept:
            steps = replaced(program.steps, path, (replace(loop, body=kept), *moved))
            texts = "; ".join(map(plain, moved))
            text = f"move '{texts}' behind the loop over {loop.axis}"
            yield Edit("clip once", path, text, "0", replace(program, steps=steps))


def _reduced_arguments(
    program: Program, before: tuple[Path, Step], after: tuple[Path, Step]
) -> Iterator[Edit]:
    """The arguments of a function are reduced, not its value."""
    apply, reduce = before[1], after[1]
    if not isinstance(apply, Apply) or not isinstance(reduce, Reduce) or apply.dst != reduce.buf:
        return
    reduced: list[Step] = [replace(reduce, buf=arg) for arg in apply.args]
    new = (*reduced, apply)
    steps = replaced(replaced(program.steps, after[0], ()), before[0], new)
    text = f"replace '{plain(apply)}; {plain(reduce)}' by '{'; '.join(map(plain, new))}'"
    cost = ring(2 * (len(reduced) - 1), reduce.axes) if len(reduced) > 1 else "0"
    yield Edit("reduce the arguments", before[0], text, cost, replace(program, steps=steps))


def _written_back(program: Program) -> Iterator[Edit]:
    """What was changed in a gathered copy is written back to the shards."""
    held = {b.name: b.held for b in program.buffers}
    held |= {s.dst: s.held for _, s in paths(program.steps) if isinstance(s, Init)}
    for path, step in paths(program.steps):
        if isinstance(step, Apply) and len(path) == 1:
            for source in _sources(program, step.dst):
                back: list[Step] = [Move(source, step.dst)]
                back += [Slice(source, axis, owner) for axis, owner in held.get(source, ())]
                steps = replaced(program.steps, path, (step, *back))
                text = f"after '{plain(step)}': '{'; '.join(map(plain, back))}'"
                yield Edit("write back", path, text, "0", replace(program, steps=steps))


def _by_its_owners(program: Program) -> Iterator[Edit]:
    """A copy of shards is gathered by the owners that cut them, on all axes."""
    held = {b.name: dict(b.held) for b in program.buffers}
    for path, move in paths(program.steps):
        if not isinstance(move, Move) or not held.get(move.src) or len(path) > 1:
            continue
        steps, texts = list(program.steps), []
        for index, step in enumerate(steps):
            if isinstance(step, Take) and step.buf == move.dst and step.axis in held[move.src]:
                steps[index] = replace(step, pos=held[move.src][step.axis])
                texts.append(plain(steps[index]))
        if tuple(steps) != program.steps:
            text = f"gather {move.dst} by the owners of {move.src}: '{'; '.join(texts)}'"
            yield Edit("set the owners", path, text, "0", replace(program, steps=tuple(steps)))


def _other_source(program: Program) -> Iterator[Edit]:
    """A copy of another state."""
    drawn = [s.dst for _, s in paths(program.steps) if isinstance(s, Init)]
    for path, step in paths(program.steps):
        if isinstance(step, Move) and step.src in drawn and not step.add:
            for name in drawn:
                if name not in (step.src, step.dst):
                    new = replace(step, src=name)
                    yield swap(program, path, (new,), "take the other state")


def _other_ranks(program: Program) -> Iterator[Edit]:
    """A step that runs on the ranks on which another one runs."""
    guards = dict.fromkeys(step.g.at for _, step in paths(program.steps))
    for path, step in paths(program.steps):
        for at in guards if step.g.at and not isinstance(step, Expect) else ():
            if at != step.g.at:
                new = replace(step, g=replace(step.g, at=at))
                yield swap(program, path, (new,), "set the right ranks")


def _weighed(program: Program) -> Iterator[Edit]:
    """Only contributions whose own flag is set."""
    steps = list(paths(program.steps))
    flags = [s.dst for _, s in steps if isinstance(s, Source) and s.flag]
    for path, step in steps:
        if isinstance(step, Source) and not step.count and step.factor == "1":
            for flag in flags:
                yield swap(program, path, (replace(step, factor=flag),), "weigh by the flag")


def _sources(program: Program, copy: str) -> list[str]:
    """The buffers that a buffer is a copy of."""
    declared = {b.name for b in program.buffers}
    written = declared | {s.dst for _, s in paths(program.steps) if isinstance(s, Init)}
    moves = (s for _, s in paths(program.steps) if isinstance(s, Move))
    return [s.src for s in moves if s.dst == copy and s.src in written and not s.add]
