"""The exact interpreter: small programs whose numbers can be checked by hand."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from placement_proofs.errors import IllFormed
from placement_proofs.program.text import parse_program
from placement_proofs.replay import replay, work


def mismatches(text: str, **sizes: int) -> list[tuple[str, object, object]]:
    """Condition, expected and got of every mismatch, in small primes."""
    outcome = replay(parse_program(text), sizes)
    return [(m.condition, m.expected, m.got) for m in outcome.mismatches]


MEAN = "axes dp; spec W = c[dp]/dp; copy w of W; grad g = c[dp]; mean g dp; update w g"


def test_free_values_are_primes_in_the_order_of_asking() -> None:
    # w is 2, the contributions are 3 and 5, the mean is 4
    assert mismatches(MEAN, dp=2) == []
    wrong = MEAN.replace("mean", "sum")
    assert mismatches(wrong, dp=2) == [("gradient_integrity", 4, 8)]
    assert mismatches(wrong, dp=1) == []


def test_fractions_are_exact() -> None:
    text = MEAN.replace("c[dp]/dp;", "c[dp]/(3*dp);")
    ((_, expected, got),) = mismatches(text, dp=2)
    assert (expected, got) == (Fraction(4, 3), 4)


def test_the_mismatch_names_rank_element_and_contributions() -> None:
    outcome = replay(parse_program(MEAN.replace("mean g dp; ", "")), {"dp": 2})
    found = outcome.failed("gradient_integrity")
    assert found is not None
    assert (found.rank, found.step, found.subject) == ((0,), (1,), "W")
    assert found.contributions == (("c[dp=0]", 3), ("c[dp=1]", 5))
    assert outcome.obligations == {"state_consistency": 1, "gradient_integrity": 1}


def test_stop_ends_at_the_first_mismatch() -> None:
    text = "axes dp; spec W = c[dp]; copy w of W; loop s { grad g = c[dp]; update w g; tick }"
    program = parse_program(text)
    assert len(replay(program, {"dp": 2, "s": 3}).mismatches) > 1
    assert len(replay(program, {"dp": 2, "s": 3}, stop=True).mismatches) == 1


def test_seeds_change_values_and_not_verdicts() -> None:
    program = parse_program(MEAN.replace("mean", "sum"))
    values = {replay(program, {"dp": 2}, seed).mismatches[0].got for seed in (1, 2, 3)}
    assert len(values) == 3


HOLD = "axes dp; spec W = c[dp]; copy w of W held=dp:p; use w; "


def test_summing_shards_mixes_elements() -> None:
    text = HOLD + "grad g = c[dp] sum=dp held=dp:p; sum g dp; update w g"
    assert mismatches(text, dp=1) == []
    assert [m[0] for m in mismatches(text, dp=2)] == ["gradient_integrity"]


def test_two_owners_are_two_layouts() -> None:
    text = HOLD + "grad g = c[dp]; sum g dp to=q; update w g"
    assert mismatches(text, dp=1) == []
    assert "gradient_integrity" in [m[0] for m in mismatches(text, dp=2)]


def test_a_broadcast_from_an_end() -> None:
    text = "axes dp; draw x = seed vary=dp; take x dp last; expect x agree"
    assert mismatches(text, dp=3) == []
    assert mismatches(text.replace("take x dp last; ", ""), dp=3) != []


def test_square_of_a_square_root_is_the_value() -> None:
    text = """axes dp; grad g = c[dp]; square q = g; apply r = sqrt(q); sum q dp
              apply s = square(r); sum s dp; expect s same q"""
    assert mismatches(text, dp=3) == []


def test_frozen_parameters_do_not_age() -> None:
    text = """axes dp; spec W = c[dp]; spec F = 0; copy w of W; copy f of F
              loop s { use f; use w; grad g = c[dp]; sum g dp; update w g; tick }"""
    assert mismatches(text, dp=2, s=3) == []


def test_a_missed_update_is_stale() -> None:
    text = "axes dp; spec W = c[dp]; copy w of W; loop s { use w; tick }"
    assert mismatches(text, dp=1, s=1) == []
    assert [m[0] for m in mismatches(text, dp=1, s=2)] == ["state_consistency"]


def test_layouts_do_not_mix() -> None:
    text = HOLD + "grad g = c[dp]; slice g dp; grad g += c[dp]; update w g"
    with pytest.raises(IllFormed, match="shards and full tensors do not mix"):
        replay(parse_program(text), {"dp": 2})
    replay(parse_program(text), {"dp": 1})


def test_division_by_a_scalar_that_is_zero() -> None:
    text = "axes dp; spec W = c[dp]; copy w of W; count k = n[dp]; zero k; grad g = c[dp] x=1/k"
    with pytest.raises(IllFormed, match="division by zero"):
        replay(parse_program(text + "; update w g"), {"dp": 2})


def test_work_counts_ranks_elements_and_turns() -> None:
    program = parse_program(HOLD.replace("use w;", "loop s { use w }"))
    assert work(program, {"dp": 3, "s": 2}) == 3 * 3 * 2


def test_replay_needs_the_standard_library_only() -> None:
    code = (
        "import sys; import placement_proofs.replay; "
        "bad = {'z3', 'sympy', 'numpy', 'placement_proofs.prove'} & set(sys.modules); "
        "sys.exit(', '.join(bad) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
