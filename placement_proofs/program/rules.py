"""The single rules of well-formedness, each with its message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction

from placement_proofs.errors import IllFormed
from placement_proofs.program import Axes, Loop, Program, Source, Step, Use
from placement_proofs.program.expr import Bin, Num, Tree

ENDS = ("first", "last")
MAX_AXES = 12
MAX_SIZE = 10**9
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


def require(ok: bool, place: str, found: str, rule: str, remedy: str) -> None:
    """Raise `IllFormed` unless the rule holds."""
    if not ok:
        raise IllFormed(place, found, rule, remedy)


def known(names: Iterable[str], known: Axes, place: str, what: str) -> None:
    """Every name must be a declared one."""
    for name in names:
        require(
            name in known,
            place,
            f"{what} {name!r}",
            f"only declared names have a meaning (here: {', '.join(known) or 'none'})",
            f"declare {name!r} or correct the spelling",
        )


def distinct(names: Axes, place: str) -> None:
    """No name may occur twice."""
    for index, name in enumerate(names):
        require(
            name not in names[:index],
            place,
            f"{name!r} twice",
            "a name has one meaning",
            "rename one of them",
        )


def check_names(names: Axes, place: str) -> None:
    """Names are words, and the ends of an axis are no names."""
    for name in names:
        require(
            _NAME.match(name) is not None and name not in ENDS,
            place,
            f"the name {name[:40]!r}",
            "names are letters, digits, '_' and '.', and not 'first' or 'last'",
            "rename it",
        )
    distinct(names, place)


def check_mesh(program: Program) -> None:
    """Axes, loops and fixed sizes."""
    check_names(program.axes + program.loops, "axes and loops")
    require(
        len(program.axes) <= MAX_AXES,
        "axes",
        f"{len(program.axes)} axes",
        f"at most {MAX_AXES} are analysed",
        "merge axes that are always used together",
    )
    for axis, size in program.sizes:
        known((axis,), program.axes + program.loops, "sizes", "axis")
        require(
            1 <= size <= MAX_SIZE,
            f"size of {axis}",
            str(size),
            f"a size is an integer from 1 to {MAX_SIZE}",
            "give the number of ranks (or turns)",
        )


def check_position(position: str, place: str) -> None:
    """A position is a word."""
    require(
        _NAME.match(position) is not None,
        place,
        f"position {position[:40]!r}",
        "a position is first, last or the name of an owner",
        "write for example dp:p",
    )


def zero_division(tree: Tree) -> bool:
    """Whether an expression divides by the constant 0."""
    if not isinstance(tree, Bin):
        return False
    if tree.op == "/" and tree.right == Num(Fraction(0)):
        return True
    return zero_division(tree.left) or zero_division(tree.right)


def walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Every step in program order, loops before their bodies."""
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from walk(step.body)


def delay(program: Program) -> int:
    """The longest declared staleness, of a gradient or of a copy that is read."""
    read = (step.within for step in walk(program.steps) if isinstance(step, Use))
    return max((0, *(param.late for param in program.params), *read))


def sources(steps: tuple[Step, ...]) -> Iterator[Source]:
    """Every source of contributions."""
    return (step for step in walk(steps) if isinstance(step, Source))


def bare(over: Axes) -> Axes:
    """The indices of a term without the mark of an unsummed one."""
    return tuple(axis.lstrip("@") for axis in over)
