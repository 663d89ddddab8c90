"""Steps beside others: all their orders are proved; streams that are ahead on some ranks."""

from __future__ import annotations

import random

import pytest
from agreement import agreement

from placement_proofs.errors import IllFormed
from placement_proofs.program.orders import orders
from placement_proofs.program.text import format_program, parse_program
from placement_proofs.prove import explain, find_repairs, prove
from placement_proofs.verdict import Verdict

HEAD = "axes dp\nspec W = c[dp]/dp\ncopy w of W\nbuffer b\nuse w\ngrad g = c[dp]\n"
RACE = HEAD + "start copy: set b g\nmean b dp\nwait copy\nupdate w b\ntick\n"
WAITS = HEAD + "start copy: set b g\nwait copy\nmean b dp\nupdate w b\ntick\n"
FORGOTTEN = HEAD + "set b g\nstart sync: mean b dp\nupdate w b\ntick\n"


def test_a_race_is_refuted_in_the_order_that_fails() -> None:
    program = parse_program(RACE)
    assert len(orders(program)) == 2
    found = prove(program)
    assert found.verdict is Verdict.REFUTED
    assert found.program == orders(program)[1]
    said = explain(program, found)
    assert (
        "It shows in the order 'use w; grad g = c[dp]; mean b dp; set b g; update w b; tick'."
        in said
    )


@pytest.mark.parametrize("text", [RACE, WAITS, FORGOTTEN])
def test_orders_are_printed_and_replayed(text: str) -> None:
    program = parse_program(text)
    assert parse_program(format_program(program)) == program
    assert not agreement(program).trouble


BESIDE = (
    HEAD + "start copy: set z g\nmean g dp\nwait copy\nset b g\nadd b z x=0\nupdate w b\ntick\n"
)


def test_a_proof_covers_all_orders() -> None:
    program = parse_program(BESIDE.replace("buffer b", "buffer b\nbuffer z"))
    assert len(orders(program)) == 2
    found = prove(program)
    assert found.verdict is Verdict.PROVED
    assert found["gradient_integrity"].covers.endswith("all 2 orders and cases")
    assert len(orders(parse_program(WAITS))) == 1
    assert prove(parse_program(WAITS)).verdict is Verdict.PROVED


@pytest.mark.parametrize("text", [RACE, FORGOTTEN])
def test_the_repair_waits_as_late_as_it_may(text: str) -> None:
    program = parse_program(text)
    repair = find_repairs(program, prove(program))[0]
    late = {RACE: "'wait copy' before 'mean b dp'", FORGOTTEN: "'wait sync' before 'update w b'"}
    assert repair.text == late[text]
    assert prove(repair.program).verdict is Verdict.PROVED


def test_steps_of_other_buffers_have_no_order() -> None:
    text = HEAD + "set b g\nstart other: grad z = d[]\nmean b dp\nupdate w b\ntick\n"
    assert len(orders(parse_program(text))) == 1


BAD = {
    "wait copy\nupdate w g": "found wait copy",
    "start a: set b g\nstart a: set b g\nupdate w b": "found start a",
    "start a: set b g\nwait a\nmean b dp\nwait a\nupdate w b": "found wait a",
}


@pytest.mark.parametrize("steps", BAD)
def test_starts_and_waits_belong_together(steps: str) -> None:
    with pytest.raises(IllFormed, match=BAD[steps]):
        parse_program(HEAD + steps)


def test_too_many_orders_are_refused() -> None:
    many = "".join(f"start s{i}: add b g\n" for i in range(8))
    with pytest.raises(IllFormed, match="more than 64 orders"):
        parse_program(HEAD + many + "update w b")


STEPS = (
    "set b g",
    "add b g",
    "mean b dp",
    "sum b dp",
    "scale b 1/dp",
    "set h b",
    "add b h",
    "zero h",
)


def drawn(seed: int) -> tuple[list[str], int, int]:
    """Random steps, which of them runs beside the others, and before which it is waited for."""
    rng = random.Random(seed)
    steps = [rng.choice(STEPS) for _ in range(rng.randrange(3, 6))]
    start = rng.randrange(len(steps) - 1)
    return steps, start, rng.randrange(start + 1, len(steps) + 1)


def whole(steps: list[str]) -> str:
    """A program around the steps."""
    return (
        HEAD.replace("buffer b", "buffer b\nbuffer h") + "\n".join(steps) + "\nupdate w b\ntick\n"
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_orders_that_are_tried_stand_for_all(seed: int) -> None:
    """Every place of the step up to the wait, tried one by one, gives the same verdict."""
    steps, start, wait = drawn(seed)
    beside = [*steps[:start], f"start r: {steps[start]}", *steps[start + 1 : wait], "wait r"]
    program = parse_program(whole([*beside, *steps[wait:]]))
    rest = [*steps[:start], *steps[start + 1 :]]
    every = [[*rest[:at], steps[start], *rest[at:]] for at in range(start, wait)]
    right = all(
        prove(parse_program(whole(one)), certify=False).verdict is Verdict.PROVED for one in every
    )
    found = prove(program, certify=False)
    assert (found.verdict is Verdict.PROVED) is right
    assert len(orders(program)) <= len(every)


def test_some_of_these_are_right_and_some_only_in_some_orders() -> None:
    verdicts = [prove(parse_program(whole(drawn(s)[0])), certify=False).verdict for s in range(60)]
    assert verdicts.count(Verdict.PROVED) >= 3


AHEAD = "axes tp\nif tp@first: sample s = torch\nsample m = torch\nexpect m agree\n"


def test_ranks_that_drew_before_draw_other_numbers() -> None:
    program = parse_program(AHEAD)
    assert prove(program).verdict is Verdict.REFUTED
    assert not agreement(program).trouble
    assert prove(parse_program(AHEAD.replace("s = torch", "s = loader"))).verdict is Verdict.PROVED
    repair = find_repairs(program, prove(program))[0]
    assert "sample s = torch.own" in repair.text


def test_two_positions_ahead_are_refused() -> None:
    text = AHEAD.replace("sample m", "if tp@last: sample t = torch\nsample m")
    with pytest.raises(IllFormed, match="draws from 'torch' at two positions"):
        parse_program(text)
