"""Where an operation runs: the field, the parts of the global tensors, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from placement_proofs.plan import Run
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.ranks import Bounds


@dataclass
class Setting:
    """The number of the training step, from 0, and what the loss is: a mean, by tokens, a sum."""

    step: int = 0
    loss: str = "mean"


@dataclass(frozen=True)
class Site:
    """One operation on one rank in one micro-batch.

    Bounds are start and stop per dim of the parts of inputs and parameters; ``widths`` are the
    lengths of the inputs' last dims in the global tensors; ``attrs`` the operation's integers, with
    the first dim of its output (``out``) and of its parameter (``rows``).
    """

    field: Field
    run: Run
    setting: Setting
    ins: tuple[Bounds, ...]
    params: tuple[Bounds, ...]
    widths: tuple[int, ...]
    attrs: Mapping[str, int]

    def positions(self, dims: int, of: int = 0) -> tuple[range, ...]:
        """The global positions of the first dims of an input."""
        return tuple(range(start, stop) for start, stop in self.ins[of][:dims])


@dataclass(frozen=True)
class Given:
    """What an operation reads: inputs (``None`` where not held), parameters, what it kept."""

    ins: Sequence[Array | None]
    params: Sequence[Array]
    kept: Mapping[str, Array]

    def value(self, index: int) -> Array:
        """Input number ``index``.

        Raises:
            CannotRun: the rank does not hold it.
        """
        found = self.ins[index]
        if found is None:
            raise CannotRun(f"input {index} is not held when it is read")
        return found

    def internal(self, name: str) -> Array:
        """What the forward step kept beside its output.

        Raises:
            CannotRun: the rank does not hold it.
        """
        found = self.kept.get(name)
        if found is None:
            raise CannotRun(f"{name} is not held when it is read")
        return found


Made: TypeAlias = tuple[Array, dict[str, Array]]
"""The output, and what the operation keeps beside it (attention scores, statistics), by name."""

Back: TypeAlias = tuple[list[Array], list[Array]]
"""Gradients of the inputs and of the parameters."""
