"""Owners of a concrete mesh, by writing down whose every element is."""

from __future__ import annotations

import math
from collections.abc import Mapping

from placement_proofs.program import Owner, Program
from placement_proofs.program.owners import REST, digits_of, inner_digits, merged, own_digit

MAX_ELEMENTS = 20_000


def unified(program: Program, sizes: Mapping[str, int]) -> Program:
    """Owners that have the same elements on this mesh get one name."""
    if not program.owners:
        return program
    spans = [math.prod(_radices(owner, sizes)) for owner in program.owners]
    total = 2 * math.lcm(*spans)
    if total > MAX_ELEMENTS:
        return merged(program, {o: _stride(o, sizes) for o in program.owners})
    return merged(program, {o: _table(o, sizes, total) for o in program.owners})


def _radices(owner: Owner, sizes: Mapping[str, int]) -> list[int]:
    return [_size(digit, sizes) for digit in digits_of(owner) if digit != REST]


def _size(digit: str, sizes: Mapping[str, int]) -> int:
    return int(digit) if digit.isdigit() else sizes[digit]


def _table(owner: Owner, sizes: Mapping[str, int], total: int) -> tuple[int, ...]:
    """The coordinate that owns each of `total` elements, by counting in mixed radix."""
    rest = total // math.prod(_radices(owner, sizes))
    radices = [rest if d == REST else _size(d, sizes) for d in digits_of(owner)]
    at = own_digit(owner)
    table = []
    for element in range(total):
        value, digits = element, []
        for radix in reversed(radices):
            value, digit = divmod(value, radix)
            digits.append(digit)
        table.append(digits[len(radices) - 1 - at])
    return tuple(table)


def _stride(owner: Owner, sizes: Mapping[str, int]) -> tuple[bool, int, int]:
    outer, digits = inner_digits(owner)
    radix = _size(digits_of(owner)[own_digit(owner)], sizes)
    return outer, math.prod(_size(digit, sizes) for digit in digits), radix
