"""Traps: each of these once gave a false proof or a false alarm in a trial of the prover."""

from __future__ import annotations

import pytest
from agreement import agreement

from placement_proofs.program.text import parse_program
from placement_proofs.prove import prove
from placement_proofs.prove.algebra import ONE, Atoms, Count, Size, number
from placement_proofs.prove.compare import Comparer
from placement_proofs.prove.forms import Algebra, Positions, Symbol, Symbols, plus, times
from placement_proofs.prove.text import poly_text
from placement_proofs.verdict import Verdict

W = "spec W = c[dp]/dp; copy w of W; "


def verdict(text: str) -> Verdict:
    """The verdict, after checking that the replay agrees."""
    found = agreement(parse_program(text))
    assert not found.trouble
    return found.result.verdict


def test_first_is_last_at_size_one() -> None:
    """Two stages with half of the gradient each are one stage with all of it at size 1."""
    text = (
        "axes pp; spec E = x[] + y[]; copy e of E; buffer g; zero g\n"
        "if pp@first: grad g += x[]; if pp@last: grad g += y[]\n"
    )
    assert verdict(text + "sum g pp; update e g") is Verdict.PROVED
    assert verdict(text + "update e g") is Verdict.REFUTED
    program = parse_program(text + "update e g")
    assert prove(program, sizes={"pp": 1}).verdict is Verdict.PROVED


def test_a_position_guard_on_a_held_axis() -> None:
    """Only the first owner runs the step: other elements never see it."""
    text = "axes dp; spec W = c[dp]; copy w of W held=dp:p; grad g = c[dp]; sum g dp to=p\n"
    assert verdict(text + "if dp@first: scale g 2; update w g") is Verdict.REFUTED
    assert verdict(text + "if dp@p: scale g 1; update w g") is Verdict.PROVED
    assert verdict(text + "if dp@p: scale g 2; update w g") is Verdict.REFUTED
    assert verdict(text + "if dp@!p: scale g 2; update w g") is Verdict.PROVED


def test_only_the_first_rank_updates_its_shard() -> None:
    text = (
        "axes dp; spec W = c[dp]; copy w of W held=dp:p\n"
        "loop s { use w; grad g = c[dp]; sum g dp to=p; if dp@first: update w g; tick }"
    )
    assert verdict(text) is Verdict.REFUTED


def test_the_specification_moves_on_without_the_ranks() -> None:
    """An update that was dropped: nothing is compared unless the clock is its own."""
    text = "axes dp; " + W + "loop s { use w; grad g = c[dp]; mean g dp; tick }"
    assert verdict(text) is Verdict.REFUTED


def test_a_gradient_may_be_stored_larger_than_its_parameter() -> None:
    text = "axes dp; spec W = c[dp]/dp; copy w of W held=dp:p; grad g = c[dp]; mean g dp;"
    assert verdict(text + "update w g") is Verdict.PROVED
    assert verdict(text + "slice g dp; update w g") is Verdict.PROVED


def test_a_gradient_smaller_than_its_parameter_updates_a_part() -> None:
    text = "axes dp; " + W + "loop s { use w; grad g = c[dp]; mean g dp to=p; update w g; tick;"
    assert verdict(text + "gather w dp }") is Verdict.PROVED
    assert verdict(text + "}") is Verdict.REFUTED


def test_a_forgotten_gather_before_use_is_seen() -> None:
    text = "axes dp; " + W + "copy m of W held=dp:p; loop s { set w m; gather w dp; use w; tick }"
    wrong = text.replace("gather w dp; ", "").replace("tick", "grad g = c[dp]; tick")
    assert verdict(wrong) is Verdict.REFUTED


def test_summing_different_shards_is_harmless_only_at_size_one() -> None:
    text = "axes dp; spec W = c[]; copy w of W held=dp:p; grad g = c[] held=dp:p; sum g dp;"
    assert verdict(text + "update w g") is Verdict.REFUTED
    assert prove(parse_program(text + "update w g"), sizes={"dp": 1}).verdict is Verdict.PROVED


LOOP = "axes dp; spec W = c[mb]; copy w of W; grad t = z[]; zero t; set g t\nloop mb { BODY }\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("grad g += c[mb]", Verdict.PROVED),
        ("grad t = c[mb]; add g t", Verdict.PROVED),
        ("grad t = c[mb]; set g t", Verdict.REFUTED),
        ("set g t; grad t = c[mb]; add g t", Verdict.REFUTED),
        ("grad g += c[mb]; if mb.!first: scale g 1/2", Verdict.REFUTED),
        ("grad g += c[mb]; if mb.last: scale g 2", Verdict.REFUTED),
        ("if mb.!last: grad g += c[mb]; if mb.last: grad g += c[mb]", Verdict.PROVED),
        ("if mb.!last: grad g += c[mb]", Verdict.REFUTED),
        ("grad t = c[mb]; add g t; scale t 0; add g t", Verdict.PROVED),
        ("grad t = c[mb]; add t g; set g t", Verdict.PROVED),
        ("add g t; grad t = c[mb]; if mb.last: add g t", Verdict.PROVED),
    ],
)
def test_loops_that_look_alike_for_two_turns(body: str, expected: Verdict) -> None:
    """A sliding window of two turns is right at one and two turns, and wrong at three."""
    text = LOOP.replace("BODY", body) + "update w g"
    assert verdict(text) is expected


def test_a_loop_without_an_induction_is_bounded() -> None:
    body = "add g t; grad t = c[mb]; if mb.last: add g t"
    result = prove(parse_program(LOOP.replace("BODY", body) + "update w g"))
    assert result.verdict is Verdict.PROVED
    cover = result["gradient_integrity"].covers
    assert "1 to 3 turns of mb" in cover
    more = prove(parse_program(LOOP.replace("BODY", body) + "update w g"), sizes={"mb": 5})
    assert more.verdict is Verdict.PROVED
    assert "mb = 5" in more["gradient_integrity"].covers
    far = prove(parse_program(LOOP.replace("BODY", body) + "update w g"), sizes={"mb": 500})
    assert far.verdict is Verdict.UNKNOWN
    assert far.reason == "loop mb was only unrolled to 3 turns, not 500"


def test_one_over_the_own_count_is_not_the_count_of_another() -> None:
    text = "axes dp; spec W = c[dp]/n; copy w of W; count k = n[dp]; "
    assert verdict(text + "grad g = c[dp] x=1/k; mean g dp; update w g") is Verdict.REFUTED
    assert verdict(text + "sum k dp; grad g = c[dp] x=1/k; sum g dp; update w g") is Verdict.PROVED
    assert verdict(text + "mean k dp; grad g = c[dp] x=1/k; mean g dp; update w g") is (
        Verdict.PROVED
    )
    late = "grad g = c[dp] x=k; sum g dp; sum k dp; scale g 1/(k*k); update w g"
    assert verdict(text + late) is Verdict.REFUTED


def test_a_count_weighted_mean_is_exact() -> None:
    """Sum of k_i times (1/k_i) c_i over the sum of k_i: the own counts cancel."""
    text = (
        "axes dp; spec W = c[dp]/n; copy w of W; count k = n[dp]; grad g = c[dp] x=1/k\n"
        "scale g k; sum g dp; sum k dp; scale g 1/k; update w g"
    )
    assert verdict(text) is Verdict.PROVED


def test_scaling_after_a_broadcast_uses_the_right_row() -> None:
    text = (
        "axes dp; spec W = c[dp]/n; copy w of W; count k = n[dp]; grad g = c[dp]; scale g 1/k\n"
        "take g dp first; update w g"
    )
    assert verdict(text) is Verdict.REFUTED


def test_two_positions_that_may_coincide() -> None:
    """The owner may be the first rank: both cases are run."""
    text = (
        "axes dp; spec W = c[]; copy w of W; buffer g; zero g\n"
        "if dp@first: grad g += c[]; take g dp p; update w g"
    )
    assert verdict(text) is Verdict.REFUTED
    assert verdict(text.replace("take g dp p", "take g dp first")) is Verdict.PROVED


def test_copies_updated_alike_but_wrong_are_consistent() -> None:
    """A wrong factor is a gradient fault, not also a state fault in every later step."""
    text = "axes dp; " + W + "loop s { use w; grad g = c[dp]; sum g dp; update w g; tick }"
    result = prove(parse_program(text))
    assert result["gradient_integrity"].verdict is Verdict.REFUTED
    assert result["state_consistency"].verdict is Verdict.PROVED
    assert "any number of turns of s" in result["state_consistency"].covers


def test_a_stale_gradient_of_the_step_before() -> None:
    text = (
        "axes dp; spec W = c[dp]/dp; copy w of W; grad h = z[]; zero h\n"
        "loop s { use w; set g h; grad h = c[dp]; mean h dp; update w g; tick }"
    )
    assert verdict(text) is Verdict.REFUTED


def test_too_many_cases_are_unknown_and_fewer_are_decided() -> None:
    axes = [f"a{i}" for i in range(9)]
    guards = "".join(f"if {axis} > 1: scale g 1\n" for axis in axes)
    text = f"axes {' '.join(axes)}; spec W = c[]; copy w of W; grad g = c[]\n{guards}update w g"
    result = prove(parse_program(text))
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason.startswith("more than 96 size classes")
    given = prove(parse_program(text), sizes=dict.fromkeys(axes[:5], 2))
    assert given.verdict is Verdict.PROVED
    assert "a0 = 2" in given["gradient_integrity"].covers


def test_an_update_after_the_tick_is_not_lost_between_turns() -> None:
    text = (
        "axes dp; spec W = c[dp]/dp; copy w of W; copy v of W\n"
        "loop s { grad g = c[dp]; mean g dp; tick; update w g; if s.!first: update v g }"
    )
    assert verdict(text) is Verdict.REFUTED


def test_epochs_around_steps_are_bounded() -> None:
    step = "loop s { use w; grad g = c[dp]; mean g dp; update w g; tick }"
    text = f"axes dp; {W} loop epoch {{ {step} }}"
    assert verdict(text) is Verdict.PROVED
    cover = prove(parse_program(text))["state_consistency"].covers
    assert "1 to 3 turns of epoch" in cover


# --- the algebra, by itself ----------------------------------------------------------


def table() -> tuple[Atoms, Symbols, Algebra]:
    """A fresh algebra without known positions."""
    atoms = Atoms()
    symbols = Symbols(atoms)
    return atoms, symbols, Algebra(symbols, Positions(frozenset(), frozenset()))


def test_sums_of_all_tags() -> None:
    atoms, symbols, algebra = table()
    size = atoms.poly(Size("a"))
    c = symbols.id(Symbol("contribution", "c", 0, ("a",)))
    own, all_, owner = ("a", "=", "="), (), ("a", "", "p")
    rank, both = ("a", "p", ""), ("a", "p", "p")
    sums = {
        (own,): {(c, all_): ONE},
        all_: {(c, all_): size},
        (owner,): {(c, (owner,)): size},
        (rank,): {(c, all_): ONE},
        (both,): {(c, (owner,)): ONE},
    }
    for tags, expected in sums.items():
        assert algebra.sum({(c, tags): ONE}, "a", size) == expected
    takes = {
        (own,): {(c, (owner,)): ONE},
        all_: {(c, all_): ONE},
        (rank,): {(c, all_): ONE},
        (both,): {(c, (owner,)): ONE},
    }
    for tags, expected in takes.items():
        assert algebra.take({(c, tags): ONE}, "a", "p") == expected
    assert algebra.at({(c, all_): ONE}, "a", "p") == {(c, (rank,)): ONE}
    assert algebra.at({(c, (own,)): ONE}, "a", "p") == {(c, (both,)): ONE}


def test_conditions_depend_on_each_other_on_short_axes() -> None:
    """At size 2, I = 1 - R - O + 2P; at size 3 it is not."""
    atoms, symbols, _ = table()
    assert atoms.atoms == []
    c = symbols.id(Symbol("contribution", "c", 0, ("a",)))
    form = {(c, (("a", "=", "="),)): ONE}
    other = plus({(c, ()): ONE}, times({(c, (("a", "p", ""),)): ONE}, number(-1)))
    other = plus(other, times({(c, (("a", "", "p"),)): ONE}, number(-1)))
    other = plus(other, {(c, (("a", "p", "p"),)): number(2)})
    for size, same in ((2, True), (3, False), (1, False)):
        positions = Positions(frozenset(), frozenset())
        compare = Comparer(symbols, positions, {"a": size}, frozenset())
        assert compare.equal(form, other, {}) is (same or size == 1)
    assert not Comparer(symbols, positions, {}, frozenset()).equal(form, other, {})


def test_inverses_of_sums_are_cleared() -> None:
    atoms = Atoms()
    a, b = atoms.poly(Size("a")), atoms.poly(Size("b"))
    inverse = atoms.inverse(a + b)
    left = a * inverse + b * inverse
    assert left != ONE
    assert not atoms.cleared(left - ONE)
    assert atoms.cleared(left - number(2))


def test_own_counts_become_totals_only_alone() -> None:
    atoms = Atoms()
    own = atoms.poly(Count("n", 0, (), (("a", "r"),)))
    size = atoms.poly(Size("a"))
    total = atoms.poly(Count("n", 0, (), ()))
    assert atoms.row_sum(own, "a", size) == total
    assert atoms.row_sum(ONE, "a", size) == size
    squares = atoms.row_sum(own * own, "a", size)
    assert squares not in (total * total, total * own)
    assert poly_text(atoms, squares).startswith("sum_a(")
