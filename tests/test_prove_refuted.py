"""Wrong programs: the condition, the smallest mesh, the factor, the blame and the repair."""

from __future__ import annotations

import json

import pytest
from written_programs import right

from placement_proofs.program import Program, Reduce, validate
from placement_proofs.program.text import parse_program
from placement_proofs.prove import ProgramResult, find_repairs, prove
from placement_proofs.replay import replay
from placement_proofs.verdict import Verdict

MEAN = "axes dp; spec W = c[dp]/dp; copy w of W\nloop step { use w; grad g = c[dp]\n"


def refuted(text: str, condition: str) -> ProgramResult:
    """The result of a program whose first cause is that condition."""
    program = parse_program(text)
    result = prove(program)
    assert result.verdict is Verdict.REFUTED
    assert result.first_cause == condition, result.to_json()
    replayed(program, result)
    return result


def replayed(program: Program, result: ProgramResult) -> None:
    """The counterexample is what the replay says on that mesh."""
    example = result.counterexample
    assert example is not None
    sizes = {**dict(example.sizes), **dict(example.lengths)}
    found = replay(program, sizes).failed(example.condition)
    assert found is not None
    values = [("nothing" if v is None else str(v)) for v in (found.expected, found.got)]
    assert values == [example.expected, example.got]


FACTORS = {
    "sum for mean": (
        "axes dp; spec W = c[dp]/dp; copy w of W; grad g = c[dp]; sum g dp; update w g",
        {"dp": 2},
        "dp",
        "every dp >= 2",
    ),
    "expert gradients averaged over their own replicas": (
        "axes edp ep; spec W = c[edp,ep]/(edp*ep); copy w of W held=ep:p,edp:p;"
        "grad g = c[edp,ep] sum=ep held=ep:p; mean g edp to=p; update w g",
        {"edp": 1, "ep": 2},
        "ep",
        "every ep >= 2",
    ),
    "loss scale without sp": (
        "axes dp sp; spec W = c[dp,sp]/n; copy w of W; count k = n[dp,sp]; sum k dp,sp;"
        "grad g = c[dp,sp] x=dp/k; mean g dp,sp; update w g",
        {"dp": 1, "sp": 2},
        "1/sp",
        "every sp >= 2",
    ),
    "loss times all processes": (
        "axes dp tp cp; spec W = c[dp]/dp; copy w of W; grad g = c[dp] x=tp*cp; mean g dp;"
        "update w g",
        {"dp": 1, "tp": 2, "cp": 1},
        "tp*cp",
        "every tp >= 2",
    ),
    "divided twice": (
        "axes dp; spec W = c[dp,mb]/(dp*mb); copy w of W; loop mb { if mb.first: grad g = "
        "c[dp,mb] x=1/(mb*mb); if mb.!first: grad g += c[dp,mb] x=1/(mb*mb) }; mean g dp;"
        "update w g",
        {"dp": 1},
        "1/mb",
        "every mb >= 2",
    ),
    "an auxiliary loss is lost": (
        "axes dp; spec W = c[dp]/dp + a[dp]/dp; copy w of W; grad g = c[dp]; mean g dp;update w g",
        {"dp": 1},
        "1 for c; 0 for a",
        "all sizes",
    ),
    "a hidden degree": (
        "axes a; spec W = c[a]; copy w of W; grad g = c[a]; sum g a;"
        "scale g (6*a*a-11*a+6)/(a*a*a); update w g",
        {"a": 4},
        "6/a - 11/(a*a) + 6/(a*a*a)",
        "a = 4, 5 (of 1 to 5)",
    ),
}


@pytest.mark.parametrize(("text", "mesh", "factor", "shows"), FACTORS.values(), ids=FACTORS)
def test_factors(text: str, mesh: dict[str, int], factor: str, shows: str) -> None:
    example = refuted(text, "gradient_integrity").counterexample
    assert example is not None
    assert dict(example.sizes) == mesh
    assert example.factor == factor
    if shows.startswith("a ="):
        assert "4" in example.shows_at
    else:
        assert example.shows_at == shows


def test_a_missing_all_reduce_blames_the_update_and_inserts_it() -> None:
    result = refuted(MEAN + "update w g; tick }", "gradient_integrity")
    assert result["state_consistency"].verdict is Verdict.REFUTED
    assert result.blame == ((0, 2), "update w g")
    repairs = find_repairs(parse_program(MEAN + "update w g; tick }"), result)
    assert repairs[0].action == "insert the missing reduction"
    assert repairs[0].text == "before step 1.3: 'mean g dp'"
    assert repairs[0].cost == "2*(N_dp-1)/N_dp * bytes"
    assert prove(repairs[0].program).verdict is Verdict.PROVED


def test_a_wrong_scale_blames_the_reduction() -> None:
    text = MEAN + "sum g dp; update w g; tick }"
    result = refuted(text, "gradient_integrity")
    assert result["state_consistency"].verdict is Verdict.PROVED
    assert result.blame == ((0, 2), "sum g dp")
    (first, *_) = find_repairs(parse_program(text), result)
    assert (first.action, first.cost) == ("change the scale", "0")


def test_a_missing_publish_is_repaired() -> None:
    text = (
        "axes dp; spec W = c[dp]/dp; copy w of W; copy m of W held=dp:p\n"
        "loop step { use w; grad g = c[dp]; mean g dp to=p; update m g; tick }"
    )
    result = refuted(text, "state_consistency")
    assert result["gradient_integrity"].verdict is Verdict.PROVED
    (first, *_) = find_repairs(parse_program(text), result)
    assert first.action == "publish the updated copy"
    assert first.text == "before step 1.1: 'set w m; take w dp p'"
    assert first.cost == "(N_dp-1)/N_dp * bytes"


CLIP = (
    "axes dp tp; spec W = c[dp]/dp clip=all; spec N = d[dp]/dp clip=all\n"
    "copy w of W held=tp:p; copy n of N\n"
    "grad g = c[dp] held=tp:p; mean g dp; grad h = d[dp]; mean h dp\n"
)


def test_a_norm_is_the_first_cause_and_the_gradient_follows() -> None:
    text = CLIP + "square q = g h; sum q tp; clip g h by q; update w g; update n h; tick"
    result = refuted(text, "norm_integrity")
    assert result["gradient_integrity"].reason == "follows from norm_integrity"
    assert result.counterexample is not None
    assert result.counterexample.factor == "1 for squares of c; tp for squares of d"


def test_a_norm_that_stays_local() -> None:
    text = CLIP + "square q = g; square r = h; add q r; clip g h by q; update w g; update n h"
    result = refuted(text, "norm_integrity")
    program = parse_program(text)
    (first, *_) = find_repairs(program, result)
    assert first.text == "before step 6: 'sum q tp'"


def test_a_group_left_out_of_the_norm() -> None:
    text = CLIP + "square q = g; sum q tp; clip g by q; update w g; update n h"
    refuted(text, "norm_integrity")


def test_a_wrong_gradient_before_the_norm_is_the_first_cause() -> None:
    text = CLIP.replace("mean h dp", "sum h dp") + (
        "square q = g; sum q tp; square r = h; add q r; clip g h by q; update w g; update n h"
    )
    result = refuted(text, "gradient_integrity")
    assert result["norm_integrity"].verdict is Verdict.PROVED


def test_whole_tensor_optimizer_on_shards() -> None:
    text = (
        "axes tp; spec W = c[] update=whole; copy w of W held=tp:p\n"
        "grad g = c[] held=tp:p; update w g; tick"
    )
    result = refuted(text, "optimizer_class")
    assert result["gradient_integrity"].verdict is Verdict.PROVED
    assert prove(parse_program(text.replace(" update=whole", ""))).verdict is Verdict.PROVED


def test_hyper_parameters_of_another_group() -> None:
    text = (
        "axes dp; spec W = c[dp]/dp hyper=lr2; copy w of W\n"
        "grad g = c[dp]; mean g dp; update w g hyper=lr1"
    )
    refuted(text, "contract")
    assert prove(parse_program(text.replace("lr1", "lr2"))).verdict is Verdict.PROVED


def test_a_function_of_a_pending_sum() -> None:
    text = "axes tp; grad y = c[tp]; apply z = gelu(y); sum z tp; expect z is gelu(c[tp])"
    result = refuted(text, "contract")
    assert result.counterexample is not None
    assert dict(result.counterexample.sizes) == {"tp": 2}


def test_a_contract_about_the_own_rank() -> None:
    text = "axes dp; grad g = c[dp]; sum g dp; expect g is c[@dp]"
    refuted(text, "contract")
    assert prove(parse_program(text.replace("@", ""))).verdict is Verdict.PROVED
    assert prove(parse_program(text.replace("sum g dp; ", ""))).verdict is Verdict.PROVED


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("zero1", "gather w dp;", ""),
        ("zero1", "set w m; gather w dp;", ""),
        ("zero2 (reduce every micro-batch)", "if mb.!first: add g t", "if mb.!first: set g t"),
        ("zero3", "set view w; gather view dp; use view", "use view"),
        ("hsdp", "mean g dr;", ""),
        ("sequence-parallel norm", "sum f tp;", ""),
        ("tied embedding", "sum g pp;", ""),
        (
            "tied embedding, stored twice",
            "copy b of E held=pp:last,dp:p",
            "copy b of E held=pp:last,dp:q",
        ),
        ("token weights", "sum k dp,sp", "mean k dp,sp"),
        ("broadcast at start", "take w tp first", ""),
        ("expert", "sum g edp to=p", "mean g edp to=p"),
        ("context", "x=cp", "x=1"),
    ],
)
def test_one_step_from_right_to_wrong(name: str, old: str, new: str) -> None:
    from written_programs import ACCUMULATE, RIGHT

    text = RIGHT[name].replace("ACC(dp)", ACCUMULATE.replace("OVER", "dp"))
    assert old in text
    program = parse_program(text.replace(old, new))
    result = prove(program)
    assert result.verdict is Verdict.REFUTED
    replayed(program, result)


# --- sizes that the user fixed -------------------------------------------------------


def test_a_fault_that_only_shows_elsewhere_is_proved_at_the_given_sizes() -> None:
    program = parse_program(
        "axes dp tp; spec W = c[dp]/dp; copy w of W; grad g = c[dp]; mean g dp,tp;"
        "scale g tp*tp; update w g"
    )
    everywhere = prove(program)
    assert everywhere.verdict is Verdict.REFUTED
    at_one = prove(program, sizes={"tp": 1, "dp": 64})
    assert at_one.verdict is Verdict.PROVED
    assert at_one["gradient_integrity"].covers.startswith("tp = 1, dp = 64")
    at_two = prove(program, sizes={"tp": 2, "dp": 64})
    assert at_two.verdict is Verdict.REFUTED
    assert at_two.counterexample is not None and at_two.counterexample.at_given is True
    assert dict(at_two.counterexample.sizes) == {"dp": 1, "tp": 2}


def test_a_coincidence_of_sizes_is_seen() -> None:
    """1/2 is 1/N at N = 2 and nowhere else."""
    program = parse_program(
        "axes dp; spec W = c[dp]/dp; copy w of W; grad g = c[dp] x=1/2; sum g dp; update w g"
    )
    assert prove(program).verdict is Verdict.REFUTED
    assert prove(program, sizes={"dp": 2}).verdict is Verdict.PROVED
    assert prove(program, sizes={"dp": 3}).verdict is Verdict.REFUTED
    assert prove(program, sizes={"dp": 10**6}).verdict is Verdict.REFUTED


def test_what_holds_for_all_sizes_is_said_also_for_given_ones() -> None:
    result = prove(right("zero1"), sizes={"dp": 8, "mb": 4})
    assert result["gradient_integrity"].covers == (
        "all sizes of dp; any number of turns of step, mb; exact arithmetic"
    )


def test_a_condition_that_holds_everywhere_keeps_its_cover() -> None:
    program = parse_program(MEAN + "sum g dp; update w g; tick }")
    result = prove(program, sizes={"dp": 4})
    assert result["state_consistency"].covers.startswith("all sizes of dp")
    assert result["gradient_integrity"].covers.startswith("dp = 4")
    assert result.counterexample is not None and result.counterexample.factor == "dp"


@pytest.mark.parametrize("sizes", [{"tp": 2}, {"dp": 0}, {"dp": -1}, {"dp": True}, {"dp": 2.0}])
def test_bad_sizes_are_ill_formed(sizes: dict[str, int]) -> None:
    result = prove(parse_program(MEAN + "mean g dp; update w g; tick }"), sizes=sizes)
    assert result.verdict is Verdict.ILL_FORMED
    assert result.reason.startswith("sizes: found")


# --- nothing passes by accident ------------------------------------------------------


def test_a_program_without_obligations_is_ill_formed() -> None:
    assert prove(Program(("dp",))).verdict is Verdict.ILL_FORMED


def test_obligations_that_never_run_do_not_prove() -> None:
    program = parse_program("axes dp; spec W = c[dp]; copy w of W; if dp > 1: use w")
    assert prove(program, sizes={"dp": 2}).verdict is Verdict.PROVED
    result = prove(program, sizes={"dp": 1})
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == "no step with an obligation runs at these sizes"
    fixed = "axes dp; size dp 1; spec W = c[dp]; copy w of W; if dp > 1: use w"
    assert prove(parse_program(fixed)).verdict is Verdict.UNKNOWN


def test_laws_of_functions_that_are_not_known_give_unknown() -> None:
    """exp and log undo each other; a refutation that forgets it would be wrong."""
    text = "axes dp; grad g = c[dp]; apply y = exp(g); apply z = log(y); expect z is c[@dp]"
    result = prove(parse_program(text))
    assert result.verdict is Verdict.UNKNOWN
    assert "exp and log" in result.reason
    known = "axes dp; grad g = c[dp]; square q = g; apply r = sqrt(q); apply z = square(r);"
    assert prove(parse_program(known + "expect z same q")).verdict is Verdict.PROVED


def test_results_are_plain_data() -> None:
    result = refuted(MEAN + "sum g dp; update w g; tick }", "gradient_integrity")
    data = json.loads(json.dumps(result.to_json()))
    assert data["verdict"] == "refuted"
    assert data["conditions"]["gradient_integrity"]["verdict"] == "refuted"
    assert data["counterexample"]["mesh"] == {"dp": 2}
    assert data["blame"] == {"step": "1.3", "text": "sum g dp"}


def test_every_kind_of_edit_leaves_a_valid_program() -> None:
    program = parse_program(MEAN + "update w g; tick }")
    for repair in find_repairs(program, prove(program)):
        validate(repair.program)
        assert any(isinstance(step, Reduce) for step in repair.program.steps[0].body)  # type: ignore[union-attr]
