"""Right programs are proved for all sizes, quickly, and certified twice."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest
from written_programs import RIGHT, right

from placement_proofs.program.text import parse_program
from placement_proofs.prove import certificate, find_repairs, prove
from placement_proofs.verdict import Verdict

FIVE_AXES = """
axes pp dp cp tp ep
spec W = c[dp,cp,tp,ep,mb]/(dp*cp*ep*mb) clip=all
spec N = d[dp,cp,tp,ep,mb]/(dp*cp*ep*mb) clip=all
spec E = x[dp,cp,ep,mb]/(dp*cp*ep*mb) + y[dp,cp,ep,mb]/(dp*cp*ep*mb) clip=all
copy w of W held=pp:s,dp:p,cp:p,ep:p
copy n of N held=dp:p
copy nn of N
copy e of E
buffer f
loop step {
  use w; use nn; use e
  zero f
  loop mb {
    if mb.first:  grad g  = c[dp,cp,tp,ep,mb] x=1/mb held=pp:s
    if mb.!first: grad g += c[dp,cp,tp,ep,mb] x=1/mb held=pp:s
    if mb.first:  grad h  = d[dp,cp,tp,ep,mb] x=1/mb
    if mb.!first: grad h += d[dp,cp,tp,ep,mb] x=1/mb
    if pp@first: grad f += x[dp,cp,ep,mb] x=1/mb
    if pp@last:  grad f += y[dp,cp,ep,mb] x=1/mb
  }
  sum g tp; mean g dp,cp,ep to=p
  sum h tp; mean h dp to=p; mean h cp,ep
  sum f pp; mean f dp,cp,ep
  square q = g; sum q pp,dp,cp,ep
  square r = h; sum r dp; add q r
  square u = f; add q u
  clip g h f by q
  update w g; update n h; update e f
  set nn n; gather nn dp
  tick
}
"""


@pytest.mark.parametrize("name", RIGHT)
def test_proved_for_all_sizes(name: str) -> None:
    program = right(name)
    result = prove(program)
    assert result.verdict is Verdict.PROVED, result.to_json()
    assert result.counterexample is None and find_repairs(program, result) == ()
    for _, condition in result.conditions:
        if condition.verdict is Verdict.PROVED:
            assert condition.obligations > 0
            assert "all sizes of" in condition.covers
            assert "turns of" not in condition.covers or "any number" in condition.covers
        else:
            assert condition.verdict is Verdict.NOT_APPLICABLE


def test_assumptions_are_stated() -> None:
    result = prove(right("mean of token means, equal counts"))
    assert result["gradient_integrity"].assumptions == ("equal counts n on all ranks and turns",)


def test_five_axes_with_micro_batches() -> None:
    program = parse_program(FIVE_AXES)
    result = prove(program)
    assert result.verdict is Verdict.PROVED
    assert result["norm_integrity"].verdict is Verdict.PROVED
    assert "all sizes of pp, dp, cp, tp, ep; any number of turns of step, mb" in (
        result["gradient_integrity"].covers
    )


def seconds(text: str, sizes: dict[str, int] | None = None, times: int = 5) -> float:
    """Processor time of the best of a few runs (the machine is shared)."""
    program = parse_program(text)
    found = []
    for _ in range(times):
        start = time.process_time()
        assert prove(program, sizes=sizes).verdict is Verdict.PROVED
        found.append(time.process_time() - start)
    return min(found)


def test_time_of_five_axes() -> None:
    assert seconds(FIVE_AXES) < 0.1


def test_time_does_not_depend_on_sizes() -> None:
    small = seconds(FIVE_AXES, {"dp": 2})
    large = seconds(FIVE_AXES, {"dp": 1_000_000})
    assert large < 2 * small + 0.01


def test_time_of_typical_programs() -> None:
    prove(right("data"))
    found = []
    for name in RIGHT:
        program = right(name)
        best = []
        for _ in range(3):
            start = time.process_time()
            prove(program)
            best.append(time.process_time() - start)
        found.append(min(best))
    assert statistics.median(found) < 0.02


def test_z3_is_not_imported_before_a_certificate() -> None:
    code = """
import sys
from placement_proofs.prove import prove, certificate
from placement_proofs.program.text import parse_program
program = parse_program("axes dp; spec W = c[dp]; copy w of W; use w")
prove(program, certify=False)
certificate(program)
assert "z3" not in sys.modules
prove(program)
assert "z3" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def certificates() -> dict[str, str]:
    """The certificates of all right programs."""
    found = {name: certificate(right(name)) for name in RIGHT}
    found["five axes"] = certificate(parse_program(FIVE_AXES))
    return found


def test_cvc5_agrees() -> None:
    cvc5 = pytest.importorskip("cvc5")
    for name, script in certificates().items():
        solver = cvc5.Solver()
        parser = cvc5.InputParser(solver)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, name)
        answers = []
        while not (command := parser.nextCommand()).isNull():
            answers.append(command.invoke(solver, parser.getSymbolManager()).strip())
        answers = [answer for answer in answers if answer]
        assert answers and set(answers) == {"unsat"}, name


def test_a_certificate_of_a_wrong_program_is_satisfiable() -> None:
    from placement_proofs.prove.smt import all_unsat

    text = "axes dp; spec W = c[dp]/dp; copy w of W; grad g = c[dp]; sum g dp; update w g"
    script = certificate(parse_program(text))
    assert script.startswith("(set-logic QF_NRA)")
    block = script.split("(push 1)\n")[1].split("(check-sat)")[0]
    assert all_unsat([block]) == "sat"
