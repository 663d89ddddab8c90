"""The kernel: it accepts what is right, rejects what is not, and needs no solver."""

import copy
import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import field, fields, is_dataclass, make_dataclass
from fractions import Fraction

import pytest
from conftest import ROOT
from random_groups import Groups
from random_programs import Maker

from placement_proofs.cli import main
from placement_proofs.errors import IllFormed
from placement_proofs.program import Expect, Guard, Program, Source, Term, Update, validate
from placement_proofs.program.text import format_program, parse_program
from placement_proofs.prove import kernel, prove
from placement_proofs.prove.core import Outside, certificate_of, outline, unread
from placement_proofs.prove.kernel.numbers import Num
from placement_proofs.prove.kernel.obligations import OBLIGATIONS
from placement_proofs.prove.kernel.points import grid, simplex
from placement_proofs.prove.kernel.steps import STEPS
from placement_proofs.prove.smt import decide
from placement_proofs.prove.uninterpreted import coincidences, scripts
from placement_proofs.theorems import Query
from placement_proofs.theorems.placements import RUNNABLE, element_program
from placement_proofs.theories import all_theories
from placement_proofs.theories.evidence import CHECKED
from placement_proofs.theories.identities import certificate
from placement_proofs.verdict import Verdict

HOME = all_theories()[0].parent / "certificates"
STORED = [cert for path in sorted(HOME.iterdir()) for cert in json.loads(path.read_text())]
CERTS = [cert for cert in STORED if "steps" in cert]
IDENTITIES = [cert for cert in STORED if "identities" in cert]

DATA = """
axes dp
spec W = c[dp]/dp
copy w of W
use w
grad g = c[dp]
mean g dp
update w g
tick
"""


def test_every_stored_certificate_is_accepted():
    assert len(CERTS) > 60 and len(IDENTITIES) > 4
    for cert in STORED:
        assert kernel.check(cert)["compared"] > 0, cert["claim"]


@pytest.mark.parametrize("cert", IDENTITIES, ids=lambda cert: cert["claim"])
def test_a_corrupted_identity_is_rejected(cert):
    """One in each certificate: any number, word or entry of its table changed."""
    one = max(cert["identities"], key=lambda i: len(i["names"]))
    small = {**cert, "identities": [one]}
    assert kernel.check(small)["compared"] == len(one["table"])
    for path, corrupted in _corrupted(small):
        if path[-1] == "name":
            continue
        with pytest.raises(kernel.Rejected):
            kernel.check(corrupted)
            pytest.fail(f"accepted with another {path}")
    with pytest.raises(kernel.Rejected, match="nothing is compared"):
        kernel.check({**cert, "identities": []})


@pytest.mark.parametrize(
    ("goal", "holds"),
    [
        ("(= (* (+ a b) (+ a b)) (+ (* a a) (* 2.0 (* a b)) (* b b)))", True),
        ("(= (* (+ a b) (+ a b)) (+ (* a a) (* b b)))", False),
        ("(= (/ a b) (/ (* a a) (* a b)))", True),
        ("(= (* (- a 1.0) (- a 2.0)) (* 0.0 a))", False),
        ("(= (* (- a b) (- a 2.0)) (* 0.0 a))", False),
        ("(= (/ 1.0 (+ 1.0 a)) (- 1.0 (/ a (+ 1.0 a))))", True),
        ("(= (/ 1.0 (+ 1.0 a)) (- 1.0 (* 0.5 a)))", False),
        ("(and true (= a a) (= (* 2.0 b) (+ b b)))", True),
    ],
)
def test_identities_of_rational_functions(goal, holds):
    query = Query("q", "QF_NRA", "", ("(>= a 1.0)",), goal)
    try:
        cert = certificate("claim", [query])
        assert kernel.check(cert)["compared"] and holds
    except kernel.Rejected:
        assert not holds


def test_what_is_no_identity():
    for logic, premise, goal in (
        ("QF_UF", "true", "(= a b)"),
        ("QF_NRA", "(or (= a 1.0) (= a 2.0))", "(= a a)"),
        ("QF_NRA", "(>= a 1.0)", "(> a 0.0)"),
    ):
        assert certificate("claim", [Query("q", logic, "", (premise,), goal)]) is None


def test_stored_certificates_are_of_every_kind_of_step():
    ops = {step["op"] for cert in CERTS for step in _flat(cert["steps"])}
    assert ops == {*STEPS, *OBLIGATIONS, "loop"}
    guards = {key for cert in CERTS for step in _flat(cert["steps"]) for key in step}
    assert {"turns", "at"} <= guards
    assert any(cert["equal"] for cert in CERTS)


def _flat(steps):
    for step in steps:
        yield step
        yield from _flat(step.get("body", ()))


@pytest.mark.parametrize("index", range(0, len(CERTS), 5))
def test_a_certificate_without_one_of_its_steps_is_rejected(index):
    """Reductions: every one of them matters in the stored certificates."""
    for path in _paths(CERTS[index]["steps"]):
        cert = copy.deepcopy(CERTS[index])
        _drop(cert["steps"], path)
        with pytest.raises(kernel.Rejected):
            kernel.check(cert)


def _paths(steps, prefix=()):
    for i, step in enumerate(steps):
        if step["op"] == "loop":
            yield from _paths(step["body"], (*prefix, i))
        elif step["op"] == "reduce":
            yield (*prefix, i)


def _drop(steps, path):
    for i in path[:-1]:
        steps = steps[i]["body"]
    del steps[path[-1]]


def test_the_kernel_and_the_prover_agree_on_all_placements_of_one_axis():
    for point in RUNNABLE:
        program = element_program(point)
        verdict = prove(program, certify=False, everywhere=False)["gradient_integrity"].verdict
        try:
            kernel.check(certificate_of(program, "point"))
            accepted = True
        except kernel.Rejected:
            accepted = False
        assert accepted == (verdict is Verdict.PROVED), point


def test_the_kernel_and_congruence_agree_with_the_prover_on_random_programs():
    """Independent checkers of gradients and of states, on programs that nobody wrote."""
    seen = Counter()
    for program in _random(250):
        result = prove(program, certify=False, everywhere=False)
        gradient = result["gradient_integrity"].verdict
        if (said := _kernel(program)) is not None:
            refuted = any(result[name].verdict is Verdict.REFUTED for name in CHECKED)
            assert (said is Verdict.REFUTED) == refuted, format_program(program)
            seen["kernel", said] += 1
        if gradient is Verdict.PROVED and (told := _states(program)) is not None:
            wrong = {result[c].verdict for c in ("state_consistency", "optimizer_class")}
            assert (told == "sat") == (Verdict.REFUTED in wrong), format_program(program)
            seen["states", told] += 1
    assert min(seen["kernel", v] for v in (Verdict.PROVED, Verdict.REFUTED)) > 20
    assert seen["states", "unsat"] > 20


def test_the_kernel_agrees_with_the_prover_on_random_groups():
    """Two parameters with norms and clipping."""
    seen = Counter()
    for program in _random(40, lambda choose: Groups(choose).grouped()):
        result = prove(program, certify=False, everywhere=False)
        if (said := _kernel(program)) is not None:
            refuted = any(result[name].verdict is Verdict.REFUTED for name in CHECKED)
            assert (said is Verdict.REFUTED) == refuted, format_program(program)
            seen[said] += 1
    assert min(seen[v] for v in (Verdict.PROVED, Verdict.REFUTED)) > 5


def _random(count, make=lambda choose: Maker(choose).program()):
    choose = random.Random(11)
    while count:
        try:
            program = make(lambda options: choose.choice(list(options)))
            validate(program)
        except IllFormed:
            continue
        if prove(program, certify=False, everywhere=False).verdict is not Verdict.ILL_FORMED:
            count -= 1
            yield program


def _kernel(program):
    try:
        kernel.check(certificate_of(program, "random", 1_000))
    except (Outside, kernel.Undecided):
        return None
    except kernel.Rejected:
        return Verdict.REFUTED
    return Verdict.PROVED


def test_positions_coincide_in_every_way():
    text = "axes dp pp\nspec W = c[]\ncopy w of W held=dp:p,pp:first\ncopy v of W held=dp:q,pp:r\n"
    program = parse_program(f"{text}grad g = c[]\nslice g dp p\nslice g pp first\nupdate w g\n")
    ways = list(coincidences(program, frozenset()))
    assert len(ways) == 4 and len({tuple(sorted(way.items())) for way in ways}) == 4
    assert {("dp", "q"): "p"} in ways and {("pp", "r"): "first"} in ways
    assert list(coincidences(program, frozenset({"dp", "pp"}))) == [{}]


def test_a_stale_copy_shows_where_positions_are_apart_only():
    """The owner updates; a rank that reads from another position has the old version."""
    text = DATA.replace("copy w of W\n", "copy m of W held=dp:p\ncopy w of W\n")
    text = text.replace("mean g dp\nupdate w g", "mean g dp to=p\nupdate m g\nset w m\ntake w dp p")
    program = parse_program(text.replace("use w\n", "") + "use w\n")
    assert {decide(t).result for t in scripts(program)} == {"unsat"}
    wrong = parse_program(
        text.replace("set w m\ntake w dp p", "").replace("use w\n", "") + "use w\n"
    )
    assert {decide(t).result for t in scripts(wrong)} == {"sat"}


def _states(program):
    try:
        return "sat" if any(decide(t).result == "sat" for t in scripts(program)) else "unsat"
    except Outside:
        return None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(schema="x"), "the schema is not"),
        (lambda c: c.update(degrees={"dp": 0, "counts": 0}), "the degree bounds are {'dp': 1"),
        (lambda c: c.update(steps=[]), "nothing is compared, or not all"),
        (lambda c: c["steps"].pop(1), "W, rank .* at {'dp': 2}"),
        (lambda c: c["steps"][1].update(mean=False), "W, rank .* at {'dp': 2}"),
        (lambda c: c.pop("axes"), "has no meaning: KeyError"),
        (lambda c: c["steps"][0].update(op="run"), "there is no step run"),
        (lambda c: c["steps"][0].update(over=["xx"]), "has no meaning: KeyError"),
        (lambda c: c["table"].pop(), "the table is not that of the program at {'dp': 3}"),
        (lambda c: c["table"].append(c["table"][0]), "the table has more points"),
        (lambda c: c["table"][1].reverse(), "the table is not that of the program at {'dp': 2}"),
        (lambda c: c["table"][1][1].append("1"), "the table is not that of the program"),
        (lambda c: c.update(loops=["dp"]), "the names of axes and loops are not distinct"),
        (lambda c: c["normal_form"].update(V=c["normal_form"]["W"]), "nothing is compared, or not"),
    ],
)
def test_what_is_rejected(change, message):
    cert = certificate_of(parse_program(DATA, place="test"), "data")
    kernel.check(cert)
    change(cert)
    with pytest.raises(kernel.Rejected, match=message):
        kernel.check(cert)


PROGRAMS = {
    "micro-batches": """
axes dp
loops step mb
spec W = c[dp,mb]/(dp*mb)
copy m of W held=dp:p
loop step {
  loop mb {
    if mb.first: grad g = c[dp,mb] x=1/mb
    if mb.!first: grad g += c[dp,mb] x=1/mb
  }
  mean g dp to=p
  update m g
  tick
}
""",
    "tokens": """
axes dp
spec W = c[dp]/n
copy w of W
count k = n[dp]
sum k dp
grad g = c[dp] x=1/k
sum g dp
update w g
""",
    "clipping": """
axes dp
spec W = c[dp]/dp clip=norm
copy w of W held=dp:p
grad g = c[dp]
mean g dp to=p
square q = g
sum q dp
clip g by q
update w g
""",
    "contracts": """
axes tp
buffer y
if tp@!first: grad y = u[]
if tp@first: grad y = v[]
take y tp first
draw d = dropout vary=tp
apply z = f(y)
apply x = f(d)
set e d
expect e same d
expect y is v[]
expect z agree
expect z is f(v[])
""",
}

HARMLESS = {
    ("tokens", "add"): "adding to nothing is writing",
    ("clipping", "add"): "adding to nothing is writing",
    ("contracts", "add"): "adding to nothing is writing",
    ("clipping", "to"): "only the owner clips: the others need no norm",
    ("contracts", "at"): "what other ranks have is overwritten",
    ("contracts", "family"): "what other ranks have is overwritten",
    ("contracts", "over"): "what other ranks have is overwritten",
    ("contracts", "name"): "the draw has another name, wherever it is read",
    ("contracts", "fn"): "a function that no contract names",
    ("contracts", "vary"): "a draw that no contract looks at",
    ("contracts", "factor"): "what other ranks have is overwritten",
    ("contracts", "dst"): "a buffer that no contract reads",
}
"""What may change in a certificate, which is then one of another program that is right too."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_corrupted_certificate_is_rejected(name):
    """Every number, word and list entry in turn; steps that are left out have their own test."""
    cert = certificate_of(parse_program(PROGRAMS[name]), name)
    assert kernel.check(cert)["compared"]
    for index, (path, corrupted) in enumerate(_corrupted(cert)):
        if path[0] == "table" and index % 5:
            continue
        word = next(part for part in reversed(path) if isinstance(part, str))
        if (name, word) in HARMLESS and path[0] == "steps":
            continue
        with pytest.raises(kernel.Rejected):
            kernel.check(corrupted)
            pytest.fail(f"accepted with another {path}")


def _corrupted(cert):
    for path, value in _leaves(cert):
        if path[0] == "claim" or path[-1] in ("op", "at"):
            continue
        other = copy.deepcopy(cert)
        place = other
        for part in path[:-1]:
            place = place[part]
        changed = {bool: lambda v: not v, int: lambda v: v + 1, str: lambda v: f"{v}x"}
        place[path[-1]] = changed.get(type(value), lambda _: "p")(value)
        yield path, other


def _leaves(tree, path=()):
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


WITHOUT = {
    "micro-batches": {(0, 0, 0), (0, 0, 1), (0, 1), (0, 2)},
    "tokens": {(0,), (1,), (2,), (3,), (4,)},
    "clipping": {(0,), (1,), (2,), (3,), (4,), (5,)},
    "contracts": {(2,), (3,), (4,), (5,), (7,), (9,), (11,)},
}
"""Steps that matter: not ticks of one step, draws that no contract reads, contracts."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_certificate_without_a_step_is_rejected(name):
    cert = certificate_of(parse_program(PROGRAMS[name]), name)
    for path in WITHOUT[name]:
        other = copy.deepcopy(cert)
        _drop(other["steps"], path)
        with pytest.raises(kernel.Rejected):
            kernel.check(other)
            pytest.fail(f"accepted without step {path}")


NEARLY = {
    "zero at three sizes": "spec W = d[dp]\ngrad g = d[dp]\nsum g dp\n"
    "grad g += c[dp] x=(dp-1)*(dp-2)*(dp-3)",
    "one at three sizes": "spec W = c[dp]\ngrad g = c[dp] x=1+(dp-1)*(dp-2)*(dp-3)/7\nsum g dp",
    "counts that are alike": "spec W = c[dp]/n\ncount o = n[dp]\ncount k = m[dp]\nsum k dp\n"
    "grad g = c[dp] x=1/k\nsum g dp",
    "a third rank": "spec W = c[dp]\ngrad g = c[dp]\nsum g dp\nif dp@!p and dp@!q: zero g",
    "owners that coincide": "spec W = c[dp]\ngrad g = c[dp]\nsum g dp\nif dp@p and dp@q: zero g",
}
"""Programs that are right at a few points only."""


def _nearly(name):
    return parse_program(f"axes dp\ncopy w of W\n{NEARLY[name]}\nupdate w g\n")


@pytest.mark.parametrize("name", NEARLY)
def test_agreement_at_a_few_points_is_not_enough(name):
    with pytest.raises(kernel.Rejected):
        kernel.check(certificate_of(_nearly(name), "x"))


def _few_sizes(cert, degrees):
    return ((s, at) for s, at in grid(cert, degrees) if max(s.values()) < 4)


def _apart(cert, degrees):
    return ((s, at) for s, at in grid(cert, degrees) if len(set(at.values())) == len(at))


SABOTAGE = {
    "zero at three sizes": ("grid", _few_sizes),
    "counts that are alike": ("simplex", lambda count, degree: [(0,) * count]),
    "owners that coincide": ("grid", _apart),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_kernel_that_looks_at_fewer_points_accepts_too_much(name, monkeypatch):
    function, broken = SABOTAGE[name]
    monkeypatch.setattr(kernel, function, broken)
    assert kernel.check(certificate_of(_nearly(name), "x"))["compared"]


@pytest.mark.parametrize(
    "body",
    [
        "grad g += c[dp,mb]\n scale g 1/2",
        "grad g += c[dp,mb]\n sum g dp",
        "set h g\n add g h\n grad g += c[dp,mb]",
    ],
)
def test_turns_that_do_not_repeat_are_not_taken_for_any_number(body):
    text = f"axes dp\nloops mb\nbuffer g\nbuffer h\nloop mb {{\n {body}\n}}\nexpect h is d[]\n"
    cert = certificate_of(parse_program(DATA), "data")
    outlined = outline(parse_program(text.replace("expect h is d[]", "expect h same h")), "turns")
    with pytest.raises(kernel.Undecided, match="the turns of mb do not repeat"):
        kernel.check(
            {**cert, **outlined, "degrees": {"dp": 0, "mb": 0, "counts": 0}, "table": TABLE}
        )


class _Any(list):
    """A table that agrees with whatever it is compared with."""

    def __iter__(self):
        while True:
            yield self

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = None


TABLE = _Any()


def test_numbers_bound_the_degrees_of_what_they_are():
    one, size = Num(Fraction(1), (0,)), Num(Fraction(3), (1,))
    assert (size * size + one).top == (2,)
    quotient = one / size + one / (size + one)
    assert quotient.at == Fraction(7, 12) and quotient.top == (1,)
    assert [degrees for _, degrees in quotient.under] == [(1,), (1,)]
    assert (one / size + one / size).top == (0,), "one denominator"
    assert (one / (one / size)).top == (1,)


def test_the_points_are_those_that_the_bounds_ask_for():
    cert = {"axes": ["a"], "loops": [], "owners": {"a": ["p", "q", "first"]}, "counts": {}}
    cert |= {"steps": [{"op": "tick"}], "normal_form": {}}
    points = list(grid(cert, {"a": 1, "counts": 0}))
    assert {sizes["a"] for sizes, _ in points} == set(range(1, 7))
    apart = [at for sizes, at in points if len(set(at.values())) == 3 and sizes["a"] == 3]
    assert len(apart) == 1, "alike but for which coincide"
    assert len([at for sizes, at in points if sizes["a"] == 6]) == 5
    assert len(list(simplex(3, 2))) == 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DATA.replace("update w g\n", ""), "nothing is computed"),
        (DATA.replace("mean g dp", "flag f = b[dp]\nmax f dp\nmean g dp"), "flags"),
        (DATA.replace("mean g dp", "apply g = sqrt(g)"), "the function sqrt"),
        (DATA.replace("use w\n", "use w\napply h = f(w)\nset h2 h\n"), "a copy mixed"),
    ],
)
def test_programs_outside_the_core(text, reason):
    with pytest.raises(Outside, match=reason):
        certificate_of(parse_program(text, place="t"), "x")


@pytest.mark.parametrize("part", [Guard, Source, Update, Expect, Term, Program])
def test_what_a_part_says_beyond_what_is_read_is_outside(part):
    """A field that the lowering does not know, set: a certificate would be of another program."""
    program = parse_program(DATA)
    assert not list(unread(program))
    wider = make_dataclass(
        part.__name__, [("later", str, field(default=""))], bases=(part,), frozen=True
    )
    names = [slot.name for slot in fields(part)]
    for said in ("", "soon"):
        found = next(p for p in _parts(program, part))
        other = wider(**{name: getattr(found, name) for name in names}, later=said)
        assert list(unread(other)) == ([f"{part.__name__.lower()} later"] if said else [])


def _parts(thing, part):
    """Parts of a program of one class; a contract of its own, as the program has none."""
    if part is Expect:
        yield Expect("g", "agree")
    if isinstance(thing, part):
        yield thing
    for slot in fields(thing):
        value = getattr(thing, slot.name)
        for inner in value if isinstance(value, tuple) else (value,):
            if is_dataclass(inner):
                yield from _parts(inner, part)


def test_the_kernel_imports_nothing_of_the_package_but_itself():
    for path in (ROOT / "placement_proofs/prove/kernel").glob("*.py"):
        for line in path.read_text().splitlines():
            if line.startswith(("from ", "import ")) and "placement_proofs" in line:
                assert line.startswith("from placement_proofs.prove.kernel."), (path.name, line)


def test_the_command_uses_no_solver():
    code = (
        "import sys; from placement_proofs.cli import main; "
        f"code = main(['verify-certificate', {str(HOME / 'zero.json')!r}]); "
        "assert not {'z3', 'cvc5', 'sympy', 'numpy'} & set(sys.modules), 'a solver is loaded'; "
        "sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0 and "accepted  " in ran.stdout, ran.stderr


def test_the_command_rejects(tmp_path, capsys):
    cert = certificate_of(parse_program(DATA, place="test"), "data")
    cert["steps"][1]["mean"] = False
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(cert))
    assert main(["verify-certificate", str(path)]) == 1
    assert "rejected  data" in capsys.readouterr().out
    path.write_text("[]")
    assert main(["verify-certificate", str(path)]) == 2
