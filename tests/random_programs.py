"""Random element programs for the agreement tests of prover and replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from placement_proofs.errors import IllFormed
from placement_proofs.program import (
    ALWAYS,
    Apply,
    Buffer,
    Clip,
    Expect,
    Guard,
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
    Term,
    Tick,
    Update,
    Use,
    validate,
)
from placement_proofs.program.expr import parse_expr
from placement_proofs.prove.engine import execute
from placement_proofs.prove.text import poly_text

T = TypeVar("T")
Choose = Callable[[Sequence[object]], object]


class Maker:
    """Builds one random program from a source of choices."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self.axes: tuple[str, ...] = ("a",)
        self.has_loop = False
        self.names = ["g"]
        self.scalars: list[str] = []
        self.ends = False

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return self._choose(options)  # type: ignore[return-value]

    def maybe(self, chances: int) -> bool:
        """True once in `chances`."""
        return self.pick(range(chances)) == 0

    def some_axes(self) -> tuple[str, ...]:
        """A non-empty choice of axes."""
        if len(self.axes) == 1:
            return self.axes
        return self.pick((("a",), ("b",), ("a", "b")))

    def position(self) -> str:
        """A position; the ends only in programs that use them."""
        return self.pick(("p", "first", "last") if self.ends else ("p", "p", "q"))

    def guard(self, looped: bool) -> Guard:
        """Mostly none."""
        if not self.maybe(5):
            return ALWAYS
        kinds = ["size"] + (["at"] if self.ends else []) + (["turn", "turn"] if looped else [])
        kind = self.pick(kinds)
        axis = self.pick(self.axes)
        if kind == "size":
            return Guard(sizes=((axis, self.pick((True, False))),))
        if kind == "at":
            return Guard(at=((axis, self.pick(("first", "last", "!first"))),))
        return Guard(turns=(("mb", self.pick(("first", "!first", "last", "!last"))),))

    def expr(self) -> str:
        """A small coefficient."""
        names = [*self.axes, *(["mb"] if self.has_loop else []), *self.scalars, "2"]
        name = self.pick(names)
        return self.pick((name, f"1/{name}", f"1/{name}", f"-1/{name}", "1"))

    def step(self, looped: bool) -> Step:
        """One random step on gradients."""
        guard = self.guard(looped)
        axis = self.pick(self.axes)
        buf = self.pick(self.names)
        kind = self.pick(
            ("reduce", "reduce", "reduce", "scale", "move", "take", "slice", "source", "apply")
        )
        match kind:
            case "reduce":
                to = self.pick((None, None, None, "p"))
                return Reduce(buf, self.some_axes(), mean=self.maybe(2), to=to, g=guard)
            case "scale":
                return Scale(buf, self.expr(), g=guard)
            case "move":
                dst = self.pick((*self.names, "t"))
                if dst not in self.names:
                    self.names.append(dst)
                    return Move(dst, buf, g=ALWAYS)
                coef = self.pick(("1", "1", "-1", "1/2", "0"))
                return Move(dst, buf, add=self.maybe(2), coef=coef, g=guard)
            case "take":
                return Take(buf, axis, self.position(), g=guard)
            case "slice":
                return Slice(buf, axis, self.pick(("p", "p", "q")), g=guard)
            case "source":
                return self.source(buf, guard, looped, add=self.maybe(2))
            case _:
                return Apply(buf, "f", (buf,), g=guard) if self.maybe(4) else Scale(buf, "2")

    def source(self, dst: str, guard: Guard, looped: bool, add: bool) -> Source:
        """Contributions of the one family, over all axes (and the loop)."""
        over = (*self.axes, "mb") if self.has_loop else self.axes
        if self.has_loop and not looped:
            return Source(dst, "d", self.axes, add=add, factor=self.expr(), g=guard)
        summed = self.pick(((), (), (), self.axes))
        return Source(dst, "c", over, summed=summed, add=add, factor=self.expr(), g=guard)

    def accumulate(self) -> list[Step]:
        """The body of a micro-batch loop, mostly right."""
        over = (*self.axes, "mb")
        first = Guard(turns=(("mb", "first"),))
        later = Guard(turns=(("mb", "!first"),))
        factor = self.pick(("1/mb", "1", "1/mb"))
        if self.maybe(6):
            return [Source("g", "c", over, factor=factor, add=self.maybe(2))]
        return [
            Source("g", "c", over, factor=factor, g=first),
            Source("g", "c", over, factor=factor, add=True, g=later),
        ]

    def counts(self) -> list[Step]:
        """Sometimes a token count, reduced over some axes."""
        if not self.maybe(3):
            return []
        self.scalars.append("k")
        steps: list[Step] = [Source("k", "n", self.axes, count=True)]
        if not self.maybe(4):
            steps.append(Reduce("k", self.some_axes(), mean=self.maybe(3)))
        return steps

    def norm(self) -> list[Step]:
        """Sometimes clipping."""
        if not self.maybe(5):
            return []
        steps: list[Step] = [Square("s", ("g",))]
        if self.maybe(2):
            steps.append(Reduce("s", self.some_axes(), mean=self.maybe(4)))
        return [*steps, Clip(("g",), "s")]

    def program(self) -> Program:
        """One program, with a target that is often the one it computes."""
        self.axes = self.pick((("a",), ("a",), ("a", "b")))
        self.has_loop = self.maybe(3)
        self.ends = self.maybe(3)
        held = tuple((axis, "p") for axis in self.axes if self.maybe(3))
        steps = self.counts()
        if self.has_loop:
            body = self.accumulate()
            body += [self.step(True) for _ in range(self.pick((0, 0, 0, 1, 2)))]
            steps.append(Loop("mb", tuple(body)))
        else:
            steps.append(self.source("g", ALWAYS, False, add=False))
        steps += [self.step(False) for _ in range(self.pick((0, 1, 1, 2, 3)))]
        if self.maybe(2):
            steps.append(Reduce("g", self.axes, mean=self.maybe(2)))
        clipping = self.norm()
        steps += clipping
        return self.framed(held, steps, bool(clipping))

    def framed(self, held: tuple[tuple[str, str], ...], steps: list[Step], clip: bool) -> Program:
        """The steps as a training step with use, update, publish and tick."""
        vary = (self.pick(self.axes),) if self.maybe(12) else ()
        buffers = [Buffer("w", "W", vary=vary)]
        copy = "w"
        after: list[Step] = []
        if held:
            copy = "m"
            buffers.append(Buffer("m", "W", held=held))
            after = [Move("w", "m"), *(Take("w", axis, owner) for axis, owner in held)]
            if self.maybe(8):
                after = after[: self.pick(range(len(after)))]
        tail: list[Step] = [Update(copy, "g"), *after, Tick()]
        if self.maybe(3):
            tail.insert(0, Expect("g", "agree", axes=(self.pick(self.axes),)))
        body: tuple[Step, ...] = (Use("w"), *steps, *tail)
        if self.maybe(2):
            body = (Loop("step", body),)
        loops = (("step",) if isinstance(body[0], Loop) else ()) + (
            ("mb",) if self.has_loop else ()
        )
        over = (*self.axes, "mb") if self.has_loop else self.axes
        coef = "/".join(("1", *over))
        param = Param("W", (Term("c", over, coef),), clip="all" if clip else None)
        program = Program(self.axes, loops, (param,), tuple(buffers), body)
        return with_computed_target(program) if not self.maybe(5) else program


def with_computed_target(program: Program) -> Program:
    """The same program, trained towards what it computes, if that is a plain sum."""
    (param,) = program.params
    plain = replace(param, clip=None)
    steps = _without_clip(program.steps)
    try:
        trial = replace(program, params=(plain,), steps=steps)
        validate(trial)
        runs = execute(trial, {})
    except IllFormed:
        return program
    state = max(runs.runs, key=lambda run: (-len(run.size.ones), -len(run.size.bounded))).state
    grads = [o for o in state.obligations if o.condition == "gradient_integrity"]
    terms = []
    for (symbol, tags), poly in grads[0].got.items() if grads else ():
        family = state.symbols.symbols[symbol]
        if tags or family.kind != "contribution" or state.atoms.marks(poly):
            continue
        text = poly_text(state.atoms, poly)
        if "[" in text or "value" in text or "clip" in text or len(text) > 200:
            continue
        parse_expr(text)
        terms.append(Term(str(family.data), family.dims, text))
    return replace(program, params=(replace(param, target=tuple(terms)),)) if terms else program


def _without_clip(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    kept = (s for s in steps if not isinstance(s, Clip))
    return tuple(replace(s, body=_without_clip(s.body)) if isinstance(s, Loop) else s for s in kept)
