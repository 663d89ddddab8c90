"""The stores of all ranks, and how the items of steps read and write them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placement_proofs.layout import Layout
from placement_proofs.placement import State
from placement_proofs.plan import Buffer, Item, PlanTensor, Run, What
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.loss import counted
from placement_proofs.simulate.meters import HeldMeter
from placement_proofs.simulate.ranks import Bounds, World, extents, inside
from placement_proofs.simulate.site import Setting
from placement_proofs.simulate.state import Frame, Store, new_store

PARAMETERS = State.PARAMETERS.value
OPTIMIZER = State.OPTIMIZER.value
TOKENS = "tokens"
"""The scalar of a rank that counts its tokens."""
LOSS = "total loss"
"""The scalar of a rank that adds up its losses, for the reader of a log."""


@dataclass
class Memory:
    """Stores by (stage, rank), filled with the rank's parts of the initial parameters."""

    world: World
    field: Field
    meter: HeldMeter
    initial: Mapping[str, Array]
    stores: dict[tuple[int, int], Store] = dataclasses.field(default_factory=dict)
    ranks: dict[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    tensors: dict[int, dict[str, PlanTensor]] = dataclasses.field(default_factory=dict)
    _shapes: dict[tuple[str, int], tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, position in enumerate(self.world.plan.positions):
            for stage, _ in position.stages:
                self.ranks[stage] = self.world.at(number)
                tensors = self.world.plan.stages[stage].tensors
                self.tensors[stage] = {t.name: t for t in tensors}
                for rank in self.ranks[stage]:
                    self.stores[stage, rank] = self._filled(tensors, rank)

    def _filled(self, tensors: Iterable[PlanTensor], rank: int) -> Store:
        store = new_store(self.meter, rank)
        for t in tensors:
            if PARAMETERS in t.offloaded:
                store.stored.away.add(t.name)
            if OPTIMIZER in t.offloaded:
                store.master.away.add(t.name)
            store.stored.put(t.name, self._initial(t, t.stored, rank))
            if t.trainable:
                store.master.put(t.name, self._initial(t, t.optimizer, rank))
        return store

    def _initial(self, tensor: PlanTensor, layout: Layout, rank: int) -> Array:
        bounds = self.world.bounds(tensor.shape, layout, rank)
        return self.initial[tensor.name][tuple(slice(a, b) for a, b in bounds)].copy()

    # items

    def read(self, stage: int, rank: int, item: Item, frame: Frame | None) -> Array:
        """What a rank gives of an item.

        Raises:
            CannotRun: the rank does not hold it.
        """
        store = self.stores[stage, rank]
        match item.what:
            case What.GRADIENT:
                return store.gradients(item.buffer).get(item.name)
            case What.PARAMETER:
                return self._parameter(stage, rank, item)
            case What.STATISTIC:
                return self._statistic(store, item, frame)
            case What.ACTIVATION | What.COTANGENT:
                return _held(frame, item).of(item).get(item.name)

    def write(self, stage: int, rank: int, item: Item, frame: Frame | None, array: Array) -> None:
        """Take the result of a step: gradients of activations add up, the rest is replaced."""
        if item.what is What.COTANGENT:
            self.add_cotangent(_held(frame, item), rank, item.out, array)
        else:
            self.replace(stage, rank, item, frame, array)

    def replace(self, stage: int, rank: int, item: Item, frame: Frame | None, array: Array) -> None:
        """Take the result of a step in place of what was there."""
        store = self.stores[stage, rank]
        match item.what:
            case What.GRADIENT:
                store.gradients(item.buffer).put(item.out, array)
            case What.PARAMETER if item.buffer is Buffer.GATHERED:
                store.gathered.put(item.out, array)
                store.layouts[item.out] = item.after
            case What.PARAMETER:
                self.refresh(stage, rank, item.name, item.after, array)
            case What.STATISTIC:
                (frame.statistics if frame else store.scalars)[item.out] = array
            case What.ACTIVATION | What.COTANGENT:
                self.put_value(_held(frame, item), rank, item, array)

    def _statistic(self, store: Store, item: Item, frame: Frame | None) -> Array:
        found = (frame.statistics if frame else store.scalars).get(item.name)
        if found is None and item.name == LOSS:
            return self.field.zeros(())
        if found is None and item.out != item.name:
            found = store.total.arrays.get(item.name)
        if found is None:
            raise CannotRun(f"{item.name}: nothing to sum")
        return found

    # parameters

    def _parameter(self, stage: int, rank: int, item: Item) -> Array:
        store = self.stores[stage, rank]
        if item.buffer is Buffer.MASTER:
            return store.master.get(item.name)
        copy = store.gathered.arrays.get(item.name)
        if item.buffer is Buffer.GATHERED and copy is not None:
            if store.layouts[item.name] == item.before:
                return copy
        elif item.buffer is Buffer.GATHERED:
            self._check_here(stage, item.name)
        tensor = self.tensors[stage][item.name]
        held = self.world.bounds(tensor.shape, tensor.stored, rank)
        return store.stored.get(item.name)[self._where(tensor, item.before, rank, held)]

    def _check_here(self, stage: int, name: str) -> None:
        if PARAMETERS in self.tensors[stage][name].offloaded:
            raise CannotRun(f"{name}: stored on the host and not fetched")

    def _where(
        self, tensor: PlanTensor, layout: Layout, rank: int, held: Bounds
    ) -> tuple[slice, ...]:
        where = inside(self.world.bounds(tensor.shape, layout, rank), held)
        if where is None:
            raise CannotRun(f"{tensor.name}: rank {rank} does not store the part that is asked for")
        return where

    def used(self, stage: int, rank: int, name: str, use: Layout) -> Array:
        """A parameter at a use: the gathered copy if there is one, else the stored part.

        Raises:
            CannotRun: it has not the shape of the layout at the use.
        """
        store = self.stores[stage, rank]
        array = store.gathered.arrays.get(name)
        if array is None:
            self._check_here(stage, name)
            array = store.stored.get(name)
        bounds = self.world.bounds(self.tensors[stage][name].shape, use, rank)
        if array.shape != extents(bounds):
            raise CannotRun(f"{name}: used with shape {array.shape}, not {extents(bounds)}")
        return array

    def refresh(self, stage: int, rank: int, name: str, layout: Layout, array: Array) -> None:
        """Write new values of a part into the stored parameter.

        Raises:
            CannotRun: the part does not lie in what the rank stores.
        """
        tensor = self.tensors[stage][name]
        stored = self.stores[stage, rank].stored
        held = self.world.bounds(tensor.shape, tensor.stored, rank)
        where = self._where(tensor, layout, rank, held)
        whole = stored.get(name).copy()
        if whole[where].shape != array.shape:
            raise CannotRun(f"{name}: a part of shape {array.shape} for {whole[where].shape}")
        whole[where] = array
        stored.put(name, whole)

    def squares(self, rank: int) -> list[Array]:
        """The sums of squares that a rank has, of all its stages."""
        mine = [store.scalars for (_, r), store in self.stores.items() if r == rank]
        return [s for scalars in mine for name, s in scalars.items() if name not in (TOKENS, LOSS)]

    def add_loss(self, stage: int, rank: int, loss: Array) -> None:
        """Add the loss of a micro-batch to those of the step."""
        scalars = self.stores[stage, rank].scalars
        before = scalars.get(LOSS, self.field.zeros(()))
        scalars[LOSS] = np.asarray(self.field.add(before, loss), self.field.dtype)

    def count_tokens(self, setting: Setting) -> None:
        """Count the tokens of each rank's micro-batches that count in the loss."""
        ends = (s for _, _, s in self.world.plan.steps() if isinstance(s, Run) and s.kind == "loss")
        logits = self.world.plan.values[next(ends).ins[0]]
        micro = self.world.sizes.axis("micro")
        for (_, rank), store in self.stores.items():
            count = 0
            for turn in range(micro):
                *at, _ = self.world.bounds(logits.shape, logits.layout, rank, turn)
                count += int(counted([range(a, b) for a, b in at], setting).sum())
            one = self.field.add(self.field.zeros(()), self.field.constant(count))
            store.scalars[TOKENS] = np.asarray(one, self.field.dtype)

    # values

    def put_value(self, frame: Frame, rank: int, item: Item, array: Array) -> None:
        """Hold a value, or replace its gradient.

        Raises:
            CannotRun: it has not the shape of its layout.
        """
        self._check(item.out, rank, array)
        frame.of(item).put(item.out, array)

    def alias(self, frame: Frame, rank: int, item: Item) -> None:
        """Hold a value, or its gradient, by another name too.

        Raises:
            CannotRun: it has not the shape of the other name's layout.
        """
        if item.what is What.COTANGENT and not self.world.plan.values[item.out].needs_gradient:
            return
        self._check(item.out, rank, frame.of(item).get(item.name))
        if item.out != item.name:
            frame.of(item).share(item.out, item.name)

    def put_made(self, frame: Frame, rank: int, name: str, array: Array) -> None:
        """Hold a value that an operation made.

        Raises:
            CannotRun: it has not the shape of its layout.
        """
        self._check(name, rank, array)
        frame.values.put(name, array)

    def add_cotangent(self, frame: Frame, rank: int, name: str, array: Array) -> None:
        """Add to the gradient of a value that needs one."""
        if not self.world.plan.values[name].needs_gradient:
            return
        self._check(name, rank, array)
        before = frame.cotangents.arrays.get(name)
        frame.cotangents.put(name, array if before is None else self.field.add(before, array))

    def _check(self, name: str, rank: int, array: Array) -> None:
        expected = self._shapes.get((name, rank))
        if expected is None:
            value = self.world.plan.values[name]
            expected = extents(self.world.bounds(value.shape, value.layout, rank))
            self._shapes[name, rank] = expected
        if array.shape != expected:
            raise CannotRun(f"{name}: a value of shape {array.shape}, not {expected}")

    def end_step(self, stages: Sequence[int]) -> None:
        """Forget the gradients and squares of a step."""
        for stage in stages:
            for rank in self.ranks[stage]:
                store = self.stores[stage, rank]
                store.micro.clear()
                store.total.clear()
                store.host.clear()
                store.scalars.clear()


def _held(frame: Frame | None, item: Item) -> Frame:
    if frame is None:
        raise CannotRun(f"{item.name}: an activation outside of the loop over micro-batches")
    return frame
