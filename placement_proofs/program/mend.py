"""Changes of a forward pass after which it may be that of one device: candidates for repairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from placement_proofs.program import Program, Sample
from placement_proofs.program.backward import amiss
from placement_proofs.program.flow import Flow, flow_text
from placement_proofs.program.forward import PARTIAL, Value, values
from placement_proofs.program.orders import has_orders, waiting
from placement_proofs.program.print import step_text

Flows = tuple[Flow, ...]

PASSES = {"sum": 2, "mean": 2, "scatter": 1, "gather": 1, "exchange": 1}
"""How often a collective moves (N-1)/N of the payload in a ring."""


@dataclass(frozen=True)
class Mend:
    """A change of a flow: what it does, in words, the traffic it adds, and the result."""

    action: str
    text: str
    passes: int
    axes: tuple[str, ...]
    program: Program


def mends(program: Program) -> Iterator[Mend]:
    """Streams of their own for some ranks; backward passes, the order of sums, then factors."""
    yield from _streams(program)
    yield from _waits(program)
    if not program.flow:
        return
    found = values(program)
    for one in amiss(program):
        fixed = replace(one.flow, back=one.right)
        passes = PASSES.get(one.right, 0) - PASSES.get(one.flow.back, 0)
        yield _swap(program, "correct the backward", (one.flow,), (fixed,), passes)
    for flow in program.flow:
        yield from _summed_first(program, flow, found)
        yield from _reduced(program, flow, found)
        if flow.only:
            always = replace(flow, only=())
            yield _swap(program, "remove the size guard", (flow,), (always,))
        yield from _left_out(program, flow, found)
        yield from _rescaled(program, flow)


def _streams(program: Program) -> Iterator[Mend]:
    """Ranks that draw more often than the others do so from a stream of their own."""
    for index, step in enumerate(program.steps):
        if isinstance(step, Sample) and step.g.at and step.number is None:
            own = replace(step, stream=f"{step.stream}.own")
            steps = (*program.steps[:index], own, *program.steps[index + 1 :])
            text = f"replace '{step_text(step)}' by '{step_text(own)}'"
            yield Mend("draw from another stream", text, 0, (), replace(program, steps=steps))


def _waits(program: Program) -> Iterator[Mend]:
    """A step that runs beside others is waited for, as late as possible."""
    if not has_orders(program):
        return
    for text, steps in waiting(program.steps):
        yield Mend("wait for it", text, 0, (), replace(program, steps=steps))


def _swap(program: Program, action: str, old: Flows, new: Flows, passes: int = 0) -> Mend:
    at = program.flow.index(old[0])
    edited = tuple(f for f in program.flow if f not in old)
    edited = (*edited[:at], *new, *edited[at:])
    texts = ("; ".join(map(flow_text, flows)) for flows in (old, new))
    axes = next((f.axes for f in new if f.kind in PASSES or f.back in PASSES), ())
    text = "replace '{}' by '{}'".format(*texts)
    return Mend(action, text, max(passes, 0), axes, replace(program, flow=edited))


def _summed_first(program: Program, flow: Flow, found: dict[str, Value]) -> Iterator[Mend]:
    """What is whole is added after the sum over the others, not by every rank before."""
    if flow.kind != "join":
        return
    for edge in program.flow:
        if edge.args == (flow.out,) and edge.kind == "sum":
            parts = [a for a in flow.args if PARTIAL in found[a].on.values()]
            if len(parts) == 1:
                first = replace(edge, out=flow.out, args=(parts[0],))
                others = tuple(a for a in flow.args if a != parts[0])
                then = replace(flow, out=edge.out, args=(flow.out, *others))
                yield _swap(program, "add after the sum", (flow, edge), (first, then))


def _reduced(program: Program, flow: Flow, found: dict[str, Value]) -> Iterator[Mend]:
    """The sum is taken before a function of it."""
    for arg in flow.args if flow.kind == "layer" else ():
        axes = tuple(a for a, state in found[arg].on.items() if state == PARTIAL)
        if axes:
            whole = Flow(f"{arg}.sum", "sum", (arg,), axes=axes)
            args = tuple(whole.out if a == arg else a for a in flow.args)
            new = (whole, replace(flow, args=args))
            yield _swap(program, "insert the missing reduction", (flow,), new, PASSES["sum"])


def _left_out(program: Program, flow: Flow, found: dict[str, Value]) -> Iterator[Mend]:
    """No reduction of what every rank has already."""
    if flow.kind in ("sum", "mean") and not set(flow.axes) & set(found[flow.args[0]].on):
        kept = replace(flow, kind="pass", back="")
        yield _swap(program, "leave out the reduction", (flow,), (kept,))


def _rescaled(program: Program, flow: Flow) -> Iterator[Mend]:
    """A layer's value times or over the ranks of an axis, or as it is."""
    if flow.kind in ("layer", "linear"):
        factors = ("1", *(f"1/{axis}" for axis in program.axes), *program.axes)
        for factor in factors:
            if factor != flow.factor:
                yield _swap(program, "rescale", (flow,), (replace(flow, factor=factor),))
