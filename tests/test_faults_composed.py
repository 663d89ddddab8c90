"""Faults of compositions: each is refuted by replay, its undoing is proved and costed."""

import pytest

from placement_proofs.checking import check
from placement_proofs.inputs import read_subject
from placement_proofs.verdict import Verdict

FAULTS = [
    # composition, deviation, condition, smallest mesh, factor, tensors
    ("data(dp=4)", "drop all-reduce gradient dp", "gradient_integrity", {"dp": 2}, "own dp", ""),
    ("data(dp=4)", "drop scale gradient", "gradient_integrity", {"dp": 2}, "dp", ""),
    (
        "data(dp=2) * tensor(tp=4, sequence=True)",
        "drop all-reduce gradient tp",
        "gradient_integrity",
        {"dp": 1, "tp": 2},
        "own tp",
        "norm",
    ),
    (
        "hsdp(dp_replicate=4, dp_shard=2)",
        "drop all-reduce gradient dp_replicate",
        "gradient_integrity",
        {"dp_replicate": 2, "dp_shard": 1},
        "own dp_replicate",
        "",
    ),
    (
        "hsdp(dp_replicate=4, dp_shard=1)",
        "drop all-reduce gradient dp_replicate",
        "gradient_integrity",
        {"dp_replicate": 2, "dp_shard": 1},
        "own dp_replicate",
        "",
    ),
    (
        "zero1(dp=4)",
        "drop all-gather parameter dp why=publish",
        "state_consistency",
        {"dp": 1},
        "",
        "",
    ),
    (
        "data(dp=2) * pipeline(pp=2, microbatches=4)",
        "drop all-reduce gradient pp:tied",
        "gradient_integrity",
        {"dp": 1, "pp": 2},
        "on other pp",
        "embedding",
    ),
    (
        "data(dp=2) * accumulate(micro=4)",
        "overwrite accumulate gradient",
        "gradient_integrity",
        {"dp": 1},
        "micro last",
        "",
    ),
    (
        "zero1(dp=2) * tensor(tp=2)",
        "regroup all-reduce statistic dp to=dp*tp",
        "norm_integrity",
        {"dp": 1, "tp": 2},
        "2",
        "",
    ),
    (
        "zero3(dp=2)",
        "drop all-gather parameter dp phase=backward",
        "state_consistency",
        {"dp": 1},
        "",
        "",
    ),
    (
        "tensor(tp=2)",
        "drop all-reduce activation tp tensor=layers.o.out",
        "contract",
        {"tp": 2},
        "own tp",
        "layers.o.out",
    ),
    (
        "tensor(tp=2)",
        "drop all-reduce cotangent tp",
        "contract",
        {"tp": 2},
        "own tp",
        "layers.norm1.out",
    ),
    (
        "ulysses(sp=2)",
        "drop all-to-all activation sp nth=0",
        "contract",
        {"sp": 2},
        "0",
        "layers.q.out",
    ),
    (
        "pipeline(pp=2, microbatches=2)",
        "drop point-to-point activation",
        "contract",
        {"pp": 2},
        "on other pp",
        "embedding.out",
    ),
]


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tied.toml"
    path.write_text("tied = true\n")
    return str(path)


@pytest.mark.parametrize(
    ("text", "deviation", "condition", "mesh", "factor", "member"),
    FAULTS,
    ids=[f"{text}: {deviation}" for text, deviation, *_ in FAULTS],
)
def test_a_fault_is_refuted_and_undoing_it_is_proved(
    tied, text, deviation, condition, mesh, factor, member
):
    report = check(read_subject(text, model=tied, without=[deviation]))
    assert report.verdict is Verdict.REFUTED
    failure = report.failure
    assert failure.condition == condition
    assert failure.counterexample["mesh"] == mesh
    assert factor in failure.counterexample["factor"]
    assert any(member in name for name in failure.members)
    assert [r.verdict for r in report.repairs] == [Verdict.PROVED]
    assert check(read_subject(text, model=tied)).verdict is Verdict.PROVED


def test_a_result_that_is_reduced_again_is_a_multiple():
    subject = read_subject(
        "tensor(tp=2)", model="tiny", without=["duplicate all-reduce activation tp nth=0"]
    )
    report = check(subject)
    assert report.verdict is Verdict.REFUTED
    assert report.failure.counterexample["factor"] in ("tp", "2")


def test_a_reduction_on_an_axis_of_size_one_may_be_dropped():
    text = "hsdp(dp_replicate=4, dp_shard=1)"
    subject = read_subject(text, model="tiny", without=["drop reduce-scatter gradient dp_shard"])
    report = check(subject)
    assert report.verdict is Verdict.PROVED
    assert "dp_shard = 1" in report.conditions["gradient_integrity"].covers


def test_the_proof_covers_all_sizes():
    report = check(read_subject("zero3(dp=8) * tensor(tp=4, sequence=True)", model="dense"))
    covers = report.conditions["gradient_integrity"].covers
    assert "all sizes of" in covers
    assert "dp" in covers
    assert "tp" in covers


@pytest.mark.parametrize(
    ("deviation", "condition"),
    [
        ("drop square gradient group=norm", "norm_integrity"),
        ("duplicate square gradient group=norm", "norm_integrity"),
        ("drop clip gradient group=norm", "gradient_integrity"),
        ("duplicate clip gradient", "gradient_integrity"),
        ("drop clip gradient", "gradient_integrity"),
    ],
)
def test_the_norm_counts_every_group_once_and_clips_all(deviation, condition):
    report = check(read_subject("data(dp=2)", model="tiny", without=[deviation]))
    assert report.verdict is Verdict.REFUTED
    assert report.failure.condition == condition


def test_each_end_of_a_tied_tensor_gathers_for_itself(tied):
    text = "zero3(dp=2) * pipeline(pp=2, microbatches=2)"
    forgotten = "drop all-gather parameter dp phase=forward stage=last group=embedding"
    report = check(read_subject(text, model=tied, without=[forgotten]))
    assert report.verdict is Verdict.REFUTED
    assert report.failure.condition == "state_consistency"
