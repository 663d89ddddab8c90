"""A numeric model of flows, which shares only their data with the derivation of contributions.

Every value has one slot for each position of the mesh; a rank that has its own part on an axis has
the slots of its own coordinate, and all slots otherwise. Layers are arbitrary linear maps, because
only their derivatives matter; the backward pass runs the collectives that the flow states.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from fractions import Fraction

from placement_proofs.program import Program, Reduce, Source
from placement_proofs.program.flow import Flow
from placement_proofs.program.forward import OWN, PARTIAL, values

Slot = tuple[int, ...]
Tensor = dict[Slot, Fraction]
Ranks = dict[Slot, Tensor]


class Model:
    """One random instance of a flow on a mesh."""

    def __init__(self, program: Program, sizes: Mapping[str, int], seed: int) -> None:
        self.program = program
        self.axes = program.axes
        self.sizes = sizes
        self.values = values(program)
        self.random = random.Random(seed)
        self.slots = list(itertools.product(*(range(sizes[a]) for a in self.axes)))
        self.weights: dict[object, Fraction] = {}

    def weight(self, *key: object) -> Fraction:
        """An entry of a layer's matrix, drawn once."""
        return self.weights.setdefault(key, Fraction(self.random.randint(-9, 9)))

    def on(self, name: str, axis: str) -> str:
        """How a value lies on an axis."""
        return self.values[name].on.get(axis, "")

    def has(self, name: str, rank: Slot) -> list[Slot]:
        """The slots of a value that a rank has."""
        own = [i for i, a in enumerate(self.axes) if self.on(name, a) == OWN]
        return [s for s in self.slots if all(s[i] == rank[i] for i in own)]

    def entry(self, flow: Flow, arg: str, out: Slot, inner: Slot, cut: Slot) -> Fraction:
        """How much an element of an argument moves an element of the result.

        `cut` is the position in the sums that the result is a part of.
        """
        if flow.kind == "join":
            return Fraction(inner == out)
        key = []
        for i, axis in enumerate(self.axes):
            states = self.on(arg, axis), self.on(flow.out, axis)
            if states == (OWN, OWN) and inner[i] != out[i]:
                return Fraction(0)
            if states == (OWN, PARTIAL) and inner[i] != cut[i]:
                return Fraction(0)
            key.append(cut[i] if states == ("", PARTIAL) else -1)
        return self.weight(flow.out, arg, out, inner, tuple(key))

    def cuts(self, flow: Flow, arg: str) -> list[Slot]:
        """The terms of the sums over which a layer's result is partial, as one device adds them."""
        partial = [
            self.on(flow.out, a) == PARTIAL and self.on(arg, a) != PARTIAL and flow.kind != "join"
            for a in self.axes
        ]
        ranges = (
            range(self.sizes[a]) if p else (0,) for a, p in zip(self.axes, partial, strict=True)
        )
        return list(itertools.product(*ranges))

    def one_device(self, loss: str) -> dict[str, Tensor]:
        """The gradient of every value, as one device computes it."""
        found = {loss: dict.fromkeys(self.slots, Fraction(1))}
        for flow in reversed(self.program.flow):
            out = found.get(flow.out)
            if out is None or flow.kind == "input":
                continue
            for arg in flow.args:
                into = found.setdefault(arg, dict.fromkeys(self.slots, Fraction(0)))
                for o, i in itertools.product(self.slots, self.slots):
                    into[i] += out[o] * self._whole(flow, arg, o, i)
        return found

    def _whole(self, flow: Flow, arg: str, out: Slot, inner: Slot) -> Fraction:
        if flow.kind in ("layer", "linear", "join"):
            entries = (self.entry(flow, arg, out, inner, c) for c in self.cuts(flow, arg))
            return sum(entries, Fraction(0))
        return Fraction(out == inner)

    def ranks(self, loss: str, backs: Mapping[str, str]) -> dict[str, Ranks]:
        """The gradient of every value, as the ranks compute it."""
        seed = {r: dict.fromkeys(self.has(loss, r), Fraction(1)) for r in self.slots}
        found: dict[str, Ranks] = {loss: seed}
        for flow in reversed(self.program.flow):
            if flow.out not in found or flow.kind == "input":
                continue
            for arg in flow.args:
                zero = {r: dict.fromkeys(self.has(arg, r), Fraction(0)) for r in self.slots}
                into = found.setdefault(arg, zero)
                for rank, came in self._back(flow, arg, found[flow.out], backs).items():
                    for slot, value in came.items():
                        into[rank][slot] += value
        return found

    def _back(self, flow: Flow, arg: str, out: Ranks, backs: Mapping[str, str]) -> Ranks:
        if flow.kind in ("layer", "linear", "join"):
            factor = self.number(flow.factor)
            return {
                r: {
                    i: sum(
                        (factor * g * self.entry(flow, arg, o, i, r) for o, g in out[r].items()),
                        Fraction(0),
                    )
                    for i in self.has(arg, r)
                }
                for r in self.slots
            }
        (axis,) = flow.axes
        return self.collective(backs[flow.out], axis, out, arg)

    def number(self, text: str) -> Fraction:
        """A factor such as `1/tp`."""
        above, _, below = text.partition("/")
        named = {**{a: Fraction(n) for a, n in self.sizes.items()}, "": Fraction(1)}
        return named.get(above, Fraction(1)) / named.get(below, Fraction(1))

    def collective(self, kind: str, axis: str, held: Ranks, arg: str) -> Ranks:
        """What the ranks have after a collective of the backward pass."""
        at, size = self.axes.index(axis), self.sizes[axis]
        result: Ranks = {}
        for rank in self.slots:
            group = [(*rank[:at], n, *rank[at + 1 :]) for n in range(size)]
            own = held[rank]
            match kind:
                case "nothing":
                    result[rank] = dict(own)
                case "sum" | "mean" | "scatter":
                    scale = Fraction(1, size if kind == "mean" else 1)
                    result[rank] = {
                        s: scale * sum((self._alike(held[r], s, at, r) for r in group), Fraction(0))
                        for s in own
                    }
                case "gather":
                    result[rank] = {s: v for r in group for s, v in held[r].items()}
                case "pad":
                    result[rank] = {s: own.get(s, Fraction(0)) for s in self.has(arg, rank)}
                case "stop":
                    result[rank] = dict.fromkeys(self.has(arg, rank), Fraction(0))
                case "slice":
                    result[rank] = dict(own)
            if kind in ("slice", "scatter"):
                kept = {s: v for s, v in result[rank].items() if s[at] == rank[at]}
                result[rank] = kept
        return result

    def _alike(self, held: Tensor, slot: Slot, at: int, rank: Slot) -> Fraction:
        """What another rank adds: the same element, or the one at the same place of its part."""
        if slot in held:
            return held[slot]
        return held[(*slot[:at], rank[at], *slot[at + 1 :])]


def agrees(program: Program, sizes: Mapping[str, int], backs: Mapping[str, str], seed: int) -> bool:
    """Whether the ranks' gradient of the first copy is that of one device, in one instance."""
    model = Model(program, sizes, seed)
    source = next(s for s in program.steps if isinstance(s, Source))
    held = model.ranks(source.family, backs)[source.back]
    for step in program.steps:
        if isinstance(step, Reduce):
            for axis in step.axes:
                kind = "mean" if step.mean else "sum"
                held = model.collective(kind, axis, held, source.back)
    wanted = model.one_device(source.family)[source.back]
    return all(v == wanted[s] for tensor in held.values() for s, v in tensor.items())
