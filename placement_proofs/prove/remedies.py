"""Candidate repairs that change one step: streams, cuts, factors, signs, order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placement_proofs.program import (
    Clip,
    Cover,
    Loop,
    Move,
    Program,
    Reduce,
    Sample,
    Scale,
    Source,
    Step,
    Take,
    Update,
)
from placement_proofs.program.expr import is_zero
from placement_proofs.program.print import expr_text
from placement_proofs.prove.blame import paths
from placement_proofs.prove.edits import (
    Edit,
    accumulated,
    innermost,
    insert,
    plain,
    replaced,
    ring,
    swap,
)
from placement_proofs.replay import Path, step_name


def small_edits(program: Program, near: list[Path]) -> Iterator[Edit]:
    """Changes of one step each that its kind suggests."""
    steps = dict(paths(program.steps))
    for path, step in steps.items():
        yield from _specific(program, path, step)
    for path in near:
        yield from _turns(program, path, steps[path])
    for path in near:
        yield from _takes(program, path, steps[path])


def scalings(program: Program, near: list[Path]) -> Iterator[Edit]:
    """Other factors of single terms and scales."""
    steps = dict(paths(program.steps))
    for path in near:
        yield from _factors(program, path, steps[path])


def _specific(program: Program, path: Path, step: Step) -> Iterator[Edit]:
    match step:
        case Sample():
            yield from _streams(program, path, step)
        case Cover():
            yield from _cuts(program, path, step)
        case Update(hyper=tuple()):
            bare = replace(step, hyper=None)
            yield swap(program, path, (bare,), "use the specified hyper-parameters")
        case Clip():
            yield from _clipped(program, path, step)
        case Move(add=True, coef=coef) if not is_zero(coef):
            turned = replace(step, coef=expr_text(f"-({coef})"))
            yield swap(program, path, (turned,), "turn the sign")
        case _:
            return


def _streams(program: Program, path: Path, step: Sample) -> Iterator[Edit]:
    earlier = [
        s.dst
        for p, s in paths(program.steps)
        if isinstance(s, Sample) and s.stream == step.stream and p < path and not s.replay
    ]
    if not step.replay:
        for name in dict.fromkeys(reversed(earlier)):
            again = replace(step, replay=name)
            yield swap(program, path, (again,), "restore the counter of the stream")
    for axes in ((), *((axis,) for axis in program.axes), program.axes):
        for key, index in ((axes, ()), ((), axes)):
            if (key, index) != (step.key, step.index):
                keyed = replace(step, key=key, index=index)
                yield swap(program, path, (keyed,), "key the random stream")


def _cuts(program: Program, path: Path, step: Cover) -> Iterator[Edit]:
    if not step.up:
        yield swap(program, path, (replace(step, up=True),), "round the shards up and pad")
    if not step.divides:
        new = replace(step, divides=True)
        yield swap(program, path, (new,), "refuse sizes that the axis does not divide")


def _clipped(program: Program, path: Path, step: Clip) -> Iterator[Edit]:
    grads = tuple(s.grad for _, s in paths(program.steps) if isinstance(s, Update))
    distinct = tuple(dict.fromkeys(grads))
    if distinct and set(distinct) != set(step.bufs):
        new = replace(step, bufs=distinct)
        yield swap(program, path, (new,), "clip what the optimizer reads")


def _turns(program: Program, path: Path, step: Step) -> Iterator[Edit]:
    loop = innermost(program, path)
    if isinstance(step, Move) and loop and not step.add and not is_zero(step.coef):
        yield swap(program, path, accumulated(step, loop), "add or overwrite")


def _factors(program: Program, path: Path, step: Step) -> Iterator[Edit]:
    names = (*program.axes, *program.loops)
    changes = [f"*{name}" for name in names] + [f"/{name}" for name in names]
    changes += [f"/({a}*{b})" for i, a in enumerate(names) for b in names[:i]]
    match step:
        case Source(count=False, factor=factor):
            for change in changes:
                new = replace(step, factor=expr_text(f"({factor}){change}"))
                yield swap(program, path, (new,), "scale this term alone")
        case Scale(by=by):
            for change in changes:
                yield swap(
                    program,
                    path,
                    (replace(step, by=expr_text(f"({by}){change}")),),
                    "change the scale",
                )
        case _:
            return


def _takes(program: Program, path: Path, step: Step) -> Iterator[Edit]:
    if not isinstance(step, Take):
        return
    axes, cost = (step.axis,), ring(2, (step.axis,))
    for axis, owner in dict.fromkeys(pair for b in program.buffers for pair in b.held):
        if axis == step.axis and owner != step.pos:
            yield swap(program, path, (replace(step, pos=owner),), "gather by the right owner")
    for new in (
        Reduce(step.buf, axes, mean=True, g=step.g),
        Reduce(step.buf, axes, g=step.g),
        Reduce(step.buf, axes, top=True, g=step.g),
    ):
        yield swap(program, path, (new,), "reduce instead of taking one rank's value", cost)


def given(program: Program, step: Step) -> bool:
    """Whether a step gives a copy its value: without it the initial one would count as right."""
    copies = {b.name for b in program.buffers if b.of}
    return isinstance(step, Move) and step.dst in copies and not step.add


# --- order ---------------------------------------------------------------------------


def moves(program: Program, near: list[Path]) -> Iterator[Edit]:
    """One step earlier or later in its body, or behind the loop that it is in."""
    steps = dict(paths(program.steps))
    for path in near:
        if given(program, steps[path]):
            continue
        if isinstance(steps[path], Reduce | Source | Scale | Move | Clip | Update):
            yield from _moved(program, path, steps[path])


def _moved(program: Program, path: Path, step: Step) -> Iterator[Edit]:
    *above, here = path
    without = replaced(program.steps, path, ())
    siblings = [p for p, _ in paths(without) if list(p[:-1]) == above]
    places = [p[-1] for p in siblings] + [len(siblings)]
    for place in places:
        if place != here:
            body = _body(without, tuple(above))
            new = (*body[:place], step, *body[place:])
            steps = _with_body(without, tuple(above), new)
            yield _edit(program, path, steps, f"to place {step_name((*above, place))}")
    if above:
        steps = without
        loop = dict(paths(steps)).get(tuple(above))
        if isinstance(loop, Loop):
            behind = replaced(steps, tuple(above), (loop, step))
            yield _edit(program, path, behind, f"behind the loop over {loop.axis}")


def _edit(program: Program, path: Path, steps: tuple[Step, ...], where: str) -> Edit:
    text = f"move '{plain(dict(paths(program.steps))[path])}' {where}"
    return Edit("move the step", path, text, "0", replace(program, steps=steps))


def _body(steps: tuple[Step, ...], at: Path) -> tuple[Step, ...]:
    for index in at:
        loop = steps[index]
        assert isinstance(loop, Loop)
        steps = loop.body
    return steps


def _with_body(steps: tuple[Step, ...], at: Path, body: tuple[Step, ...]) -> tuple[Step, ...]:
    if not at:
        return body
    loop = dict(paths(steps))[at]
    assert isinstance(loop, Loop)
    return replaced(steps, at, (replace(loop, body=body),))


def broadcasts(program: Program, near: list[Path]) -> Iterator[Edit]:
    """A missing broadcast or reduction right after a value was written."""
    steps = dict(paths(program.steps))
    for path in near:
        step = steps[path]
        if isinstance(step, Source | Move | Reduce):
            name = step.buf if isinstance(step, Reduce) else step.dst
            yield from _after(program, path, name)


def _after(program: Program, path: Path, name: str) -> Iterator[Edit]:
    for axes in (*((axis,) for axis in program.axes), program.axes):
        for mean in (True, False):
            new = Reduce(name, axes, mean=mean)
            what = "insert the missing reduction"
            yield insert(program, path, (new,), what, ring(2, axes), after=True)
    for axis in program.axes:
        take = Take(name, axis, "first")
        cost = ring(1, (axis,))
        yield insert(program, path, (take,), "insert the missing broadcast", cost, after=True)
