"""The kernel: it accepts what is right, rejects what is not, and needs no solver."""

import copy
import json
import random
import subprocess
import sys
from collections import Counter

import pytest
from random_programs import Maker

from placement_proofs.cli import main
from placement_proofs.errors import IllFormed
from placement_proofs.program import validate
from placement_proofs.program_text import format_program, parse_program
from placement_proofs.prove import kernel, prove
from placement_proofs.prove.core import Outside, certificate_of, work
from placement_proofs.prove.smt import decide
from placement_proofs.prove.uninterpreted import script
from placement_proofs.theorems.placements import RUNNABLE, element_program
from placement_proofs.theories import all_theories
from placement_proofs.verdict import Verdict

HOME = all_theories()[0].parent / "certificates"
CERTS = [cert for path in sorted(HOME.iterdir()) for cert in json.loads(path.read_text())]

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
    assert len(CERTS) > 30
    for cert in CERTS:
        assert kernel.check(cert)["compared"] > 0, cert["claim"]


@pytest.mark.parametrize("index", range(0, len(CERTS), 4))
def test_a_certificate_without_one_of_its_steps_is_rejected_or_still_right(index):
    """Dropping a step that matters is noticed; sums that are idempotent stay right."""
    steps = CERTS[index]["steps"]
    for path in _paths(steps):
        cert = copy.deepcopy(CERTS[index])
        _drop(cert["steps"], path)
        with pytest.raises(kernel.Rejected):
            kernel.check(cert)


def _paths(steps, prefix=()):
    """Reductions: every one of them matters in the stored certificates."""
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
    for program in _random(300):
        result = prove(program, certify=False, everywhere=False)
        gradient = result["gradient_integrity"].verdict
        if (said := _kernel(program)) is not None:
            assert said is gradient, format_program(program)
            seen["kernel", said] += 1
        if gradient is Verdict.PROVED and (told := _states(program)) is not None:
            wrong = {result[c].verdict for c in ("state_consistency", "optimizer_class")}
            assert (told == "sat") == (Verdict.REFUTED in wrong), format_program(program)
            seen["states", told] += 1
    assert min(seen["kernel", v] for v in (Verdict.PROVED, Verdict.REFUTED)) > 20
    assert seen["states", "unsat"] > 20


def _random(count):
    choose = random.Random(11)
    while count:
        try:
            program = Maker(lambda options: choose.choice(list(options))).program()
            validate(program)
        except IllFormed:
            continue
        if prove(program, certify=False, everywhere=False).verdict is not Verdict.ILL_FORMED:
            count -= 1
            yield program


def _kernel(program):
    try:
        cert = certificate_of(program, "random")
        if work(cert) > 10_000:
            return None
        kernel.check(cert)
    except Outside:
        return None
    except kernel.Rejected:
        return Verdict.REFUTED
    return Verdict.PROVED


def _states(program):
    try:
        return decide(script(program)).result
    except Outside:
        return None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(schema="x"), "the schema is not"),
        (lambda c: c.update(degrees={"dp": 0}), "the degree bounds are {'dp': 2}, not"),
        (lambda c: c.update(steps=[]), "the degree bounds are {'dp': 0}"),
        (lambda c: c.update(steps=[], degrees={"dp": 0}), "nothing is compared"),
        (lambda c: c["steps"].pop(1), "W at {'dp': 2}, rank"),
        (lambda c: c["steps"][1].update(mean=False), "the degree bounds|W at"),
        (lambda c: c.pop("axes"), "has no meaning: KeyError"),
        (lambda c: c["steps"][0].update(op="run"), "there is no step run"),
        (lambda c: c["steps"][0].update(over=["xx"]), "xx is no axis"),
    ],
)
def test_what_is_rejected(change, message):
    cert = certificate_of(parse_program(DATA, place="test"), "data")
    kernel.check(cert)
    change(cert)
    with pytest.raises(kernel.Rejected, match=message):
        kernel.check(cert)


@pytest.mark.parametrize(
    ("more", "reason"), [("count k = n[dp]\n", "token counts"), ("", "no update")]
)
def test_programs_outside_the_core(more, reason):
    text = DATA.replace("update w g\n", more)
    with pytest.raises(Outside, match=reason):
        certificate_of(parse_program(text, place="t"), "x")


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
