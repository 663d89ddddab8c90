"""Bytes, times and counts in units that people read."""

from __future__ import annotations

from fractions import Fraction

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def bytes_text(count: int | float | Fraction) -> str:
    """Bytes in powers of 1000, with four digits.

    >>> bytes_text(16_607_142_857)
    '16.61 GB'
    >>> bytes_text(0)
    '0 B'
    """
    value, unit = float(count), 0
    while abs(value) >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.4g} {_UNITS[unit]}"


def amount(value: object) -> str:
    """A number of bytes in human units; the text of a formula stays as it is."""
    return bytes_text(value) if isinstance(value, int | float | Fraction) else str(value)


def seconds_text(seconds: float) -> str:
    """A time with four digits.

    >>> seconds_text(0.0677973)
    '67.8 ms'
    >>> seconds_text(3.4e-6), seconds_text(2000.0), seconds_text(0.0)
    ('3.4 us', '2000 s', '0 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns" if seconds else "0 s"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(2, "tensor")
    '2 tensors'
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
