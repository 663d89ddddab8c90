"""Pages of reports: complete, offline, safe, and true to the formulas. No browser is needed."""

import ast
import json
import re
from fractions import Fraction
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from conftest import ROOT
from drawn import compositions
from hypothesis import given, settings

from placement_proofs import check, read_subject
from placement_proofs.checking import convention_of, plan_of
from placement_proofs.cost import symbols
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.exports import javascript, mathml
from placement_proofs.render.page import document, page
from placement_proofs.render.page.markup import data_script, tag, text
from placement_proofs.render.page.play import data, variants

SUBJECTS = {
    "own": "zero3(dp=8) * tensor(tp=4, sequence=True)",
    "symbols": "fsdp(dp=N) * accumulate(micro=M)",
    "stages": "zero1(dp=2) * pipeline(pp=4, microbatches=8)",
    "config": "examples/configs/megatron_moe.sbatch",
    "fault": "theories/faults/piper-tied-pp.toml",
}
VOID = {"input", "meta", "link", "br", "wbr"}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@cache
def page_of(text_):
    """Each page is written once."""
    return page(text_)


class Reader(HTMLParser):
    """Elements with attributes and text; unclosed ones are an error."""

    def __init__(self, whole):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(whole)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes), []))
        if name not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes), []))

    def handle_endtag(self, name):
        assert self.elements[self.open.pop()][0] == name

    def handle_data(self, data):
        for i in self.open:
            self.elements[i][2].append(data)

    def all(self, name):
        return [(attributes, "".join(said)) for n, attributes, said in self.elements if n == name]


@pytest.mark.parametrize("text_", SUBJECTS.values(), ids=SUBJECTS)
def test_pages_are_whole(text_):
    read = Reader(page_of(text_))
    assert len(read.all("h1")) == len(read.all("main")) == len(read.all("style")) == 1
    ids = [a["id"] for _, a, _ in read.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = {a["href"] for a, _ in read.all("a")}
    assert links <= {f"#{name}" for name in ids}
    labelled = {a["for"] for a, _ in read.all("label") if "for" in a}
    for attributes, _ in read.all("input"):
        known = "aria-label" in attributes or attributes.get("id") in labelled
        assert known or attributes["type"] in ("checkbox", "radio")
    assert all(said for _, said in read.all("legend"))
    assert len(read.all("legend")) == len(read.all("fieldset"))
    assert all(a["aria-label"] for a, _ in read.all("svg"))
    sections = [a["id"] for a, _ in read.all("section")]
    assert sections[0] == "verdict" and "plan" in sections


@pytest.mark.parametrize("text_", SUBJECTS.values(), ids=SUBJECTS)
def test_pages_ask_for_nothing(text_):
    read = Reader(page_of(text_))
    for name, attributes, _ in read.elements:
        for key in ("src", "srcset", "data", "action", "poster"):
            assert key not in attributes, name
        assert not attributes.get("href", "#").startswith("http")
        assert not any(key.startswith("on") for key in attributes)
    (style,) = read.all("style")
    assert "@import" not in style[1] and "url(" not in style[1]
    policy = next(a["content"] for a, _ in read.all("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


def test_a_refuted_page_has_counterexample_and_repairs():
    subject = read_subject("data(dp=8)", without=["drop all-reduce gradient dp"])
    whole = document(subject, check(subject))
    assert whole.index('id="counterexample"') < whole.index('id="repairs"')
    assert "undo: drop all-reduce gradient dp" in whole
    assert "got 3/2: wrong" in whole


def test_a_fault_of_the_norm_has_a_page():
    subject = read_subject(
        "zero3(dp=2)", model="abstract", without=["drop all-reduce statistic dp"]
    )
    whole = document(subject, check(subject))
    assert "norm integrity" in whole and "Not drawn" not in whole and "No formulas" not in whole


def test_a_page_of_a_file_says_what_was_understood():
    whole = page_of(SUBJECTS["config"])
    assert "Read from examples/configs/megatron_moe.sbatch (megatron)." in whole
    assert "Values and where they come from" in whole


def test_the_abstract_model_is_offered_where_it_has_a_plan():
    assert "any model of Psi parameters" in page_of(SUBJECTS["symbols"])
    assert "any model of Psi parameters" not in page_of(SUBJECTS["stages"])
    assert "any model of Psi parameters" not in page("expert(ep=2)")
    assert "its layers exchange" in page_of(SUBJECTS["own"])
    assert "its layers exchange" not in page_of(SUBJECTS["symbols"])


def test_without_formulas_the_page_says_why():
    whole = page("zero3(dp=h)")
    assert "No formulas: symbol h" in whole and 'id="controls"' not in whole


PIPED = "zero1(dp=2) * pipeline(pp=4, microbatches=8, schedule='interleaved', chunks=2)"
MICRO_BATCHES_OF_TWO = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 3,
    "zero_optimization": {"stage": 3},
}


def test_all_parts_of_a_page_say_the_same_numbers(tmp_path):
    """Formulas at the first values of the sliders, pictures and the check itself."""
    path = tmp_path / "two.json"
    path.write_text(json.dumps(MICRO_BATCHES_OF_TWO))
    asked = (read_subject(str(path), world=64), *map(read_subject, (SUBJECTS["own"], PIPED)))
    for subject in asked:
        report = check(subject)
        found = variants(subject, convention_of(subject, None))
        values = {n: int(v) for n, v in data(found)["values"].items()}
        assert len(found) == (1 if subject is asked[-1] else 2)
        for variant in found:
            own = {n: v for n, v in values.items() if n in variant.used}
            assert own == variant.values
        numbers = found[0].even.numbers(found[0].values)
        assert numbers["memory_peak"].bytes == report.memory["peak"]
        assert numbers["memory_persistent"].bytes == report.memory["persistent"]
        assert numbers["communication_total"].bytes == report.communication["total"]


def test_the_same_subject_gives_the_same_page():
    assert page(SUBJECTS["fault"]) == page_of(SUBJECTS["fault"])


# --- hostile names -------------------------------------------------------------------

HOSTILE = "<img src=x onerror=alert(1)>\"'&<script>alert(2)<"


def test_names_of_files_cannot_become_markup(tmp_path):
    program = (ROOT / "examples/programs/micro_batch_overwrite.toml").read_text()
    path = tmp_path / f"{HOSTILE}.toml"
    path.write_text(program)
    read = Reader(page(str(path)))
    assert not read.all("img") and not read.all("script")
    assert HOSTILE in read.all("h1")[0][1] and HOSTILE in read.all("title")[0][1]


def test_values_of_files_cannot_become_markup(tmp_path):
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}
    path = tmp_path / f"{HOSTILE}.json"
    path.write_text(json.dumps(config | {HOSTILE: HOSTILE}))
    subject = read_subject(str(path), world=64)
    read = Reader(document(subject, check(subject)))
    assert not read.all("img")
    assert [a.get("id") for a, _ in read.all("script")] == ["setup", None]


def test_data_cannot_end_its_element():
    shown = data_script({"</script>": "<!--&\u2028"}, "x")
    inside = shown.partition(">")[2].removesuffix("</script>")
    assert not set("<>&\u2028") & set(inside)
    assert json.loads(inside) == {"</script>": "<!--&\u2028"}
    assert tag("p", text("<\x00>"), title='"') == '<p title="&quot;">&lt;?&gt;</p>'


# --- formulas ------------------------------------------------------------------------


def forms_of(subject, divides):
    plan, model = plan_of(read_subject(subject))
    return closed_forms(plan, model, divides=divides)


@given(composition=compositions())
@settings(max_examples=5)
def test_javascript_computes_what_python_does(composition):
    """The text is read as calls, and run on fractions; sizes that do not divide come in too."""
    for divides in (True, False):
        forms = forms_of(composition, divides)
        values = {n: v + i % 3 for i, (n, v) in enumerate(sorted(forms.known.items()))}
        given_ = forms.values(values)
        for _, form in forms.forms():
            used = {n: given_[n] for n in symbols.symbols_of(form.exact)}
            assert run(javascript(form.exact), used) == symbols.number(form.exact, used)


def run(source, values):
    return _evaluated(ast.parse(re.sub(r"(\d+)n\b", r"\1", source), mode="eval").body, values)


def _evaluated(node, values):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return -_evaluated(node.operand, values)
    arguments = [_evaluated(a, values) for a in node.args]
    match node.func.id:
        case "v":
            return Fraction(values[arguments[0]])
        case "q":
            return Fraction(*arguments)
        case "add":
            return sum(arguments)
        case "mul":
            result = Fraction(1)
            for a in arguments:
                result *= a
            return result
        case "pow":
            return arguments[0] ** arguments[1]
        case "max":
            return max(arguments)
        case "min":
            return min(arguments)
        case "ceil":
            return Fraction(-(-arguments[0] // 1))
        case "floor":
            return Fraction(arguments[0] // 1)
    raise AssertionError(node.func.id)


CORE = {"math", "mrow", "mi", "mn", "mo", "mspace", "mfrac", "msup", "msub", "mtable", "mtr", "mtd"}
SIGNS = {"\u2062": "*", "\u2212": "-", "\u2308": "ceil(", "\u2309": ")"}


@given(composition=compositions())
@settings(max_examples=5)
def test_mathml_means_the_formula(composition):
    """Read back as people read it, it has the value of the formula; only the core is used."""
    for divides in (True, False):
        forms = forms_of(composition, divides)
        for _, form in forms.forms():
            shown = ElementTree.fromstring(f"<p>{mathml(form.exact).replace('<wbr>', '')}</p>")
            assert {element.tag for element in shown.iter()} - {"p"} <= CORE
            names = symbols.symbols_of(form.exact)
            used = {n: Fraction(7 + 2 * i) for i, n in enumerate(names)}
            spoken = {n.replace("Psi", "\u03a8"): v for n, v in used.items()}
            calls = {"max": max, "min": min, "ceil": lambda x: Fraction(-(-x // 1))}
            assert eval(meant(shown), {**spoken, **calls}) == symbols.number(form.exact, used)


def meant(node):
    """A formula in Python's words; factors that touch are multiplied by a sign."""
    inside = [meant(child) for child in node]
    match node.tag:
        case "mi" | "mn":
            return node.text
        case "mo":
            return SIGNS.get(node.text, node.text)
        case "msub":
            return "_".join(inside)
        case "mfrac":
            return f"(({inside[0]})/({inside[1]}))"
        case "msup":
            return f"({inside[0]})**{inside[1]}"
        case "mtable":
            return f"({', '.join(inside)})"
    return "".join(inside)


def test_a_misprint_is_seen():
    n, k = symbols.symbol("N"), symbols.symbol("K")
    shown = mathml(k * (n - 1))
    right, wrong = (
        eval(
            meant(ElementTree.fromstring(f"<p>{text_.replace('<wbr>', '')}</p>")), {"N": 3, "K": 5}
        )
        for text_ in (shown, shown.replace("\u2212", "+"))
    )
    assert (right, wrong) == (10, 20)


def test_mathml_of_a_small_formula():
    n, k = symbols.symbol("N"), symbols.symbol("K")
    assert said(k * (n - 1) / n) == "K\u2062(N\u22121)N"
    most = symbols.SymSizes({}, n, n).largest([2 * n * k, n + k * k])
    assert said(most) == "max2\u2062K\u2062NK2+N"
    assert "<mfrac>" in mathml(k / n) and "<msup>" in mathml(n * n)


def said(expression):
    shown = mathml(expression).replace("<wbr>", "")
    return "".join(ElementTree.fromstring(f"<p>{shown}</p>").itertext())


def test_what_is_no_formula_is_refused():
    import sympy

    for write in (javascript, mathml):
        with pytest.raises(ValueError, match="sin in a formula"):
            write(sympy.sin(symbols.symbol("N")))


# --- style ---------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_stand_out_from_the_ground(scheme):
    css = (ROOT / "placement_proofs/render/page/page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", blocks[scheme]))
    for name in ("ink", "faint", "link", "good", "bad", "open"):
        for ground in ("paper", "box"):
            assert contrast(colours[name], colours[ground]) >= 4.5, name


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# --- the command ---------------------------------------------------------------------


def test_report_writes_a_page_and_has_the_exit_codes_of_check(run, tmp_path):
    path = tmp_path / "report.html"
    ran = run("report", "zero3(dp=4)", "--model", "abstract", "-o", str(path))
    assert (ran.code, ran.err, ran.out) == (0, "", f"{path}: proved, zero3(dp=4)\n")
    assert path.read_text().startswith('<!DOCTYPE html>\n<html lang="en">')
    refuted = ("examples/programs/micro_batch_overwrite.toml",)
    ran = run("report", *refuted, "-o", str(path), "--json")
    assert ran.code == 1 and json.loads(ran.out) == json.loads(run("check", *refuted, "--json").out)


@pytest.mark.parametrize(
    ("arguments", "said_"),
    [
        (("data(dp=2)",), "Missing option '-o'"),
        (("zero9(dp=2)", "-o", "x.html"), "did you mean"),
        (("data(dp=2)", "-o", "no/such/folder.html"), "the output file must be writable"),
        (("data(dp=2)", "-o", "-", "--convention", "x"), "convention"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, arguments, said_):
    ran = run("report", *arguments)
    assert ran.code == 2 and said_ in ran.err and ran.err.count("\n") == 1
