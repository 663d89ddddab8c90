"""Contributions to gradients, derived from a flow (the semantics page, section 2).

The gradient of a value is followed from the loss to the copies of parameters. On an axis a rank
has it whole (of its own part, where values are cut), or has its own piece of a sum. Collectives of
the backward pass turn one into the other; where they are not the adjoint, what a rank holds (`got`)
differs from what one device would have (`want`), by a factor or by pieces that never arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from placement_proofs.errors import IllFormed
from placement_proofs.program import ALWAYS, Expect, Loop, Param, Program, Source, Step, Term
from placement_proofs.program.draws import counted
from placement_proofs.program.flow import BACK, Flow, flow_text
from placement_proofs.program.forward import OWN, PARTIAL, Value, product, values
from placement_proofs.program.orders import in_order
from placement_proofs.program.print import step_text, target_text
from placement_proofs.program.rules import known, require, sources, walk


@dataclass(frozen=True)
class Strand:
    """A part of the gradient of a value; on the axes of `pieces` each rank has its own piece.

    `role` tells apart pieces of one's own, the rest of a sum, and other elements mixed in.
    """

    role: str = ""
    want: str = "1"
    got: str = "1"
    pieces: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Amiss:
    """An edge whose backward is not the adjoint: what it is, and what it would be."""

    flow: Flow
    right: str


def derived(program: Program) -> Program:
    """The program with the contributions that its flow gives, and draws told apart by rank.

    Raises `IllFormed`.
    """
    return counted(_contributed(in_order(program)))


def _contributed(program: Program) -> Program:
    marked = any(s.back for s in sources(program.steps)) or any(
        term.fn == BACK for param in program.params for term in param.target
    )
    if not program.flow and not marked:
        return program
    flow = _Backward(program)
    steps = tuple(_steps(program.steps, flow))
    params = tuple(replace(p, target=tuple(flow.target(p))) for p in program.params)
    return replace(program, params=params, steps=(*steps, *flow.contracts()), flow=())


def amiss(program: Program) -> tuple[Amiss, ...]:
    """The edges whose stated backward is not the adjoint of what they do."""
    if not program.flow:
        return ()
    flow = _Backward(program)
    losses = {s.family for s in sources(program.steps) if s.back}
    found = (one for loss in sorted(losses) for one in flow.strands(loss)[1])
    return tuple(dict.fromkeys(found))


def told(program: Program) -> str:
    """In words, which backward passes are not the adjoint of their forward."""
    return " ".join(
        f"The backward of '{flow_text(replace(one.flow, back=''))}' is {one.flow.back};"
        f" its adjoint, as the value is used, is {one.right}."
        for one in amiss(program)
    )


def followed(program: Program) -> tuple[str, ...]:
    """What follows from the forward pass, line by line: targets and contributions."""
    if not program.flow:
        return ()
    made = derived(program)
    written = {p.name for p in program.params if any(t.fn == BACK for t in p.target)}
    targets = (f"spec {p.name} = {target_text(p.target)}" for p in made.params if p.name in written)
    given = {replace(step, g=ALWAYS, why="") for step in walk(program.steps)}
    new = (replace(step, g=ALWAYS, why="") for step in walk(made.steps))
    lines = (step_text(step) for step in new if isinstance(step, Source) and step not in given)
    return tuple(dict.fromkeys((*targets, *lines)))


def _steps(steps: tuple[Step, ...], flow: _Backward) -> Iterator[Step]:
    for step in steps:
        match step:
            case Source() if step.back:
                yield from flow.contributions(step)
            case Loop():
                yield replace(step, body=tuple(_steps(step.body, flow)))
            case _:
                yield step


class _Backward:
    """The gradients of all copies, for each loss."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values = values(program)
        self.copies = {b.name: b for b in program.buffers if b.of}
        self.order = program.axes + program.loops

    def contributions(self, step: Source) -> Iterator[Source]:
        """What the ranks have of the gradient of a copy, as own contributions."""
        known((step.back,), tuple(self.copies), f"back({step.family}, {step.back})", "copy")
        found = self.families(step.family, step.back)
        reached = [(name, s) for name, s in found if s.got != "0"] or found[:1]
        for index, (name, strand) in enumerate(reached):
            yield replace(
                step,
                family=name,
                over=self._over(strand),
                held=self.copies[step.back].held,
                factor=product(step.factor, strand.got),
                add=step.add or index > 0,
                back="",
            )

    def target(self, param: Param) -> Iterator[Term]:
        """The target of a parameter: all pieces of its gradient, each once."""
        copies = [b.name for b in self.copies.values() if b.of == param.name]
        for term in param.target:
            if term.fn != BACK:
                yield term
                continue
            for name, strand in self._of(term.family, param.name, copies):
                if strand.want != "0":
                    yield Term(name, self._over(strand), product(term.coef, strand.want))

    def _of(self, loss: str, param: str, copies: list[str]) -> Iterator[tuple[str, Strand]]:
        reached = self.strands(loss)[0]
        require(
            bool(set(copies) & set(reached)),
            f"target of {param}",
            f"{loss} does not depend on {' or '.join(copies) or 'a copy of it'}",
            "what one device would compute is the gradient of a value that the parameter moves",
            "name its copy as an argument of a layer",
        )
        for copy in copies:
            if copy in reached:
                yield from self.families(loss, copy)

    def families(self, loss: str, copy: str) -> list[tuple[str, Strand]]:
        """The parts of a copy's gradient, each with a name for its contributions."""
        strands = self.strands(loss)[0].get(copy, [])
        require(
            bool(strands),
            f"back({loss}, {copy})",
            f"{loss} does not depend on {copy}",
            "a gradient is of a copy that the forward pass reads",
            f"name {copy} as an argument of a layer",
        )
        named: list[tuple[str, Strand]] = []
        for strand in strands:
            head = f"{loss}.{copy}{strand.role}"
            taken = sum(name.rstrip("0123456789") in (head, f"{head}.") for name, _ in named)
            named.append((f"{head}.{taken + 1}" if taken else head, strand))
        return named

    def _over(self, strand: Strand) -> tuple[str, ...]:
        return tuple(axis for axis in self.order if axis in strand.pieces)

    def strands(self, loss: str) -> tuple[dict[str, list[Strand]], list[Amiss]]:
        """The gradient of every copy that a loss depends on, and the edges that are amiss."""
        known((loss,), tuple(f.out for f in self.program.flow), f"back({loss})", "activation")
        found: dict[str, list[Strand]] = {loss: [Strand()]}
        wrong: list[Amiss] = []
        for flow in reversed(self.program.flow):
            strands = _merged(found.pop(flow.out, []))
            if not strands or flow.kind == "input":
                continue
            for arg, came in self._back(flow, strands, wrong):
                found.setdefault(arg, []).extend(came)
        return {name: _merged(strands) for name, strands in found.items()}, wrong

    def _back(
        self, flow: Flow, strands: list[Strand], wrong: list[Amiss]
    ) -> Iterator[tuple[str, list[Strand]]]:
        """The gradients of the arguments of a value."""
        if flow.kind in ("layer", "linear", "join"):
            for arg in flow.args:
                yield arg, [s for strand in strands for s in self._through(flow, arg, strand)]
            return
        before, after = self.values[flow.args[0]].on, self.values[flow.out].on
        for axis in reversed(flow.axes):
            sides = before.get(axis, ""), after.get(axis, "")
            right = _adjoint(flow, sides, axis, strands)
            if flow.back and flow.back != right:
                wrong.append(Amiss(flow, right))
            back = flow.back or right
            strands = [s for strand in strands for s in _crossed(flow, sides, axis, back, strand)]
        yield flow.args[0], strands

    def _through(self, flow: Flow, arg: str, strand: Strand) -> list[Strand]:
        """The gradient of an argument of a layer."""
        strands = [replace(strand, got=product(strand.got, flow.factor))]
        out, inner = self.values[flow.out].on, self.values[arg].on
        for axis in self.order:
            sides = inner.get(axis, ""), out.get(axis, "")
            strands = [s for one in strands for s in _local(flow, sides, axis, one)]
        return strands

    def contracts(self) -> Iterator[Step]:
        """Activations that may be other values than one device has, where they are read."""
        losses = {s.family for s in sources(self.program.steps) if s.back}
        read = dict.fromkeys(arg for f in self.program.flow if f.kind == "layer" for arg in f.args)
        for name in (*read, *sorted(losses - set(read))):
            value = self.values.get(name)
            pending = _pending(value) if value and name in read else ()
            if value is not None and (pending or value.doubtful):
                yield from _contract(name, value, pending)


def _pending(value: Value) -> tuple[str, ...]:
    return tuple(axis for axis, state in value.on.items() if state == PARTIAL)


def _contract(name: str, value: Value, pending: tuple[str, ...]) -> Iterator[Step]:
    """The value as it is, and as one device has it."""
    target = []
    for index, part in enumerate(value.parts):
        over = tuple(axis for axis in pending if part.on.get(axis) == PARTIAL)
        yield Source(f"{name}.value", part.name, over, add=index > 0, factor=part.factor)
        target.append(Term(part.name, over))
    yield Expect(f"{name}.value", "is", tuple(target), about=f"activation-{name}")


def _merged(strands: Iterable[Strand]) -> list[Strand]:
    return list(dict.fromkeys(strands))


# --- layers --------------------------------------------------------------------------


def _local(flow: Flow, sides: tuple[str, str], axis: str, strand: Strand) -> list[Strand]:
    """The gradient of an argument: a rank's own part of the result makes a piece of a sum."""
    inner, out = sides
    if inner == out or (flow.kind == "join" and out == PARTIAL):
        return [strand]
    split = _split(strand, axis) if out == PARTIAL and axis in strand.pieces else [strand]
    if inner == "" or inner == PARTIAL:
        return [replace(s, pieces=s.pieces | {axis}) for s in split]
    return split


def _split(strand: Strand, axis: str) -> list[Strand]:
    """A rank's own piece where the whole sum is due: the others' pieces do not arrive."""
    own = replace(strand, role=f"{strand.role}.own", pieces=strand.pieces - {axis})
    rest = replace(own, role=f"{strand.role}.rest", want=product(strand.want, f"{axis}-1"), got="0")
    return [own, rest]


# --- edges ---------------------------------------------------------------------------


def _adjoint(flow: Flow, sides: tuple[str, str], axis: str, strands: list[Strand]) -> str:
    """The backward that gives the gradient of the argument, by the table of conversions."""
    after = sides[1]
    if after == OWN:
        return {"exchange": "exchange", "pass": "nothing"}.get(flow.kind, "gather")
    pieces = {axis in strand.pieces for strand in strands if strand.got != "0"}
    if len(pieces) > 1 and not flow.back:
        raise IllFormed(
            flow_text(flow),
            f"the gradient on {axis} is in part whole and in part a piece of a sum",
            "one collective cannot serve both",
            "say what the backward runs, back=..., or give each use an edge of its own",
        )
    summed = True in pieces
    if flow.kind == "gather":
        return "scatter" if summed else "slice"
    return "sum" if summed else "nothing"


_WHOLE = ("nothing", "sum", "mean", "slice", "scatter", "stop")
_CUT = ("nothing", "sum", "mean", "gather", "pad", "exchange", "stop")


def _crossed(
    flow: Flow, sides: tuple[str, str], axis: str, back: str, strand: Strand
) -> list[Strand]:
    """The gradient before an edge, given the one after it and what the backward runs."""
    before, after = sides
    cut = after == OWN
    result = OWN if back in ("slice", "scatter") or (cut and back not in ("gather", "pad")) else ""
    wanted = OWN if before == OWN and flow.kind not in ("sum", "mean") else ""
    fits = back in (_CUT if cut else _WHOLE) and (result == wanted or back == "stop")
    exchanged = (back == "exchange") == (flow.kind == "exchange") or back == "stop"
    require(
        fits and exchanged,
        flow_text(flow),
        f"{back} of a gradient that is {'cut' if cut else 'whole'} on {axis}",
        f"the gradient of {flow.args[0]} has its shape: "
        f"{'an own part' if wanted else 'whole'} on {axis}",
        "correct back=, or leave it out: then it is the adjoint",
    )
    if flow.kind == "mean" and before != "":
        strand = _averaged(strand, before, axis)
    if back == "stop":
        return [replace(strand, got="0", pieces=strand.pieces - {axis})]
    if cut:
        return _cut(strand, axis, back)
    if before == OWN and back == "nothing" and axis in strand.pieces:
        return _split(strand, axis)
    return _whole(strand, axis, back)


def _averaged(strand: Strand, before: str, axis: str) -> Strand:
    """A mean divides; one device, too, has the mean of own values, but the sum of a sum's parts."""
    want = product(strand.want, f"1/{axis}") if before == OWN else strand.want
    return replace(strand, want=want, got=product(strand.got, f"1/{axis}"))


def _whole(strand: Strand, axis: str, back: str) -> list[Strand]:
    rest = strand.pieces - {axis}
    if axis in strand.pieces:
        if back == "nothing":
            return [strand]
        if back == "slice":
            return _split(strand, axis)
        scale = f"1/{axis}" if back == "mean" else "1"
        return [replace(strand, pieces=rest, got=product(strand.got, scale))]
    scale = axis if back in ("sum", "scatter") else "1"
    return [replace(strand, got=product(strand.got, scale))]


def _cut(strand: Strand, axis: str, back: str) -> list[Strand]:
    if back == "pad":
        return [replace(strand, pieces=strand.pieces | {axis})]
    if back in ("nothing", "gather", "exchange"):
        return [strand]
    scale = f"1/{axis}" if back == "mean" else "1"
    got = product(strand.got, scale)
    mixed = replace(strand, role=f"{strand.role}.mixed", want="0", got=product(got, f"{axis}-1"))
    return [replace(strand, got=got), mixed]
