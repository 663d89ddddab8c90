"""Rankings against brute force; explanations that add up; changes that do flip the winner."""

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_proofs.cost import symbols
from placement_proofs.cost.symbols import symbol
from placement_proofs.cost.tape import tape
from placement_proofs.layouts.bill import bill, decided
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.forms import forms
from placement_proofs.layouts.jobs import with_tokens
from placement_proofs.layouts.planned import planned, remedies
from placement_proofs.layouts.rank import (
    FIGURES,
    compared,
    faster_with_more,
    pareto,
    ranked,
    runner_up,
)
from placement_proofs.layouts.setting import Job
from placement_proofs.layouts.space import Choices
from placement_proofs.zoo import PRESETS

JOB = Job("llama-13b", PRESETS["llama-13b"], 512, 32, load_machine("a100-80gb"))
FEW = Choices(chunks=(1, 2), zero=(1,), recompute=("none", "full"), context=(1,))
CONSTANTS = replace(Constants(), launch=3e-6)


@pytest.fixture(scope="module")
def plan():
    return planned(JOB, CONSTANTS, FEW)


def test_what_fits_is_ranked_by_time_then_memory(plan):
    table = plan.table
    fits = [i for i in range(len(table)) if table.peak[i] <= plan.limit]
    assert 0 < len(fits) < len(table) and sorted(map(int, plan.order)) == fits
    key = [(float(f"{table.step[i]:.8e}"), table.peak[i]) for i in plan.order]
    assert key == sorted(key)


@dataclass(frozen=True)
class Drawn:
    """Memory and times of a table, without layouts."""

    peak: np.ndarray
    step: np.ndarray


SMALL = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12)


@given(SMALL, st.integers(1, 6))
def test_ranking_and_front_of_any_numbers_are_those_of_brute_force(pairs, limit):
    """With ties of memory, of time, and of both; step times differ in the last digits."""
    peak = np.array([p for p, _ in pairs], dtype=float)
    step = np.array([s * (1 + i * 1e-15) for i, (_, s) in enumerate(pairs)])
    table = Drawn(peak, step)
    fits = [i for i, (p, _) in enumerate(pairs) if p <= limit]
    wanted = sorted(fits, key=lambda i: (pairs[i][1], pairs[i][0]))
    found = [int(i) for i in ranked(table, limit)]
    assert [pairs[i] for i in found] == [pairs[i] for i in wanted]
    assert sorted(found) == fits
    front = {pairs[int(i)] for i in pareto(table)}
    assert front == {
        (p, s)
        for p, s in pairs
        if not any((q <= p and t < s) or (q < p and t <= s) for q, t in pairs)
    }
    assert len(pareto(table)) == len(front), "equal ones are there once"
    second = runner_up(table, ranked(table, limit))
    slower = [pairs[i] for i in wanted if pairs[i][1] > pairs[wanted[0]][1]]
    assert (None if second is None else pairs[second]) == (slower[0] if slower else None)


def test_columns_and_rows_of_a_table_agree(plan):
    for row in random.Random(3).sample(range(len(plan.table)), 8):
        layout, proof = plan.table.at(row)
        assert plan.table.column("t")[row] == layout.tensor
        assert plan.table.column("b")[row] == layout.micro_batch
        assert layout.world == JOB.gpus and proof.verdict.value == "proved"
        found = bill(layout, JOB, CONSTANTS)
        assert found.step == pytest.approx(plan.table.step[row], rel=1e-11)
        assert found.peak == pytest.approx(plan.table.peak[row], rel=1e-11)


def test_a_bill_adds_up(plan):
    for row in random.Random(4).sample(range(len(plan.table)), 8):
        layout, _ = plan.table.at(row)
        found = bill(layout, JOB, CONSTANTS)
        assert sum(i.value for i in found.time) == pytest.approx(found.step, rel=1e-9)
        assert sum(i.value for i in found.memory) == pytest.approx(found.peak, rel=1e-9)


def test_the_formulas_shown_have_the_values_shown(plan):
    """Decided maxima and ceilings leave a formula that has the same value at the layout."""
    layout, _ = plan.table.at(int(plan.order[3]))
    found = bill(layout, JOB, CONSTANTS)
    for item in (*found.time, *found.memory):
        assert not any(word in str(item.here) for word in ("Max", "Min", "ceiling"))
        assert tape({"x": item.here}).run(item.given)["x"] == pytest.approx(item.value, rel=1e-9)


def test_a_decided_formula_is_the_branch_that_counts():
    x, y, layers, stages = map(symbol, ("x", "y", "L", "p"))
    most = symbols.largest([x, y * 2])
    assert decided(most, {"x": 3, "y": 1}) == x and decided(most, {"x": 1, "y": 1}) == 2 * y
    assert decided(symbols.least([x, y * 2]), {"x": 3, "y": 1}) == 2 * y
    shown = symbols.largest([x - y, x * 0])
    assert decided(shown, {"x": 3, "y": 3}) == 0, "what is zero there is left out"
    part = symbols.rounded_up(x / y)
    assert decided(part, {"x": 6, "y": 3}) == x / y and decided(part, {"x": 7, "y": 3}) == 3
    last = symbols.rounded_up((layers - stages + 1) / stages)
    assert decided(last, {"L": 40, "p": 4}) == layers / stages
    assert decided(last, {"L": 42, "p": 4}) == 10


def test_the_comparison_is_the_whole_difference(plan):
    found = plan.comparison
    assert found is not None and found.first.step < found.second.step
    gap = found.second.step - found.first.step
    assert sum(d.value for d in found.time) == pytest.approx(gap, rel=1e-6)
    more = found.second.peak - found.first.peak
    assert sum(d.value for d in found.memory) == pytest.approx(more, rel=1e-6)
    sizes = [abs(d.value) for d in found.time]
    assert sizes == sorted(sizes, reverse=True)


def test_the_next_one_is_slower_than_all_before_it(plan):
    row = runner_up(plan.table, plan.order)
    before = plan.order[: list(plan.order).index(row)]
    best = plan.table.step[plan.order[0]]
    assert np.allclose(plan.table.step[before], best, rtol=1e-9)
    assert plan.table.step[row] > best


def step_of(layout, job, constants):
    """Seconds of a step by the formula alone."""
    given = {**job.symbols, **constants.symbols, **job.columns(layout)}
    return tape({"x": forms(layout.kind, job).step}).run(given)["x"]


def moved(symbol, value):
    """The job and constants with one figure moved: by hand, not through the formulas."""
    machine = JOB.machine
    device, cluster = machine.device, machine.cluster
    if symbol in ("flops", "bandwidth"):
        device = replace(device, **{symbol: value})
    elif symbol == "m":
        return replace(JOB, global_batch=round(value)), CONSTANTS
    elif symbol == "launch":
        return JOB, replace(CONSTANTS, launch=value)
    else:
        side, _, latency = symbol.partition("_")
        change = {"latency" if latency else "bandwidth": value}
        cluster = replace(cluster, **{side: replace(getattr(cluster, side), **change)})
    return replace(JOB, machine=replace(machine, device=device, cluster=cluster)), CONSTANTS


def test_a_change_that_is_named_flips_the_winner(plan):
    """For pairs drawn at random: before the value the first is faster, beyond it the second."""
    draw, seen = random.Random(6), set()
    for _ in range(8):
        i, j = sorted(draw.sample(list(map(int, plan.order)), 2), key=lambda r: plan.table.step[r])
        if plan.table.step[j] <= plan.table.step[i] * (1 + 1e-6):
            continue
        (first, _), (second, _) = plan.table.at(i), plan.table.at(j)
        for change in compared(first, second, JOB, CONSTANTS).changes:
            symbol = next(s for s, (words, _) in FIGURES.items() if words == change.name)
            if symbol == "m":
                continue
            step = 1.001 if change.then > change.now else 1 / 1.001
            gaps = [
                step_of(second, *moved(symbol, v)) - step_of(first, *moved(symbol, v))
                for v in (change.then / step, change.then * step)
            ]
            assert gaps[0] > 0 > gaps[1], (first, second, change)
            seen.add(symbol)
    assert len(seen) >= 3


def test_a_larger_batch_flips_the_winner_where_it_is_said(plan):
    """Fewer stages pay at small batches; the batch at which the bubble no longer matters."""
    draw, flips = random.Random(8), 0
    rows = list(map(int, plan.order))
    for _ in range(60):
        i, j = sorted(draw.sample(rows, 2), key=lambda r: plan.table.step[r])
        (first, _), (second, _) = plan.table.at(i), plan.table.at(j)
        found = compared(first, second, JOB, CONSTANTS)
        for change in (c for c in found.changes if c.unit == "sequences"):
            each = first.micro_batch * first.data * second.micro_batch * second.data
            beyond = round(change.then * (1.3 if change.then > change.now else 0.7) / each) * each
            if beyond < each or (beyond > change.now) != (change.then > change.now):
                continue
            job = replace(JOB, global_batch=beyond)
            assert step_of(second, job, CONSTANTS) < step_of(first, job, CONSTANTS)
            flips += 1
        if flips >= 3:
            return
    assert flips, "no pair was decided by the batch"


def test_with_the_memory_that_is_named_a_faster_one_wins(plan):
    table = plan.table
    for share in (0.3, 0.6, 0.8, 1.0):
        limit = share * plan.limit
        fits = table.peak <= limit
        faster = [
            i
            for i in range(len(table))
            if not fits[i] and table.step[i] < table.step[fits].min() * (1 - 1e-9)
        ]
        found = faster_with_more(table, limit)
        assert found is not None and found.peak == min(table.peak[i] for i in faster)
        assert table.at(int(ranked(table, found.peak)[0]))[0] == found.layout
    assert faster_with_more(table, table.peak.max()) is None


def test_where_nothing_fits_the_nearest_and_what_would_fit_are_named():
    choices = Choices(
        chunks=(1,), zero=(1,), recompute=("full",), context=(1,), pipeline=(1,), micro_batch=(1,)
    )
    needed = planned(replace(JOB, gpus=16), CONSTANTS, choices).table.peak.min()
    device = replace(JOB.machine.device, memory=int(needed) + 1)
    small = replace(JOB, gpus=8, machine=replace(JOB.machine, device=device))
    plan = planned(small, CONSTANTS, choices)
    assert not len(plan.order) and plan.nearest.peak == plan.table.peak.min() > plan.limit
    assert plan.comparison is None and plan.bill is None
    found = remedies(plan, choices, None)
    assert found[0].change == "on 16 devices", "the fewest that fit"
    assert all(remedy.offer.peak <= plan.limit for remedy in found)
    short = replace(small, gpus=16, machine=JOB.machine)
    wide = replace(choices, micro_batch=(16,), recompute=("none",), tensor=(1,))
    plan = planned(with_tokens(short, 8192), CONSTANTS, wide)
    (fewer,) = [r for r in remedies(plan, wide, None) if "tokens" in r.change]
    tokens = int(fewer.change.split()[1])
    assert not len(planned(with_tokens(short, 2 * tokens), CONSTANTS, wide).order)


def test_tokens_of_a_job():
    assert with_tokens(JOB, 512).shape.sequence == 512
