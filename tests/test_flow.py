"""Contributions that are derived from a forward pass: rules, text form, and a numeric model."""

from __future__ import annotations

import random
from itertools import product

import pytest
from agreement import agreement
from flow_model import agrees

from placement_proofs.errors import IllFormed
from placement_proofs.layout import Kind, On, conversion
from placement_proofs.program import Program, Source
from placement_proofs.program_backward import amiss, derived
from placement_proofs.program_flow import BACKWARDS, FORWARDS
from placement_proofs.program_forward import OWN, PARTIAL, RESULTS, values
from placement_proofs.program_text import format_program, parse_program
from placement_proofs.prove import explain, find_repairs, prove
from placement_proofs.verdict import Verdict

STEPS = "use n\ngrad g = back(l, n)\n{sums}update n g\ntick\n"


def program(flow: str, sums: str = "", spec: str = "back(l)") -> Program:
    """A flow with one parameter N, its copy n and the reductions of its gradient."""
    lines = f"axes dp tp\nspec N = {spec}\ncopy n of N\n{flow}\n"
    return parse_program(lines + STEPS.format(sums=sums))


def contributions(made: Program) -> list[tuple[tuple[str, ...], str]]:
    """The indices and factors of what the ranks have."""
    return [(s.over, s.factor) for s in derived(made).steps if isinstance(s, Source)]


MLP = """
input x own=dp
input u own=tp
layer y = norm(x, n)
edge z = pass y tp{back}
layer h = up(z, u)
layer o = down(h, u) partial=tp
edge r = sum o tp back=nothing
join s = x + r
layer l = loss(s)
"""


def test_a_norm_before_a_column_is_the_same_on_every_rank() -> None:
    right = program(MLP.format(back=""), "sum g dp\n")
    assert contributions(right) == [(("dp",), "1")]
    assert prove(right).verdict is Verdict.PROVED
    assert amiss(right) == ()


def test_without_the_backward_all_reduce_every_rank_has_its_own_piece() -> None:
    wrong = program(MLP.format(back=" back=nothing"), "sum g dp\n")
    assert contributions(wrong) == [(("dp", "tp"), "1")]
    found = prove(wrong)
    assert found.verdict is Verdict.REFUTED
    assert found.counterexample is not None
    assert found.counterexample.factor == "1 for l.n[own tp]; 0 for l.n[other tp]"
    assert any(
        "'edge z = pass y tp' is nothing; its adjoint" in text for text in explain(wrong, found)
    )
    repairs = find_repairs(wrong, found)
    assert repairs[0].text == (
        "replace 'edge z = pass y tp back=nothing' by 'edge z = pass y tp back=sum'"
    )
    assert prove(repairs[0].program).verdict is Verdict.PROVED
    later = program(MLP.format(back=" back=nothing"), "sum g dp,tp\n")
    assert prove(later).verdict is Verdict.PROVED, "the sum may be taken of the parameters instead"


def test_a_bias_before_the_sum_counts_once_for_every_rank() -> None:
    flow = """
input x
input u own=tp
layer o = down(x, u) partial=tp
layer b = bias(n){scale}
join y = o + b
edge s = sum y tp back=nothing
layer l = loss(s)
"""
    twice = prove(program(flow.format(scale="")))
    assert twice.first_cause == "contract"
    assert twice.counterexample is not None
    assert twice.counterexample.factor == "1 for o; tp for b"
    scaled = program(flow.format(scale=" x=1/tp"))
    assert prove(scaled).counterexample.factor == "1/tp"  # type: ignore[union-attr]
    assert prove(program(flow.format(scale=" x=1/tp"), "sum g tp\n")).verdict is Verdict.PROVED


def test_a_function_of_a_part_of_a_sum_is_another_function() -> None:
    flow = """
input x
input u own=tp
layer o = down(x, u) partial=tp
layer l = gelu(o, n)
"""
    found = prove(program(flow))
    assert (found.verdict, found.first_cause) == (Verdict.REFUTED, "contract")
    linear = flow.replace("layer l = gelu", "linear a = down") + "edge s = sum a tp\nlayer l = f(s)"
    assert prove(program(linear, "sum g tp\n")).verdict is Verdict.PROVED


SIDES = {
    "pass": ("I", "R"),
    "sum": ("P", "I"),
    "scatter": ("P", "S"),
    "slice": ("I", "S"),
    "gather": ("S", "I"),
    "exchange": ("S", "S"),
}
NAMES = {"all-reduce": "sum", "reduce-scatter": "scatter", "all-gather": "gather"}


@pytest.mark.parametrize("kind", SIDES)
def test_the_adjoints_are_those_of_the_table(kind: str) -> None:
    """What is left out is the movement that the package's table of conversions gives."""
    before, after = SIDES[kind]
    kinds = {k.value: On(k, 0 if k is Kind.SHARDED else None) for k in Kind}
    other_dim = On(Kind.SHARDED, 1)
    table = conversion(kinds[before], other_dim if kind == "exchange" else kinds[after])
    assert table is not None
    start = {"S": "input x own=tp\n", "P": "input x own=tp\nlayer y = f(x, n) partial=tp\n"}
    body = start.get(before, "input x\n")
    source = "y" if before == "P" else "x"
    if before != "P":
        body += "layer y = f(x, n)\n"
        source = "y"
    use = "input u own=tp\nlayer w = up(z, u) partial=tp\nedge v = sum w tp\nlayer l = loss(v)\n"
    end = use if after == "R" else "layer l = loss(z)\n"
    flow = f"{body}edge z = {kind} {source} tp back=stop\n{end}"
    (one,) = [a for a in amiss(program(flow)) if a.flow.out == "z"]
    movement = table[1].value
    assert one.right == {**NAMES, "all-to-all": "exchange"}.get(movement, movement)


# --- text ----------------------------------------------------------------------------

BAD = {
    "edge z = gather x tp\nlayer l = f(z, n)": "gather of what is the same on every rank on tp",
    "layer l = f(n, q)": "activation or copy 'q'",
    "layer y = f(x, n) partial=tp\nlayer l = f(y)": "of which every rank has the same",
    "edge y = turn x tp\nlayer l = f(y, n)": "an edge is one of pass, sum",
    "edge y = pass x tp back=up\nlayer l = f(y, n)": "back= is one of nothing, sum",
    "layer l = f": "a layer is a function of values and copies",
    "join l = x": "a join is a sum of activations",
    "layer l = f(x)": "l does not depend on n",
    "layer y = f(x, n)\nedge z = pass y tp back=gather\nlayer l = f(z)": "whole on tp",
    "layer l = f(x, n)\nlayer l = g(x, n)": "'l' twice",
    "input y own=tp\nlayer z = f(y) partial=tp\njoin l = y + z": "an own part and a part of a sum",
}


@pytest.mark.parametrize("flow", BAD)
def test_bad_flows_say_where_and_why(flow: str) -> None:
    with pytest.raises(IllFormed, match=BAD[flow].replace("(", r"\(").replace("+", r"\+")):
        program(f"input x\n{flow}")


def test_gradients_of_a_flow_need_one() -> None:
    with pytest.raises(IllFormed, match=r"only declared names"):
        parse_program(
            "axes dp\nspec W = back(l)\ncopy w of W\nuse w\ngrad g = back(l, w)\nupdate w g"
        )


def test_two_uses_need_one_backward_each() -> None:
    flow = """
input x
input u own=tp
layer y = norm(x, n)
edge z = pass y tp
layer h = up(z, u) partial=tp
edge r = sum h tp
join s = z + r
layer l = loss(s)
"""
    with pytest.raises(IllFormed, match="one collective cannot serve both"):
        program(flow)


# --- random flows --------------------------------------------------------------------


class Writer:
    """Random flows in which every step fits what is there."""

    def __init__(self, seed: int, adjoint: bool) -> None:
        self.random = random.Random(seed)
        self.adjoint = adjoint
        self.lines = [f"input x{self._own()}", f"input u{self._own()}"]
        self.count = 0

    def _own(self) -> str:
        axes = [a for a in ("dp", "tp") if self.random.random() < 0.4]
        return f" own={','.join(axes)}" if axes else ""

    def flow(self) -> str:
        """Lines that end in the activation l."""
        now = "x"
        used = self.random.randrange(4)
        for turn in range(self.random.randrange(2, 7)):
            args = [now, *(["n"] if turn == used else []), *self.random.choices(("u", "x"), k=1)]
            now = self._step(now, args)
        self.lines.append(f"linear l = end({now}, n)")
        return "\n".join(self.lines)

    def _step(self, now: str, args: list[str]) -> str:
        self.count += 1
        out = f"y{self.count}"
        choices = [f"layer {out} = f({', '.join(args)})", f"linear {out} = f({now})"]
        choices += [f"layer {out} = f({', '.join(args)}) partial={a}" for a in ("dp", "tp")]
        choices += [f"join {out} = {now} + x"]
        for _ in range(8):
            kind, axis = self.random.choice(FORWARDS[:-1]), self.random.choice(("dp", "tp"))
            back = "" if self.adjoint else f" back={self.random.choice(BACKWARDS)}"
            choices.append(f"edge {out} = {kind} {now} {axis}{back}")
        self.random.shuffle(choices)
        for line in choices:
            if self._fits(line):
                self.lines.append(line)
                return out
        return now

    def _fits(self, line: str) -> bool:
        if line.startswith("edge") and line.split()[3] in ("sum", "mean"):
            kind, source, axis = line.split()[3:6]
            before = self._values()[source].on.get(axis, "")
            if before == OWN or (kind == "mean" and before == PARTIAL):
                return False
        try:
            text = "\n".join((*self.lines, line, f"linear l = end({line.split()[1]}, n)"))
            made = program(text)
        except IllFormed:
            return False
        return not any(v.doubtful for v in values(made).values())

    def _values(self):  # type: ignore[no-untyped-def]
        text = "\n".join((*self.lines, "linear l = end(x, n)"))
        return values(program(text))


def backs(made: Program) -> dict[str, str]:
    """What every edge's backward runs; what is left out, as the derivation fills it in."""
    found = {f.out: f.back for f in made.flow if f.kind in FORWARDS}
    for name in [n for n, back in found.items() if not back]:
        found[name] = chosen(made, name)
    return found


def chosen(made: Program, name: str) -> str:
    """The adjoint of an edge: the one backward that is not amiss."""
    from dataclasses import replace

    for back in BACKWARDS:
        flow = tuple(replace(f, back=back) if f.out == name else f for f in made.flow)
        try:
            edited = replace(made, flow=flow)
            derived(edited)
            if not any(a.flow.out == name for a in amiss(edited)):
                return back
        except IllFormed:
            continue
    raise AssertionError(name)


def written(seed: int, adjoint: bool) -> Program:
    """A random program; its reductions are those of the pieces, or others."""
    flow = Writer(seed, adjoint).flow()
    rng = random.Random(seed)
    pieces = {a for over, _ in contributions(program(flow)) for a in over}
    if rng.random() < 0.3:
        pieces ^= {rng.choice(("dp", "tp"))}
    sums = "".join(f"{'mean' if rng.random() < 0.1 else 'sum'} g {a}\n" for a in sorted(pieces))
    return program(flow, sums)


SIZES = [dict(zip(("dp", "tp"), n, strict=True)) for n in product((1, 2, 3), (1, 2, 3))]


@pytest.mark.parametrize("adjoint", [True, False], ids=["adjoint", "stated"])
def test_random_flows_agree_with_the_numeric_model(adjoint: bool) -> None:
    """A proof holds at every size, a refutation at the sizes of its counterexample."""
    counted = {Verdict.PROVED: 0, Verdict.REFUTED: 0}
    for seed in range(90):
        made = written(seed, adjoint)
        found = prove(made, certify=False, everywhere=False)
        if found.first_cause == "contract":
            continue
        stated = backs(made)
        counted[found.verdict] += 1
        if found.verdict is Verdict.PROVED:
            assert all(agrees(made, sizes, stated, seed) for sizes in SIZES), format_program(made)
        else:
            assert found.counterexample is not None
            sizes = dict(found.counterexample.sizes)
            seeds = range(seed, seed + 4)
            assert not all(agrees(made, sizes, stated, s) for s in seeds), format_program(made)
    assert min(counted.values()) >= 15, counted


@pytest.mark.parametrize("seed", range(25))
def test_random_flows_are_printed_and_replayed(seed: int) -> None:
    made = written(seed, adjoint=seed % 2 == 0)
    assert parse_program(format_program(made)) == made
    assert not agreement(made).trouble


def test_every_forward_has_a_state_after_it() -> None:
    assert {kind for kind, _ in RESULTS} == set(FORWARDS)
