"""Formulas on arrays equal the formulas, row by row; equal parts are computed once."""

import pickle
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_proofs.cost import symbols
from placement_proofs.cost.symbols import symbol
from placement_proofs.cost.tape import ROUNDING, tape
from placement_proofs.errors import IllFormed
from placement_proofs.layouts import vector
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.forms import forms
from placement_proofs.layouts.setting import Job, Kind
from placement_proofs.layouts.vector import compiled
from placement_proofs.zoo import PRESETS

NAMES = ("x", "y", "z", "w")
X, Y, Z, W = map(symbol, NAMES)


def formulas(depth=4):
    leaves = st.sampled_from([X, Y, Z, W]) | st.integers(1, 9).map(lambda n: X * 0 + n)

    def larger(inner):
        pairs = st.tuples(inner, inner)
        return st.one_of(
            pairs.map(lambda p: p[0] + p[1]),
            pairs.map(lambda p: p[0] * p[1]),
            pairs.map(lambda p: p[0] - 3 * p[1]),
            pairs.map(
                lambda p: p[0] / (abs(p[1]) + 1) if p[1].is_number else p[0] / (p[1] ** 2 + 1)
            ),
            pairs.map(lambda p: symbols.largest([p[0], p[1]])),
            inner.map(lambda e: e**2),
        )

    return st.recursive(leaves, larger, max_leaves=8)


def exact(formula, values):
    """By exact arithmetic on the formula, a maximum of numbers taken at the end."""
    return float(symbols.replaced(formula, values).doit())


@settings(max_examples=50)
@given(st.lists(formulas(), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_arrays_equal_exact_values_at_every_row(wanted, draw):
    named = {f"f{i}": formula for i, formula in enumerate(wanted)}
    rows = [{name: draw.randrange(1, 50) for name in NAMES} for _ in range(5)]
    columns = {name: np.array([row[name] for row in rows], dtype=float) for name in NAMES[:3]}
    columns["w"] = float(rows[0]["w"])
    found = compiled(named, NAMES[:3])(columns, chunk=2)
    for i, row in enumerate(rows):
        here = row | {"w": rows[0]["w"]}
        for name, formula in named.items():
            value = exact(formula, here)
            scale = max(abs(value), 1.0) * 1e3
            assert abs(found[name][i] - value) <= 1e-12 * scale
            assert abs(tape(named).run(here)[name] - value) <= 1e-12 * scale


JOB = Job("llama-13b", PRESETS["llama-13b"], 2048, 64, load_machine("a100-80gb"))
KINDS = (
    Kind(),
    Kind(tensor=True, sequence=True, zero=3),
    Kind(pipeline=True, tensor=True, context=True, chunks=2, recompute="full"),
)
DEGREES = ("t", "p", "d", "c", "e", "b", "m")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_on_arrays_equals_its_formulas(kind):
    """Against exact arithmetic on the formulas themselves, at layouts drawn at random."""
    made, draw = forms(kind, JOB), random.Random(5)
    rows = [{name: 2 ** draw.randrange(1, 5) for name in DEGREES} for _ in range(12)]
    columns = {name: np.array([row[name] for row in rows], dtype=float) for name in DEGREES}
    rest = {**JOB.symbols, **Constants().symbols}
    code = compiled({"peak": made.peak, "step": made.step}, DEGREES)
    found = code({**rest, **columns})
    for i, row in enumerate(rows[:4]):
        here = {name: Fraction(value) for name, value in (rest | row).items()}
        for name, formula in (("peak", made.peak), ("step", made.step)):
            assert found[name][i] == pytest.approx(exact(formula, here), rel=1e-11)


def test_the_size_of_the_chunks_changes_nothing():
    code = compiled({"f": X / (Y + 1) + symbols.largest([X * Z, Y**2])}, ("x", "y"))
    draw = np.random.default_rng(3)
    columns = {"x": draw.uniform(1, 9, 1000), "y": draw.uniform(1, 9, 1000), "z": 3.0}
    whole = code(columns)["f"]
    for chunk in (1, 7, 999, 1000, 4096):
        assert np.array_equal(code(columns, chunk=chunk)["f"], whole)


def test_equal_parts_are_one_step():
    shared = X * Y + Z
    assert len(tape({"a": shared, "b": shared**2}).steps) == 3
    assert len(tape({"a": shared, "b": (X * Y + Z) / W}).steps) == 3


def test_what_does_not_vary_is_not_computed_row_by_row():
    """The products of numbers come first, so that two operations on arrays are left."""
    code = compiled({"f": X * Y * Z * W + Z**2}, ("x",))
    columns = {"x": np.ones(3), "y": 2.0, "z": 3.0, "w": 4.0}
    rows = vector._rows(code.tape, columns)
    _, program = vector._prepared(code.tape, columns, rows)
    assert [name for _, (name, _, _) in program] == ["multiply", "add"]
    assert len(code.tape.steps) == 5


def test_buffers_are_used_again():
    """The number of buffers is that of values that are alive together, not that of steps."""
    total = X
    for i in range(40):
        total = (total + i) * Y
    code = compiled({"f": total}, ("x", "y"))
    columns = {"x": np.ones(3), "y": np.ones(3)}
    _, program = vector._prepared(code.tape, columns, vector._rows(code.tape, columns))
    placed, count = vector._allocated(program, set(code.tape.outputs.values()))
    assert len(placed) > 40 and count <= 3


def test_whole_quotients_are_not_rounded_up():
    code = compiled({"f": symbols.rounded_up(X / Y)}, ("x", "y"))
    pairs = [(k * y, y, k) for y in range(1, 130) for k in (1, 2, 3, 7, 40)]
    x, y, k = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    assert np.array_equal(code({"x": x, "y": y})["f"], k)
    assert np.array_equal(code({"x": x + 1, "y": y + 0.0})["f"], np.floor(x / y + 1e-9) + 1)
    assert ROUNDING < 1 / 8192, "smaller than the fraction of any layout"


def test_sums_of_quotients_are_not_rounded_up():
    """Such as 1/10 + 2/10 + 7/10, of which some come out a little above a whole number."""
    code = compiled({"f": symbols.rounded_up(X / Y + Z / Y + W / Y)}, NAMES)
    rows = [
        (a, y, b, y - a - b) for y in range(3, 60) for a in range(1, y) for b in range(1, y - a)
    ]
    columns = dict(zip(NAMES, np.array(rows, dtype=float).T, strict=True))
    x, y, z, w = columns.values()
    assert (np.ceil(x / y + z / y + w / y) != 1).any(), "rounding is of use here"
    assert (code(columns)["f"] == 1).all()
    assert all(code.tape.run(dict(zip(NAMES, row, strict=True)))["f"] == 1 for row in rows[::50])


def test_a_sum_of_negative_terms():
    code = compiled({"f": -X - 2 * Y - Z}, ("x",))
    assert code({"x": np.array([1.0, 2.0]), "y": 3.0, "z": 4.0})["f"].tolist() == [-11.0, -12.0]


def test_the_same_formulas_on_other_arrays():
    """Which inputs are arrays may change from call to call."""
    code = compiled({"f": X * Y + Z**2 / (Y + 1)}, ("x", "y", "z"))
    x, y, z = np.arange(3.0), np.arange(3.0) + 5, np.arange(3.0) + 9
    assert np.array_equal(code({"x": x, "y": 6.0, "z": 10.0})["f"], x * 6 + 100 / 7)
    assert np.array_equal(code({"x": x, "y": y, "z": z})["f"], x * y + z * z / (y + 1))
    assert np.array_equal(code({"x": 2.0, "y": 6.0, "z": z})["f"], 12 + z * z / 7)


def test_a_formula_that_does_not_vary_fills_its_column():
    found = compiled({"f": Z * 2, "g": X + 0}, ("x",))({"x": np.arange(3.0), "z": 5.0})
    assert found["f"].tolist() == [10.0] * 3 and found["g"].tolist() == [0.0, 1.0, 2.0]


def test_it_can_be_sent_to_another_process():
    code = compiled({"f": X / Y}, ("x",))
    again = pickle.loads(pickle.dumps(code))
    assert again == code and again({"x": np.ones(2), "y": 4.0})["f"].tolist() == [0.25, 0.25]


def test_missing_and_unequal_columns_are_refused():
    code = compiled({"f": X * Y}, ("x", "y"))
    with pytest.raises(IllFormed) as error:
        code({"x": np.ones(2)})
    assert str(error.value) == ("columns: found no value for y; every symbol needs one; give it")
    with pytest.raises(IllFormed, match="arrays of 2 and 3 rows"):
        code({"x": np.ones(2), "y": np.ones(3)})
