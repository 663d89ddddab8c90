"""Strategies as data, compositions as their products, and the rules of composing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from placement_proofs.errors import IllFormed
from placement_proofs.layout import INVARIANT
from placement_proofs.mesh import Axis, Dim, Mesh
from placement_proofs.placement import Flow, Mode, Placement, Schedule

MAX_SIZE = 10**9

Argument: TypeAlias = Dim | bool | tuple[str, ...] | None


@dataclass(frozen=True)
class Strategy:
    """A named placement on its own axes, as it was written."""

    name: str
    positional: tuple[str, ...]
    arguments: tuple[tuple[str, Argument], ...]
    axes: tuple[Axis, ...]
    placement: Placement

    def __mul__(self, other: Strategy | Composition) -> Composition:
        return Composition((self,)) * other

    def __repr__(self) -> str:
        words = [repr(p) for p in self.positional]
        words += [f"{key}={value!r}" for key, value in self.arguments]
        return f"{self.name}({', '.join(words)})"


@dataclass(frozen=True)
class Composition:
    """A product of strategies. ``repr`` is the expression; ``expression.parse`` reads it."""

    strategies: tuple[Strategy, ...]

    def __mul__(self, other: Strategy | Composition) -> Composition:
        more = (other,) if isinstance(other, Strategy) else other.strategies
        return compose(*self.strategies, *more)

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.strategies))

    @property
    def mesh(self) -> Mesh:
        """The axes in the order in which they were written."""
        axes = {axis.name: axis for s in self.strategies for axis in s.axes}
        subsets = (("pp:tied", "pp"),) if "pp" in axes else ()
        return Mesh(tuple(axes.values()), subsets)

    @property
    def placement(self) -> Placement:
        """The placement table of all strategies together.

        On an axis for which no strategy says how activations flow they are whole on every rank.
        """
        parts = [s.placement for s in self.strategies]
        schedule = next((part.schedule for part in parts if part.schedule), None)
        flows = tuple(f for part in parts for f in part.flows)
        known = {f.axis for f in flows} | ({schedule.axis} if schedule else set())
        whole = (Flow(a, INVARIANT, INVARIANT) for a in self.mesh.names if a not in known)
        return Placement(
            tuple(p for part in parts for p in part.places),
            (*flows, *whole),
            next((part.micro for part in parts if part.micro != 1), 1),
            schedule,
        )

    def resized(self, sizes: Mapping[str, Dim]) -> Composition:
        """The same composition on a mesh with other sizes; ``micro`` sets the micro-batches."""
        return Composition(tuple(_resized(s, sizes) for s in self.strategies))


def _resized(strategy: Strategy, sizes: Mapping[str, Dim]) -> Strategy:
    axes = tuple(Axis(a.name, sizes.get(a.name, a.size)) for a in strategy.axes)
    micro = sizes.get("micro") if strategy.placement.micro != 1 else None
    named: dict[str, Argument] = {a.name: a.size for a in axes}
    if micro is not None:
        named |= {"micro": micro, "microbatches": micro}
    return replace(
        strategy,
        axes=axes,
        arguments=tuple((key, named.get(key, value)) for key, value in strategy.arguments),
        placement=replace(strategy.placement, micro=micro) if micro else strategy.placement,
    )


def compose(*parts: Strategy) -> Composition:
    """Multiply strategies.

    Raises:
        IllFormed: two strategies claim one axis, one kind of loop or one kind of stage; a size is
            not a positive integer or a symbol; a sharding names an axis that the mesh lacks.
    """
    composition = Composition(parts)
    for strategy in parts:
        _check_sizes(strategy)
    _check_axes(parts)
    _check_once(parts, "pipeline", lambda p: p.schedule)
    _check_loops(parts)
    _check_names(composition)
    _check_repeats(parts)
    return composition


def _check_sizes(strategy: Strategy) -> None:
    loops = [("micro-batches", strategy.placement.micro)]
    for name, size in [*((a.name, a.size) for a in strategy.axes), *loops]:
        if not _is_size(size):
            raise IllFormed(
                f"{strategy.name}({name}=...)",
                repr(size),
                f"a size is a whole number from 1 to {MAX_SIZE:,} or the name of a symbol",
                f"write {name}=8 or {name}=N",
            )


def _is_size(size: object) -> bool:
    if isinstance(size, bool):
        return False
    if isinstance(size, int):
        return 1 <= size <= MAX_SIZE
    return isinstance(size, str) and size.isidentifier()


def _check_axes(parts: tuple[Strategy, ...]) -> None:
    seen: dict[str, Strategy] = {}
    for strategy in parts:
        for axis in strategy.axes:
            first = seen.setdefault(axis.name, strategy)
            if first is strategy or (strategy.name == "place" and axis in first.axes):
                continue
            raise IllFormed(
                repr(Composition(parts)),
                f"axis {axis.name} of {first!r} and of {strategy!r}",
                "each mesh axis belongs to one strategy",
                f"keep one of {first.name} and {strategy.name}",
            )


def _check_once(
    parts: tuple[Strategy, ...], what: str, of: Callable[[Placement], Schedule | None]
) -> None:
    having = [s for s in parts if of(s.placement)]
    if len(having) > 1:
        raise IllFormed(
            repr(Composition(parts)),
            f"{len(having)} times {what}",
            "stages are cut once",
            "keep one",
        )


def _check_loops(parts: tuple[Strategy, ...]) -> None:
    loops = [s for s in parts if s.placement.micro != 1]
    if len(loops) > 1:
        raise IllFormed(
            repr(Composition(parts)),
            " and ".join(map(repr, loops)),
            "a pipeline's micro-batches are the accumulation loop; there is one such loop",
            "give their product to one of the two",
        )


def _check_names(composition: Composition) -> None:
    names = set(composition.mesh.names)
    for place in composition.placement.places:
        unknown = set(place.axes) - names
        if unknown:
            raise IllFormed(
                repr(composition),
                f"shard_over names {', '.join(sorted(unknown))}",
                f"the mesh has the axes {', '.join(sorted(names)) or 'none'}",
                "multiply by the strategy that brings the axis, or leave it out",
            )


def _check_repeats(parts: tuple[Strategy, ...]) -> None:
    counts = Counter(s.name for s in parts if s.name in ("recompute", "single"))
    counts += Counter(
        f"offload of {p.state.value}"
        for s in parts
        for p in s.placement.places
        if p.mode is Mode.OFFLOADED
    )
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise IllFormed(
            repr(Composition(parts)), f"{twice[0]} twice", "it is said once", "merge the two"
        )
