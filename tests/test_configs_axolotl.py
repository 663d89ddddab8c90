"""axolotl files: its order of degrees, what each becomes, and every rule firing and silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

from placement_proofs.configs import Imported, load
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, transformer

Config = dict[str, Any]
MODEL = transformer(Shape(heads=4, kv_heads=2, experts=8))


def _config(**keys: Any) -> Config:
    config: Config = {
        "base_model": "a/b",
        "datasets": [],
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "bf16": True,
        "flash_attention": True,
    }
    merged = config | keys
    return {key: value for key, value in merged.items() if value is not None}


def _fsdp(version: int = 2, fsdp_config: Config | None = None, **keys: Any) -> Config:
    block = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"} | (fsdp_config or {})
    return _config(fsdp_version=version, fsdp_config=block, **keys)


def _load(
    tmp_path: Path, config: Config | str, world: int | None = 16, model: bool = False
) -> Imported:
    file = tmp_path / "ax.yaml"
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False))
    return load(file, world=world, model=MODEL if model else None)


TENSOR = "tensor(tp=2, vocabulary=False)"
CONTEXT = "context(cp=2, method='ring')"
HOST = "offload('parameters', 'gradients', 'optimizer')"
EXPRESSIONS: list[tuple[Config, int | None, str]] = [
    (_config(), 16, "data(dp=16)"),
    (_config(), None, "data(dp='N')"),
    (_config(gradient_accumulation_steps=4), 16, "data(dp=16) * accumulate(micro=4)"),
    (_config(tensor_parallel_size=2), 16, f"data(dp=8) * {TENSOR}"),
    (_fsdp(), 16, "fsdp(dp=16)"),
    (_fsdp(), None, "fsdp(dp='N')"),
    (_fsdp(dp_shard_size=1), 16, "fsdp(dp=16)"),
    (_fsdp(dp_shard_size=1), None, "fsdp(dp='N')"),
    (_fsdp(dp_shard_size=4), 16, "hsdp(dp_replicate=4, dp_shard=4)"),
    (_fsdp(dp_shard_size=4), None, "hsdp(dp_replicate='N', dp_shard=4)"),
    (_fsdp(dp_replicate_size=2), 16, "hsdp(dp_replicate=2, dp_shard=8)"),
    (_fsdp(dp_replicate_size=2), None, "hsdp(dp_replicate=2, dp_shard='N')"),
    (
        _fsdp(dp_replicate_size=2, dp_shard_size=4, tensor_parallel_size=2),
        None,
        f"hsdp(dp_replicate=2, dp_shard=4) * {TENSOR}",
    ),
    (_fsdp(context_parallel_size=2), 16, f"fsdp(dp=8, shard_over=('dp', 'cp')) * {CONTEXT}"),
    (_fsdp(sequence_parallel_degree=2), 16, f"fsdp(dp=8, shard_over=('dp', 'cp')) * {CONTEXT}"),
    (_fsdp(expert_parallel_size=4), 16, "fsdp(dp=4) * expert(ep=4)"),
    (
        _fsdp(fsdp_config={"reshard_after_forward": False}),
        16,
        "fsdp(dp=16, reshard_after_forward=False)",
    ),
    (
        _fsdp(1, {"fsdp_sharding_strategy": "SHARD_GRAD_OP"}),
        16,
        "fsdp(dp=16, reshard_after_forward=False)",
    ),
    (_fsdp(1, {"sharding_strategy": "NO_SHARD"}), 16, "data(dp=16)"),
    (
        _config(fsdp=["hybrid_shard", "auto_wrap"]),
        16,
        "hsdp(dp_replicate='machines', dp_shard='N')",
    ),
    (_config(fsdp=["full_shard", "auto_wrap"]), 16, "fsdp(dp=16)"),
    (_fsdp(1, {"fsdp_offload_params": True}), 16, f"fsdp(dp=16) * {HOST}"),
    (_fsdp(gradient_checkpointing=True), 16, "fsdp(dp=16) * recompute('full')"),
    (
        _fsdp(fsdp_config={"activation_checkpointing": True}),
        16,
        "fsdp(dp=16) * recompute('full')",
    ),
    (_config(deepspeed="absent.json"), 16, "data(dp=16)"),
]


@pytest.mark.parametrize(("config", "world", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, config: Config, world: int | None, expression: str) -> None:
    imported = _load(tmp_path, config, world)
    assert repr(imported.composition) == expression
    assert parse(expression) == imported.composition


def test_formats(tmp_path: Path) -> None:
    assert _load(tmp_path, _config(bf16="full")).dtypes.parameters == "bf16"
    assert _load(tmp_path, _config(bf16="auto")).dtypes.parameters is None
    assert _load(tmp_path, _config(bf16=False, fp16=True)).dtypes.parameters == "fp16"


def test_batch_counts_ranks_with_their_own_samples(tmp_path: Path) -> None:
    config = _fsdp(context_parallel_size=2, tensor_parallel_size=2, micro_batch_size=3)
    assert _load(tmp_path, config).batch.global_batch == 3 * 16 // 4
    whole = _config(gradient_accumulation_steps=None, batch_size=12, micro_batch_size=3)
    assert _load(tmp_path, whole).batch.accumulation == 4


def test_deepspeed_file_is_included_and_filled(tmp_path: Path) -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    auto = "auto"
    (tmp_path / "z3.json").write_text(
        json.dumps(
            {
                "zero_optimization": zero,
                "train_batch_size": auto,
                "train_micro_batch_size_per_gpu": auto,
                "gradient_accumulation_steps": auto,
                "bf16": {"enabled": auto},
            }
        )
    )
    config = _config(deepspeed="z3.json", micro_batch_size=2, gradient_accumulation_steps=4)
    imported = _load(tmp_path, config | {"tensor_parallel_size": 2, "gradient_checkpointing": True})
    assert repr(imported.composition) == (
        "zero3(dp=8) * tensor(tp=2, vocabulary=False) * offload('optimizer') * "
        "accumulate(micro=4) * recompute('full')"
    )
    assert imported.batch.global_batch == 64
    assert imported.dtypes.parameters == "bf16"


@pytest.mark.parametrize(
    ("config", "world", "message"),
    [
        (_config(tensor_parallel_size=3), 16, "16 / 3 = 5.33333"),
        (_fsdp(expert_parallel_size=3), 16, "ep 3 on a world of 16"),
        (_fsdp(dp_replicate_size=2, dp_shard_size=4), 16, "dp_replicate 2 * dp_shard 4 for 16"),
        (_fsdp(dp_shard_size=32), 16, "for 16 data-parallel ranks"),
        (_config(dp_replicate_size=2), 16, "for 16 data-parallel ranks"),
        (_fsdp(3), 16, "a version is 1 or 2"),
        (_fsdp(1, {"sharding_strategy": "ALL"}), 16, "a strategy is one of"),
        (_config(micro_batch_size="${B}"), 16, "placeholder"),
        (_config(tensor_parallel_size=0), 16, "it lies between 1"),
        (_config(fsdp_config="yes"), 16, "a block of keys"),
    ],
)
def test_refusal(tmp_path: Path, config: Config, world: int, message: str) -> None:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, config, world)
    assert message in str(caught.value)
    assert str(caught.value).startswith("ax.yaml:")


EIGHT = "adamw_torch_8bit"
PLUGIN = "axolotl.integrations.expert_parallel.ExpertParallelPlugin"
OFFLOAD = {"offload_params": True}
CHECKPOINT = {"activation_checkpointing": True}
RULES: list[tuple[str, str, Config, Config]] = [
    ("unknown key", "ignored", _fsdp(dp_shards_size=2), _fsdp()),
    ("unknown key", "ignored", _fsdp(fsdp_config={"ofload": 1}), _fsdp(fsdp_config=OFFLOAD)),
    (
        "key outside its block",
        "ignored",
        _fsdp(offload_params=True),
        _fsdp(fsdp_config={"offload_params": True}),
    ),
    (
        "auto needs a filler",
        "rejected",
        _config(gradient_accumulation_steps="auto"),
        _config(bf16="auto"),
    ),
    (
        "old name",
        "ignored",
        _fsdp(sequence_parallel_degree=2, context_parallel_size=2),
        _fsdp(sequence_parallel_degree=2),
    ),
    ("DeepSpeed or FSDP", "rejected", _fsdp(deepspeed="a.json"), _fsdp()),
    ("shards need FSDP", "rejected", _config(dp_shard_size=16), _fsdp(dp_shard_size=16)),
    (
        "mesh needs FSDP version 2",
        "rejected",
        _fsdp(1, tensor_parallel_size=2),
        _fsdp(2, tensor_parallel_size=2),
    ),
    (
        "version 1 key",
        "ignored",
        _fsdp(2, {"sharding_strategy": "FULL_SHARD"}),
        _fsdp(1, {"sharding_strategy": "FULL_SHARD"}),
    ),
    (
        "tp or cp with replicas needs dp_shard",
        "rejected",
        _fsdp(dp_replicate_size=8, tensor_parallel_size=2),
        _fsdp(dp_replicate_size=4, tensor_parallel_size=2),
    ),
    (
        "ring attention needs flash",
        "rejected",
        _fsdp(context_parallel_size=2, flash_attention=None),
        _fsdp(context_parallel_size=2),
    ),
    (
        "packed context parallelism",
        "rejected",
        _fsdp(context_parallel_size=2, sample_packing=True, micro_batch_size=2),
        _fsdp(context_parallel_size=2, sample_packing=True),
    ),
    (
        "8-bit optimizer",
        "rejected",
        _fsdp(fsdp_config=OFFLOAD, optimizer=EIGHT),
        _fsdp(optimizer=EIGHT),
    ),
    (
        "8-bit optimizer",
        "rejected",
        _fsdp(tensor_parallel_size=2, optimizer=EIGHT),
        _fsdp(1, OFFLOAD, optimizer=EIGHT),
    ),
    (
        "experts or tensor",
        "rejected",
        _fsdp(expert_parallel_size=2, tensor_parallel_size=2),
        _fsdp(expert_parallel_size=2),
    ),
    (
        "experts need a plugin",
        "ignored",
        _fsdp(expert_parallel_size=2),
        _fsdp(expert_parallel_size=2, plugins=[PLUGIN]),
    ),
    ("two of three batch keys", "rejected", _config(batch_size=4), _config()),
    (
        "batch remainder",
        "ignored",
        _config(batch_size=7, micro_batch_size=2, gradient_accumulation_steps=None),
        _config(batch_size=8, micro_batch_size=2, gradient_accumulation_steps=None),
    ),
    (
        "one recomputation",
        "rejected",
        _fsdp(fsdp_config=CHECKPOINT, gradient_checkpointing=True),
        _fsdp(fsdp_config=CHECKPOINT, gradient_checkpointing=False),
    ),
    (
        "offload needs recomputation",
        "ignored",
        _config(activation_offloading=True),
        _config(activation_offloading=True, gradient_checkpointing=True),
    ),
    ("one 16-bit format", "rejected", _config(fp16=True), _config()),
    ("device map", "unlikely", _fsdp(device_map="auto"), _config(device_map="auto")),
    (
        "sharding over one rank",
        "unlikely",
        _fsdp(tensor_parallel_size=16),
        _fsdp(tensor_parallel_size=8),
    ),
    (
        "heads divide",
        "rejected",
        _fsdp(tensor_parallel_size=8),
        _fsdp(tensor_parallel_size=2),
    ),
    (
        "experts divide",
        "rejected",
        _fsdp(expert_parallel_size=16),
        _fsdp(expert_parallel_size=8),
    ),
    ("included file", "unlikely", _config(deepspeed="a.json"), _config()),
]


@pytest.mark.parametrize(("rule", "kind", "fires", "silent"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, fires: Config, silent: Config) -> None:
    found = [f for f in _load(tmp_path, fires, model=True).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert found[0].place.startswith("ax.yaml:")
    assert rule not in [f.rule for f in _load(tmp_path, silent, model=True).findings]


def test_two_values_for_one_setting(tmp_path: Path) -> None:
    keys = {"gradient_accumulation_steps": 2, "train_micro_batch_size_per_gpu": "auto"}
    (tmp_path / "z.json").write_text(json.dumps(keys | {"zero_optimization": {"stage": 2}}))
    fires = _load(tmp_path, _config(deepspeed="z.json", gradient_accumulation_steps=4))
    assert "two values for one setting" in [f.rule for f in fires.findings]
    silent = _load(tmp_path, _config(deepspeed="z.json", gradient_accumulation_steps=2))
    assert "two values for one setting" not in [f.rule for f in silent.findings]


def test_example() -> None:
    imported = load(ROOT / "examples/configs/axolotl_nd.yaml")
    assert repr(imported.composition) == (
        "place(dp_replicate=2, batch='S(0)') * fsdp(dp=2, shard_over=('dp', 'cp')) * "
        f"{CONTEXT} * {TENSOR} * accumulate(micro=4) * recompute('full')"
    )
    assert imported.world == 16
    assert imported.batch.global_batch == 16
    assert imported.findings == ()
