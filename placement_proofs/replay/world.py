"""The concrete world of a replay: ranks, elements, and the values that nobody chose.

Elements of a tensor are told apart only by who owns them: one element for every combination
of owner positions. Contributions, counts, draws and the results of uninterpreted functions
get a fresh value when they are first asked for, so that equal arguments give equal results
and nothing else is equal by design.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from placement_proofs.program import (
    Axes,
    Held,
    Init,
    Program,
    Reduce,
    Slice,
    Source,
    Step,
    Take,
)
from placement_proofs.program.draws import flag_families
from placement_proofs.program.rules import ENDS, walk

Number: TypeAlias = int | Fraction
Rank: TypeAlias = tuple[int, ...]
Element: TypeAlias = tuple[int, ...]


def owner_pairs(program: Program) -> tuple[tuple[str, str], ...]:
    """All (axis, owner) that the program names, except the ends of an axis."""
    pairs: dict[tuple[str, str], None] = {}
    for buffer in program.buffers:
        pairs.update(dict.fromkeys(buffer.held))
    for step in walk(program.steps):
        pairs.update(dict.fromkeys(_step_pairs(step)))
    return tuple(pair for pair in pairs if pair[1] not in ENDS)


def _step_pairs(step: Step) -> Iterator[tuple[str, str]]:
    for axis, position in step.g.at:
        yield axis, position.removeprefix("!")
    match step:
        case Source(held=held) | Init(held=held):
            yield from held
        case Reduce(axes=axes, to=str() as to):
            for axis in axes:
                yield axis, to
        case Take(axis=axis, pos=name) | Slice(axis=axis, owner=name):
            yield axis, name
        case _:
            return


def _small() -> Iterator[int]:
    primes: list[int] = []
    for number in itertools.count(2):
        if all(number % prime for prime in primes):
            primes.append(number)
            yield number


class World:
    """One mesh, its ranks and elements, and a table of free values.

    With `seed=None` free values are the primes in the order of asking (easy to read), else
    large random integers (no accidental equality). Flags are set on every second rank, or at
    random where the seed is even.
    """

    def __init__(self, program: Program, sizes: Mapping[str, int], seed: int | None) -> None:
        self.axes: Axes = program.axes
        self.sizes = dict(sizes)
        self.index = {axis: i for i, axis in enumerate(program.axes)}
        self.ranks: list[Rank] = list(
            itertools.product(*(range(sizes[axis]) for axis in program.axes))
        )
        pairs = owner_pairs(program)
        self.owner = {pair: i for i, pair in enumerate(pairs)}
        self.elements: list[Element] = list(
            itertools.product(*(range(sizes[axis]) for axis, _ in pairs))
        )
        self._fresh = _small() if seed is None else _large(seed)
        self._table: dict[Hashable, Number] = {}
        self._squares: dict[Number, Number] = {}
        self._equal = frozenset(program.equal)
        self._flags = flag_families(program)
        self._bits = random.Random(seed) if seed is not None and seed % 2 == 0 else None

    def free(self, key: Hashable) -> Number:
        """The value of a free symbol."""
        value = self._table.get(key)
        if value is None:
            value = self._table[key] = next(self._fresh)
        return value

    def count(self, family: str, key: tuple[int, tuple[tuple[str, int], ...]]) -> Number:
        """The value of a count: alike everywhere if it is assumed equal."""
        if family in self._flags:
            return self._flag(family, key)
        return self.free(("n", family) if family in self._equal else ("n", family, key))

    def _flag(self, family: str, key: tuple[int, tuple[tuple[str, int], ...]]) -> Number:
        """0 or 1, and 1 at the last index: some rank always takes part."""
        name = ("n", family, key)
        if name not in self._table:
            last = all(i == self.sizes[axis] - 1 for axis, i in key[1])
            drawn = self._bits.randrange(2) if self._bits else sum(i for _, i in key[1]) % 2
            self._table[name] = 1 if last or family in self._equal else drawn
        return self._table[name]

    def function(self, name: str, args: tuple[Hashable, ...]) -> Number:
        """An uninterpreted function; only `square` of a `sqrt` has a law."""
        if name == "square" and len(args) == 1 and args[0] in self._squares:
            return self._squares[args[0]]  # type: ignore[index]
        value = self.free(("fn", name, args))
        if name == "sqrt" and len(args) == 1:
            self._squares[value] = args[0]  # type: ignore[assignment]
        return value

    def position(self, axis: str, name: str, element: Element) -> int:
        """The coordinate that a position name means for an element."""
        if name == "first":
            return 0
        if name == "last":
            return self.sizes[axis] - 1
        return element[self.owner[axis, name]]

    def at(self, rank: Rank, axis: str, name: str, element: Element) -> bool:
        """Whether a rank is at a position."""
        return rank[self.index[axis]] == self.position(axis, name, element)

    def stores(self, rank: Rank, held: Held, element: Element) -> bool:
        """Whether a rank stores an element under a layout."""
        return all(self.at(rank, axis, name, element) for axis, name in held)

    def along(self, rank: Rank, axes: Axes) -> list[Rank]:
        """The ranks that differ from `rank` only on `axes`."""
        choices = [
            range(self.sizes[axis]) if axis in axes else (rank[self.index[axis]],)
            for axis in self.axes
        ]
        return list(itertools.product(*choices))

    def shift(self, rank: Rank, axis: str, coordinate: int) -> Rank:
        """`rank` with another coordinate on one axis."""
        i = self.index[axis]
        return (*rank[:i], coordinate, *rank[i + 1 :])

    def slot(self, element: Element, rank: Rank, held: Held) -> Element | None:
        """The element that `rank` keeps where another rank of its group keeps `element`.

        None if it keeps nothing there: the layout names an end of the axis and the rank is
        not at that end.
        """
        coords = list(element)
        for axis, name in held:
            here = rank[self.index[axis]]
            if name not in ENDS:
                coords[self.owner[axis, name]] = here
            elif self.position(axis, name, element) != here:
                return None
        return tuple(coords)

    def swap(self, element: Element, rank: Rank, axis: str, old: str, new: str) -> Element | None:
        """Where a layout of owner `old` keeps what one of owner `new` calls `element`."""
        if old == new:
            return element
        here = rank[self.index[axis]]
        coords = list(element)
        if old in ENDS:
            return element if self.position(axis, old, element) == here else None
        i = self.owner[axis, old]
        if new in ENDS:
            coords[i] = here
        else:
            j = self.owner[axis, new]
            coords[i], coords[j] = coords[j], coords[i]
            coords[i] = here
        return tuple(coords)


def _large(seed: int) -> Iterator[int]:
    rng = random.Random(seed)
    while True:
        yield rng.randrange(10**6, 10**7)
