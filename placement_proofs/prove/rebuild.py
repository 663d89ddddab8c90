"""Candidate repairs that rebuild a part: norms, counts, tied gradients, owners, lost terms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from placement_proofs.program import (
    Buffer,
    Clip,
    Loop,
    Move,
    Param,
    Program,
    Reduce,
    Scale,
    Slice,
    Source,
    Square,
    Step,
    Take,
    Update,
    Use,
)
from placement_proofs.program.owners import renamed
from placement_proofs.program.rules import ENDS, sources
from placement_proofs.prove.blame import paths, writes
from placement_proofs.prove.edits import Edit, accumulated, insert, replaced, ring, swap
from placement_proofs.replay import Path
from placement_proofs.replay.world import owner_pairs


def rebuilt(program: Program) -> Iterator[Edit]:
    """Changes of several steps that belong together."""
    steps = dict(paths(program.steps))
    for path, step in steps.items():
        if isinstance(step, Clip):
            yield _norm(program, path, step)
    yield from _lost_terms(program)
    yield from _tied(program, steps)
    yield from _relaid(program, steps)
    yield from _loaded(program, steps)
    yield from _counts(program, steps)
    yield from _taking_part(program, steps)
    yield from _owners(program)


# --- norms ---------------------------------------------------------------------------


def _norm(program: Program, path: Path, step: Clip) -> Edit:
    """Squares by layout: each buffer's own, summed over the axes that cut it."""
    held = _layouts(program)
    new: list[Step] = []
    axes: tuple[str, ...] = ()
    for index, name in enumerate(step.bufs):
        part = step.by if index == 0 else f"{step.by}.{index}"
        cut = tuple(axis for axis, _ in held.get(name, ()))
        new.append(Square(part, (name,)))
        new += [Reduce(part, cut)] if cut else []
        new += [Move(step.by, part, add=True)] if index else []
        axes = (*axes, *cut)
    cost = "0" if not axes else "one scalar per rank"
    return insert(program, path, tuple(new), "count each element once in the norm", cost)


def _layouts(program: Program) -> dict[str, tuple[tuple[str, str], ...]]:
    held = {b.name: b.held for b in program.buffers}
    updates = (s for _, s in paths(program.steps) if isinstance(s, Update))
    return {update.grad: held[update.buf] for update in updates}


# --- terms and tied copies -----------------------------------------------------------


def _lost_terms(program: Program) -> Iterator[Edit]:
    """A family of a target that no step contributes."""
    known = {source.family for source in sources(program.steps)}
    copies = {b.name: b.of for b in program.buffers}
    grads = [(s.grad, copies[s.buf]) for _, s in paths(program.steps) if isinstance(s, Update)]
    for (grad, name), (path, step) in itertools.product(grads, list(paths(program.steps))):
        if not isinstance(step, Source) or step.dst != grad:
            continue
        for term in program.param(name).target:
            if term.family not in known:
                new = replace(step, family=term.family, over=term.over, add=True)
                what = "add the term that is lost"
                yield insert(program, path, (new,), what, after=True)


def _tied(program: Program, steps: dict[Path, Step]) -> Iterator[Edit]:
    """The sum of the gradients of two copies of one parameter, for both."""
    copies = {b.name: b for b in program.buffers}
    updates = [(p, s) for p, s in steps.items() if isinstance(s, Update)]
    for (path, left), (_, right) in itertools.combinations(updates, 2):
        one, other = copies[left.buf], copies[right.buf]
        if one.of == other.of and left.grad != right.grad:
            yield _summed(program, path, (left.grad, one), (right.grad, other))


def _summed(
    program: Program, path: Path, left: tuple[str, Buffer], right: tuple[str, Buffer]
) -> Edit:
    before: list[Step] = []
    after: list[Step] = []
    axes: tuple[str, ...] = ()
    for grad, copy in (left, right):
        ends = [(axis, end) for axis, end in copy.held if end in ENDS]
        before += [Take(grad, axis, end) for axis, end in ends]
        after += [Slice(grad, axis, end) for axis, end in ends]
        axes = (*axes, *(axis for axis, _ in ends))
    shared = [Move(left[0], right[0], add=True), Move(right[0], left[0])]
    what = "sum the gradients of the tied copies"
    return insert(
        program, path, (*before, *shared, *after), what, ring(1, tuple(dict.fromkeys(axes)))
    )


# --- layouts and loads ---------------------------------------------------------------


def _relaid(program: Program, steps: dict[Path, Step]) -> Iterator[Edit]:
    """A copy between two layouts of the same axes, through the whole tensor."""
    held = {b.name: dict(b.held) for b in program.buffers}
    for path, step in steps.items():
        if not isinstance(step, Move) or not {step.dst, step.src} <= set(held):
            continue
        old, new = held[step.src], held[step.dst]
        axes = [axis for axis in old if axis in new and old[axis] != new[axis]]
        if not axes:
            continue
        name = f"{step.dst}.whole"
        moved: list[Step] = [Move(name, step.src)]
        moved += [Take(name, axis, old[axis]) for axis in axes]
        moved += [Slice(name, axis, new[axis]) for axis in axes]
        steps_ = (*moved, replace(step, src=name))
        yield swap(program, path, steps_, "cut the whole tensor again", ring(1, tuple(axes)))


def _loaded(program: Program, steps: dict[Path, Step]) -> Iterator[Edit]:
    """A copy that was saved to a buffer and is not loaded from it."""
    copies = {b.name for b in program.buffers if b.of}
    saved = [(s.dst, s.src) for s in steps.values() if isinstance(s, Move) and s.src in copies]
    for path, step in steps.items():
        for buffer, copy in saved:
            if isinstance(step, Use) and step.buf == copy and buffer not in copies:
                yield insert(program, path, (Move(copy, buffer),), "load what was saved")


# --- counts --------------------------------------------------------------------------


def _counts(program: Program, steps: dict[Path, Step]) -> Iterator[Edit]:
    """The count that divides: averaged over the ranks, and over the turns of its loop."""
    scalars = {s.dst for s in sources(program.steps) if s.count}
    for path, step in steps.items():
        if isinstance(step, Move) and step.src in scalars:
            scalars.add(step.dst)
        here = isinstance(step, Source) and step.count
        if here or (isinstance(step, Move) and step.dst in scalars):
            name = writes(step)[0]
            for axes in (program.axes, *((axis,) for axis in program.axes)):
                new = Reduce(name, axes, mean=True)
                what = "average the count over the ranks"
                yield insert(program, path, (new,), what, "one scalar per rank", after=True)
        if isinstance(step, Source) and step.count and len(path) > 1:
            yield from _all_turns(program, path, step)


def _all_turns(program: Program, path: Path, step: Source) -> Iterator[Edit]:
    """Count in a loop of its own, so that every turn divides by the average of all."""
    loop = dict(paths(program.steps))[path[:-1]]
    assert isinstance(loop, Loop)
    if loop.axis not in step.over:
        return
    about = [s for s in loop.body if step.dst in writes(s) and s is not step]
    rest = tuple(s for s in loop.body if step.dst not in writes(s))
    done = {axis for s in about if isinstance(s, Reduce) for axis in s.axes}
    missing = tuple(axis for axis in step.over if axis in program.axes and axis not in done)
    counting = Loop(loop.axis, accumulated(step, loop.axis), loop.g)
    averaged: list[Step] = [Reduce(step.dst, missing, mean=True)] if missing else []
    averaged.append(Scale(step.dst, f"1/{loop.axis}"))
    new = (counting, *about, *averaged, replace(loop, body=rest))
    steps = replaced(program.steps, path[:-1], new)
    text = f"count {step.family} in all turns of {loop.axis} first, and divide by the average"
    yield Edit(
        "average the count over ranks and turns",
        path,
        text,
        "one scalar per rank",
        replace(program, steps=steps),
    )


def _taking_part(program: Program, steps: dict[Path, Step]) -> Iterator[Edit]:
    """A mean over the ranks that take part instead of all."""
    flags = tuple(dict.fromkeys(s.dst for s in sources(program.steps) if s.flag))
    for path, step in steps.items():
        if isinstance(step, Reduce) and step.mean:
            for flag in flags:
                name = f"{flag}.all"
                new = (
                    replace(step, mean=False),
                    Move(name, flag),
                    Reduce(name, step.axes),
                    Scale(step.buf, f"1/{name}"),
                )
                what = "divide by the ranks that take part"
                yield swap(program, path, new, what, "one scalar per rank")


# --- owners --------------------------------------------------------------------------


def _owners(program: Program) -> Iterator[Edit]:
    """Owners that are aligned, or own whole tensors where the optimizer needs them."""
    said = {(owner.axis, owner.name) for owner in program.owners}
    said |= {(axis, p.removeprefix("!")) for _, s in paths(program.steps) for axis, p in s.g.at}
    pairs = [pair for pair in owner_pairs(program) if pair not in said]
    for (axis, one), (where, other) in itertools.permutations(pairs, 2):
        if axis == where:
            text = f"let {other} own on {axis} what {one} owns"
            yield _renaming(program, {(axis, other): one}, text)
    if any(_whole(param) for param in program.params):
        for axis, name in pairs:
            if not name.startswith("tensor"):
                text = f"give whole tensors to the owners on {axis}"
                yield _renaming(program, {(axis, name): "tensor"}, text)


def _renaming(program: Program, names: dict[tuple[str, str], str], text: str) -> Edit:
    return Edit("align the owners", (0,), text, "0", renamed(program, names))


def _whole(param: Param) -> bool:
    return param.update == "whole"
