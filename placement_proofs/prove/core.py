"""The polynomial core of an element program, as plain data for the kernel.

It has the steps that make gradients, norms and contracts out of contributions, counts, draws and
unknown functions: collectives, factors, moves, guards and loops. The copies of parameters are not
in it (their agreement is decided by congruence); nor are owners with digits, maxima, streams of
random numbers and functions with laws: a program that needs these has no certificate, and the
reason is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, TypeAlias

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
    Term,
    Tick,
    Update,
    Use,
)
from placement_proofs.program.backward import derived
from placement_proofs.program.expr import Bin, Name, Num, Tree, is_zero, parse_expr
from placement_proofs.program.orders import has_orders
from placement_proofs.program.rules import sources, walk
from placement_proofs.prove.kernel import SCHEMA, entry, machines
from placement_proofs.prove.kernel.points import grid

MAX_WORK = 100_000
"""Buffers of ranks, over all points of a table, that are tabulated; more if asked for."""

Made: TypeAlias = dict[str, Any]


class Outside(Exception):
    """A program that is not, or not wholly, in the polynomial core; the message says why."""


KNOWN: Mapping[str, str] = {
    "Program": "axes loops params buffers steps sizes name equal owners",
    "Param": "name target clip update hyper late",
    "Term": "family over coef fn weights more",
    "Buffer": "name of held vary",
    "Guard": "sizes turns at",
    "Source": "dst family over summed held add factor count flag",
    "Init": "dst name vary held",
    "Reduce": "buf axes mean to top",
    "Take": "buf axis pos",
    "Slice": "buf axis owner",
    "Scale": "buf by",
    "Move": "dst src add coef",
    "Apply": "dst fn args whole",
    "Square": "dst srcs",
    "Clip": "bufs by",
    "Use": "buf within",
    "Update": "buf grad hyper",
    "Tick": "",
    "Expect": "buf kind target other axes about",
    "Loop": "axis body",
}
"""What the lowering reads (or leaves out on purpose) of each part of a program.

A part that says more than this has a meaning that certificates do not have.
"""


def certificate_of(program: Program, name: str, most: int | None = MAX_WORK) -> Made:
    """The certificate of a program whose gradients, norms and contracts are right.

    Raises:
        Outside: some step has no place in the core, or the table would be too large.
        Rejected: something is not right.
    """
    cert = outline(program, name)
    found = tabulated(cert, most)
    if found is None:
        raise Outside("a table of too many points")
    degrees, table = found
    return {**cert, "degrees": degrees, "table": table}


def outline(program: Program, name: str) -> Made:
    """A certificate without its bounds and its table."""
    if has_orders(program):
        raise Outside("steps beside others")
    program = derived(program)
    _inside(program)
    lowering = _Lowering(program)
    steps = [*lowering.declared(), *lowering.steps(program.steps)]
    if not lowering.obliged:
        raise Outside("nothing is computed: only copies move")
    return {
        "schema": SCHEMA,
        "claim": name,
        "axes": list(program.axes),
        "loops": list(program.loops),
        "owners": {axis: _owners(program, axis) for axis in program.axes},
        "counts": {s.family: sorted(s.over) for s in sources(program.steps) if s.count},
        "equal": sorted(program.equal),
        "steps": steps,
        "normal_form": lowering.forms,
    }


def unread(thing: Any) -> Iterator[str]:
    """What parts of a program say that is not read here: fields with other than their default."""
    kind = type(thing).__name__
    known = {*KNOWN.get(kind, "").split(), "g", "why"}
    for slot in fields(thing):
        value = getattr(thing, slot.name)
        if slot.name not in known and value != slot.default:
            yield f"{kind.lower()} {slot.name}"
        inner = value if isinstance(value, tuple) else (value,)
        for part in (p for p in inner if is_dataclass(p)):
            yield from unread(part)


def _inside(program: Program) -> None:
    """Raise `Outside` for what a whole program may have that the kernel does not know."""
    if more := next(unread(program), ""):
        raise Outside(more)
    flags = any(s.flag for s in sources(program.steps))
    for found, what in (
        (program.owners, "owners with digits"),
        (any(p.late for p in program.params), "declared staleness"),
        (program.sizes, "fixed sizes"),
        (flags, "flags"),
    ):
        if found:
            raise Outside(what)


def _owners(program: Program, axis: str) -> list[str]:
    """The positions of an axis that the program names."""
    found: set[str] = {o for b in program.buffers for a, o in b.held if a == axis}
    for step in walk(program.steps):
        found.update(o for a, o in getattr(step, "held", ()) if a == axis)
        found.update(o.removeprefix("!") for a, o in step.g.at if a == axis)
        match step:
            case Reduce(axes=axes, to=str(to)) if axis in axes:
                found.add(to)
            case Take(axis=on, pos=name) | Slice(axis=on, owner=name) if on == axis:
                found.add(name)
    return sorted(found)


class _Lowering:
    """Steps of a program as steps of a certificate; the normal forms that they name."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.copies = {b.name: b for b in program.buffers if b.of}
        self.carriers = _carriers(program)
        self.forms: dict[str, Made] = {}
        self.obliged = False

    def declared(self) -> Iterator[Made]:
        """Plain buffers start as zero."""
        for buffer in self.program.buffers:
            if not buffer.of:
                yield {"op": "zero", "dst": buffer.name, "held": dict(buffer.held)}

    def steps(self, steps: tuple[Step, ...]) -> Iterator[Made]:
        """Those that have a meaning without the copies, with their guards."""
        for step in steps:
            guard = {
                "turns": [list(t) for t in step.g.turns],
                "sizes": [list(s) for s in step.g.sizes],
                "at": [list(a) for a in step.g.at],
            }
            for made in self.step(step):
                yield {**made, **{key: value for key, value in guard.items() if value}}

    def step(self, step: Step) -> Iterator[Made]:
        """What a step is for the kernel: mostly one step, none if it is about copies only."""
        match step:
            case Loop(axis=axis, body=body):
                yield {"op": "loop", "loop": axis, "body": list(self.steps(body))}
            case Tick():
                yield {"op": "tick"}
            case Use():
                return
            case Update():
                yield self._update(step)
            case Expect():
                yield from self._expect(step)
            case Clip():
                yield self._clip(step)
            case Move(add=True, coef=coef) if is_zero(coef):
                return
            case _ if self._of_copies(step):
                return
            case _:
                yield self._value(step)

    def _of_copies(self, step: Step) -> bool:
        """Whether a step is about copies of parameters only, or what carries them.

        Raises:
            Outside: it mixes copies with other values.
        """
        names = {*_touched(step)} - {""}
        if not names & self.carriers:
            return False
        if names - self.carriers:
            raise Outside("a copy mixed with other values")
        return True

    def _value(self, step: Step) -> Made:
        match step:
            case Source():
                return _source(step)
            case Move(dst=dst, src=src, add=add, coef=coef):
                if is_zero(coef):
                    return {"op": "zero", "dst": dst}
                return {"op": "move", "dst": dst, "src": src, "add": add, "coef": _expr(coef)}
            case Scale(buf=buf, by=by):
                return {"op": "scale", "buf": buf, "by": _expr(by)}
            case Reduce(top=True):
                raise Outside("a maximum")
            case Reduce(buf=buf, axes=axes, mean=mean, to=to):
                return {"op": "reduce", "buf": buf, "axes": list(axes), "mean": mean, "to": to}
            case Take(buf=buf, axis=axis, pos=pos):
                return {"op": "take", "buf": buf, "axis": axis, "pos": pos}
            case Slice(buf=buf, axis=axis, owner=owner):
                return {"op": "keep", "buf": buf, "axis": axis, "owner": owner}
            case Init(dst=dst, name=name, vary=vary, held=held):
                return {"op": "draw", "dst": dst, "name": name, "vary": list(vary)} | {
                    "held": dict(held)
                }
            case Apply(dst=dst, fn=fn, args=args, whole=whole):
                if whole or fn in ("square", "sqrt"):
                    raise Outside(f"the function {fn}")
                return {"op": "apply", "dst": dst, "fn": fn, "args": list(args)}
            case Square(dst=dst, srcs=srcs):
                return {"op": "square", "dst": dst, "srcs": list(srcs)}
        raise Outside(f"a step of kind {type(step).__name__.lower()}")

    # --- obligations ---------------------------------------------------------------------

    def _update(self, step: Update) -> Made:
        copy = self.copies[step.buf]
        if step.hyper is not None:
            raise Outside("other hyper-parameters")
        self._form(copy.of)
        made = {"op": "update", "param": copy.of, "grad": step.grad, "held": dict(copy.held)}
        self.obliged = True
        return made

    def _form(self, name: str) -> None:
        param = self.program.param(name)
        self.forms[name] = {"terms": [_term(t) for t in param.target], "clip": param.clip}

    def _expect(self, step: Expect) -> Iterator[Made]:
        if step.buf in self.copies:
            return
        made = {"op": "expect", "buf": step.buf, "kind": step.kind}
        self.obliged = True
        match step.kind:
            case "is":
                name = f"{step.buf}, contract {len(self.forms) + 1}"
                self.forms[name] = {"terms": [_term(t) for t in step.target]}
                yield {**made, "form": name}
            case "same" if step.other not in self.copies:
                yield {**made, "other": step.other}
            case "agree":
                yield {**made, "axes": list(step.axes or self.program.axes)}
            case _:
                raise Outside(f"a contract '{step.kind}'")

    def _clip(self, step: Clip) -> Made:
        updates = (s for s in walk(self.program.steps) if isinstance(s, Update))
        of = {s.grad: self.copies[s.buf].of for s in updates}
        if not set(step.bufs) <= set(of):
            raise Outside("a norm of other values")
        own = [of[name] for name in step.bufs]
        groups = {self.program.param(name).clip for name in own}
        if len(own) > len(set(own)) or len(groups) > 1:
            raise Outside("a norm of copies, or of several groups")
        names = [p.name for p in self.program.params if p.name in own or p.clip in groups - {None}]
        for name in names:
            self._form(name)
        self.obliged = True
        made = {"op": "clip", "bufs": list(step.bufs), "by": step.by, "group": names}
        return {**made, "name": next(iter(groups))}


def _carriers(program: Program) -> set[str]:
    """Copies, and buffers that only copies are moved into."""
    found = {b.name for b in program.buffers if b.of}
    steps = list(walk(program.steps))
    moves = [s for s in steps if isinstance(s, Move) and not is_zero(s.coef)]
    while more := {s.dst for s in moves if s.src in found} - found:
        found |= more
    other = {getattr(s, "dst", "") for s in steps if not isinstance(s, Move)}
    other |= {s.dst for s in moves if s.src not in found}
    return found - other | {b.name for b in program.buffers if b.of}


def _touched(step: Step) -> Iterator[str]:
    """The buffers that a step reads and writes."""
    zeroed = isinstance(step, Move) and is_zero(step.coef)
    yield from (getattr(step, slot, "") for slot in ("dst", "buf"))
    yield "" if zeroed else getattr(step, "src", "")
    match step:
        case Apply(args=names) | Square(srcs=names):
            yield from names


def _source(step: Source) -> Made:
    made = {"op": "source", "dst": step.dst, "family": step.family, "over": sorted(step.over)}
    layout = {"summed": list(step.summed), "held": dict(step.held)}
    more = {"add": step.add, "factor": _expr(step.factor)}
    return made | layout | more | ({"count": True} if step.count else {})


def _term(term: Term) -> Made:
    if term.weights or term.fn == "max":
        raise Outside("a target with weights or a maximum")
    made: Made = {"family": term.family, "over": sorted(term.over), "coef": _expr(term.coef)}
    if term.fn:
        made |= {"fn": term.fn, "more": [_term(other) for other in term.more]}
    return made


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


# --- the table ---------------------------------------------------------------------------


def tabulated(cert: Made, most: int | None = None) -> tuple[dict[str, int], list[list[Any]]] | None:
    """The degree bounds and the table of steps; None if that takes more than `most` work."""
    names = [*cert["axes"], *cert["loops"], "counts"]
    found, degrees = dict.fromkeys(names, 0), None
    lines: list[list[Any]] = []
    while found != degrees:
        degrees, lines = found, []
        if most is not None and work(cert, degrees) > most:
            return None
        for machine in machines(cert, degrees):
            found = {name: max(found[name], top) for name, top in machine.degrees().items()}
            lines += [] if machine.counts else [entry(machine)]
    return degrees, lines


def work(cert: Made, degrees: Mapping[str, int]) -> int:
    """About how many steps of ranks the kernel runs, at all points for these bounds."""
    total = 0
    for sizes, _ in grid(cert, degrees):
        counts = sum(_members(cert, sizes, name, over) for name, over in cert["counts"].items())
        points = math.comb(counts + degrees["counts"], counts)
        total += points * math.prod(sizes.values())
    return total * (len(cert["steps"]) + len(cert["normal_form"]))


def _members(cert: Made, sizes: Mapping[str, int], name: str, over: list[str]) -> int:
    """How many counts of a family there are: one if they are equal; those of every step."""
    if name in cert["equal"]:
        return 1
    steps = [loop for loop in cert["loops"] if loop not in over]
    return math.prod(sizes[axis] for axis in (*over, *steps))
