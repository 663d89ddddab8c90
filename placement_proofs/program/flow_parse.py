"""The statements of the text form that say the forward pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from placement_proofs.program import Axes
from placement_proofs.program.flow import BACKWARDS, FORWARDS, Flow, FlowKind
from placement_proofs.program.line import Line, family, split
from placement_proofs.program.print import expr_text


def back(line: Line, text: str) -> tuple[str, str, Axes]:
    """Copy, loss and indices of `back(l, w)`; of a family the copy is empty."""
    match = re.fullmatch(r"back\(\s*([\w.]+)\s*,\s*([\w.]+)\s*\)", text)
    return (match[2], match[1], ()) if match else ("", *family(line, text))


def _input(line: Line) -> Flow:
    (out,) = line.words(1)
    return Flow(out, "input", axes=line.names("own"))


def _layer(line: Line) -> Flow:
    out, _, value = line.sides("=")
    match = re.fullmatch(r"([A-Za-z_][\w.]*)\s*\(([^()]*)\)", value)
    args = split(match[2].replace(" ", "")) if match else ()
    if match is None or not args:
        raise line.error(f"a layer is a function of values and copies: '{line.word} y = f(x, w)'")
    factor = expr_text(line.take("x") or "1", line.place)
    axes = line.names("partial")
    return Flow(out, cast(FlowKind, line.word), args, match[1], axes, factor=factor)


def _join(line: Line) -> Flow:
    out, _, value = line.sides("=")
    args = tuple(part.strip() for part in value.split("+"))
    if len(args) < 2 or not all(re.fullmatch(r"[\w.]+", arg) for arg in args):
        raise line.error("a join is a sum of activations: 'join y = x + h'")
    return Flow(out, "join", args)


def _edge(line: Line) -> Flow:
    out, _, value = line.sides("=")
    words = value.split()
    if len(words) != 3 or words[0] not in FORWARDS:
        raise line.error(
            f"an edge is one of {', '.join(FORWARDS)} over axes: 'edge z = gather h tp'"
        )
    if line.guard.turns or line.guard.at or line.guard.starts:
        raise line.error("an edge may depend on sizes only: 'if ep > 1: edge ...'")
    backward = line.take("back")
    if backward and backward not in BACKWARDS:
        raise line.error(f"back= is one of {', '.join(BACKWARDS)}")
    return Flow(
        out,
        cast(FlowKind, words[0]),
        (words[1],),
        axes=split(words[2]),
        back=backward,
        only=line.guard.sizes,
    )


FLOWS: dict[str, Callable[[Line], Flow]] = {
    "input": _input,
    "layer": _layer,
    "linear": _layer,
    "join": _join,
    "edge": _edge,
}
