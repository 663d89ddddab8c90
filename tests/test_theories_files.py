"""The generated files beside the theories, and what they are good for."""

import json
import re
import statistics

import pytest

from placement_proofs.prove.smt import decide, has_cvc5
from placement_proofs.theories import all_theories, read_theory
from placement_proofs.theories.exports import EFFORT, files
from placement_proofs.theories.obligations import answer, scripts, second_answer
from placement_proofs.verdict import Verdict

HOME = all_theories()[0].parent
THEORIES = [read_theory(path) for path in all_theories()]
CLAIMS = [(t, c) for t in THEORIES for c in t.claims]
SCRIPTS = {s.text: s for _, c in CLAIMS for s in scripts(c)}

REGRESSION = 1.5
"""A resource count may grow by this factor before the test says so."""


@pytest.fixture(scope="module")
def generated():
    return files(THEORIES)


def test_the_files_are_those_that_the_theories_give(generated):
    stored = {
        str(path.relative_to(HOME)): path.read_text()
        for folder in ("smt2", "certificates")
        for path in (HOME / folder).iterdir()
    }
    made = {name: text for name, text in generated.items() if name != EFFORT}
    assert stored.keys() == made.keys(), "run: placement-proofs prove --all --export theories"
    for name, text in made.items():
        assert stored[name] == text, f"{name}: run placement-proofs prove --all --export theories"


def test_no_obligation_takes_much_more_effort_than_recorded(generated):
    recorded, now = json.loads((HOME / EFFORT).read_text()), json.loads(generated[EFFORT])
    assert recorded.keys() == now.keys()
    worse = {k: (recorded[k], n) for k, n in now.items() if n > REGRESSION * recorded[k] + 500}
    assert not worse


def test_a_regression_would_be_noticed():
    easy = decide("(declare-const x Real)\n(assert (> x 0.0))\n(assert (< x 0.0))\n").effort
    hard = max(answer(text).effort for text in SCRIPTS)
    assert hard > REGRESSION * easy + 500


def test_scripts_have_a_status_each_and_no_datatypes():
    for path in (HOME / "smt2").iterdir():
        text = path.read_text()
        checks = text.count("(check-sat)")
        assert checks and checks == len(re.findall(r"\(set-info :status (?:un)?sat\)", text)), path
        assert "declare-datatype" not in text
        if path.stem.endswith("qf_nra") and not path.stem.startswith("headline"):
            assert not re.search(r"\(/ [^)]*x\d", text), "denominators are cleared"


@pytest.mark.skipif(not has_cvc5(), reason="cvc5 is in the extra certify")
def test_cvc5_decides_every_obligation_alike():
    for script in SCRIPTS.values():
        assert second_answer(script.text, script.logic) == answer(script.text).result, script


@pytest.mark.skipif(not has_cvc5(), reason="cvc5 is in the extra certify")
@pytest.mark.parametrize("logic", ["QF_UF", "QF_LRA"])
def test_cvc5_gives_proofs_where_its_proofs_are_complete(logic):
    cvc5 = pytest.importorskip("cvc5")
    proved = 0
    for script in (s for s in SCRIPTS.values() if s.logic == logic):
        solver = cvc5.Solver(cvc5.TermManager())
        for option in ("produce-proofs", "check-proofs"):
            solver.setOption(option, "true")
        names = cvc5.SymbolManager(solver.getTermManager())
        parser = cvc5.InputParser(solver, names)
        text = f"(set-logic {logic})\n{script.text}(check-sat)\n"
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
        said = ""
        while not (command := parser.nextCommand()).isNull():
            said += str(command.invoke(solver, names))
        if said.strip() == "unsat":
            assert solver.getProof()
            proved += 1
    assert proved > 3


def test_premises_can_be_met():
    """Without its goal, the last assertion, no script is unsatisfiable: nothing holds vacuously."""
    for script in SCRIPTS.values():
        premise, _, goal = script.text.rpartition("(assert ")
        assert goal and decide(premise).result == "sat", script


def test_seeds_do_not_matter():
    for script in SCRIPTS.values():
        answers = [answer(script.text, seed) for seed in range(10)]
        assert len({a.result for a in answers}) == 1, script
        counts = [a.effort for a in answers]
        assert statistics.pstdev(counts) < 0.2 * statistics.mean(counts), (script, counts)


def test_states_are_decided_by_congruence_as_by_the_prover():
    """QF_UF alone agrees with the verdicts: unsat for every proved claim, sat for stale copies."""
    seen = {"unsat": 0, "sat": 0}
    for _, claim in CLAIMS:
        answers = {answer(s.text).result for s in scripts(claim) if s.logic == "QF_UF"}
        if claim.subject is None or not answers:
            continue
        if claim.verdict is Verdict.PROVED:
            assert answers == {"unsat"}, claim.name
            seen["unsat"] += 1
        elif claim.condition in ("state_consistency", "optimizer_class"):
            assert "sat" in answers, claim.name
            seen["sat"] += 1
    assert seen["unsat"] > 10 and seen["sat"] > 3
