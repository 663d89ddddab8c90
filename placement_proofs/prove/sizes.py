"""Size classes: the few runs that together cover all mesh sizes and loop lengths.

Most axes need no split. An axis is split into size 1 and size >= 2 where the program asks
whether its size is one, or names its ends (first = last at size 1); a loop where the
program names its last turn. Two positions that a step compares are split into equal and
different. A loop without an induction is unrolled to exact lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from placement_proofs.program import (
    Axes,
    Init,
    Program,
    Reduce,
    Slice,
    Source,
    Step,
    Take,
    Term,
)
from placement_proofs.program.expr import names_of, parse_expr
from placement_proofs.program.rules import ENDS, delay, walk
from placement_proofs.prove.forms import NeedCase
from placement_proofs.prove.loops import NotInductive
from placement_proofs.prove.state import SizeClass

MAX_RUNS = 96
BOUNDED_TURNS = (1, 2, 3)
MAX_EXACT_TURNS = 8


def split_names(program: Program) -> Axes:
    """The axes and loops whose size one is a case of its own."""
    names: dict[str, None] = {}
    for buffer in program.buffers:
        names.update(dict.fromkeys(buffer.vary))
        names.update((axis, None) for axis, owner in buffer.held if owner in ENDS)
    for step in walk(program.steps):
        names.update(dict.fromkeys(_step_names(step)))
    return tuple(names)


def _step_names(step: Step) -> Iterator[str]:
    yield from (axis for axis, _ in step.g.sizes)
    yield from (axis for axis, text in step.g.at if text.removeprefix("!") in ENDS)
    yield from (axis for axis, text in step.g.at if text.startswith("!"))
    yield from (loop for loop, test in step.g.turns if test.endswith("last"))
    match step:
        case Take(axis=axis, pos=name) | Slice(axis=axis, owner=name):
            if name in ENDS:
                yield axis
        case Source(held=held) | Init(held=held):
            yield from (axis for axis, owner in held if owner in ENDS)
        case Reduce(axes=axes, to=to):
            if to in ENDS:
                yield from axes
        case _:
            return


def size_classes(program: Program, sizes: Mapping[str, int]) -> list[SizeClass]:
    """The first classes to run, for free sizes or the given ones."""
    split = [name for name in split_names(program) if name not in sizes]
    ones = frozenset(name for name, size in sizes.items() if size == 1)
    classes = []
    for choice in itertools.product((True, False), repeat=len(split)):
        single = {name for name, one in zip(split, choice, strict=True) if one}
        many = frozenset(set(split) - single)
        classes.append(SizeClass(dict(sizes), ones | single, many))
    return classes


def refine(size: SizeClass, reason: NeedCase | NotInductive) -> list[SizeClass]:
    """The classes that replace one whose run could not be finished."""
    if isinstance(reason, NotInductive):
        return _bounded(size, reason.loop, reason.turns)
    axis, left, right = reason.axis, reason.left, reason.right
    if right not in ENDS:
        left, right = right, left
    keep, gone = (right, left) if left not in ENDS else (left, right)
    low, high = sorted((left, right))
    pair = (axis, low, high)
    same = replace(size, alias=(*size.alias, ((axis, gone), keep)))
    return [same, replace(size, distinct=size.distinct | {pair})]


def _bounded(size: SizeClass, loop: str, most: int) -> list[SizeClass]:
    if loop in size.sizes and size.sizes[loop] <= MAX_EXACT_TURNS:
        lengths: tuple[int, ...] = (size.sizes[loop],)
    else:
        every = tuple(range(1, max(most, BOUNDED_TURNS[-1]) + 1))
        lengths = every[1:] if loop in size.many else every
    return [
        replace(
            size,
            bounded={**size.bounded, loop: turns},
            ones=size.ones | {loop} if turns == 1 else size.ones,
        )
        for turns in lengths
    ]


class TooManyCases(Exception):
    """A program names so many positions and size guards that its cases cannot all be run."""

    def __str__(self) -> str:
        return f"more than {MAX_RUNS} size classes: name fewer positions, or fix sizes"


# --- cut-off -------------------------------------------------------------------------

MAX_CUT = 6


def cut_offs(program: Program) -> dict[str, int]:
    """Sizes up to which a difference must show, per axis and loop (cut-off theorem).

    With D sums, means and factors on an axis, agreement at D + 1 sizes >= 2 and at size 1
    is agreement at all sizes. Capped: a search beyond it would take too long.
    """
    degree = dict.fromkeys((*program.axes, *program.loops), 0)
    for step in walk(program.steps):
        match step:
            case Reduce(axes=axes):
                _add(degree, axes)
            case Take(axis=axis) | Slice(axis=axis):
                _add(degree, (axis,))
            case _:
                pass
        for slot in ("factor", "by", "coef"):
            _add_expr(degree, getattr(step, slot, "1"))
    for term in _terms(program):
        _add(degree, term.over)
        _add_expr(degree, term.coef)
    late = delay(program) + 2 if delay(program) else 0
    turns = dict.fromkeys(program.loops, late)
    return {
        name: max(min(max(count + 2, 3), MAX_CUT), turns.get(name, 0))
        for name, count in degree.items()
    }


def _terms(program: Program) -> Iterator[Term]:
    for param in program.params:
        yield from param.target


def _add(degree: dict[str, int], names: Axes) -> None:
    for name in names:
        if name in degree:
            degree[name] += 1


def _add_expr(degree: dict[str, int], text: str) -> None:
    _add(degree, tuple(names_of(parse_expr(text))))
