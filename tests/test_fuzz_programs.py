"""Prover and replay agree on random programs and on mutants of right ones.

The target of a random program is mostly what it computes, so that many are provable.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from agreement import agreement, agreement_at
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_groups import Groups
from random_programs import Maker
from written_programs import RIGHT, mutants, right

from placement_proofs.program import Program
from placement_proofs.program.text import format_program, parse_program
from placement_proofs.prove.algebra import Atoms
from placement_proofs.prove.compare import Comparer
from placement_proofs.prove.forms import Algebra
from placement_proofs.prove.state import State
from placement_proofs.verdict import Verdict

EASY = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A random program, every choice drawn."""
    return Maker(lambda options: draw(st.sampled_from(list(options)))).program()


def check(program: Program, seen: Counter[Verdict]) -> None:
    """Prover and replay agree, and the text form says the same."""
    found = agreement(program)
    seen[found.result.verdict] += 1
    assert not found.trouble, f"{found.trouble}\n{format_program(program)}"


def agree(examples: int) -> Counter[Verdict]:
    """Compare on that many random programs."""
    seen: Counter[Verdict] = Counter()

    @settings(EASY, max_examples=examples)
    @given(programs())
    def run(program: Program) -> None:
        check(program, seen)

    run()
    return seen


def provable(seen: Counter[Verdict]) -> float:
    """The proved part of the programs that mean something."""
    return seen[Verdict.PROVED] / (seen[Verdict.PROVED] + seen[Verdict.REFUTED])


def test_random_programs() -> None:
    seen = agree(1_000)
    assert provable(seen) >= 0.1, seen
    assert seen[Verdict.UNKNOWN] <= sum(seen.values()) // 100, seen


@st.composite
def programs_on_a_mesh(draw: st.DrawFn) -> tuple[Program, dict[str, int]]:
    """A random program and sizes for all its axes and loops."""
    program = draw(programs())
    sizes = st.sampled_from([1, 1, 2, 2, 3, 4])
    return program, {name: draw(sizes) for name in program.axes + program.loops}


def agree_at(examples: int) -> None:
    """Compare verdicts for given sizes with the replay at just those sizes."""

    @settings(EASY, max_examples=examples)
    @given(programs_on_a_mesh())
    def run(drawn: tuple[Program, dict[str, int]]) -> None:
        program, mesh = drawn
        trouble = agreement_at(program, mesh)
        assert not trouble, f"{trouble}\n{format_program(program)}"

    run()


def test_random_programs_at_given_sizes() -> None:
    agree_at(400)


@pytest.mark.deep
def test_many_random_programs_at_given_sizes() -> None:
    agree_at(20_000)


@st.composite
def grouped(draw: st.DrawFn) -> Program:
    """A random program of two parameter groups."""
    return Groups(lambda options: draw(st.sampled_from(list(options)))).grouped()


def agree_on_groups(examples: int) -> Counter[Verdict]:
    """Compare on programs with two groups, norms and clipping."""
    seen: Counter[Verdict] = Counter()

    @settings(EASY, max_examples=examples)
    @given(grouped())
    def run(program: Program) -> None:
        check(program, seen)

    run()
    return seen


def test_random_groups() -> None:
    seen = agree_on_groups(300)
    assert provable(seen) >= 0.1, seen
    assert not seen[Verdict.UNKNOWN], seen


@pytest.mark.deep
def test_many_random_groups() -> None:
    agree_on_groups(20_000)


SABOTAGE = {
    "a sum of alike values forgets the size": (
        Atoms,
        "row_sum",
        lambda self, poly, axis, size: poly,
    ),
    "a broadcast does nothing": (Algebra, "take", lambda self, form, axis, position: form),
    "a position guard does nothing": (Algebra, "at", lambda self, form, axis, position: form),
    "different values are equal": (Comparer, "equal", lambda self, got, want, layout: True),
    "shards that meet are lost": (State, "other", lambda self, kind, form, axis: {}),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_broken_prover_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, broken = SABOTAGE[name]
    monkeypatch.setattr(owner, method, broken)
    noticed = False
    for seed in range(600):
        rng = random.Random(seed)
        program = Maker(lambda options, rng=rng: rng.choice(list(options))).program()
        found = agreement(program)
        if found.trouble or found.result.verdict is Verdict.UNKNOWN:
            noticed = True
            break
    assert noticed


@pytest.mark.deep
def test_many_random_programs() -> None:
    seen = agree(50_000)
    assert provable(seen) >= 0.1, seen


@settings(EASY, max_examples=200)
@given(programs())
def test_text_round_trip(program: Program) -> None:
    text = format_program(program)
    try:
        again = parse_program(text)
    except ValueError:
        assert agreement(program).result.verdict is Verdict.ILL_FORMED
    else:
        assert format_program(again) == text


SMALL = [name for name in RIGHT if name != "clip with several groups"]


@pytest.mark.parametrize("name", SMALL)
def test_mutants(name: str) -> None:
    seen: Counter[Verdict] = Counter()
    for index, (_, mutant) in enumerate(mutants(right(name))):
        if index % 2 == 0:
            check(mutant, seen)
    assert seen[Verdict.REFUTED] > 0


@pytest.mark.deep
@pytest.mark.parametrize("name", RIGHT)
def test_all_mutants(name: str) -> None:
    seen: Counter[Verdict] = Counter()
    for _, mutant in mutants(right(name)):
        check(mutant, seen)
