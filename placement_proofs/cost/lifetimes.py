"""Lifetimes: what one stage holds for a while, folded over one micro-batch of its program.

Held for a while are activations and their gradients, gathered parameters, and fresh gradients
before they are added up. A block that stands for several copies is walked once: what survives one
copy is held by all of them, what is dropped inside counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from typing import Generic, TypeAlias, TypeVar

from placement_proofs.cost.convention import Convention
from placement_proofs.cost.measure import Measure, shards
from placement_proofs.layout import Collective
from placement_proofs.mesh import Dim
from placement_proofs.model import Half
from placement_proofs.plan import (
    LOOPED,
    Action,
    Buffer,
    Item,
    Local,
    Plan,
    PlanTensor,
    Run,
    Stage,
    Step,
    Transfer,
    What,
)

N = TypeVar("N")


class Kept(Enum):
    """What is held for a while."""

    ACTIVATIONS = "activations"
    GATHERED = "gathered parameters"
    FRESH = "fresh gradients"
    PARTS = "parts of parameters kept for the backward pass"


KINDS = tuple(Kept)

Key: TypeAlias = tuple[Kept, str, str]
"""A buffer: its kind, the tensor or value, and which copy of it."""


@dataclass(frozen=True)
class Saved(Generic[N]):
    """Activations kept after a pass: of a block, names, bytes of one copy, how many copies."""

    block: str
    names: tuple[str, ...]
    payload: N
    copies: N


@dataclass
class Lifetimes(Generic[N]):
    """The fold over a stage.

    Attributes:
        points: for every pass, bytes by kind after each step that makes something, as the sum over
            all copies.
        copies: what the other copies of a folded block hold, by kind.
        kept: names, bytes and copies of the activations that are kept after a pass for later ones.
        left: bytes of activations at the end of a pass.
        fixed: bytes of parameters that stay gathered over all micro-batches.
    """

    plan: Plan
    stage: Stage
    measure: Measure[N]
    convention: Convention
    points: dict[str, list[dict[Kept, N]]] = field(default_factory=dict)
    kept: dict[str, list[Saved[N]]] = field(default_factory=dict)
    left: dict[str, N] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.zero = self.measure.sizes.dim(0)
        self.one = self.measure.sizes.dim(1)
        self.tensors = {t.name: t for t in self.stage.tensors}
        self.live: dict[Key, N] = {}
        self.root: dict[Key, Key] = {}
        self.shared: dict[Key, int] = {}
        self.sums = dict.fromkeys(KINDS, self.zero)
        self.copies: dict[str, dict[Kept, N]] = {}
        self.behind: dict[str, list[Key]] = {}
        self.grown = False
        self.last: Key | None = None
        self.fixed = self._fixed()
        for section in LOOPED:
            self.now: list[dict[Kept, N]] = self.points.setdefault(section, [])
            self.saved: list[Saved[N]] = self.kept.setdefault(section, [])
            self._walk(getattr(self.stage, section))
            self._save()
            self.left[section] = self.held()[Kept.ACTIVATIONS]

    def held(self) -> dict[Kept, N]:
        """Bytes by kind now, all copies of folded blocks included."""
        if not self.copies:
            return dict(self.sums)
        total = self.measure.sizes.total
        return {k: total([self.sums[k], *(c[k] for c in self.copies.values())]) for k in KINDS}

    def _fixed(self) -> N:
        sizes = self.measure.sizes
        parts = [
            sizes.product([self._copy(s, item), sizes.dim(s.where.times)])
            for s in self.stage.before
            if isinstance(s, Transfer) and _ends_gathered(s)
            for item in s.items
        ]
        return sizes.total(parts)

    def _save(self) -> None:
        names = tuple(key[1] for key in self.live if key[0] is Kept.ACTIVATIONS)
        if names:
            self.saved.append(Saved("", names, self.sums[Kept.ACTIVATIONS], self.one))

    # walking

    def _walk(self, steps: Sequence[Step]) -> None:
        for (block, times), group in groupby(steps, key=_folded):
            start, before = len(self.now), set(self.root)
            read = self._run(group)
            if block:
                self._close(block, times, start, before, read)

    def _run(self, steps: Iterable[Step]) -> set[str]:
        """Apply steps; returns the names of the values that they read."""
        read: set[str] = set()
        for step in steps:
            self._apply(step)
            if isinstance(step, Run) and not step.backward:
                read.update(step.ins)
            if self.grown:
                self.now.append(self.held())
                self.grown = False
        return read

    def _close(self, block: str, times: Dim, start: int, before: set[Key], read: set[str]) -> None:
        """The end of a folded block: its other copies hold as much as this one leaves behind.

        The value that copies hand on (read from outside, and made last) is one for each copy.
        """
        first = block not in self.copies
        left = [k for k in self.root if k not in before and k != self.last]
        if first:
            handed = ((Kept.ACTIVATIONS, name, "") for name in read)
            left += [k for k in handed if k in before and k in self.root]
        left += [k for k in self.behind.get(block, ()) if k in self.root and k not in left]
        old = self.copies.pop(block, None)
        new = self._others(left, times)
        if old is None or any(new[k] != self.zero for k in KINDS):
            others = [self._moved(p, old, new) for p in self.now[start:]]
            self.now[start:] = others if old is None else [*self.now[start:], *others]
        self.copies[block] = new
        self.behind[block] = left
        if left:
            self._save_copies(block, left, times)

    def _others(self, left: Sequence[Key], times: Dim) -> dict[Kept, N]:
        sizes = self.measure.sizes
        more = sizes.difference(sizes.dim(times), self.one)
        roots = {self.root[key] for key in left}
        return {
            kind: sizes.product([more, sizes.total([self.live[r] for r in roots if r[0] is kind])])
            for kind in KINDS
        }

    def _moved(
        self, point: dict[Kept, N], old: dict[Kept, N] | None, new: dict[Kept, N]
    ) -> dict[Kept, N]:
        sizes = self.measure.sizes
        less = {k: sizes.difference(point[k], old[k]) if old else point[k] for k in KINDS}
        return {k: sizes.total([less[k], new[k]]) for k in KINDS}

    def _save_copies(self, block: str, left: Sequence[Key], times: Dim) -> None:
        sizes = self.measure.sizes
        roots = {self.root[key] for key in left if key[0] is Kept.ACTIVATIONS}
        payload = sizes.total([self.live[root] for root in roots])
        more = sizes.difference(sizes.dim(times), self.one)
        if roots:
            self.saved.append(Saved(block, tuple(sorted(r[1] for r in roots)), payload, more))

    # buffers

    def _put(self, key: Key, count: N) -> None:
        if key[0] is Kept.ACTIVATIONS:
            self.last = key
        if key in self.root:
            return
        self.live[key] = count
        self.root[key] = key
        self.shared[key] = 1
        self.sums[key[0]] = self.measure.sizes.total([self.sums[key[0]], count])
        self.grown = True

    def _share(self, key: Key, source: Key) -> None:
        """``key`` is another name for ``source``: no bytes of its own."""
        self.last = key
        if source in self.root and key not in self.root:
            self.root[key] = self.root[source]
            self.shared[self.root[source]] += 1

    def _drop(self, key: Key) -> None:
        root = self.root.pop(key, None)
        if root is None:
            return
        self.shared[root] -= 1
        if not self.shared[root]:
            count = self.live.pop(root)
            self.sums[root[0]] = self.measure.sizes.difference(self.sums[root[0]], count)

    # steps

    def _apply(self, step: Step) -> None:
        match step:
            case Run(backward=False):
                for name in (step.out, *(name for name, _ in step.internals)):
                    self._activation(name, What.ACTIVATION)
                self.last = (Kept.ACTIVATIONS, step.out, "")
            case Run():
                self._backward(step)
            case Transfer():
                self._transfer(step)
            case Local():
                self._local(step)

    def _activation(self, name: str, what: What) -> None:
        """A value or its gradient comes to be; token ids and unneeded gradients do not count."""
        value = self.plan.values[name]
        if value.integer or (what is What.COTANGENT and not value.needs_gradient):
            return
        count = self.measure.elements(value.shape, value.layout)
        width = self.convention.width(value.mask, value.logits, value.wide)
        self._put(_key(name, what), self._bytes(count, width))

    def _backward(self, step: Run) -> None:
        for name in () if step.half is Half.INPUTS else step.params:
            tensor = self.tensors[name]
            if tensor.trainable and not self._in_place(tensor):
                count = self.measure.elements(tensor.shape, shards(tensor.use))
                self._put((Kept.FRESH, name, "micro"), self._bytes(count, self.convention.gathered))
        for name in () if step.half is Half.WEIGHTS else step.ins:
            self._activation(name, What.COTANGENT)
        self._scratch(step)

    def _scratch(self, step: Run) -> None:
        """What a run holds for itself while it goes on: a point of its own."""
        if step.scratch:
            last = self.last
            for name, _ in step.scratch:
                self._activation(name, What.ACTIVATION)
            self.now.append(self.held())
            for name, _ in step.scratch:
                self._drop(_key(name, What.ACTIVATION))
            self.last = last

    def _in_place(self, tensor: PlanTensor) -> bool:
        """Whether a fresh gradient is the stored one: one micro-batch, same part, same width.

        A kernel that adds to the stored one needs the same part alone.
        """
        same = set(shards(tensor.use)) == set(shards(tensor.gradient))
        if tensor.in_place:
            return same
        widths = self.convention.gathered == self.convention.gradient
        return self.plan.micro == 1 and same and widths

    def _transfer(self, step: Transfer) -> None:
        if step.kind is Collective.POINT_TO_POINT:
            return
        for item in step.items:
            match item.what:
                case What.PARAMETER:
                    self._parameter(step, item)
                case What.GRADIENT:
                    self._reduced(item)
                case What.ACTIVATION if step.kind is Collective.HOST and step.shift < 0:
                    pass
                case What.ACTIVATION | What.COTANGENT:
                    self._activation(item.out, item.what)
                case What.STATISTIC:
                    pass

    def _parameter(self, step: Transfer, item: Item) -> None:
        if step.kind is Collective.HOST and step.shift < 0:
            return
        if step.kind is Collective.HOST:
            self._put(
                (Kept.GATHERED, item.name, "fetched"), self._part(item, self.convention.parameter)
            )
        elif item.buffer is Buffer.GATHERED:
            self._drop((Kept.GATHERED, item.name, "gathered"))
            self._drop((Kept.PARTS, item.name, ""))
            self._put((Kept.GATHERED, item.name, "gathered"), self._copy(step, item))

    def _reduced(self, item: Item) -> None:
        key: Key = (Kept.FRESH, item.name, "micro")
        if item.buffer is Buffer.MICRO and key in self.root:
            self._drop(key)
            self._put(key, self._part(item, self.convention.reduction))

    def _local(self, step: Local) -> None:
        for item in step.items:
            key = _key(item.out, item.what)
            match step.action:
                case Action.ALIAS:
                    self._share(key, _key(item.name, item.what))
                case Action.SLICE if item.what is What.PARAMETER:
                    self._drop((Kept.GATHERED, item.name, "gathered"))
                    part = self._part(item, self.convention.gathered)
                    self._put((Kept.PARTS, item.name, ""), part)
                case Action.SLICE | Action.RECEIVE:
                    self._activation(item.out, item.what)
                case Action.DROP:
                    self._drop(key)
                case Action.RELEASE:
                    self._drop((Kept.GATHERED, item.name, "fetched"))
                    self._drop((Kept.GATHERED, item.name, "gathered"))
                case Action.ACCUMULATE:
                    self._accumulate(item)
                case _:
                    pass

    def _accumulate(self, item: Item) -> None:
        """The sum over micro-batches may be a larger part than the stored gradient."""
        self._drop((Kept.FRESH, item.name, "micro"))
        stored = shards(self.tensors[item.name].gradient)
        if set(stored) - set(shards(item.before)):
            sizes = self.measure.sizes
            here = self.measure.elements(item.shape, shards(item.before))
            more = sizes.difference(here, self.measure.elements(item.shape, stored))
            self._put((Kept.FRESH, item.name, "sum"), self._bytes(more, self.convention.gradient))

    def _copy(self, step: Transfer, item: Item) -> N:
        """A gathered copy, with the padding of the wire where that is kept."""
        width = self.convention.gathered
        if not self.tensors[item.name].padded:
            return self._part(item, width)
        count = self.measure.padded(item.shape, item.after, item.before, step.axes, step.pad)
        return self._bytes(count, width)

    def _part(self, item: Item, width: int) -> N:
        return self._bytes(self.measure.elements(item.shape, item.after), width)

    def _bytes(self, count: N, width: int) -> N:
        return self.measure.sizes.product([count, self.measure.sizes.dim(width)])


def _folded(step: Step) -> tuple[str, Dim]:
    """The block of a step where it stands for several copies."""
    where = step.where
    return (where.block, where.times) if where.times != 1 else ("", 1)


def _ends_gathered(step: Transfer) -> bool:
    return step.kind is Collective.ALL_GATHER


def _key(name: str, what: What) -> Key:
    return (Kept.ACTIVATIONS, name, "gradient" if what is What.COTANGENT else "")
