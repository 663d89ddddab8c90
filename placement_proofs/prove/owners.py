"""Which owners are the same map of elements, by the strides of their digits."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from placement_proofs.program import Owner, Program
from placement_proofs.program.owners import digits_of, inner_digits, merged, own_digit

Stride = tuple[bool, Fraction, tuple[tuple[str, int], ...]]
Digit = tuple[Stride, str | int]


def unified(program: Program, sizes: Mapping[str, int]) -> Program:
    """Owners of equal stride get one name: for all sizes, but for those that are given."""
    return merged(program, {owner: digit(owner, sizes) for owner in program.owners})


def digit(owner: Owner, sizes: Mapping[str, int]) -> Digit:
    """The owner's digit: its stride and its radix."""
    radix = digits_of(owner)[own_digit(owner)]
    size = int(radix) if radix.isdigit() else sizes.get(radix, radix)
    return stride(owner, sizes), size


def stride(owner: Owner, sizes: Mapping[str, int]) -> Stride:
    """The stride as a monomial: of the tensor's size or absolute, a number, and sizes."""
    outer, digits = inner_digits(owner)
    number = Fraction(1)
    powers: dict[str, int] = {}
    for radix in digits:
        if radix.isdigit() or radix in sizes:
            number *= int(radix) if radix.isdigit() else sizes[radix]
        else:
            powers[radix] = powers.get(radix, 0) + 1
    return outer, number, tuple(sorted(powers.items()))
