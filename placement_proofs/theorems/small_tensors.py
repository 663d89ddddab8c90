"""Operations on tiny tensors in exact numbers: what the layout rules are compared with.

Every dim has as many indices as there are ranks, so that a shard is one index of the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from placement_proofs.layout import INVARIANT, PARTIAL, On, dual
from placement_proofs.theorems.indexed import (
    GRADIENT,
    KINDS,
    Expr,
    Kind,
    Label,
    Leaf,
    Rank,
    Tensor,
    free,
    plain,
    reductions,
    value,
)


@dataclass(frozen=True)
class Pair:
    """What ranks compute, what one device does, and of what."""

    what: str
    got: Any
    want: Any


@dataclass(frozen=True)
class Number:
    """A number that remembers how it came to be, and the named numbers it is made of."""

    at: int
    text: str
    named: Mapping[str, int] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return self.at == (other.at if isinstance(other, Number) else other)

    def __hash__(self) -> int:
        return hash(self.at)

    def _with(self, other: Number | int, op: str) -> Number:
        right = other if isinstance(other, Number) else Number(other, _literal(other))
        at = self.at + right.at if op == "+" else self.at * right.at
        return Number(at, f"({op} {self.text} {right.text})", {**self.named, **right.named})

    def __add__(self, other: Number | int) -> Number:
        return self._with(other, "+")

    def __mul__(self, other: Number | int) -> Number:
        return self._with(other, "*")

    __radd__, __rmul__ = __add__, __mul__


def _literal(number: int) -> str:
    return f"{number}.0" if number >= 0 else f"(- {-number}.0)"


Make = Callable[[str, int], Any]


def _number(_: str, number: int) -> int:
    return number


def _traced(name: str, number: int) -> Number:
    return Number(number, name, {name: number})


Mesh: TypeAlias = tuple[Rank, list[Rank]]
"""One device, and the ranks."""


def claimed(
    name: str,
    layouts: Mapping[str, On],
    out: On,
    n: int,
    shared: bool = False,
    traced: bool = False,
) -> Iterator[Pair]:
    """Each number at n ranks beside what it should be, forward and backward."""
    kind = KINDS[name]
    element = kind.form(shared)
    if not kind.fits(element, layouts) or _reduces_apart(kind, element, layouts):
        yield Pair("the local shapes do not fit", 1, n)
        return
    mesh = _mesh(kind, layouts, n, _traced if traced else _number)
    alone, ranks = mesh
    whole = _result(element, kind.out, alone, [alone])
    parts = [_result(element, kind.out, rank, ranks) for rank in ranks]
    yield from _pairs("the result differs", parts, whole, out)
    for which, found in _terms(kind, shared).items():
        what = f"the gradient of the {'parameter' if which in kind.params else 'input'} differs"
        want = _gradient(found, range(n), alone, [alone])
        got = [_gradient(found, range(n), rank, ranks, layouts[which].dim) for rank in ranks]
        yield from _pairs(what, got, want, dual(layouts[which]))


def _terms(kind: Kind, shared: bool) -> dict[str, list[tuple[Leaf, Expr]]]:
    """The terms of the gradient of each tensor."""
    found: dict[str, list[tuple[Leaf, Expr]]] = {}
    for leaf, term in kind.gradients(shared):
        found.setdefault(leaf.name, []).append((leaf, term))
    return found


def _reduces_apart(kind: Kind, element: Expr, layouts: Mapping[str, On]) -> bool:
    """Whether ranks reduce elements that not all of them have."""
    cut = kind.cut(layouts)
    return any({plain(label) for label in free(part)} & cut for part in reductions(element))


def _mesh(kind: Kind, layouts: Mapping[str, On], n: int, make: Make) -> Mesh:
    """All tensors on one device, and each rank's part of them."""
    labels = {label for dims in kind.dims.values() for label in dims} | kind.inner
    whole: dict[str, Tensor] = {}
    local: list[dict[str, Tensor]] = [{} for _ in range(n)]
    for seed, (name, on) in enumerate(layouts.items()):
        made = _parts(name, len(kind.dims[name]), n, seed, make, kind.integer and name in kind.ins)
        total = {i: sum(part[i] for part in made) for i in made[0]}
        whole[name] = total if on == PARTIAL else made[0]
        for rank in range(n):
            local[rank][name] = made[rank] if on == PARTIAL else _local(made[0], on, rank)
    cut = kind.cut(layouts)
    ranges: list[dict[Label, Sequence[int]]] = [
        {label: [rank] if plain(label) in cut else range(n) for label in labels}
        for rank in range(n)
    ]
    alone = Rank(whole, {label: range(n) for label in labels})
    return alone, [Rank(t, r) for t, r in zip(local, ranges, strict=True)]


def _parts(name: str, ndim: int, n: int, seed: int, make: Make, integer: bool) -> list[Tensor]:
    """Distinct small numbers, n along each dim, n times: parts of a sum, or the first of them."""
    indices = list(itertools.product(range(n), repeat=ndim))
    numbers = ((31 * k + 17 * seed + k * k * (seed + 2)) for k in itertools.count(1))
    return [
        {
            i: make("_".join((name, str(part), *map(str, i))), v % n if integer else v % 97 - 41)
            for i, v in zip(indices, numbers, strict=False)
        }
        for part in range(n)
    ]


def _local(tensor: Tensor, on: On, rank: int) -> Tensor:
    """What a rank has of a tensor that is no pending sum."""
    return tensor if on.dim is None else {i: v for i, v in tensor.items() if i[on.dim] == rank}


def _result(expr: Expr, out: tuple[Label, ...], rank: Rank, ranks: Sequence[Rank]) -> Tensor:
    indices = itertools.product(*(rank.ranges[label] for label in out))
    return {i: value(expr, dict(zip(out, i, strict=True)), rank, ranks) for i in indices}


def _gradient(
    terms: Sequence[tuple[Leaf, Expr]],
    every: Sequence[int],
    rank: Rank,
    ranks: Sequence[Rank],
    cut: int | None = None,
) -> Tensor:
    """The gradient of a tensor, as far as the rank has it; zero where it picked nothing."""
    first = terms[0][0].labels
    dims = [rank.ranges[label] if d == cut else every for d, label in enumerate(first)]

    def at(index: tuple[int, ...], leaf: Leaf, term: Expr) -> Any:
        here = dict(zip(leaf.labels, index, strict=True))
        has = all(i in rank.ranges[label] for label, i in here.items())
        return value(term, here, rank, ranks) if has else 0

    return {i: sum(at(i, *pair) for pair in terms) for i in itertools.product(*dims)}


def _pairs(what: str, parts: list[Tensor], whole: Tensor, on: On) -> Iterator[Pair]:
    """The parts of all ranks beside the whole in a layout."""
    for rank, part in enumerate(parts):
        want = whole if on == PARTIAL else _local(whole, on, rank)
        if set(part) != set(want):
            yield Pair(f"{what}: a rank has another part of it", len(part), len(want))
            return
        if on != PARTIAL:
            yield from (Pair(what, part[i], want[i]) for i in want)
    if on == PARTIAL:
        yield from (Pair(what, sum(part[i] for part in parts), whole[i]) for i in whole)


# --- derivatives -------------------------------------------------------------------------


@dataclass(frozen=True)
class Dual:
    """A number and its derivative."""

    at: int
    by: int = 0

    def __add__(self, other: Dual | int) -> Dual:
        right = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.at + right.at, self.by + right.by)

    def __mul__(self, other: Dual | int) -> Dual:
        right = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.at * right.at, self.at * right.by + self.by * right.at)

    __radd__, __rmul__ = __add__, __mul__


def follows_the_chain_rule(name: str, n: int = 2) -> bool:
    """Whether the gradients of an operation are its derivatives, on one device: dual numbers."""
    kind = KINDS[name]
    layouts = dict.fromkeys(kind.dims, INVARIANT)
    alone, _ = _mesh(kind, layouts, n, _number)
    return all(
        gradient == _derivative(kind, alone, which, index)
        for which, found in _terms(kind, False).items()
        for index, gradient in _gradient(found, range(n), alone, [alone]).items()
    )


def _derivative(kind: Kind, alone: Rank, which: str, index: tuple[int, ...]) -> int:
    """How the result, weighted by the gradient that comes in, changes with one element."""
    tensor = alone.tensors[which]
    moved = {**alone.tensors, which: {**tensor, index: Dual(tensor[index], 1)}}
    out = _result(kind.element, kind.out, Rank(moved, alone.ranges), [alone])
    total = sum(v * alone.tensors[GRADIENT][i] for i, v in out.items())
    return total.by if isinstance(total, Dual) else 0
