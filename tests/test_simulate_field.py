"""The three arithmetics."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_proofs.simulate.field import FIELDS, PRIMES

ALL = [field for make in FIELDS.values() for field in make()]
EXACT = [field for field in ALL if field.exact]


def test_primes_are_prime_and_below_2_to_26():
    for p in PRIMES:
        assert 2**25 < p < 2**26
        assert all(p % d for d in range(2, int(p**0.5) + 1))


@pytest.mark.parametrize("field", ALL, ids=lambda f: f.name)
def test_inverse(field):
    for shape in ((5,), (20, 20), (0, 3)):
        x = field.random(0, "x", shape)
        x = field.add(field.multiply(x, x), field.constant(1))
        ones = field.add(field.zeros(shape), field.constant(1))
        assert field.same(field.multiply(x, field.inverse(x)), ones)


@pytest.mark.parametrize("field", ALL, ids=lambda f: f.name)
def test_random_elements_depend_on_seed_and_name_alone(field):
    assert field.same(field.random(3, "w", (4, 2)), field.random(3, "w", (4, 2)))
    assert not field.same(field.random(3, "w", (4, 2)), field.random(4, "w", (4, 2)))
    assert not field.same(field.random(3, "w", (4, 2)), field.random(3, "v", (4, 2)))


@pytest.mark.parametrize("field", EXACT, ids=lambda f: f.name)
def test_products_of_long_rows_are_exact(field):
    n = 5000 if field.modulus else 50
    a, b = field.random(0, "a", (2, n)), field.random(0, "b", (n, 3))
    exact = [
        [
            sum(int(x) * int(y) if field.modulus else x * y for x, y in zip(r, c, strict=True))
            for c in b.T
        ]
        for r in a
    ]
    found = field.matmul(a, b)
    for row, expected in zip(found, exact, strict=True):
        reduced = [e % field.modulus if field.modulus else e for e in expected]
        assert list(row) == reduced


@settings(max_examples=30)
@given(st.fractions(max_denominator=50), st.fractions(max_denominator=50))
def test_modular_arithmetic_is_that_of_fractions(a, b):
    field = FIELDS["modular"]()[0]

    def element(x):
        return np.array(field.constant(x.numerator, x.denominator))

    assert field.add(element(a), element(b)) == element(a + b)
    assert field.multiply(element(a), element(b)) == element(a * b)
    assert field.subtract(element(a), element(b)) == element(a - b)


def test_fractions_stay_fractions():
    (field,) = FIELDS["fraction"]()
    x = field.matmul(field.random(0, "a", (2, 0)), field.random(0, "b", (0, 2)))
    assert x.tolist() == [[Fraction(0)] * 2] * 2
    assert isinstance(field.sum(field.random(0, "c", (3,))).item(), Fraction)
