"""Schedules: slots that run, what is in flight, idle time, and what the meters count.

The order of passes is checked against an engine written here that knows no law: positions that do
what Megatron's loops do (arXiv 2104.04473), pass by pass, with messages.
"""

import itertools
from collections import Counter, deque
from dataclasses import replace
from fractions import Fraction

import pytest

from placement_proofs.advice import advice
from placement_proofs.composition import compose
from placement_proofs.conditions import conditions_of, prove_plan, verdict_of
from placement_proofs.cost import DEFAULT, bubble, memory, memory_at, sizes_of
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.lifetimes import Kept
from placement_proofs.cost.symbols import equal, symbol
from placement_proofs.derive import derive
from placement_proofs.derive.fit import check_fit
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, transformer
from placement_proofs.plan import Transfer
from placement_proofs.schedule import (
    LAWS,
    Pass,
    Slot,
    _folded,
    counted,
    fault,
    moments,
    slots,
)
from placement_proofs.schedule import (
    bubble as idle_share,
)
from placement_proofs.simulate import Held, simulate
from placement_proofs.strategies import pipeline
from placement_proofs.verdict import Verdict
from placement_proofs.zoo import PRESETS

F, B, W = Pass.FORWARD, Pass.BACKWARD, Pass.WEIGHTS


def planned(name, depth, micro, chunks=1, folded=True, layers=None):
    shape = Shape(layers=layers or depth * chunks, fused_attention=True)
    model = transformer(shape, folded=folded)
    more = f", chunks={chunks}" if chunks > 1 else ""
    text = f"pipeline(pp={depth}, microbatches={micro}, schedule='{name}'{more})"
    plan = derive(parse(text), model)
    return plan, model, sizes_of(plan, model)


def all_slots(plan, sizes):
    """The slots of every position of a folded plan's mesh."""
    depth = sizes.axis("pp")
    first, middle, last = plan.positions
    result = []
    for k in range(depth):
        at = last if k == depth - 1 else first if k == 0 else middle
        index = None if k == depth - 1 else k
        result.append(slots(plan, type(at)(at.name, index, at.stages), sizes))
    return result


# --- an engine of its own --------------------------------------------------------------


def megatron(rank, depth, micro, chunks):
    """What one rank does under the interleaved schedule, from the loops of Megatron-LM."""
    total, group = micro * chunks, depth * chunks
    warm = min((depth - rank - 1) * 2 + (chunks - 1) * depth, total)
    if micro == depth:
        warm = total

    def chunk_of(i, forward):
        chunk = (i % group) // depth
        return chunk if forward else chunks - chunk - 1

    def micro_of(i):
        return i // group * depth + i % depth

    def op(i, forward):
        return "F" if forward else "B", chunk_of(i, forward), micro_of(i)

    done = [op(i, True) for i in range(warm)]
    for i in range(total - warm):
        done += [op(warm + i, True), op(i, False)]
    return done + [op(i, False) for i in range(total - warm, total)]


def most_held(order):
    """The most passes in flight, and for each chunk: forward passes without their backward."""
    held, most, each = Counter(), 0, Counter()
    for kind, chunk, _ in order:
        held[chunk] += 1 if kind == "F" else -1
        most = max(most, sum(held.values()))
        each |= held
    return most, dict(each)


INTERLEAVED = [
    (2, 2, 2),
    (2, 4, 2),
    (2, 8, 3),
    (3, 6, 2),
    (4, 4, 2),
    (4, 8, 2),
    (4, 16, 3),
    (5, 15, 4),
]


@pytest.mark.parametrize(("depth", "micro", "chunks"), INTERLEAVED)
def test_interleaved_slots_are_those_of_the_loops(depth, micro, chunks):
    """The same passes in the same order; with one round Megatron runs all forward passes first."""
    plan, _, sizes = planned("interleaved", depth, micro, chunks)
    for rank, order in enumerate(all_slots(plan, sizes)):
        ours = [(s.kind.name[0], s.chunk, s.micro) for s in order]
        theirs = megatron(rank, depth, micro, chunks)
        if micro > depth:
            assert ours == theirs
        most = most_held(ours)[0]
        warm = 2 * (depth - rank - 1) + (chunks - 1) * depth + 1
        assert most == min(warm, micro * chunks)


@pytest.mark.parametrize(("depth", "micro", "chunks"), INTERLEAVED)
def test_chunks_in_flight_on_the_ends(depth, micro, chunks):
    """min(2p, m) passes of the first chunk of all, one of the last."""
    plan, _, sizes = planned("interleaved", depth, micro, chunks)
    orders = [[(s.kind.name[0], s.chunk, s.micro) for s in o] for o in all_slots(plan, sizes)]
    assert most_held(orders[0])[1][0] == min(2 * depth, micro)
    assert most_held(orders[-1])[1][chunks - 1] == 1


def fullest(found):
    """The greatest sums that the counts of moments allow, one for each weighing of two stages."""
    weights = list(itertools.product((0, 1, 7), repeat=4))
    best = {}
    for m in found:
        for w in weights:
            padded = [*m.full, 0][:2] + [*m.waiting, 0][:2]
            key = m.running, m.kind, w
            total = sum(a * b for a, b in zip(padded, w, strict=True))
            best[key] = max(best.get(key, 0), total)
    return best


def dominated(best):
    """Forward passes of a chunk are at most as full as its fullest pass: their kinds together."""
    result = {}
    for (running, kind, w), total in best.items():
        kinds = "W" if kind is W else "FB"
        result[running, kinds, w] = max(result.get((running, kinds, w), 0), total)
    return result


@pytest.mark.parametrize(
    "folded_case", [(2, 2, 2), (2, 6, 2), (3, 3, 2), (3, 9, 3), (4, 4, 3), (4, 12, 4)]
)
def test_closed_counts_of_interleaved_equal_counting(folded_case):
    """The formulas of the three kinds of positions against walking through all slots.

    The chunk with the embedding or the head holds no less than another.
    """
    depth, micro, chunks = folded_case
    plan, _, sizes = planned("interleaved", depth, micro, chunks)
    for position in plan.positions:
        if position.index == 1 and depth == 2:
            continue
        closed = dominated(fullest(_folded(plan, position, sizes)))
        walked = dominated(fullest(counted(plan, position, sizes)))
        ends = {"first": lambda w: w[0] >= w[1], "last": lambda w: w[1] >= w[0]}
        heavier = ends.get(position.name, lambda w: True)
        assert {k: v for k, v in closed.items() if heavier(k[2])} == {
            k: v for k, v in walked.items() if heavier(k[2])
        }


@pytest.mark.parametrize("name", [n for n in LAWS if n != "interleaved"])
@pytest.mark.parametrize(
    ("depth", "micro"), [(2, 1), (2, 2), (2, 7), (3, 2), (4, 3), (4, 4), (4, 11), (5, 9)]
)
def test_closed_counts_equal_counting(name, depth, micro):
    plan, _, sizes = planned(name, depth, micro)
    for position in plan.positions:
        if position.index == 1 and depth == 2:
            continue
        closed = fullest(moments(plan, position, sizes))
        walked = fullest(counted(plan, position, sizes))
        for key, total in walked.items():
            assert total <= closed[key]
        for weight in {w for _, _, w in walked if w[0] >= w[2]}:
            kinds = (F, B, W) if LAWS[name].apart else (F, B)
            most = [max(best[0, k, weight] for k in kinds) for best in (closed, walked)]
            assert most[0] == most[1], (position, weight)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(("depth", "rounds"), [(2, 1), (2, 3), (3, 2), (4, 2), (5, 1)])
def test_every_position_reaches_its_end(name, depth, rounds):
    chunks = 3 if LAWS[name].chunked else 1
    plan, _, sizes = planned(name, depth, depth * rounds, chunks)
    assert fault(all_slots(plan, sizes), chunks, depth * rounds, apart=LAWS[name].apart) == ""


def test_orders_that_are_no_schedule():
    plan, _, sizes = planned("zb-h1", 3, 4)
    orders = all_slots(plan, sizes)
    twice = [[*orders[0], orders[0][0]], *orders[1:]]
    assert "each pass once" in fault(twice, 1, 4, apart=True)
    assert "each pass once" in fault([orders[0][1:], *orders[1:]], 1, 4, apart=True)
    early = [sorted(orders[0], key=lambda s: s.kind is F), *orders[1:]]
    assert "position 0 waits at" in fault(early, 1, 4, apart=True)
    swapped = list(orders[2])
    i, j = swapped.index(Slot(B, 0, 0)), swapped.index(Slot(W, 0, 0))
    swapped[i], swapped[j] = swapped[j], swapped[i]
    assert "position 2 waits at" in fault([*orders[:2], swapped], 1, 4, apart=True)


# --- time ------------------------------------------------------------------------------


def spans(orders, chunks):
    """Start and end of every position's work, each pass taking one unit and messages none."""
    depth, end = len(orders), {}
    queues, clock = [deque(o) for o in orders], [0] * len(orders)
    began = [None] * depth
    while any(queues):
        for k in range(depth):
            while queues[k]:
                slot = queues[k][0]
                stage = slot.chunk * depth + k
                other = stage + {F: -1, B: 1}.get(slot.kind, 0)
                needs = []
                if slot.kind is not W and 0 <= other < depth * chunks:
                    needs = [(slot.kind, other, slot.micro)]
                if not all(n in end for n in needs):
                    break
                start = max([clock[k], *(end[n] for n in needs)])
                took = 1 if slot.kind is not B or W in {s.kind for s in orders[0]} else 2
                clock[k] = end[slot.kind, stage, slot.micro] = start + took
                began[k] = start if began[k] is None else began[k]
                queues[k].popleft()
    return list(zip(began, clock, strict=True))


@pytest.mark.parametrize(("name", "chunks"), [(n, 2 if LAWS[n].chunked else 1) for n in LAWS])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_idle_time_is_what_the_passes_take(name, chunks, depth):
    """A step takes 3 m v units of work and (p - 1) idle ones; zb-h2 starts and ends in a slant."""
    micro = 4 * depth
    plan, _, sizes = planned(name, depth, micro, chunks)
    times = spans(all_slots(plan, sizes), chunks)
    work = 3 * micro * chunks
    share = bubble(plan, sizes)
    if name == "zb-h2":
        assert [end - start for start, end in times] == [work] * depth
        assert share == 0
    else:
        idle = max(end for _, end in times) - work
        assert Fraction(idle, work) == share
    assert idle_share(LAWS[name]) * (depth - 1) / (micro * chunks) == share


# --- memory ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2"])
@pytest.mark.parametrize(("depth", "micro"), [(3, 7), (4, 3)])
def test_zero_bubble_trains_as_one_device_and_holds_what_is_said(name, depth, micro):
    plan, model, sizes = planned(name, depth, micro, folded=False)
    result = simulate(plan, model, optimizer="momentum")
    assert result.equal, str(result)
    for rank in result.ranks:
        held = memory_at(plan, sizes, DEFAULT, dict(rank.coordinates))
        flowing = held.transient[Kept.ACTIVATIONS.value]
        assert rank.held[Held.FLOWING] * DEFAULT.activation == flowing


def test_interleaved_stages_that_differ_hold_what_is_said():
    """Six layers on 2 x 2 stages: 1, 2, 1 and 2 of them, embedding and head at the ends."""
    plan, model, sizes = planned("interleaved", 2, 6, 2, folded=False, layers=6)
    result = simulate(plan, model)
    for rank in result.ranks:
        held = memory_at(plan, sizes, DEFAULT, dict(rank.coordinates))
        flowing = held.transient[Kept.ACTIVATIONS.value]
        assert rank.held[Held.FLOWING] * DEFAULT.activation == flowing


def test_what_the_halves_keep():
    """arXiv 2401.10241, table 1: sbh(34 + 5as/h) before the pass for inputs, 32 sbh after it."""
    shape = PRESETS["gpt2"]
    model = transformer(Shape(**vars(shape) | {"dropout": True}), folded=True)
    text = "pipeline(pp=p, microbatches=m, schedule='zb-h1')"
    forms = closed_forms(derive(parse(text), model), model, position="middle")
    s, b, h, a = (symbol(n) for n in "sbha")
    changes = {symbol("f"): 4 * h, symbol("hkv"): h}
    layer = {t.phase: t.payload.subs(changes) for t in forms.saved.terms if t.block}
    assert equal(layer["forward"], 34 * s * b * h + 5 * a * s * s * b)
    assert equal(layer["backward"], 32 * s * b * h)


def test_what_zero_bubble_costs_in_memory():
    """Section 2.3: zb-h1 keeps p micro-batches on every position, zb-h2 2p - 1."""
    for name, most in (("zb-h1", 4), ("zb-h2", 7)):
        plan, _, sizes = planned(name, 4, 16)
        for order in all_slots(plan, sizes):
            started = done = top = 0
            for slot in order:
                started += slot.kind is F
                done += slot.kind is W
                top = max(top, started - done)
            assert top == most
    plans = {n: planned(n, 4, 16) for n in ("1f1b", "zb-h1", "zb-h2")}
    flying = {n: memory(p, s, DEFAULT, "first").in_flight for n, (p, _, s) in plans.items()}
    assert flying == {"1f1b": 4, "zb-h1": 4, "zb-h2": 7}


def test_symbols_give_the_numbers():
    for name, chunks in (("1f1b", 1), ("zb-h1", 1), ("zb-h2", 1), ("interleaved", 2)):
        more = f", chunks={chunks}" if chunks > 1 else ""
        text = f"pipeline(pp={{}}, microbatches={{}}, schedule='{name}'{more})"
        model = transformer(Shape(layers=16), folded=True)
        symbolic = derive(parse(text.format("p", "m")), model)
        for depth, micro in ((4, 4), (4, 8), (2, 6)):
            plan = derive(parse(text.format(depth, micro)), model)
            for position in ("first", "last") if depth == 2 else ("first", "middle", "last"):
                forms = closed_forms(symbolic, model, position=position, divides=False)
                numbers = forms.numbers({"p": depth, "m": micro})
                held = memory(plan, sizes_of(plan, model), DEFAULT, position)
                assert numbers["memory_peak"].bytes == held.peak, (name, position, depth, micro)
                assert numbers["memory_saved_activations"].bytes == held.saved


def test_rounds_that_are_not_equal_are_refused():
    plan, model, sizes = planned("interleaved", 2, 5, 2, folded=False, layers=4)
    with pytest.raises(IllFormed, match="equally many micro-batches"):
        check_fit(plan, model, sizes)


def test_a_pass_for_weights_that_does_not_reduce_is_refuted():
    """The prover sees the pass: of ZeRO-2, the reduce-scatter is in it."""
    model = transformer(Shape())
    plan = derive(parse("zero2(dp=2) * pipeline(pp=2, microbatches=2, schedule='zb-h1')"), model)
    assert verdict_of(conditions_of(prove_plan(plan, {}))) is Verdict.PROVED
    stage = plan.stages[0]
    kept = tuple(s for s in stage.weights if not isinstance(s, Transfer))
    assert len(kept) < len(stage.weights)
    less = replace(plan, stages=(replace(stage, weights=kept), *plan.stages[1:]))
    assert verdict_of(conditions_of(prove_plan(less, {}))) is Verdict.REFUTED


def test_advice_about_few_micro_batches_knows_the_schedule():
    """3 micro-batches on 4 positions idle for 3/6 of the time, with 2 chunks 1.5/4.5."""
    told = {
        name: advice(compose(pipeline(pp=4, microbatches=3, schedule=name, chunks=chunks)))
        for name, chunks in (("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("zb-h2", 1))
    }
    shares = {n: [word for word in " ".join(t).split() if "%" in word] for n, t in told.items()}
    assert shares == {"1f1b": ["50%"], "interleaved": ["33%"], "zb-h1": ["25%"], "zb-h2": []}
