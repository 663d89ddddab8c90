"""One object for three arithmetics: floats, integers modulo a prime, fractions.

Integers modulo a prime below 2^26 are the standard exact arithmetic: products fit in 52 bits and
2^11 of them add up in an int64. Inequality there is certain; equality holds up to a chance of at
most (degree of the computed rational function) / p a prime, as initial values are random elements
(Schwartz-Zippel lemma). Fractions grow quickly and are for small models.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Scalar: TypeAlias = int | float | Fraction

PRIMES = (67_108_859, 67_108_837)
"""The two largest primes below 2^26."""

_TERMS = 2**11
"""How many products of two elements modulo a prime fit in an int64."""

_SMALL = 128
"""Arrays up to this many elements are inverted one by one."""


@dataclass(frozen=True)
class Field:
    """Arithmetic on arrays; ``modulus`` is 0 outside modular arithmetic.

    ``exact`` fields compare by equality; floats compare up to ``tolerance`` relative to the largest
    element of the array.
    """

    name: str
    dtype: type
    modulus: int = 0
    exact: bool = True
    tolerance: float = 1e-9

    def reduced(self, array: Array) -> Array:
        """An integer array brought back to ``0 .. p-1``; the same array in the other fields."""
        return array % self.modulus if self.modulus else array

    def constant(self, numerator: int, denominator: int = 1) -> Scalar:
        """The field's element ``numerator / denominator``."""
        if self.modulus:
            return numerator * pow(denominator, -1, self.modulus) % self.modulus
        ratio = Fraction(numerator, denominator)
        return ratio if self.exact else float(ratio)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Zeros of a shape in elements."""
        array: Array = np.zeros(shape, self.dtype)
        if self.dtype is object:
            array.fill(Fraction(0))
        return array

    def random(self, seed: int, name: str, shape: tuple[int, ...]) -> Array:
        """Elements that depend on nothing but the seed, the name and the shape."""
        stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if self.modulus:
            return stream.integers(0, self.modulus, shape)
        if not self.exact:
            return stream.uniform(-1.0, 1.0, shape)
        whole = stream.integers(-4, 5, shape)
        values = [Fraction(int(n), 4) for n in whole.ravel()]
        array = np.empty(math.prod(shape), object)
        array[:] = values
        return array.reshape(shape)

    def add(self, a: Array, b: Array | Scalar) -> Array:
        """``a + b``."""
        return self.reduced(a + b)

    def subtract(self, a: Array, b: Array | Scalar) -> Array:
        """``a - b``."""
        return self.reduced(a - b)

    def multiply(self, a: Array, b: Array | Scalar) -> Array:
        """``a b``, element by element."""
        return self.reduced(a * b)

    def sum(self, a: Array, axis: int | tuple[int, ...] | None = None) -> Array:
        """The sum over some dims, or over all."""
        return self.reduced(np.asarray(np.sum(a, axis=axis), self.dtype))

    def matmul(self, a: Array, b: Array) -> Array:
        """The matrix product over the last dim of ``a`` and the last but one of ``b``."""
        inner = a.shape[-1]
        if self.modulus and inner > _TERMS:
            parts = range(0, inner, _TERMS)
            terms = [
                a[..., i : i + _TERMS] @ b[..., i : i + _TERMS, :] % self.modulus for i in parts
            ]
            return self.reduced(np.asarray(sum(terms)))
        if self.dtype is object and inner == 0:
            return self.zeros((*a.shape[:-1], b.shape[-1]))
        return self.reduced(a @ b)

    def inverse(self, a: Array) -> Array:
        """``1 / a`` element by element; modulo a prime the inverse of zero is zero.

        Raises:
            ZeroDivisionError: a fraction is zero.
        """
        if not self.modulus:
            return np.asarray(1 / a) if a.size else a
        if a.size > _SMALL:
            return self._power(a, self.modulus - 2)
        p = self.modulus
        values = [pow(n, -1, p) if n else 0 for n in a.ravel().tolist()]
        return np.array(values, np.int64).reshape(a.shape)

    def _power(self, a: Array, exponent: int) -> Array:
        result = np.ones_like(a)
        while exponent:
            if exponent & 1:
                result = result * a % self.modulus
            a = a * a % self.modulus
            exponent >>= 1
        return result

    def root(self, a: Array) -> Array:
        """The square root, in floats; exact fields have none and give ``a`` itself."""
        return a if self.exact else np.sqrt(a)

    def same(self, a: Array, b: Array) -> bool:
        """Whether two arrays are equal (floats: up to the tolerance)."""
        if a.shape != b.shape:
            return False
        if self.exact:
            return bool(np.array_equal(a, b))
        scale = float(np.max(np.abs(b), initial=0.0))
        return bool(np.allclose(a, b, rtol=0.0, atol=self.tolerance * scale))


def _modular() -> tuple[Field, ...]:
    return tuple(Field(f"modulo {p}", np.int64, p) for p in PRIMES)


FIELDS: dict[str, Callable[[], tuple[Field, ...]]] = {
    "modular": _modular,
    "float": lambda: (Field("float64", np.float64, exact=False),),
    "fraction": lambda: (Field("fractions", object),),
}
"""The arithmetics by name; a simulation runs once in each field of the tuple."""
