"""Operations on tiny tensors in exact numbers: what the layout rules are compared with.

A tensor is a mapping from index to number. A shard keeps the indices of the whole, so that an
operation on a rank is the same function, on fewer elements. Non-linear functions are squares:
any that is not additive would do. Derivatives are exact (dual numbers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Index: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dual:
    """A number and its derivative."""

    at: int
    by: int = 0

    def __add__(self, other: Dual) -> Dual:
        return Dual(self.at + other.at, self.by + other.by)

    def __mul__(self, other: Dual) -> Dual:
        return Dual(self.at * other.at, self.at * other.by + self.by * other.at)


Tensor: TypeAlias = Mapping[Index, Dual]
ZERO = Dual(0)


class DoesNotFit(Exception):
    """The shapes of the local tensors do not fit: a rank could not run the operation."""


def total(values: list[Dual]) -> Dual:
    """The sum."""
    result = ZERO
    for value in values:
        result = result + value
    return result


def dims(tensor: Tensor, dim: int) -> set[int]:
    """The indices that a tensor has on a dim."""
    return {index[dim] for index in tensor}


def _match(left: set[int], right: set[int]) -> None:
    if left != right:
        raise DoesNotFit


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """y[b,s,o] = sum_i x[b,s,i] W[o,i]."""
    inner, outer = dims(weight, 1), dims(weight, 0)
    _match(dims(x, 2), inner)
    rows = sorted({index[:2] for index in x})
    return {
        (*row, o): total([x[*row, i] * weight[o, i] for i in sorted(inner)])
        for row in rows
        for o in sorted(outer)
    }


def bias(x: Tensor, weight: Tensor) -> Tensor:
    """y = x + b."""
    _match(dims(x, 2), dims(weight, 0))
    return {index: value + weight[index[2:]] for index, value in x.items()}


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """y = x * w * (sum over the last dim of x squared)."""
    _match(dims(x, 2), dims(weight, 0))
    width = sorted(dims(x, 2))
    squares = {i[:2]: total([x[*i[:2], h] * x[*i[:2], h] for h in width]) for i in x}
    return {index: v * weight[index[2:]] * squares[index[:2]] for index, v in x.items()}


def activation(x: Tensor) -> Tensor:
    """y = x squared."""
    return {index: value * value for index, value in x.items()}


def dropout(x: Tensor) -> Tensor:
    """Every other place is dropped, by its place in the whole tensor (the stream is replayed)."""
    return {index: value if sum(index) % 2 else ZERO for index, value in x.items()}


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """The product, place by place."""
    if set(x) != set(y):
        raise DoesNotFit
    return {index: value * y[index] for index, value in x.items()}


def add(x: Tensor, y: Tensor) -> Tensor:
    """The sum, place by place."""
    if set(x) != set(y):
        raise DoesNotFit
    return {index: value + y[index] for index, value in x.items()}


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One head for each last index: out[b,s,h] = sum_t q[b,s,h] k[b,t,h] v[b,t,h]."""
    if not dims(query, 2) <= dims(key, 2) & dims(value, 2):
        raise DoesNotFit
    for dim, other in ((0, query), (0, value), (1, value)):
        _match(dims(key, dim), dims(other, dim))
    turns = sorted(dims(key, 1))
    return {
        (b, s, h): total([q * key[b, t, h] * value[b, t, h] for t in turns])
        for (b, s, h), q in query.items()
    }


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of a table; a row that the rank does not have gives zero."""
    width = sorted(dims(table, 1))
    return {(*place, h): table.get((row.at, h), ZERO) for place, row in ids.items() for h in width}


def loss(logits: Tensor) -> Tensor:
    """The sum over all places of (sum over the vocabulary) squared."""
    rows = sorted({index[:2] for index in logits})
    words = sorted(dims(logits, 2))
    sums = [total([logits[*row, v] for v in words]) for row in rows]
    return {(): total([s * s for s in sums])}


def dispatch(x: Tensor) -> Tensor:
    """Every token to one expert; zero for the others. The experts are those of the sequence."""
    experts = range(1 + max(max(index) for index in x))
    return {
        (e, *index): value if sum(index[:2]) % len(experts) == e else ZERO
        for index, value in x.items()
        for e in experts
    }


def combine(y: Tensor, gates: Tensor) -> Tensor:
    """out[b,s,h] = sum_e y[e,b,s,h] gates[b,s,e]."""
    experts = sorted(dims(y, 0))
    _match(set(experts), dims(gates, 2))
    if {index[1:3] for index in y} != {index[:2] for index in gates}:
        raise DoesNotFit
    places = sorted({index[1:] for index in y})
    return {p: total([y[e, *p] * gates[*p[:2], e] for e in experts]) for p in places}


def expert(x: Tensor, weight: Tensor) -> Tensor:
    """y[e,b,s,o] = sum_i x[e,b,s,i] W[e,o,i]."""
    _match(dims(x, 0), dims(weight, 0))
    _match(dims(x, 3), dims(weight, 2))
    inner, outer = sorted(dims(weight, 2)), sorted(dims(weight, 1))
    places = sorted({index[:3] for index in x})
    return {
        (*p, o): total([x[*p, i] * weight[p[0], o, i] for i in inner])
        for p in places
        for o in outer
    }


def opaque(x: Tensor, weight: Tensor) -> Tensor:
    """A network whose parts meet in one sum: y = sum_k W_k squared * x squared."""
    factor = total([value * value for value in weight.values()])
    return {index: value * value * factor for index, value in x.items()}


@dataclass(frozen=True)
class Kind:
    """An operation: its function, the ranks of its inputs, parameters and result."""

    run: Callable[..., Tensor]
    ins: tuple[int, ...]
    params: tuple[int, ...]
    out: int
    integer: bool = False


KINDS: Mapping[str, Kind] = {
    "embedding": Kind(embedding, (2,), (2,), 3, integer=True),
    "norm": Kind(norm, (3,), (1,), 3),
    "linear": Kind(linear, (3,), (2,), 3),
    "bias": Kind(bias, (3,), (1,), 3),
    "activation": Kind(activation, (3,), (), 3),
    "dropout": Kind(dropout, (3,), (), 3),
    "multiply": Kind(multiply, (3, 3), (), 3),
    "attention": Kind(attention, (3, 3, 3), (), 3),
    "add": Kind(add, (3, 3), (), 3),
    "dispatch": Kind(dispatch, (3,), (), 4),
    "combine": Kind(combine, (4, 3), (), 3),
    "expert": Kind(expert, (4,), (3,), 4),
    "loss": Kind(loss, (3,), (), 0),
    "opaque": Kind(opaque, (3,), (1,), 3),
}
"""The kinds of :data:`placement_proofs.model.RULES`, each with its function."""
