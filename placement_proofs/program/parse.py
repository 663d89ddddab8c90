"""The parser of the text form of element programs (`program.text` describes it)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, cast

from placement_proofs.program import (
    ALWAYS,
    Apply,
    Buffer,
    Clip,
    Cover,
    Expect,
    Guard,
    Init,
    Loop,
    Move,
    Owner,
    Param,
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
    validate,
)
from placement_proofs.program.flow_parse import FLOWS, back
from placement_proofs.program.lex import guard_of, options_of, statements, syntax
from placement_proofs.program.line import Line, family, integer, split
from placement_proofs.program.print import expr_text
from placement_proofs.program.target import parse_target

MAX_BYTES = 200_000
MAX_DEPTH = 8


def _source(line: Line) -> Step:
    dst, sign, value = line.sides("=", "+=")
    copy, name, over = back(line, value) if line.word == "grad" else ("", *family(line, value))
    return Source(
        dst,
        name,
        over,
        summed=line.names("sum"),
        held=line.held(),
        add=sign == "+=",
        factor=expr_text(line.take("x") or "1", line.place),
        count=line.word != "grad",
        flag=line.word == "flag",
        back=copy,
    )


def _draw(line: Line) -> Step:
    dst, _, name = line.sides("=")
    return Init(dst, name, vary=line.names("vary"), held=line.held())


def _sample(line: Line) -> Step:
    dst, _, stream = line.sides("=")
    key, index, replayed = line.names("key"), line.names("index"), line.take("replay")
    number = integer(line.take("number"), line.place) if "number" in line.options else None
    return Sample(dst, stream, key, index, replayed, number)


def _reduce(line: Line) -> Step:
    buf, axes = line.words(2)
    to = line.take("to") or None
    return Reduce(buf, split(axes), line.word == "mean", to, line.word == "max")


def _take(line: Line) -> Step:
    words = line.words(2, 3) if line.word == "gather" else line.words(3)
    return Take(words[0], words[1], words[2] if len(words) == 3 else "p")


def _slice(line: Line) -> Step:
    words = line.words(2, 3)
    return Slice(words[0], words[1], words[2] if len(words) == 3 else "p")


def _scale(line: Line) -> Step:
    buf, _, by = line.rest.partition(" ")
    if not by.strip():
        raise line.error("'scale' is followed by a buffer and an expression")
    return Scale(buf, expr_text(by, line.place))


def _move(line: Line) -> Step:
    if line.word == "zero":
        (buf,) = line.words(1)
        return Move(buf, buf, coef="0")
    dst, src = line.words(2)
    return Move(dst, src, add=line.word == "add", coef=expr_text(line.take("x") or "1", line.place))


def _apply(line: Line) -> Step:
    dst, _, value = line.sides("=")
    match = re.fullmatch(r"([A-Za-z_][\w.]*)\s*\(([^()]*)\)", value)
    if match is None:
        raise line.error("a function is applied to buffers, as in 'apply y = f(x, z)'")
    args = tuple(part.strip() for part in match[2].split(",") if part.strip())
    return Apply(dst, match[1], args, whole=line.word == "whole")


def _square(line: Line) -> Step:
    dst, _, value = line.sides("=")
    return Square(dst, tuple(value.split()))


def _clip(line: Line) -> Step:
    bufs, found, by = line.rest.partition(" by ")
    if not found:
        raise line.error("write 'clip g h by q'")
    return Clip(tuple(bufs.split()), by.strip())


def _use(line: Line) -> Step:
    (buf,) = line.words(1)
    return Use(buf, integer(line.take("within") or "0", line.place))


def _update(line: Line) -> Step:
    hyper = line.names("hyper") if "hyper" in line.options else None
    buf, grad = line.words(2)
    return Update(buf, grad, hyper)


def _tick(line: Line) -> Step:
    line.words(0)
    return Tick()


def _expect(line: Line) -> Step:
    match = re.fullmatch(r"(\S+)\s+(agree|same|is|drawn)\b\s*(.*)", line.rest)
    if match is None:
        raise line.error("write 'expect y is ...', 'expect y agree' or 'expect y same z'")
    kind = cast(Literal["agree", "is", "same", "drawn"], match[2])
    target = parse_target(match[3], line.place) if kind == "is" else ()
    return Expect(
        match[1],
        kind,
        target,
        other=match[3].strip() if kind == "same" else "",
        axes=line.names("axes"),
        about=line.take("about") or "value",
    )


def _cover(line: Line) -> Step:
    flags = {"up", "even", "divides"}
    rows, by, axis, *said = line.rest.split() if len(line.rest.split()) > 2 else ("", "", "")
    if by != "over" or set(said) - flags or len(set(said)) < len(said):
        raise line.error("write 'cover rows over tp', then any of up, even, divides")
    return Cover(rows, axis, "up" in said, "even" in said, "divides" in said)


_STEPS: dict[str, Callable[[Line], Step]] = {
    "grad": _source,
    "count": _source,
    "flag": _source,
    "draw": _draw,
    "sample": _sample,
    "sum": _reduce,
    "mean": _reduce,
    "max": _reduce,
    "take": _take,
    "gather": _take,
    "slice": _slice,
    "scale": _scale,
    "set": _move,
    "add": _move,
    "zero": _move,
    "apply": _apply,
    "whole": _apply,
    "square": _square,
    "clip": _clip,
    "use": _use,
    "update": _update,
    "tick": _tick,
    "expect": _expect,
    "cover": _cover,
}


class _Reader:
    def __init__(self, place: str) -> None:
        self.place = place
        self.program = Program(())
        self.stack: list[tuple[str, Guard, list[Step]]] = [("", ALWAYS, [])]
        self.waits: tuple[str, ...] = ()

    def read(self, text: str) -> Program:
        """The program that the text says."""
        for number, statement in statements(text):
            self._statement(statement, f"{self.place}, line {number}")
        if len(self.stack) > 1:
            raise syntax(
                self.place, f"loop {self.stack[-1][0]}", "a block ends with '}'", "close it"
            )
        steps = tuple(self.stack[0][2])
        return replace(self.program, steps=steps)

    def _statement(self, text: str, place: str) -> None:
        guard = ALWAYS
        if match := re.match(r"if\s+(.*?):\s*(.*)\Z", text):
            guard, text = guard_of(match[1], place), match[2]
        if match := re.match(r"start\s+([\w.]+):\s*(.*)\Z", text):
            guard, text = replace(guard, starts=match[1]), match[2]
        if match := re.fullmatch(r"wait\s+([\w. ]+)", text):
            self.waits += tuple(match[1].split())
            return
        if text == "}":
            self._close(place)
            return
        if match := re.fullmatch(r"loop\s+([\w.]+)\s*\{", text):
            self._open(match[1], self._waiting(guard), place)
            return
        word, _, rest = text.partition(" ")
        bare, options = options_of(f" {rest}")
        line = Line(place, word, bare, options, guard)
        if word in _STEPS:
            why = line.take("why")
            step = _STEPS[word](line)
            self.stack[-1][2].append(replace(step, g=self._waiting(guard), why=why))
        elif (guard != ALWAYS and word != "edge") or not self._declare(line):
            words = ", ".join((*_STEPS, "loop", *_DECLARATIONS))
            raise syntax(place, text, f"a statement begins with one of: {words}")
        if line.options:
            raise syntax(
                place, ", ".join(line.options), f"'{word}' has no such option", "correct it"
            )

    def _waiting(self, guard: Guard) -> Guard:
        """The guard of a step that waits for what was named before it."""
        waits, self.waits = self.waits, ()
        return replace(guard, after=waits)

    def _open(self, name: str, guard: Guard, place: str) -> None:
        if len(self.stack) > MAX_DEPTH:
            raise syntax(place, name, f"loops are nested at most {MAX_DEPTH} deep")
        if name not in self.program.loops:
            self.program = replace(self.program, loops=(*self.program.loops, name))
        self.stack.append((name, guard, []))

    def _close(self, place: str) -> None:
        if len(self.stack) == 1:
            raise syntax(place, "}", "a block is opened before it is closed", "remove it")
        self.waits = ()
        name, guard, body = self.stack.pop()
        self.stack[-1][2].append(Loop(name, tuple(body), guard))

    def _declare(self, line: Line) -> bool:
        declare = _DECLARATIONS.get(line.word)
        if declare is None:
            return False
        self.program = declare(line, self.program)
        return True


def _declare_axes(line: Line, program: Program) -> Program:
    return replace(program, axes=program.axes + tuple(line.rest.split()))


def _declare_loops(line: Line, program: Program) -> Program:
    return replace(program, loops=program.loops + tuple(line.rest.split()))


def _declare_size(line: Line, program: Program) -> Program:
    name, size = line.words(2)
    return replace(program, sizes=(*program.sizes, (name, integer(size, line.place))))


def _declare_equal(line: Line, program: Program) -> Program:
    return replace(program, equal=program.equal + tuple(line.rest.split()))


def _declare_spec(line: Line, program: Program) -> Program:
    name, _, target = line.sides("=")
    param = Param(
        name,
        parse_target(target, line.place),
        clip=line.take("clip") or None,
        update=cast(Literal["elementwise", "whole"], line.take("update") or "elementwise"),
        hyper=line.names("hyper"),
        late=integer(line.take("late") or "0", line.place),
    )
    return replace(program, params=(*program.params, param))


def _declare_copy(line: Line, program: Program) -> Program:
    words = line.words(3)
    if words[1] != "of":
        raise line.error("write 'copy w of W'")
    buffer = Buffer(words[0], words[2], held=line.held(), vary=line.names("vary"))
    return replace(program, buffers=(*program.buffers, buffer))


def _declare_buffer(line: Line, program: Program) -> Program:
    (name,) = line.words(1)
    return replace(program, buffers=(*program.buffers, Buffer(name, "", held=line.held())))


def _declare_owner(line: Line, program: Program) -> Program:
    pair, _, digits = line.sides("=")
    axis, _, name = pair.partition(":")
    owner = Owner(axis, name or "p", tuple(digits.split()))
    return replace(program, owners=(*program.owners, owner))


def _declare_name(line: Line, program: Program) -> Program:
    return replace(program, name=line.rest)


def _declare_flow(line: Line, program: Program) -> Program:
    return replace(program, flow=(*program.flow, FLOWS[line.word](line)))


_DECLARATIONS: dict[str, Callable[[Line, Program], Program]] = {
    **dict.fromkeys(FLOWS, _declare_flow),
    "axes": _declare_axes,
    "loops": _declare_loops,
    "size": _declare_size,
    "equal": _declare_equal,
    "spec": _declare_spec,
    "copy": _declare_copy,
    "buffer": _declare_buffer,
    "owner": _declare_owner,
    "name": _declare_name,
}


def parse_program(text: str, *, place: str = "program") -> Program:
    """The program that a text says; raises `IllFormed` with the line."""
    if len(text) > MAX_BYTES:
        raise syntax(place, text, f"a program has at most {MAX_BYTES} characters")
    program = _Reader(place).read(text)
    validate(program)
    return program
