"""Owners as digits of an element's index: when two names mean the same map of elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placement_proofs.program import (
    Held,
    Init,
    Loop,
    Owner,
    Program,
    Reduce,
    Slice,
    Source,
    Step,
    Take,
)
from placement_proofs.program.rules import ENDS, check_position, known, require

REST = "..."
Names = Mapping[tuple[str, str], str]


def digits_of(owner: Owner) -> tuple[str, ...]:
    """The radices without the brackets of the owner's own."""
    return tuple(digit.strip("[]") for digit in owner.digits)


def own_digit(owner: Owner) -> int:
    """Which digit is the owner's: the one in brackets, else that of the axis."""
    marked = [i for i, digit in enumerate(owner.digits) if digit.startswith("[")]
    return marked[0] if marked else owner.digits.index(owner.axis)


def check_owners(program: Program) -> None:
    """Digits name their own axis once, sizes that are declared, and the rest once."""
    names = program.axes + program.loops
    seen: set[tuple[str, str]] = set()
    for owner in program.owners:
        place = f"owner {owner.axis}:{owner.name}"
        known((owner.axis,), program.axes, place, "axis")
        check_position(owner.name, place)
        digits = digits_of(owner)
        known((d for d in digits if not d.isdigit() and d != REST), names, place, "size")
        own = sum(digit.startswith("[") for digit in owner.digits) or digits.count(owner.axis)
        fresh = (owner.axis, owner.name) not in seen and owner.name not in ENDS
        require(
            fresh and own == 1 and owner.digits.count(REST) == 1,
            place,
            " ".join(owner.digits),
            "an index has the owner's digit and '...' once each; an owner is said once",
            f"write for example 'owner {owner.axis}:q = {owner.axis} ...'",
        )
        require(
            all(int(d) > 0 for d in digits if d.isdigit()),
            place,
            " ".join(owner.digits),
            "a radix is at least 1",
            "leave it out",
        )
        seen.add((owner.axis, owner.name))


def inner_digits(owner: Owner) -> tuple[bool, tuple[str, ...]]:
    """Whether the stride counts from the tensor's size down, and the digits that make it.

    The stride of a digit is the product of the digits inside it; with the rest inside, it is
    the tensor's size over the product of the digits up to and with the own one.
    """
    digits, at = digits_of(owner), own_digit(owner)
    inside = digits[at + 1 :]
    if REST in inside:
        return True, digits[: at + 1]
    return False, inside


def renamed(program: Program, names: Names) -> Program:
    """The program with owners renamed."""
    if not names:
        return program
    buffers = tuple(replace(b, held=_held(b.held, names)) for b in program.buffers)
    steps = tuple(_step(step, names) for step in program.steps)
    return replace(program, buffers=buffers, steps=steps)


def _held(held: Held, names: Names) -> Held:
    return tuple((axis, names.get((axis, owner), owner)) for axis, owner in held)


def _step(step: Step, names: Names) -> Step:
    at = tuple((axis, _position(axis, position, names)) for axis, position in step.g.at)
    step = replace(step, g=replace(step.g, at=at)) if at else step
    match step:
        case Source() | Init():
            return replace(step, held=_held(step.held, names))
        case Take():
            return replace(step, pos=_position(step.axis, step.pos, names))
        case Slice():
            return replace(step, owner=_position(step.axis, step.owner, names))
        case Reduce(to=str() as to, axes=axes):
            chosen = {_position(axis, to, names) for axis in axes}
            require(
                len(chosen) == 1,
                "owners",
                f"to={to} over {', '.join(axes)}",
                "a reduce-scatter over several axes has one name of owner for all",
                "reduce the axes one after the other",
            )
            return replace(step, to=chosen.pop())
        case Loop():
            return replace(step, body=tuple(_step(inner, names) for inner in step.body))
        case _:
            return step


def _position(axis: str, position: str, names: Names) -> str:
    bare = position.removeprefix("!")
    return position.replace(bare, names.get((axis, bare), bare))


def merged(program: Program, keys: Mapping[Owner, object]) -> Program:
    """The program in which owners of an axis with equal keys have one name."""
    first: dict[tuple[str, object], str] = {}
    names: dict[tuple[str, str], str] = {}
    for owner in program.owners:
        name = first.setdefault((owner.axis, keys[owner]), owner.name)
        if name != owner.name:
            names[owner.axis, owner.name] = name
    return renamed(program, names)
