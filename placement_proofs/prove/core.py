"""The polynomial core of an element program, as plain data for the kernel.

It has the steps that make gradients out of contributions: collectives, factors in sizes, moves
and loops. Token counts, norms, draws, functions, and steps that only some ranks run are outside:
a program with these has no certificate, and the reason is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from placement_proofs.program import (
    Apply,
    Clip,
    Expect,
    Init,
    Loop,
    Move,
    Program,
    Reduce,
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
from placement_proofs.program_backward import derived
from placement_proofs.program_expr import Bin, Name, Num, Tree, is_zero, names_of, parse_expr
from placement_proofs.program_orders import has_orders
from placement_proofs.program_rules import walk
from placement_proofs.prove.kernel import SCHEMA, Machine

MAX_WORK = 60_000
"""Grid points times ranks that the kernel is given; it checks more if asked to."""


class Outside(Exception):
    """A program that is not, or not wholly, in the polynomial core; the message says why."""


def certificate_of(program: Program, name: str) -> dict[str, Any]:
    """The certificate of a program whose gradients are right.

    Raises:
        Outside: some step has no place in the core.
    """
    if has_orders(program):
        raise Outside("steps beside others")
    program = derived(program)
    _inside(program)
    grads = _gradients(program)
    cert: dict[str, Any] = {
        "schema": SCHEMA,
        "claim": name,
        "axes": list(program.axes),
        "loops": list(program.loops),
        "owners": {axis: _owners(program, axis) for axis in program.axes},
        "steps": list(_steps(program, program.steps, grads)),
    }
    if not any(isinstance(s, Update) for s in walk(program.steps)):
        raise Outside("no update")
    machine = Machine(
        cert, {**dict.fromkeys(program.axes, 2), **dict.fromkeys(program.loops, 3)}, {}
    )
    machine.run(cert["steps"])
    return {**cert, "degrees": machine.bound}


def _inside(program: Program) -> None:
    """Raise `Outside` for what a whole program may have that the kernel does not know."""
    for found, what in (
        (any(p.clip for p in program.params), "clipping"),
        (program.equal, "equal counts"),
        (program.owners, "owners with digits"),
        (any(p.late for p in program.params), "declared staleness"),
    ):
        if found:
            raise Outside(what)


def work(cert: dict[str, Any]) -> int:
    """About how many ranks the kernel runs, over all grid points."""
    total: int = 3 ** len(cert["loops"])
    for axis in cert["axes"]:
        owners = len(cert["owners"][axis])
        top = cert["degrees"][axis] + 2 + owners
        total *= (top * (top + 1) // 2) * 3**owners
    return total


def _gradients(program: Program) -> set[str]:
    """The buffers that contributions reach."""
    found: set[str] = set()
    for step in walk(program.steps):
        match step:
            case Source(dst=dst):
                found.add(dst)
            case Move(dst=dst, src=src) if src in found:
                found.add(dst)
    return found


def _owners(program: Program, axis: str) -> list[str]:
    """The positions of an axis that the program names."""
    found: set[str] = {o for b in program.buffers for a, o in b.held if a == axis}
    for step in walk(program.steps):
        found.update(o for a, o in getattr(step, "held", ()) if a == axis)
        match step:
            case Reduce(axes=axes, to=str(to)) if axis in axes:
                found.add(to)
            case Take(axis=on, pos=name) | Slice(axis=on, owner=name) if on == axis:
                found.add(name)
    return sorted(found)


def _steps(program: Program, steps: tuple[Step, ...], grads: set[str]) -> Iterator[dict[str, Any]]:
    for step in steps:
        for made in _step(program, step, grads):
            guard = {
                "turns": [list(t) for t in step.g.turns],
                "sizes": [list(s) for s in step.g.sizes],
            }
            yield {**made, **{key: value for key, value in guard.items() if value}}


def _step(program: Program, step: Step, grads: set[str]) -> Iterator[dict[str, Any]]:
    if step.g.at and _touches(step, grads):
        raise Outside("a step of some ranks")
    match step:
        case Loop(axis=axis, body=body):
            yield {"op": "loop", "axis": axis, "body": list(_steps(program, body, grads))}
        case Source():
            yield _source(step)
        case Move(dst=dst, src=src, add=add, coef=coef):
            if dst in grads and (src in grads or is_zero(coef)):
                yield {"op": "move", "dst": dst, "src": src, "add": add, "coef": _expr(coef)}
            elif dst in grads or src in grads:
                raise Outside("a gradient mixed with another value")
        case Scale(buf=buf, by=by):
            yield from _if(buf in grads, {"op": "scale", "buf": buf, "by": _expr(by)})
        case Reduce(buf=buf, top=True) if buf in grads:
            raise Outside("a maximum")
        case Reduce(buf=buf, axes=axes, mean=mean, to=to):
            made = {"op": "reduce", "buf": buf, "axes": list(axes), "mean": mean, "to": to}
            yield from _if(buf in grads, made)
        case Take(buf=buf, axis=axis, pos=pos):
            yield from _if(buf in grads, {"op": "take", "buf": buf, "axis": axis, "pos": pos})
        case Slice(buf=buf, axis=axis, owner=owner):
            yield from _if(buf in grads, {"op": "slice", "buf": buf, "axis": axis, "owner": owner})
        case Update():
            yield _update(program, step)
        case Tick():
            yield {"op": "tick"}
        case Use() | Expect():
            return
        case Init() | Apply() | Square() if not _touches(step, grads):
            return
        case _:
            raise Outside(f"a step of kind {type(step).__name__.lower()}")


def _touches(step: Step, grads: set[str]) -> bool:
    """Whether a step writes a gradient."""
    if isinstance(step, Use | Expect):
        return False
    written = {getattr(step, slot, "") for slot in ("dst", "buf")}
    return isinstance(step, Loop | Update | Clip) or bool(written & grads)


def _if(wanted: bool, made: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if wanted:
        yield made


def _source(step: Source) -> dict[str, Any]:
    if step.count or step.flag:
        raise Outside("token counts")
    return {
        "op": "source",
        "dst": step.dst,
        "family": step.family,
        "over": sorted(step.over),
        "summed": list(step.summed),
        "held": dict(step.held),
        "add": step.add,
        "factor": _expr(step.factor),
    }


def _update(program: Program, step: Update) -> dict[str, Any]:
    buffer = next(b for b in program.buffers if b.name == step.buf)
    terms = []
    for term in program.param(buffer.of).target:
        if term.fn or term.more or term.weights:
            raise Outside("a target that is not a plain sum")
        if not set(names_of(parse_expr(term.coef))) <= {*program.axes, *program.loops}:
            raise Outside("token counts")
        terms.append({"family": term.family, "over": sorted(term.over), "coef": _expr(term.coef)})
    made = {"op": "update", "param": buffer.of, "grad": step.grad, "held": dict(buffer.held)}
    return {**made, "target": terms}


def _expr(text: str) -> Any:
    return _tree(parse_expr(text))


def _tree(tree: Tree) -> Any:
    match tree:
        case Num(value):
            exact = Fraction(value)
            plain = exact.denominator == 1
            return exact.numerator if plain else ["/", exact.numerator, exact.denominator]
        case Name(name):
            return name
        case Bin(op, left, right):
            return [op, _tree(left), _tree(right)]
