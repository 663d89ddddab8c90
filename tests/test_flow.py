"""Contributions that are derived from a forward pass: rules, text form, and a numeric model."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from agreement import agreement
from flow_model import agrees

from placement_proofs.cli import main
from placement_proofs.errors import IllFormed
from placement_proofs.layout import Kind, On, conversion
from placement_proofs.program import Program, Source
from placement_proofs.program.backward import amiss, derived
from placement_proofs.program.flow import BACKWARDS, FORWARDS
from placement_proofs.program.forward import OWN, RESULTS
from placement_proofs.program.text import format_program, parse_program
from placement_proofs.prove import explain, find_repairs, prove
from placement_proofs.prove.core import certificate_of
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


def test_a_backward_mean_over_pieces_divides_what_should_be_summed() -> None:
    found = prove(program(MLP.format(back=" back=mean"), "sum g dp\n"))
    assert found.counterexample is not None
    assert found.counterexample.factor == "1/tp"


OWN_LOSS = """
input x own=dp
input u own=tp
layer y = norm(x, n)
edge m = {kind} y dp back=nothing
layer h = up(m, u){partial}
layer l = loss(h)
"""


def test_one_device_has_the_mean_of_own_values_or_their_sum() -> None:
    mean = program(OWN_LOSS.format(kind="mean", partial=""), "sum g dp,tp\n")
    assert prove(mean).verdict is Verdict.PROVED
    assert contributions(mean) == [(("dp", "tp"), "1/dp")]
    (target,) = derived(mean).params[0].target
    assert target.coef == "1/dp"
    summed = program(OWN_LOSS.format(kind="sum", partial=""), "sum g dp,tp\n")
    assert contributions(summed) == [(("dp", "tp"), "1")]


def test_a_piece_of_the_gradient_of_a_sum_is_not_the_gradient_of_its_parts() -> None:
    flow = "input x own=dp\nlayer y = norm(x, n)\nedge m = sum y dp back=nothing\n"
    wrong = flow + "input u own=dp\nlayer l = up(m, u)"
    found = prove(program(wrong, "sum g dp\n"))
    assert found.counterexample is not None
    assert found.counterexample.factor == "1 for l.n.own; 0 for l.n.rest"
    right = wrong.replace("back=nothing", "back=sum")
    assert prove(program(right, "sum g dp\n")).verdict is Verdict.PROVED


def test_paths_that_arrive_alike_are_one_family() -> None:
    flow = "input x\nlayer y = f(x, n)\nlayer a = f(y)\nlayer b = g(y)\njoin l = a + b"
    assert len(contributions(program(flow))) == 1


GUARDED = MLP.replace("edge z = pass", "if dp > 1: edge z = pass").format(back=" back=sum")


def test_an_edge_that_depends_on_a_size_is_proved_in_both_cases() -> None:
    made = program(GUARDED, "sum g dp\n")
    assert parse_program(format_program(made)) == made
    found = prove(made)
    assert found.verdict is Verdict.REFUTED
    assert dict(found.counterexample.sizes) == {"dp": 1, "tp": 2}  # type: ignore[union-attr]
    assert "It is the case of dp = 1." in explain(made, found)
    assert prove(made, sizes={"dp": 2}).verdict is Verdict.PROVED
    assert prove(made, sizes={"dp": 1}).verdict is Verdict.REFUTED
    assert not agreement(made).trouble
    (repair, *_) = find_repairs(made, found)
    assert repair.action == "remove the size guard"
    always = program(GUARDED.replace("if dp > 1: ", "if tp > 1: "), "sum g dp\n")
    assert prove(always).verdict is Verdict.PROVED


def test_edges_depend_on_sizes_only() -> None:
    with pytest.raises(IllFormed, match="an edge may depend on sizes only"):
        program(GUARDED.replace("if dp > 1", "if dp@first"))


def test_the_kernel_checks_what_follows_from_a_forward_pass() -> None:
    certificate = certificate_of(program(MLP.format(back=""), "sum g dp\n"), "mlp")
    assert [s["family"] for s in certificate["steps"] if s["op"] == "source"] == ["l.n"]


def test_the_report_says_what_follows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mlp.toml"
    text = format_program(program(MLP.format(back=""), "sum g dp\n"))
    path.write_text(f'[program]\ntext = """\n{text}"""\n')
    assert main(["check", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "from the forward pass: spec N = l.n[dp]" in shown
    assert "from the forward pass: grad g = l.n[dp]" in shown


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


BLOCKS = {
    OWN: (
        "gather,column,scatter",
        "gather,column,sum,slice",
        "layer",
        "pass",
        "gather,layer",
    ),
    "": (
        "pass,column,sum",
        "slice,layer,gather",
        "column,scatter,layer",
        "layer",
        "pass",
        "column,linear,sum",
        "column,pass,sum",
    ),
}
"""What may follow a value that is cut, or whole, on an axis."""


class Writer:
    """Random flows made of blocks: columns and rows, sequence shards, residuals."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        own = [a for a in ("dp", "tp") if self.random.random() < 0.5]
        self.lines = [f"input x own={','.join(own)}" if own else "input x", "input u own=dp,tp"]
        self.on = {a: OWN if a in own else "" for a in ("dp", "tp")}
        self.now = "x"

    def flow(self) -> str:
        """Lines that end in the activation l."""
        blocks = self.random.randrange(1, 4)
        used = self.random.randrange(blocks)
        for turn in range(blocks):
            axis = self.random.choice(("dp", "tp"))
            args = f"{self.now}, n" if turn == used else self.now
            before, on = self._put(f"layer {{}} = f({args})"), self.on[axis]
            for word in self.random.choice(BLOCKS[on]).split(","):
                self._word(word, axis)
            if self.on[axis] == on and self.random.random() < 0.4:
                self._put(f"join {{}} = {before} + {self.now}")
        last = self.random.choice(("layer {} = f({})", "layer {} = f({}, n)"))
        self.lines.append(last.format("l", self.now))
        return "\n".join(self.lines)

    def _word(self, word: str, axis: str) -> None:
        match word:
            case "column":
                self._put(f"input {{}} own={axis}")
                weight, source = self.now, self.lines[-2].split()[1]
                self._put(f"layer {{}} = up({source}, {weight})")
                self._put(f"layer {{}} = down({self.now}, {weight}) partial={axis}")
            case "layer" | "linear":
                self._put(f"{word} {{}} = f({self.now})")
            case _:
                self._put(f"edge {{}} = {word} {self.now} {axis}")
                self.on[axis] = {"scatter": OWN, "slice": OWN, "pass": self.on[axis]}.get(word, "")

    def _put(self, line: str) -> str:
        self.now = f"y{len(self.lines)}"
        self.lines.append(line.format(self.now))
        return self.now


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
    """A random program; its reductions are those of the pieces, or others.

    If not all backward passes are to be the adjoint, one edge has another one.
    """
    rng = random.Random(seed)
    flow = fitting(seed)
    flow = flow if adjoint else disturbed(flow, rng)
    pieces = {a for over, _ in contributions(program(flow)) for a in over}
    if rng.random() < 0.3:
        pieces ^= {rng.choice(("dp", "tp"))}
    sums = "".join(f"{'mean' if rng.random() < 0.1 else 'sum'} g {a}\n" for a in sorted(pieces))
    return program(flow, sums)


def fitting(seed: int) -> str:
    """A random flow in which one backward serves all uses of every value."""
    while True:
        flow = Writer(seed).flow()
        try:
            program(flow)
        except IllFormed:
            seed += 1000
        else:
            return flow


def disturbed(flow: str, rng: random.Random) -> str:
    """The flow with another backward of one edge, where one fits."""
    lines = flow.splitlines()
    edges = [i for i, line in enumerate(lines) if line.startswith("edge")]
    for _ in range(20 if edges else 0):
        at, back = rng.choice(edges), rng.choice(BACKWARDS)
        text = "\n".join((*lines[:at], f"{lines[at]} back={back}", *lines[at + 1 :]))
        try:
            if amiss(program(text)):
                return text
        except IllFormed:
            continue
    return flow


SIZES = [dict(zip(("dp", "tp"), n, strict=True)) for n in product((1, 2, 3), (1, 2, 3))]


@pytest.mark.parametrize("adjoint", [True, False], ids=["adjoint", "stated"])
def test_random_flows_agree_with_the_numeric_model(adjoint: bool) -> None:
    """A proof holds at every size, a refutation at the sizes of its counterexample."""
    counted = {Verdict.PROVED: 0, Verdict.REFUTED: 0}
    for seed in range(120):
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
