"""Exports of formulas: LaTeX that is well formed, CSV, and values on arrays."""

import csv
import io
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, transformer
from placement_proofs.render.formula import formula_csv, formula_latex
from placement_proofs.zoo import named

TEXTS = [
    "zero3(dp=N)",
    "hsdp(dp_replicate=R, dp_shard=N)",
    "tensor(tp=N, sequence=True) * zero1(dp=R)",
    "zero2(dp=N) * pipeline(pp=2, microbatches=4)",
]


def forms_of(text, *, divides=True):
    model = transformer(Shape(layers=4, vocabulary=11, ffn=13), folded=True)
    return closed_forms(derive(parse(text), model), model, divides=divides)


@pytest.mark.parametrize("text", TEXTS)
def test_latex_is_well_formed(text):
    """No latex runs here: braces balance, and underscores stand in mathematics or are escaped."""
    source = formula_latex(list(forms_of(text).forms()))
    assert source.count("{") == source.count("}")
    assert source.count(r"\left") == source.count(r"\right")
    assert source.startswith(r"\begin{align*}")
    assert source.endswith(r"\end{align*}")
    for words in re.findall(r"\\text\{((?:[^{}\\]|\\.)*)\}", source):
        assert not re.search(r"(?<!\\)[_#%&$]", words), words
    rows = source.splitlines()[1:-1]
    assert all(row.endswith(r" \\") for row in rows[:-1])
    assert all(row.count("&") == 1 for row in rows)


def test_csv_has_a_row_for_each_formula():
    forms = forms_of("zero3(dp=8)")
    rows = list(csv.DictReader(io.StringIO(formula_csv(list(forms.forms()), forms.numbers()))))
    assert [row["name"] for row in rows] == [name for name, _ in forms.forms()]
    numbers = {row["name"]: float(row["bytes"]) for row in rows}
    assert numbers["memory_peak"] == forms.numbers()["memory_peak"].bytes
    symbolic = forms_of("zero3(dp=N)")
    assert '"bytes"' not in formula_csv(list(symbolic.forms()), {})


@pytest.mark.parametrize("divides", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_arrays_have_the_values_of_the_numbers(text, divides):
    forms = forms_of(text, divides=divides)
    symbols = {s.name for _, f in forms.forms() for s in f.exact.free_symbols}
    sizes = np.array([1, 2, 3, 4, 8, 64])
    values = {name: sizes for name in ("N", "R") if name in symbols}
    found = forms.arrays(values)
    for i, size in enumerate(sizes):
        exact = forms.numbers({name: int(size) for name in values})
        for name, amount in exact.items():
            value = np.broadcast_to(found[name], sizes.shape)[i]
            assert value == pytest.approx(float(amount.bytes), rel=1e-12), name


POINTS = st.lists(st.tuples(*[st.integers(1, 10**9)] * 3), min_size=1, max_size=5)


@settings(max_examples=15)
@given(st.sampled_from(TEXTS), st.booleans(), POINTS)
def test_arrays_agree_with_exact_numbers_at_random_points(text, divides, points):
    """Also where products of sizes do not fit in 64 bits."""
    forms = forms_of(text, divides=divides)
    open_ = {s.name for _, f in forms.forms() for s in f.exact.free_symbols} & {"N", "R"}
    columns = {name: [p[i] for p in points] for i, name in enumerate([*sorted(open_), "h"])}
    found = forms.arrays({name: np.array(column) for name, column in columns.items()})
    for i in range(len(points)):
        exact = forms.numbers({name: column[i] for name, column in columns.items()})
        for name, amount in exact.items():
            value = np.broadcast_to(found[name], (len(points),))[i]
            assert value == pytest.approx(float(amount.bytes), rel=1e-9), name


def test_a_hundred_thousand_points_take_a_moment():
    model = named("llama-7b")
    forms = closed_forms(derive(parse("zero3(dp=N)"), model), model)
    start = time.perf_counter()
    found = forms.arrays({"N": np.arange(1, 100_001)})
    assert found["memory_peak"].shape == (100_000,)
    assert time.perf_counter() - start < 5
    assert (np.diff(found["memory_peak"]) <= 0).all()


def test_every_symbol_needs_a_value():
    with pytest.raises(IllFormed, match="no value for N"):
        forms_of("zero3(dp=N)").arrays({})


def test_the_command_prints_csv(run):
    shown = run("formula", "zero3(dp=8)", "--model", "abstract", "--format", "csv")
    assert shown.out.startswith("name,exact,asymptotic,bytes\nmemory_parameters,")
