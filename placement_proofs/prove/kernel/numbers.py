"""Numbers at one point that carry bounds on their degrees, and linear forms of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Degrees: TypeAlias = tuple[int, ...]
"""For each variable: the axes, the loops, and all counts together."""
Rank: TypeAlias = tuple[int, ...]


class Rejected(Exception):
    """A certificate does not show what it claims; the message says where."""


class Undecided(Rejected):
    """A certificate that the kernel has no argument for, right or wrong."""


@dataclass(frozen=True, slots=True)
class Num:
    """A value at one point, bounds on its numerator's degrees, the factors of its denominator.

    A factor is a value at the point and degrees. Two with the same are taken for one: they are,
    where they agree at as many points as their degrees ask for, and the bounds see to that.
    """

    at: Fraction
    top: Degrees
    under: tuple[tuple[Fraction, Degrees], ...] = ()

    def __add__(self, other: Num) -> Num:
        if self.under == other.under:
            return Num(self.at + other.at, max_degrees(self.top, other.top), self.under)
        mine, theirs = Counter(self.under), Counter(other.under)
        left = add_degrees(self.top, *(d for _, d in (theirs - mine).elements()))
        right = add_degrees(other.top, *(d for _, d in (mine - theirs).elements()))
        under = tuple(sorted((mine | theirs).elements()))
        return Num(self.at + other.at, max_degrees(left, right), under)

    def __mul__(self, other: Num) -> Num:
        under = tuple(sorted((*self.under, *other.under)))
        return Num(self.at * other.at, add_degrees(self.top, other.top), under)

    def __truediv__(self, other: Num) -> Num:
        numerator = other.at
        for factor, _ in other.under:
            numerator *= factor
        under = tuple(sorted((*self.under, (numerator, other.top))))
        top = add_degrees(self.top, *(d for _, d in other.under))
        return Num(self.at / other.at, top, under)

    def more(self, degrees: Degrees) -> Num:
        """The same with higher bounds: a sum of as many terms as there are ranks or turns."""
        return Num(self.at, add_degrees(self.top, degrees), self.under)


def add_degrees(*degrees: Degrees) -> Degrees:
    """Degrees of a product."""
    return tuple(map(sum, zip(*degrees, strict=True)))


def max_degrees(*degrees: Degrees) -> Degrees:
    """Degrees of a sum."""
    return tuple(map(max, zip(*degrees, strict=True)))


Row: TypeAlias = dict[Hashable, Num]
"""A linear form: the coefficient of each contribution, count or unknown that a value is made of."""


def plus(*rows: Row) -> Row:
    """The sum of linear forms."""
    total: Row = {}
    for row in rows:
        for key, number in row.items():
            total[key] = total[key] + number if key in total else number
    return total


def each(rows: Mapping[Rank, Row], change: Callable[[Row], Row]) -> dict[Rank, Row]:
    """The rows changed, once for all ranks that share one."""
    changed = {id(row): change(row) for row in {id(r): r for r in rows.values()}.values()}
    return {rank: changed[id(row)] for rank, row in rows.items()}
