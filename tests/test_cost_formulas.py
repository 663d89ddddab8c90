"""Closed forms: what they say, in every notation, and comparisons of compositions."""

import json
import math
from fractions import Fraction

import pytest

from placement_proofs.cost import CONVENTIONS, convention, memory, sizes_of
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.compare import compare
from placement_proofs.cost.symbols import undominated
from placement_proofs.cost.units import Amount
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, abstract, transformer
from placement_proofs.render.formula import formula_latex, formula_python, formula_text

SHAPE = Shape(layers=4, hidden=16, ffn=32, heads=4, vocabulary=32, sequence=8)


def forms_of(text, model=None, **options):
    model = model or abstract()
    return closed_forms(derive(parse(text), model), model, **options)


@pytest.mark.parametrize(
    ("text", "persistent", "traffic", "leading"),
    [
        ("data", "Psi*(K + 4)", "2*P*(N_dp - 1)/N_dp", "2*P"),
        ("zero1", "Psi*(K + 4*N_dp)/N_dp", "2*P*(N_dp - 1)/N_dp", "2*P"),
        ("zero2", "Psi*(K + 2*N_dp + 2)/N_dp", "2*P*(N_dp - 1)/N_dp", "2*P"),
        ("zero3(dp=8)", "Psi*(K + 4)/N_dp", "3*P*(N_dp - 1)/N_dp", "3*P"),
        ("zero3(dp=N)", "Psi*(K + 4)/N", "3*P*(N - 1)/N", "3*P"),
    ],
)
def test_formulas_of_the_zero_paper(text, persistent, traffic, leading):
    forms = forms_of(text)
    assert str(forms.persistent.exact) == persistent
    assert str(forms.traffic.exact) == traffic
    assert str(forms.traffic.asymptotic) == leading


def test_numbers_of_the_zero_paper():
    found = [
        forms_of(text).numbers({"N_dp": 64})["memory_persistent"].gb
        for text in ("data", "zero1", "zero2", "zero3")
    ]
    assert [round(gb, 1) for gb in found] == [120, 31.4, 16.6, 1.9]


def test_limits_of_memory():
    assert str(forms_of("zero1").persistent.asymptotic) == "4*Psi"
    assert str(forms_of("zero2").persistent.asymptotic) == "2*Psi"


def test_the_axes_of_the_model_stay_in_the_leading_term():
    """Only data axes grow: under tensor parallelism the matrices' share is still there."""
    model = transformer(SHAPE, folded=True)
    forms = forms_of("tensor * zero1", model)
    assert "N_tp" in str(forms.persistent.asymptotic)
    assert "N_dp" not in str(forms.persistent.asymptotic)
    alone = forms_of("tensor", model).persistent
    assert alone.asymptotic == alone.exact
    experts = transformer(Shape(experts=4), folded=True)
    assert "N_ep" in str(forms_of("expert * zero1", experts).persistent.asymptotic)


@pytest.mark.parametrize("axis", ["a", "h", "s", "f", "V", "B", "L", "E"])
def test_an_axis_may_have_the_name_of_a_size_of_the_model(axis):
    """A size of the model keeps its value beside an axis of the same name."""
    model = transformer(Shape(experts=4, sequence=8), folded=True)
    found = []
    for name in (axis, "dp"):
        text = f'place({name}=2, optimizer="S", batch="S(0)") * pipeline(pp=2, microbatches=4)'
        plan = derive(parse(text), model)
        sizes = sizes_of(plan, model)
        peak = memory(plan, sizes, convention("zero-paper"), "first").peak
        forms = closed_forms(plan, model, position="first")
        assert forms.numbers()["memory_peak"].bytes == peak
        found.append(peak)
    assert found[0] == found[1]


def test_exact_form_has_ceilings():
    forms = forms_of("zero3", divides=False)
    assert str(forms.memory["optimizer"].exact) == "K*ceiling(Psi/N_dp)"
    values = {"N_dp": 4, "Psi": 7}
    assert forms.numbers(values)["memory_optimizer"] == Amount(24)
    assert forms.numbers(values)["communication_total"] == Amount(3 * 2 * 8 * 3 // 4)


def test_terms_say_where_bytes_come_from():
    forms = forms_of("zero3(dp=8)")
    gathered = forms.communication["all-gather over dp"]
    assert gathered.reasons() == ("gather before use (forward)", "gather before use (backward)")
    assert {t.unit for t in gathered.terms} == {"model"}
    assert {t.names for t in gathered.terms} == {("w",)}
    assert forms.memory["optimizer"].reasons() == ("sharded over dp",)


def test_tensor_parallel_formula():
    forms = forms_of("tensor(vocabulary=False)", transformer(SHAPE, folded=True))
    (form,) = forms.communication.values()
    assert str(form.exact) == "16*L*b*h*s*(N_tp - 1)/N_tp"
    assert str(form.asymptotic) == "16*L*b*h*s"


def shown(widths):
    forms = forms_of("zero2", convention=widths)
    return formula_text("zero2", forms, list(forms.forms()), {})


def test_text_names_the_convention():
    for name in CONVENTIONS:
        assert shown(convention(name)).startswith(f"zero2\nconvention {name}: ")
    texts = {shown(c) for c in CONVENTIONS.values()}
    assert len(texts) == len(CONVENTIONS)


def test_latex():
    forms = forms_of("zero3")
    assert forms.memory["optimizer"].latex == r"\frac{K \Psi}{N_{dp}}"
    assert formula_latex(list(forms.forms())).startswith(r"\begin{align*}")


@pytest.mark.parametrize("divides", [True, False])
def test_python_functions_need_no_sympy(divides):
    model = transformer(Shape(hidden=20, ffn=7, vocabulary=11, layers=4), folded=True)
    text = "zero3(dp=2) * tensor(tp=3) * pipeline(pp=2, microbatches=3)"
    plan = derive(parse(text), model)
    forms = closed_forms(plan, model, divides=divides)
    source = formula_python(forms, list(forms.forms()))
    assert "sympy" not in source
    scope = {}
    exec(source, scope)
    for name, form in forms.forms():
        known = {s.name: forms.known[s.name] for s in form.exact.free_symbols}
        assert scope[name](**known) == forms.numbers()[name].bytes
    exec(forms.peak.to_python("peak"), scope)
    values = {s.name: forms.known[s.name] for s in forms.peak.exact.free_symbols}
    assert scope["peak"](**values) == forms.numbers()["memory_peak"].bytes
    assert scope["math"] is math


def test_json():
    text = json.loads(json.dumps(forms_of("zero3(dp=8)").to_json()))
    total = text["forms"]["communication_total"]
    assert total["exact"] == "3*P*(N_dp - 1)/N_dp"
    assert total["asymptotic"] == "3*P"
    assert {t["what"] for t in total["terms"]} == {"all-gather", "reduce-scatter"}
    assert text["known"] == {"Psi": 7_500_000_000, "A": 1, "b": 1, "N_dp": 8, "m": 1, "K": 12}


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        ("zero3", {}, "no value for N_dp"),
        ("zero3", {"N_tp": 4}, "a value for N_tp; the symbols are A, K, N_dp"),
    ],
)
def test_numbers_that_do_not_fit(text, values, found):
    with pytest.raises(IllFormed, match=found):
        forms_of(text).numbers(values)


def test_a_symbol_may_not_name_a_size_of_the_model():
    with pytest.raises(IllFormed, match="symbol h: found also a size of the model"):
        forms_of("zero3(dp=h)", transformer(SHAPE, folded=True))


def test_the_default_position_is_the_largest():
    model = transformer(Shape(vocabulary=64, sequence=64, layers=4), folded=True)
    plan = derive(parse("pipeline(pp=2, microbatches=2)"), model)
    largest = memory(plan, sizes_of(plan, model), convention("zero-paper"))
    assert closed_forms(plan, model).position == largest.position
    symbolic = derive(parse("pipeline(pp=p, microbatches=m)"), model)
    assert closed_forms(symbolic, model).position == "first"


def test_maxima_lose_what_is_never_the_largest():
    from placement_proofs.cost.symbols import symbol

    a, b = symbol("a"), symbol("b")
    assert undominated([a, 2 * a, a / b, a + b, 2 * a + b]) == [2 * a + b]
    assert undominated([a, b]) == [a, b]
    assert undominated([2 * a - 3, a]) == [2 * a - 3, a]


def comparison(*texts, **options):
    model = options.pop("model", abstract())
    return compare([parse(text) for text in texts], model, **options)


def test_compare_says_when_the_headline_holds():
    found = comparison("data", "zero3")
    (_, row) = found.rows
    assert str(row.saving) == "N_dp"
    assert str(row.traffic) == "3/2"
    assert row.exactly == (8,)
    assert (
        "the memory ratio is 8 exactly when N_dp = 8; the traffic is then 3/2 times as much"
        in found.text()
    )
    assert comparison("data(dp=N)", "zero3(dp=N)", wanted=Fraction(5)).rows[1].exactly == (5,)


def test_compare_finds_the_limit_of_zero2():
    found = comparison("data", "zero2", "zero1")
    assert [str(r.saving_limit) for r in found.rows] == ["1", "8", "4"]
    assert "the memory ratio is 8 for no whole N_dp, only in the limit" in found.text()
    other = comparison("data", "zero2", convention=convention("fp32"))
    assert str(other.rows[1].saving_limit) == "4"


def test_compare_on_a_transformer_and_with_many_axes():
    model = transformer(SHAPE, folded=True)
    found = comparison("data", "zero3", model=model)
    assert (str(found.rows[1].saving), str(found.rows[1].traffic)) == ("N_dp", "3/2")
    mixed = comparison("data", "hsdp", model=model)
    assert mixed.axis is None
    assert str(mixed.rows[1].saving) == "N_dp_shard"
    json.dumps(mixed.to_json())


def test_compare_needs_two():
    with pytest.raises(IllFormed, match="a ratio needs two"):
        comparison("data")


def test_amounts_have_units():
    assert str(Amount(120 * 10**9)) == "120,000,000,000 bytes (120 GB, 111.8 GiB)"
    assert str(Amount(12)) == "12 bytes"
    assert str(Amount(Fraction(3, 2))) == "1.50 bytes"
