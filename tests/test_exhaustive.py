"""The one-axis space of 648 placements: the proofs are exactly the truths.

A brute force that shares only the list of points with the project trains a vector on N ranks, in
fractions, and compares it with one device at N = 2 and 3. The prover decides them for all N.

Conventions: contributions are plain sums and the factor is applied after the sync. `own`
needs parameters S, `split` and `same` need R or S*. Reduce-scatter needs a full gradient.
Stored gradients R need every element; an update needs its gradient and its parameter where
the optimizer state is. Publishing acts only on parameters R, elsewhere there is nothing to
publish and it changes nothing (with "cannot run" instead, the 32 below are 23).
"""

from __future__ import annotations

import functools
from collections import Counter
from fractions import Fraction

import pytest

from placement_proofs.prove import prove
from placement_proofs.replay import replay
from placement_proofs.theorems.placements import RUNNABLE, SPACE, Point, element_program
from placement_proofs.verdict import Verdict

# --- the independent brute force -----------------------------------------------------


def contribution(point: Point, step: int, rank: int, element: int) -> int:
    """Distinct numbers; alike on all ranks unless the batch is split."""
    who = rank if point.contribution == "split" else 0
    return (7 + 31 * step + 101 * element + 17 * who) ** 2 % 1009


def equals_one_device(point: Point, n: int, steps: int = 3) -> bool:
    """Train on n ranks and on one; compare what every rank reads in every step."""
    true = [Fraction(5 + 3 * e) for e in range(n)]
    full = point.parameters == "R"
    weights = [{e: true[e] for e in range(n) if full or e == rank} for rank in range(n)]
    for step in range(steps):
        seen = read(point, weights, n)
        if any(w != true[e] for view in seen for e, w in view.items()):
            return False
        weights = train(point, weights, seen, step, n)
        true = [true[e] - total(point, step, true[e], e, n) / 16 for e in range(n)]
    return all(w == true[e] for view in read(point, weights, n) for e, w in view.items())


def read(point: Point, weights: list[dict[int, Fraction]], n: int) -> list[dict[int, Fraction]]:
    """What each rank computes with: S* gathers from the owners first."""
    if point.parameters != "S*":
        return weights
    return [{e: weights[e][e] for e in range(n)} for _ in range(n)]


def total(point: Point, step: int, weight: Fraction, element: int, n: int) -> Fraction:
    """The gradient on one device."""
    ranks = range(n) if point.contribution == "split" else range(1)
    return sum((contribution(point, step, r, element) + weight for r in ranks), Fraction(0))


def train(
    point: Point,
    weights: list[dict[int, Fraction]],
    seen: list[dict[int, Fraction]],
    step: int,
    n: int,
) -> list[dict[int, Fraction]]:
    """One step of all ranks."""
    grads = [
        {e: contribution(point, step, rank, e) + w for e, w in seen[rank].items()}
        for rank in range(n)
    ]
    grads = synced(point, grads, n)
    scale = {"1": Fraction(1), "N": Fraction(n), "1/N": Fraction(1, n)}[point.factor]
    new = []
    for rank in range(n):
        mine = range(n) if point.optimizer == "R" else (rank,)
        view = dict(weights[rank])
        for e in mine:
            view[e] = view[e] - grads[rank][e] * scale / 16
        new.append(view)
    if point.publish and point.parameters == "R":
        owner = {e: new[e][e] for e in range(n)}
        new = [dict(owner) for _ in range(n)]
    return new


def synced(point: Point, grads: list[dict[int, Fraction]], n: int) -> list[dict[int, Fraction]]:
    """All-reduce adds buffers cell by cell, also when the cells are different shards."""
    if point.sync == "none":
        return grads
    if point.contribution == "own":
        mixed = sum((grads[r][r] for r in range(n)), Fraction(0))
        return [{rank: mixed} for rank in range(n)]
    sums = {e: sum((g[e] for g in grads), Fraction(0)) for e in range(n)}
    if point.sync == "all-reduce":
        return [dict(sums) for _ in range(n)]
    return [{rank: sums[rank]} for rank in range(n)]


# --- the same points as element programs ---------------------------------------------


@functools.cache
def verdicts(point: Point) -> tuple[Verdict, Verdict, Verdict]:
    """Overall verdict, gradient integrity and state consistency."""
    result = prove(element_program(point), certify=False)
    return (
        result.verdict,
        result["gradient_integrity"].verdict,
        result["state_consistency"].verdict,
    )


def test_the_space_has_648_points() -> None:
    assert len(SPACE) == 648


def test_brute_force_finds_32() -> None:
    right = [p for p in RUNNABLE if equals_one_device(p, 2) and equals_one_device(p, 3)]
    assert len(right) == 32
    strict = [p for p in right if not p.publish or p.parameters == "R"]
    assert len(strict) == 23


def test_proved_for_all_sizes_exactly_where_brute_force_agrees() -> None:
    for point in RUNNABLE:
        truth = equals_one_device(point, 2) and equals_one_device(point, 3)
        assert verdicts(point)[0] is (Verdict.PROVED if truth else Verdict.REFUTED), point


def test_both_conditions_together_are_necessary_and_sufficient() -> None:
    seen = Counter()
    for point in RUNNABLE:
        overall, gradient, state = verdicts(point)
        both = gradient is Verdict.PROVED and state is Verdict.PROVED
        assert both == (overall is Verdict.PROVED)
        seen[gradient, state] += 1
    assert seen[Verdict.REFUTED, Verdict.PROVED], "gradient integrity fails alone somewhere"
    assert seen[Verdict.PROVED, Verdict.REFUTED], "state consistency fails alone somewhere"
    assert seen[Verdict.PROVED, Verdict.PROVED] == 32


@pytest.mark.parametrize("n", [1, 2, 3])
def test_replay_agrees_with_the_brute_force(n: int) -> None:
    for point in RUNNABLE:
        outcome = replay(element_program(point), {"dp": n, "step": 3}, 1)
        assert (not outcome.mismatches) == equals_one_device(point, n), point


def test_certificates_of_the_proved_points() -> None:
    for point in RUNNABLE:
        if verdicts(point)[0] is Verdict.PROVED:
            assert prove(element_program(point)).verdict is Verdict.PROVED
