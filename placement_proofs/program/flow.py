"""The forward pass of an element program: activations, layers, collectives and their backward.

From a flow the contributions to a gradient follow (`program.backward`): how an activation lies on
an axis, which collectives the forward pass and which the backward pass runs on it, and where a
parameter is used say whether its gradient is whole, a part of a sum or a shard, and its factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FlowKind: TypeAlias = Literal[
    "input",
    "layer",
    "linear",
    "join",
    "pass",
    "sum",
    "mean",
    "scatter",
    "gather",
    "slice",
    "exchange",
]
FORWARDS = ("pass", "sum", "mean", "scatter", "gather", "slice", "exchange")
"""What an edge does forward: nothing, all-reduce, reduce-scatter, all-gather, all-to-all, ..."""

BACKWARDS = ("nothing", "sum", "mean", "scatter", "gather", "slice", "pad", "exchange", "stop")
"""What an edge does to the gradient; `stop` is a collective without a backward."""

BACK = "back"
"""The function of a target's term that stands for what a flow gives."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One value of the forward pass: `out = fn(args)`, or a collective on one activation.

    `axes`: of an input the axes (and loops) on which every rank (turn) has its own part; of a
    layer those over which its result is a part of a sum; of an edge those of the collective.
    `back` is what the backward pass runs; empty is the adjoint, whatever it is there. `factor`
    multiplies the value. A `layer` is any function of what the rank has; a `linear` one may be
    applied to a part of a sum; a `join` is the sum of activations. An edge with `only` is there
    only if these axes have one rank (True) or several (False); else nothing is done, either way.
    """

    out: str
    kind: FlowKind
    args: tuple[str, ...] = ()
    fn: str = ""
    axes: tuple[str, ...] = ()
    back: str = ""
    factor: str = "1"
    only: tuple[tuple[str, bool], ...] = ()


def flow_text(flow: Flow) -> str:
    """One line of the text form."""
    factor = "" if flow.factor == "1" else f" x={flow.factor}"
    axes = ",".join(flow.axes)
    match flow.kind:
        case "input":
            return f"input {flow.out}{f' own={axes}' if axes else ''}"
        case "layer" | "linear":
            partial = f" partial={axes}" if axes else ""
            return f"{flow.kind} {flow.out} = {flow.fn}({', '.join(flow.args)}){partial}{factor}"
        case "join":
            return f"join {flow.out} = {' + '.join(flow.args)}"
        case _:
            back = f" back={flow.back}" if flow.back else ""
            parts = [f"{axis} == 1" if one else f"{axis} > 1" for axis, one in flow.only]
            guard = f"if {' and '.join(parts)}: " if parts else ""
            return f"{guard}edge {flow.out} = {flow.kind} {flow.args[0]} {axes}{back}"
