"""Work of a plan's rank: arithmetic, element-wise bytes and traffic of one micro-batch, and once.

Read off the steps of the plan, so that recomputation, gathers in the loop and the ends of a
pipeline are counted where the plan has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from placement_proofs.cost.communication import communication_terms
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.measure import largest
from placement_proofs.cost.symbols import Expr, SymSizes, total
from placement_proofs.cost.time import steps_of
from placement_proofs.cost.walk import named_position, visits
from placement_proofs.layout import positions
from placement_proofs.layouts.kernels import (
    ATTENTION,
    NORM,
    POSITIONS,
    ROTARY_LAUNCHES,
    ROTARY_TRAFFIC,
    ROTATED,
)
from placement_proofs.plan import LOOPED, Plan, Run, What

TRAFFIC: Mapping[str, tuple[int, int]] = {
    "activation": (4, 6),
    "multiply": (6, 10),
    "add": (20, 20),
    "bias": (4, 2),
    "dropout": (5, 5),
    "embedding": (4, 6),
    "dispatch": (4, 4),
    "combine": (4, 6),
}
"""Bytes that an operation reads and writes per element of its output, forward and backward: every
operand and every result of two bytes once. A residual sum stands with the copies and casts around
it: sequence parallelism then gains the 2 to 12% that arXiv 2311.05610 reports."""

LAUNCHES: Mapping[str, tuple[int, int]] = {
    "linear": (1, 2),
    "expert": (1, 2),
    "opaque": (1, 2),
    "loss": (4, 4),
    "multiply": (1, 2),
}
"""Kernels that an operation launches, forward and backward; one of each where it is not here."""

LOSS_TRAFFIC = (14, 18)
"""The same per logit: copies, exponentials and gradients in float32."""


@dataclass(frozen=True)
class Message:
    """Traffic over some axes.

    Attributes:
        axes: of the collective; none for the link to the host.
        bytes: that a rank sends.
        steps: how often it waits for the latency of the link.
        waits: whether computation waits for it: it moves no parameters and no gradients of them.
        looped: whether it is of one micro-batch, or of a training step.
    """

    axes: tuple[str, ...]
    bytes: Expr
    steps: Expr
    waits: bool
    looped: bool


@dataclass(frozen=True)
class Work:
    """Work of one rank of a pipeline position, for one micro-batch unless said otherwise.

    Attributes:
        matrix: FLOPs of matrix products, forward, backward and recomputed.
        attention: FLOPs that the kernel of attention does.
        elements: bytes that element-wise operations read and write.
        launches: kernels that are launched.
        messages: traffic, of a micro-batch and of a training step.
    """

    matrix: Expr
    attention: Expr
    elements: Expr
    launches: Expr
    messages: tuple[Message, ...]


def work_of(
    plan: Plan, sizes: SymSizes, convention: Convention, position: str, attention: str, norm: str
) -> Work:
    """The work of a rank of a pipeline position, with those kernels.

    Raises:
        IllFormed: the plan has no position of that name.
    """
    count = _Count(plan, sizes, attention, norm)
    for visit in visits(plan, sizes, named_position(plan, position)):
        if isinstance(visit.step, Run):
            count.add(visit.step, visit.times / sizes.micro)
    sums = {name: total(parts) for name, parts in count.parts.items()}
    messages = tuple(_messages(plan, sizes, convention, position))
    return Work(**sums, messages=messages)


def _messages(
    plan: Plan, sizes: SymSizes, convention: Convention, position: str
) -> Iterator[Message]:
    for step, term in communication_terms(plan, sizes, convention, position):
        looped = term.section in LOOPED
        turns = sizes.micro if looped else 1
        waits = step.items[0].what not in (What.PARAMETER, What.GRADIENT)
        steps = steps_of(step.kind, positions(step.axes, sizes)) * term.times / turns
        yield Message(step.axes, term.bytes / turns, steps, waits, looped)


class _Count:
    """Sums over the runs of a micro-batch."""

    def __init__(self, plan: Plan, sizes: SymSizes, attention: str, norm: str) -> None:
        self.plan = plan
        self.measure = largest(sizes)
        self.attention = ATTENTION[attention]
        self.norm = NORM[norm]
        tensors = [tensor for stage in plan.stages for tensor in stage.tensors]
        self.rotates = not any(tensor.group == POSITIONS for tensor in tensors)
        names = ("matrix", "attention", "elements", "launches")
        self.parts: dict[str, list[Expr]] = {name: [] for name in names}

    def lengths(self, name: str) -> tuple[Expr, ...]:
        """The local shape of a value."""
        value = self.plan.values[name]
        return self.measure.lengths(value.shape, value.layout)

    def elements(self, name: str) -> Expr:
        value = self.plan.values[name]
        return self.measure.elements(value.shape, value.layout)

    def add(self, run: Run, times: Expr) -> None:
        self.parts["launches"].append(times * self._launches(run))
        match run.kind:
            case "linear" | "expert" | "opaque":
                self._matrix(run, times)
            case "attention":
                self._attention(run, times)
            case "norm":
                self._bytes(run.out, self.norm.traffic[run.backward], times)
            case "loss":
                self._bytes(run.ins[0], LOSS_TRAFFIC[run.backward], times)
            case kind:
                self._bytes(run.out, TRAFFIC[kind][run.backward], times)

    def _launches(self, run: Run) -> int:
        """Kernels that a run launches."""
        if run.kind == "norm":
            return self.norm.launches[run.backward]
        if run.kind != "attention":
            return LAUNCHES.get(run.kind, (1, 1))[run.backward]
        rotations = ROTATED * self.rotates * ROTARY_LAUNCHES[run.backward]
        return self.attention.launches[run.backward] + rotations

    def _bytes(self, name: str, each: int, times: Expr) -> None:
        self.parts["elements"].append(times * each * self.elements(name))

    def _matrix(self, run: Run, times: Expr) -> None:
        """A product of 2 FLOPs per output and input feature; two such in the backward pass."""
        each = 4 if run.backward else 2
        flops = each * self.elements(run.out) * self.lengths(run.ins[0])[-1]
        self.parts["matrix"].append(times * flops)

    def _attention(self, run: Run, times: Expr) -> None:
        """Two products of queries by keys and by values; four in the backward pass."""
        kernel = self.attention
        keys = self.lengths(run.ins[1])[1]
        square = self.elements(run.out) * keys
        products = 4 + 2 * kernel.again if run.backward else 2
        flops = 2 * products * square
        self.parts["attention"].append(times * flops / (2 if kernel.skips else 1))
        scores = square * self._heads_by_width(run)
        self.parts["elements"].append(times * kernel.traffic[run.backward] * scores)
        for name in run.ins[: ROTATED * self.rotates]:
            self._bytes(name, ROTARY_TRAFFIC[run.backward], times)

    def _heads_by_width(self, run: Run) -> Expr:
        sizes = self.measure.sizes
        width = sizes.dim(self.plan.values[run.out].shape[-1])
        return sizes.dim(dict(run.attrs)["heads"]) / width
