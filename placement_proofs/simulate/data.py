"""What a run starts from: initial parameters and batches, the same for every plan."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from placement_proofs.model import Model
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.ranks import World

_TOKENS = 2**20


@dataclass
class Source:
    """Global arrays that depend on the seed, their name and the step alone."""

    model: Model
    world: World
    field: Field
    seed: int
    _made: dict[tuple[str, int], Array] = dataclasses.field(default_factory=dict)

    def parameters(self) -> dict[str, Array]:
        """The initial parameters, whole."""
        return {
            t.name: self.field.random(self.seed, t.name, self.world.shape(t.shape))
            for t in self.model.tensors
        }

    def inputs(self) -> list[str]:
        """The values that no operation makes."""
        made = {op.out for op in self.model.ops}
        return [v.name for v in self.model.values if v.name not in made]

    def batch(self, name: str, step: int) -> Array:
        """An input of the global batch of a step, whole."""
        found = self._made.get((name, step))
        if found is None:
            found = self._made[name, step] = self._drawn(name, step)
        return found

    def _drawn(self, name: str, step: int) -> Array:
        value = self.model.value(name)
        shape = self.world.shape(value.shape)
        if value.integer:
            stream = np.random.default_rng([self.seed, step, len(name)])
            return stream.integers(0, _TOKENS, shape)
        return self.field.random(self.seed, f"{name}:{step}", shape)
