"""Device meshes: named axes, their sizes, and sets of axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias, TypeVar

Dim: TypeAlias = int | str
"""A size: an integer, or text such as ``"N"`` or ``"L/pp"`` (symbols joined by ``*`` and ``/``)."""

N = TypeVar("N")


@dataclass(frozen=True)
class Axis:
    """One axis of the mesh: a name and its number of positions (an integer >= 1 or a symbol)."""

    name: str
    size: Dim


@dataclass(frozen=True)
class Mesh:
    """Named axes; a rank is one coordinate per axis (the semantics page, section 1).

    ``subsets`` names parts of an axis that communicate on their own, as ``("pp:tied", "pp")``:
    the first and the last position of ``pp``.
    """

    axes: tuple[Axis, ...] = ()
    subsets: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def size(self, name: str) -> Dim:
        """The size of axis ``name``.

        Raises:
            KeyError: no axis has that name.
        """
        return self.sizes()[name]

    def sizes(self) -> dict[str, Dim]:
        return {axis.name: axis.size for axis in self.axes}


def parent(axis: str) -> str:
    """The mesh axis that an axis or a subset such as ``pp:tied`` lies on."""
    return axis.partition(":")[0]


class Sizes(Protocol[N]):
    """Arithmetic on sizes: the same derivation and cost code runs on ints and on symbols."""

    def dim(self, value: Dim) -> N:
        """The value of a size."""
        ...

    def axis(self, name: str) -> N:
        """The number of positions of a mesh axis or of a subset such as ``pp:tied``."""
        ...

    def cdiv(self, a: N, b: N) -> N:
        """``a / b`` rounded up."""
        ...

    def product(self, values: Sequence[N]) -> N:
        """The product."""
        ...

    def total(self, values: Sequence[N]) -> N:
        """The sum."""
        ...

    def difference(self, a: N, b: N) -> N:
        """``a - b``."""
        ...

    def least(self, values: Sequence[N]) -> N:
        """The minimum of one or more values."""
        ...

    def largest(self, values: Sequence[N]) -> N:
        """The maximum; zero when there is none."""
        ...

    def ratio(self, a: N, b: N) -> N | Fraction:
        """``a / b``, exact."""
        ...

    def total_exact(self, values: Sequence[N | Fraction]) -> N | Fraction:
        """The sum of exact quotients."""
        ...


@dataclass(frozen=True)
class IntSizes:
    """Sizes as integers: every axis and every symbol has a value.

    A name in a size means the symbol (a dim of the model) before the axis of that name.
    """

    axes: Mapping[str, int]
    symbols: Mapping[str, int]

    def dim(self, value: Dim) -> int:
        if isinstance(value, int):
            return value
        numerator, *divisors = value.split("/")
        result = 1
        for factor in numerator.split("*"):
            result *= self._atom(factor.strip())
        for divisor in divisors:
            result //= self._atom(divisor.strip())
        return result

    def _atom(self, name: str) -> int:
        if name.isdigit():
            return int(name)
        value = self.symbols.get(name)
        return value if value is not None else self.axes[name]

    def axis(self, name: str) -> int:
        size = self.axes[parent(name)]
        return min(2, size) if ":" in name else size

    def cdiv(self, a: int, b: int) -> int:
        return -(-a // b)

    def product(self, values: Sequence[int]) -> int:
        return math.prod(values)

    def total(self, values: Sequence[int]) -> int:
        return sum(values)

    def difference(self, a: int, b: int) -> int:
        return a - b

    def least(self, values: Sequence[int]) -> int:
        return min(values)

    def largest(self, values: Sequence[int]) -> int:
        return max(values, default=0)

    def ratio(self, a: int, b: int) -> int | Fraction:
        whole, rest = divmod(a, b)
        return Fraction(a, b) if rest else whole

    def total_exact(self, values: Sequence[int | Fraction]) -> int | Fraction:
        result = sum(values)
        return int(result) if result.denominator == 1 else result
