"""Operations of a plan on the values and parameters that ranks hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from placement_proofs.mesh import Dim
from placement_proofs.model import Half, backward_reads
from placement_proofs.plan import Run
from placement_proofs.simulate.data import Source
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.memory import Memory
from placement_proofs.simulate.ops import BACKWARD, FORWARD, INPUTS, WEIGHTS
from placement_proofs.simulate.ranks import World
from placement_proofs.simulate.site import Back, Given, Setting, Site
from placement_proofs.simulate.state import Frame


@dataclass
class Runs:
    """Runs operations forward and backward on every rank of a stage."""

    world: World
    field: Field
    source: Source
    memory: Memory
    setting: Setting
    _sites: dict[tuple[int, int, int], Site] = dataclasses.field(default_factory=dict)

    def feed(self, stage: int, frames: Mapping[int, Frame]) -> None:
        """Put the rank's part of the batch into new frames; it is not counted."""
        read = {
            name
            for step in self.world.plan.stages[stage].forward
            if isinstance(step, Run)
            for name in step.ins
        }
        for name in self.source.inputs():
            if any(r == name or r.startswith(f"{name}@") for r in read):
                self._feed(name, frames)

    def _feed(self, name: str, frames: Mapping[int, Frame]) -> None:
        value = self.world.plan.values[name]
        batch = self.source.batch(name, self.setting.step)
        for rank, frame in frames.items():
            bounds = self.world.bounds(value.shape, value.layout, rank, frame.micro)
            frame.values.put(name, batch[tuple(slice(a, b) for a, b in bounds)])

    def perform(self, stage: int, step: Run, frames: Mapping[int, Frame]) -> None:
        """An operation on every rank.

        Raises:
            CannotRun: something is not held or has not the shape of its layout.
        """
        run = self._backward if step.backward else self._forward
        for rank, frame in frames.items():
            site = self._site(stage, step, rank, frame.micro)
            run(stage, step, rank, frame, site)

    def _forward(self, stage: int, step: Run, rank: int, frame: Frame, site: Site) -> None:
        given = Given([frame.values.get(n) for n in step.ins], self._params(stage, step, rank), {})
        out, kept = FORWARD[step.kind](site, given)
        self.memory.put_made(frame, rank, step.out, out)
        if step.kind == "loss":
            self.memory.add_loss(stage, rank, out)
        internal = {name for name, _ in step.internals}
        for name, array in kept.items():
            if name in internal:
                self.memory.put_made(frame, rank, name, array)
            else:
                frame.statistics[name] = array

    def _backward(self, stage: int, step: Run, rank: int, frame: Frame, site: Site) -> None:
        reads = backward_reads(step.kind, step.half)
        held = frame.values
        ins = [held.get(n) if i in reads else None for i, n in enumerate(step.ins)]
        kept = dict(frame.statistics)
        kept |= {name: held.get(name) for name, _ in step.internals}
        dins, dparams = self._gradients(stage, step, rank, Given(ins, [], kept), site, frame)
        for name, gradient in zip(step.ins, dins, strict=False):
            self.memory.add_cotangent(frame, rank, name, gradient)
        for name, gradient in zip(step.params, dparams, strict=False):
            self._add_gradient(stage, rank, name, gradient)

    def _gradients(
        self, stage: int, step: Run, rank: int, given: Given, site: Site, frame: Frame
    ) -> Back:
        """Those of inputs and of parameters; a half gives one kind, from what that half reads."""
        dy = self._seed(step, frame)
        if step.half is Half.WEIGHTS:
            return [], WEIGHTS[step.kind](site, dy, given)
        given = Given(given.ins, self._params(stage, step, rank), given.kept)
        if step.half is Half.INPUTS:
            return INPUTS[step.kind](site, dy, given), []
        return BACKWARD[step.kind](site, dy, given)

    def _seed(self, step: Run, frame: Frame) -> Array:
        """The gradient of the output; that of the loss is one."""
        if step.kind == "loss":
            return self.field.add(self.field.zeros(()), self.field.constant(1))
        return frame.cotangents.get(step.out)

    def _params(self, stage: int, step: Run, rank: int) -> list[Array]:
        pairs = zip(step.params, step.uses, strict=True)
        return [self.memory.used(stage, rank, name, use) for name, use in pairs]

    def _add_gradient(self, stage: int, rank: int, name: str, gradient: Array) -> None:
        if not self.memory.tensors[stage][name].trainable:
            return
        shelf = self.memory.stores[stage, rank].micro
        before = shelf.arrays.get(name)
        if before is not None and before.shape != gradient.shape:
            raise CannotRun(
                f"{name}: gradients of shapes {before.shape} and {gradient.shape} add up"
            )
        shelf.put(name, gradient if before is None else self.field.add(before, gradient))

    # sites

    def _site(self, stage: int, step: Run, rank: int, micro: int) -> Site:
        key = (id(step), rank, micro)
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = self._worked_out(stage, step, rank, micro)
        return found

    def _worked_out(self, stage: int, step: Run, rank: int, micro: int) -> Site:
        values = [self.world.plan.values[n] for n in step.ins]
        ins = (self.world.bounds(v.shape, v.layout, rank, micro) for v in values)
        tensors = [self.memory.tensors[stage][n] for n in step.params]
        uses = zip(tensors, step.uses, strict=True)
        return Site(
            self.field,
            step,
            self.setting,
            tuple(ins),
            tuple(self.world.bounds(t.shape, use, rank) for t, use in uses),
            tuple(self._last(v.shape) for v in values),
            self._sizes(step, self.world.plan.values[step.out].shape, [t.shape for t in tensors]),
        )

    def _last(self, shape: tuple[Dim, ...]) -> int:
        return self.world.sizes.dim(shape[-1]) if shape else 1

    def _sizes(
        self, step: Run, out: tuple[Dim, ...], params: list[tuple[Dim, ...]]
    ) -> dict[str, int]:
        """The operation's integers, the first dim of its output and that of its parameter."""
        sizes = {name: self.world.sizes.dim(value) for name, value in step.attrs}
        firsts = {"out": out[:1], "rows": params[0][:1] if params else ()}
        return sizes | {k: self.world.sizes.dim(d[0]) for k, d in firsts.items() if d}
