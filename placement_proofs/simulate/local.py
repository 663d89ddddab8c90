"""Steps that move no bytes: slices, sums over micro-batches, scales, the norm, the update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from placement_proofs.plan import Action, Item, Local, What
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.memory import OPTIMIZER, PARAMETERS, Memory
from placement_proofs.simulate.optimizers import Rule
from placement_proofs.simulate.ranks import World, factor_words
from placement_proofs.simulate.state import Frame, Store
from placement_proofs.simulate.transfers import Exchange


@dataclass
class Locals:
    """Executes local steps on every rank of a stage; ``turn`` numbers the training steps."""

    world: World
    field: Field
    memory: Memory
    exchange: Exchange
    rule: Rule
    turn: int = 1

    def perform(self, stage: int, step: Local, frames: Mapping[int, Frame]) -> None:
        """A local step.

        Raises:
            CannotRun: something is not held or has not the shape of its layout.
        """
        for rank in self.memory.ranks[stage]:
            self._one(stage, step, rank, frames.get(rank))

    def _one(self, stage: int, step: Local, rank: int, frame: Frame | None) -> None:
        match step.action:
            case Action.ALIAS:
                for item in step.items:
                    self._alias(stage, rank, item, frame)
            case Action.SLICE:
                for item in step.items:
                    whole = self.memory.read(stage, rank, item, frame)
                    part = self.exchange.cut(item, rank, whole)
                    self.memory.write(stage, rank, item, frame, part)
            case Action.RELEASE | Action.DROP:
                for item in step.items:
                    self._drop(self.memory.stores[stage, rank], item, frame)
            case Action.SCALE:
                self._scale(stage, step, rank, frame)
            case Action.ACCUMULATE:
                for item in step.items:
                    self._accumulate(self.memory.stores[stage, rank], item, step.overwrite)
            case Action.SQUARE:
                self._square(stage, step, rank)
            case Action.CLIP:
                self._clip(stage, step, rank)
            case Action.UPDATE:
                for item in step.items:
                    self._update(stage, rank, item)
            case Action.TICK | Action.RECEIVE:
                pass

    def _alias(self, stage: int, rank: int, item: Item, frame: Frame | None) -> None:
        """Another name for a value; where the name is held, its gradient is added to."""
        array = self.memory.read(stage, rank, item, frame)
        if frame is None or (item.what is What.COTANGENT and item.out in frame.cotangents.arrays):
            self.memory.write(stage, rank, item, frame, array)
        else:
            self.memory.alias(frame, rank, item)

    def _drop(self, store: Store, item: Item, frame: Frame | None) -> None:
        if item.what is What.PARAMETER:
            store.gathered.drop(item.name)
        elif item.what is What.GRADIENT:
            store.gradients(item.buffer).drop(item.name)
        elif frame is not None:
            frame.of(item).drop(item.name)

    def _scale(self, stage: int, step: Local, rank: int, frame: Frame | None) -> None:
        scale = self._factor(step.factor, self.memory.stores[stage, rank].scalars)
        for item in step.items:
            array = self.field.multiply(self.memory.read(stage, rank, item, frame), scale)
            self.memory.replace(stage, rank, item, frame, np.asarray(array, self.field.dtype))

    def _factor(self, text: str, scalars: Mapping[str, Array]) -> Array:
        """A factor such as ``1/(dp*micro)`` or ``1/tokens``, from sizes and the rank's scalars."""
        f = self.field
        one = f.add(f.zeros(()), f.constant(1))
        numerator, denominator = one, one
        for word, below in factor_words(text):
            value = scalars.get(word)
            if value is None:
                value = np.asarray(f.constant(self.world.sizes.dim(word)))
            if below:
                denominator = np.asarray(f.multiply(denominator, value), f.dtype)
            else:
                numerator = np.asarray(f.multiply(numerator, value), f.dtype)
        return f.multiply(numerator, f.inverse(denominator))

    def _accumulate(self, store: Store, item: Item, overwrite: bool) -> None:
        """The first micro-batch overwrites, the others add."""
        fresh = store.micro.get(item.name)
        store.micro.drop(item.name)
        before = store.total.arrays.get(item.name)
        if before is None or overwrite:
            store.total.put(item.name, fresh)
        elif before.shape != fresh.shape:
            raise CannotRun(f"{item.name}: shapes {before.shape} and {fresh.shape} add up")
        else:
            store.total.put(item.name, self.field.add(before, fresh))

    def _square(self, stage: int, step: Local, rank: int) -> None:
        f, store = self.field, self.memory.stores[stage, rank]
        total = f.zeros(())
        for item in step.items:
            gradient = self.memory.read(stage, rank, item, None)
            total = f.add(total, f.sum(f.multiply(gradient, gradient)))
        store.scalars[step.why] = np.asarray(total, f.dtype)

    def _clip(self, stage: int, step: Local, rank: int) -> None:
        """Gradients times ``1 / (1 + norm^2)``: a factor that sees every element of the norm."""
        f = self.field
        norm: Array = f.add(f.zeros(()), f.constant(1))
        for squares in self.memory.squares(rank):
            norm = np.asarray(f.add(norm, squares), f.dtype)
        factor = f.inverse(np.asarray(norm, f.dtype))
        for item in step.items:
            clipped = f.multiply(self.memory.read(stage, rank, item, None), factor)
            self.memory.replace(stage, rank, item, None, clipped)

    def _update(self, stage: int, rank: int, item: Item) -> None:
        """New values of the optimizer's part; they reach the parameter on the same device."""
        store, tensor = self.memory.stores[stage, rank], self.memory.tensors[stage][item.name]
        hosted = OPTIMIZER in tensor.offloaded
        gradient = (store.host if hosted else store.total).get(item.name)
        weight = store.master.get(item.name)
        if gradient.shape != weight.shape:
            raise CannotRun(f"{item.name}: a gradient of shape {gradient.shape} for {weight.shape}")
        moments = store.moments.get(item.name, ())
        new, store.moments[item.name] = self.rule(self.field, weight, gradient, moments, self.turn)
        store.master.put(item.name, new)
        if not hosted or PARAMETERS in tensor.offloaded:
            self.memory.refresh(stage, rank, item.name, item.after, new)
