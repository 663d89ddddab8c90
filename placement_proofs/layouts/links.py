"""Seconds of a collective on a cluster, as a formula in the degrees.

Ranks are numbered with tensor ranks next to each other, then context, expert and data ranks, and
pipeline stages furthest apart, as Megatron-LM numbers them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from placement_proofs.cost import symbols
from placement_proofs.cost.symbols import Expr, symbol
from placement_proofs.layouts.work import Message
from placement_proofs.mesh import parent

ORDER = ("tp", "cp", "ep", "dp", "pp")
"""Axes from neighbours outwards."""


def seconds(message: Message, sizes: Mapping[str, Expr]) -> Expr:
    """The time of a message: its steps wait for the latency, its bytes for the bandwidth.

    ``sizes`` are those of the axes of the plan. A ring lies inside a node if all its ranks do;
    otherwise its members on a node share their links to other nodes.
    """
    stride, span = _reach([parent(a) for a in message.axes], sizes)
    node = symbol("node")
    outside = symbols.least([symbols.total([1]), symbols.rounded_up(span / node) - 1])
    inside = symbol("inside")
    members = symbols.largest([symbols.total([1]), node / stride])
    between = symbols.least([inside, symbol("between") * members])
    if not message.waits:
        between /= _contended(sizes)
    reached = symbol("link") * ((1 - outside) * inside + outside * between)
    wait = (1 - outside) * symbol("inside_latency") + outside * symbol("between_latency")
    return message.bytes / reached + message.steps * wait


def _contended(sizes: Mapping[str, Expr]) -> Expr:
    """By what a network slows when all ranks reduce at a time: each further node adds its share."""
    nodes = symbols.rounded_up(math.prod(sizes[a] for a in ORDER if a in sizes) / symbol("node"))
    return 1 + symbol("contention") * (nodes - 1)


def _reach(axes: Sequence[str], sizes: Mapping[str, Expr]) -> tuple[Expr, Expr]:
    """The distance of neighbours in a ring, and of its first from its last rank, in ranks."""
    order = [a for a in ORDER if a in sizes]
    first, last = min(map(order.index, axes)), max(map(order.index, axes))
    stride = math.prod(sizes[a] for a in order[:first])
    return stride, stride * math.prod(sizes[a] for a in order[first : last + 1])
