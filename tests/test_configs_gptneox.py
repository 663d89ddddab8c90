"""GPT-NeoX files: what they become, and every rule once firing and once silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from placement_proofs.configs import Imported, detect, load
from placement_proofs.errors import IllFormed

EXAMPLE = Path(__file__).parents[1] / "examples" / "configs" / "gptneox.yml"


def _load(tmp_path: Path, config: dict[str, Any], world: int | None = 16) -> Imported:
    file = tmp_path / "a.yml"
    base = {
        "pipe_parallel_size": 1,
        "model_parallel_size": 1,
        "num_layers": 16,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 8,
    }
    file.write_text(yaml.safe_dump({k: v for k, v in (base | config).items() if v is not None}))
    assert detect(file) == "gptneox"
    return load(file, world=world)


def _zero(stage: int, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **more}}


EXPRESSIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "data(dp=16) * accumulate(micro=8)"),
    (_zero(1), "zero1(dp=16) * accumulate(micro=8)"),
    (
        _zero(1) | {"pipe_parallel_size": 2, "model_parallel_size": 4},
        "zero1(dp=2) * tensor(tp=4) * pipeline(pp=2, microbatches=8)",
    ),
    ({"pipe-parallel-size": 0, "pipe_parallel_size": None}, "data(dp=16) * accumulate(micro=8)"),
    (
        {"model_parallel_size": 2, "sequence_parallel": True, "checkpoint_activations": True},
        "data(dp=8) * tensor(tp=2, sequence=True) * accumulate(micro=8) * recompute('full')",
    ),
    (
        _zero(3, offload_optimizer={"device": "cpu"}),
        "zero3(dp=16) * accumulate(micro=8) * offload('optimizer')",
    ),
]


@pytest.mark.parametrize(("config", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, config: dict[str, Any], expression: str) -> None:
    assert repr(_load(tmp_path, config).composition) == expression


def test_example() -> None:
    imported = load(EXAMPLE, world=32)
    assert detect(EXAMPLE) == "gptneox"
    assert repr(imported.composition) == (
        "zero1(dp=4) * tensor(tp=4) * pipeline(pp=2, microbatches=16) * recompute('full')"
    )
    assert imported.findings == ()
    assert imported.batch.global_batch == 2 * 16 * 4
    assert [f.name for f in imported.fields].count("tp") == 1
    assert imported.field("zero_stage").place == "gptneox.yml:12 zero_optimization.stage"
    assert load(EXAMPLE).field("dp").value == "N"


def test_json_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"pipe-parallel-size": 1, "model-parallel-size": 2, // words\n}')
    assert detect(file) == "gptneox"
    assert load(file, world=4).field("dp").value == 2


def test_precision_is_a_word_too(tmp_path: Path) -> None:
    assert _load(tmp_path, {"precision": "bfloat16"}).dtypes.parameters == "bf16"


HEADS = {"num_attention_heads": 12, "model_parallel_size": 8}
RULES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("pipeline stage", "rejected", _zero(2) | {"pipe_parallel_size": 2}, _zero(2)),
    ("heads on ranks", "rejected", HEADS, HEADS | {"model_parallel_size": 4}),
    (
        "sequence on ranks",
        "rejected",
        {"model_parallel_size": 4, "seq_length": 1022, "sequence_parallel": True},
        {"model_parallel_size": 4, "seq_length": 1022},
    ),
    (
        "layers on stages",
        "unlikely",
        {"pipe_parallel_size": 4, "num_layers": 18},
        {"pipe_parallel_size": 4},
    ),
    (
        "sequence needs tp",
        "ignored",
        {"sequence_parallel": True},
        {"sequence_parallel": True, "model_parallel_size": 2},
    ),
    (
        "micro-batches fill stages",
        "unlikely",
        {"pipe_parallel_size": 4, "gradient_accumulation_steps": 2},
        {"pipe_parallel_size": 4},
    ),
    (
        "experts on ranks",
        "rejected",
        {"moe_num_experts": 6, "moe_expert_parallel_size": 4},
        {"moe_num_experts": 8, "moe_expert_parallel_size": 4},
    ),
    (
        "checkpointing off",
        "ignored",
        {"partition_activations": True},
        {"partition_activations": True, "checkpoint_activations": True},
    ),
    (
        "batch triple",
        "rejected",
        {"train_batch_size": 100},
        {"train_batch_size": 2 * 8 * 16},
    ),
]


@pytest.mark.parametrize(("rule", "kind", "wrong", "right"), RULES)
def test_rule(
    tmp_path: Path, rule: str, kind: str, wrong: dict[str, Any], right: dict[str, Any]
) -> None:
    found = [f for f in _load(tmp_path, wrong).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert rule not in [f.rule for f in _load(tmp_path, right).findings]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(IllFormed, match="tp=3 on a world of 16"):
        _load(tmp_path, {"model_parallel_size": 3})
    with pytest.raises(IllFormed, match="a search by the autotuner"):
        _load(tmp_path, {"zero_optimization": {"stage": [0, 1]}})
