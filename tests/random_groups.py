"""Random programs with two parameter groups, stages, norms and clipping."""

from __future__ import annotations

from random_programs import Maker

from placement_proofs.program import (
    ALWAYS,
    Buffer,
    Clip,
    Guard,
    Held,
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
)


class Groups(Maker):
    """Two groups, each placed, fed and reduced in its own way, mostly rightly."""

    def grouped(self) -> Program:
        """One program."""
        self.axes = self.pick((("a", "b"), ("a", "b"), ("a",)))
        steps: list[Step] = []
        params, buffers, updates = [], [], []
        clip = self.pick(("all", "all", None))
        for name, grad in (("W", "g"), ("V", "h")):
            held, over = self.placed()
            made, norm = self.gradient(name, grad, held, over)
            steps += made + (norm if clip else [])
            coef = "/".join(("1", *over))
            whole = "whole" if self.maybe(10) else "elementwise"
            params.append(Param(name, (Term(f"c{name}", over, coef),), clip=clip, update=whole))
            buffers.append(Buffer(name.lower(), name, held=held))
            updates.append(Update(name.lower(), grad))
        if clip:
            steps += self.clipped()
        uses = [Use(buffer.name) for buffer in buffers]
        body = (*uses, *self.disturbed(steps), *updates, Tick())
        return Program(self.axes, ("step",), tuple(params), tuple(buffers), (Loop("step", body),))

    def placed(self) -> tuple[Held, tuple[str, ...]]:
        """Layout and contributing axes of a group."""
        owners = ("p", "p", "first", "tensor")
        held = tuple((axis, self.pick(owners)) for axis in self.axes if self.maybe(2))
        over = tuple(axis for axis in self.axes if not self.maybe(3))
        return held, over

    def gradient(
        self, name: str, grad: str, held: Held, over: tuple[str, ...]
    ) -> tuple[list[Step], list[Step]]:
        """The gradient of a group, reduced; and its squares."""
        own = tuple(pair for pair in held if pair[0] not in over)
        steps: list[Step] = [Source(grad, f"c{name}", over, held=own)]
        for axis, owner in held:
            if axis in over:
                steps.append(Reduce(grad, (axis,), mean=True, to=owner))
        rest = tuple(axis for axis in over if axis not in dict(held))
        if rest:
            steps.append(Reduce(grad, rest, mean=True))
        norm: list[Step] = [Square(f"q{name}", (grad,))]
        if held:
            norm.append(Reduce(f"q{name}", tuple(axis for axis, _ in held)))
        return steps, norm

    def clipped(self) -> list[Step]:
        """The norms together, and the clip."""
        return [Move("q", "qW"), Move("q", "qV", add=True), Clip(("g", "h"), "q")]

    def disturbed(self, steps: list[Step]) -> list[Step]:
        """Mostly unchanged; else one step is lost, doubled, or a foreign one comes in."""
        if self.maybe(2):
            return steps
        index = self.pick(range(len(steps)))
        grads = ("g", "h") if index > len(steps) // 2 else ("g",)
        match self.pick(("lose", "double", "foreign", "guard")):
            case "lose":
                return steps[:index] + steps[index + 1 :]
            case "double":
                return steps[: index + 1] + steps[index:]
            case "guard":
                axis = self.pick(self.axes)
                return [*steps[:index], Scale("g", "2", g=self.guarded(axis)), *steps[index:]]
            case _:
                return [*steps[:index], self.foreign(self.pick(grads)), *steps[index:]]

    def guarded(self, axis: str) -> Guard:
        """A guard on a position."""
        return self.pick((ALWAYS, Guard(at=((axis, "first"),)), Guard(at=((axis, "!p"),))))

    def foreign(self, grad: str) -> Step:
        """A step that does not belong."""
        axis = self.pick(self.axes)
        return self.pick(
            (
                Reduce(grad, (axis,)),
                Reduce(grad, (axis,), mean=True),
                Take(grad, axis, "first"),
                Take(grad, axis, "p"),
                Slice(grad, axis, "p"),
                Scale(grad, axis),
            )
        )
