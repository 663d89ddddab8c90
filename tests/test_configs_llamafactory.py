"""LLaMA-Factory files: its three backends, and every rule once firing and once silent."""

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
DENSE = transformer(Shape(layers=24, heads=16, kv_heads=4, hidden=32))
MOE = transformer(Shape(layers=24, heads=16, kv_heads=4, hidden=32, experts=8))


def _trainer(**keys: Any) -> Config:
    return {
        "model_name_or_path": "a/b",
        "stage": "sft",
        "finetuning_type": "full",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "cutoff_len": 4096,
        "bf16": True,
    } | keys


_LONG = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}


def _megatron(**keys: Any) -> Config:
    names = {k: f"{v}_model_parallel_size" for k, v in _LONG.items()}
    names |= {"cp": "context_parallel_size", "vpp": "virtual_pipeline_model_parallel_size"}
    named = {names.get(key, key): value for key, value in keys.items()}
    return _trainer(**({"tensor_model_parallel_size": 1} | named))


def _second(name: str = "fsdp2", dist: Config | None = None, **keys: Any) -> Config:
    block = {"name": name} | (dist or {})
    return {"model": "a/b", "model_class": "llm", "dist_config": block, "bf16": True} | keys


def _load(
    tmp_path: Path, config: Config, world: int | None = 16, experts: bool = False
) -> Imported:
    file = tmp_path / "lf.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return load(file, world=world, model=MOE if experts else DENSE)


def _experts(ranks: int) -> str:
    """The shards of the experts over the ranks that have the same ones."""
    modes = "parameters='S*', optimizer='S', gradients='S'"
    return " * ".join(
        f"place(dp={ranks}, group='{group}', {modes})" for group in ("expert_in", "expert_out")
    )


FULL = "recompute('full')"
HOST = "offload('parameters', 'gradients', 'optimizer')"
GAS = "gradient_accumulation_steps"
SP = {"sequence_parallel": True}
RECOMPUTE = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}
EXPRESSIONS: list[tuple[Config, int | None, str]] = [
    (_trainer(), 16, f"data(dp=16) * {FULL}"),
    (_trainer(), None, f"data(dp='N') * {FULL}"),
    (_trainer(disable_gradient_checkpointing=True), 16, "data(dp=16)"),
    (_trainer(**{GAS: 4}), 16, f"data(dp=16) * accumulate(micro=4) * {FULL}"),
    (_trainer(fsdp="full_shard auto_wrap"), 16, f"fsdp(dp=16) * {FULL}"),
    (_trainer(fsdp=["full_shard", "offload"]), 16, f"fsdp(dp=16) * {HOST} * {FULL}"),
    (
        _trainer(fsdp="hybrid_shard"),
        16,
        f"hsdp(dp_replicate='machines', dp_shard='N') * {FULL}",
    ),
    (_megatron(tp=2), 16, "data(dp=8) * tensor(tp=2)"),
    (_megatron(tp=2, **SP), 16, "data(dp=8) * tensor(tp=2, sequence=True)"),
    (_megatron(tp=1, **SP), 16, "data(dp=16)"),
    (_megatron(tp=2, use_distributed_optimizer=True), 16, "zero1(dp=8) * tensor(tp=2)"),
    (
        _megatron(cp=2, use_distributed_optimizer=True),
        16,
        "zero1(dp=8, shard_over=('dp', 'cp')) * context(cp=2, method='ring')",
    ),
    (_megatron(ep=4), 16, "data(dp=4) * expert(ep=4)"),
    (
        _megatron(ep=4, use_distributed_optimizer=True),
        16,
        "zero1(dp=4, shard_over=('dp', 'ep')) * expert(ep=4) * "
        "place(dp=4, group='expert_in', optimizer='S') * "
        "place(dp=4, group='expert_out', optimizer='S')",
    ),
    (_megatron(pp=2, **{GAS: 4}), 16, "data(dp=8) * pipeline(pp=2, microbatches=4)"),
    (
        _megatron(pp=2, vpp=3, **{GAS: 4}),
        16,
        "data(dp=8) * pipeline(pp=2, microbatches=4, schedule='interleaved', chunks=3)",
    ),
    (_megatron(**RECOMPUTE), 16, f"data(dp=16) * {FULL}"),
    (
        _megatron(recompute_granularity="selective"),
        16,
        "data(dp=16) * recompute('selective')",
    ),
    (_second(), 16, "fsdp(dp=16)"),
    (_second(), None, "fsdp(dp='N')"),
    (_second(dist={"mp_replicate_size": 2}), 16, "hsdp(dp_replicate=2, dp_shard=8)"),
    (_second(cp_size=2), 16, "fsdp(dp=8, shard_over=('dp', 'sp')) * ulysses(sp=2)"),
    (
        _second(cp_size=2, cp_mode="ring"),
        16,
        "fsdp(dp=8, shard_over=('dp', 'cp')) * context(cp=2)",
    ),
    (
        _second("fsdpturbo", {"ep_size": 8}),
        16,
        f"fsdp(dp=2, shard_over=('dp', 'ep')) * expert(ep=8) * {_experts(2)}",
    ),
    (
        _second(micro_batch_size=2, global_batch_size=128),
        16,
        "fsdp(dp=16) * accumulate(micro=4)",
    ),
    (_second("deepspeed", {"config_file": "no.json"}), 16, "data(dp=16)"),
]


@pytest.mark.parametrize(("config", "world", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, config: Config, world: int | None, expression: str) -> None:
    imported = _load(tmp_path, config, world)
    assert repr(imported.composition) == expression
    assert parse(expression) == imported.composition


@pytest.mark.parametrize(
    ("config", "expression"),
    [
        (
            _trainer(deepspeed="z.json", **{GAS: 4}),
            f"zero3(dp=16) * accumulate(micro=4) * {FULL}",
        ),
        (_second("deepspeed", {"config_file": "z.json"}), "zero3(dp=16)"),
    ],
)
def test_deepspeed_file_is_included(tmp_path: Path, config: Config, expression: str) -> None:
    auto = {"train_micro_batch_size_per_gpu": "auto", GAS: "auto", "train_batch_size": "auto"}
    zero = auto | {"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}
    (tmp_path / "z.json").write_text(json.dumps(zero))
    imported = _load(tmp_path, config)
    assert repr(imported.composition) == expression
    assert imported.dtypes.parameters == "bf16"
    assert imported.field("zero_stage").place.startswith("z.json:1")


def test_absent_engines_leave_the_stage_undecided(tmp_path: Path) -> None:
    for config in (_trainer(), _trainer(deepspeed="no.json")):
        assert _load(tmp_path, config).field("zero_stage").provenance == "unknown"


def test_workers_of_ray_are_the_world(tmp_path: Path) -> None:
    imported = _load(tmp_path, _trainer(ray_num_workers=4), None)
    assert imported.world == 4
    assert imported.field("world").place == "lf.yaml:8 ray_num_workers"


def test_batch_leaves_experts_out_of_the_factors(tmp_path: Path) -> None:
    config = _megatron(tp=2, ep=2, **SP, **{GAS: 2})
    assert _load(tmp_path, config).batch.global_batch == 2 * 2 * 8


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (_megatron(tp=3), "16 / 3 = 5.33333"),
        (_megatron(tp=0), "it lies between 1"),
        (_megatron(recompute_granularity="most"), "it is full or selective"),
        (_trainer(per_device_train_batch_size="${B}"), "placeholder"),
        (_second(dist={"mp_replicate_size": 3}), "the number of ranks"),
        (_second(dist={"mp_replicate_size": 2, "mp_shard_size": 4}), "the number of ranks"),
        (_second(cp_size=3), "16 / 3"),
        (_second() | {"dist_config": "fsdp2"}, "a block of keys"),
    ],
)
def test_refusal(tmp_path: Path, config: Config, message: str) -> None:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, config)
    assert message in str(caught.value)
    assert str(caught.value).startswith("lf.yaml:")


ZERO3 = {"deepspeed": "z3.json"}
RULES: list[tuple[str, str, Config, Config]] = [
    ("unknown key", "rejected", _trainer(deepsped="a"), _trainer()),
    ("auto needs a filler", "rejected", _trainer(**{GAS: "auto"}), _trainer()),
    ("DeepSpeed or FSDP", "rejected", _trainer(fsdp="full_shard", **ZERO3), _trainer(**ZERO3)),
    ("DeepSpeed or Megatron", "rejected", _megatron(tp=2, **ZERO3), _megatron(tp=2)),
    ("one 16-bit format", "rejected", _trainer(fp16=True), _trainer()),
    (
        "not with ZeRO-3",
        "rejected",
        _trainer(pure_bf16=True, **ZERO3),
        _trainer(pure_bf16=True),
    ),
    (
        "GaLore with DeepSpeed",
        "rejected",
        _trainer(use_galore=True, **ZERO3),
        _trainer(use_galore=True),
    ),
    ("backend of the environment", "unlikely", _megatron(tp=2), _trainer()),
    (
        "sequence parallelism at one tensor rank",
        "ignored",
        _megatron(tp=1, **SP),
        _megatron(tp=2, **SP),
    ),
    (
        "experts need sequence parallelism",
        "rejected",
        _megatron(tp=2, ep=2),
        _megatron(tp=2, ep=2, **SP),
    ),
    (
        "expert grid",
        "rejected",
        _megatron(tp=4, ep=8, **SP),
        _megatron(tp=4, ep=8, expert_tensor_parallel_size=1, **SP),
    ),
    (
        "bridge's product",
        "rejected",
        _megatron(tp=4, ep=8, expert_tensor_parallel_size=1, **SP),
        _megatron(tp=2, ep=8, **SP),
    ),
    ("chunks without pipeline", "ignored", _megatron(vpp=2), _megatron(pp=2, vpp=2)),
    (
        "micro-batches of the interleaved schedule",
        "rejected",
        _megatron(pp=2, vpp=2, **{GAS: 3}),
        _megatron(pp=2, vpp=2, **{GAS: 4}),
    ),
    (
        "micro-batches fill the pipeline",
        "unlikely",
        _megatron(pp=4, **{GAS: 2}),
        _megatron(pp=4, **{GAS: 4}),
    ),
    (
        "recomputation settings",
        "rejected",
        _megatron(recompute_granularity="full"),
        _megatron(**RECOMPUTE),
    ),
    ("recomputation settings", "ignored", _megatron(recompute_num_layers=1), _megatron()),
    (
        "sharding over one rank",
        "unlikely",
        _megatron(tp=16, use_distributed_optimizer=True),
        _megatron(tp=8, cp=2, use_distributed_optimizer=True),
    ),
    ("heads divide", "rejected", _megatron(tp=32), _megatron(tp=16)),
    ("layers over stages", "rejected", _megatron(pp=16), _megatron(pp=8)),
    ("layers over stages", "rejected", _megatron(pp=2, vpp=24), _megatron(pp=2, vpp=12)),
    (
        "tokens divide",
        "rejected",
        _megatron(cp=2, cutoff_len=4090),
        _megatron(cp=2, cutoff_len=4096),
    ),
    (
        "global batch",
        "rejected",
        _second(micro_batch_size=2, global_batch_size=100),
        _second(micro_batch_size=2, global_batch_size=96),
    ),
    (
        "experts of fsdpturbo",
        "ignored",
        _second("fsdp2", {"ep_size": 8}),
        _second("fsdpturbo", {"ep_size": 8}),
    ),
    (
        "expert groups",
        "rejected",
        _second("fsdpturbo", {"ep_size": 3}),
        _second("fsdpturbo", {"ep_size": 4}),
    ),
    ("heads divide", "rejected", _second(cp_size=32), _second(cp_size=16)),
    ("included file", "unlikely", _trainer(deepspeed="no.json"), _trainer(**ZERO3)),
]


@pytest.mark.parametrize(("rule", "kind", "fires", "silent"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, fires: Config, silent: Config) -> None:
    (tmp_path / "z3.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    experts, wide = "experts" in rule, rule in ("heads divide",)
    world = 32 if wide else 16
    found = [f for f in _load(tmp_path, fires, world, experts).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert found[0].place.startswith("lf.yaml:")
    assert rule not in [f.rule for f in _load(tmp_path, silent, world, experts).findings]


def test_experts_of_the_model(tmp_path: Path) -> None:
    rules = [f.rule for f in _load(tmp_path, _megatron(ep=16), 16, True).findings]
    assert "experts divide" in rules
    tensor = _megatron(tp=2)
    assert "experts need sequence parallelism" in [
        f.rule for f in _load(tmp_path, tensor, 16, True).findings
    ]


def test_example() -> None:
    path = ROOT / "examples/configs/llamafactory_megatron.yaml"
    imported = load(path, world=16, model=DENSE)
    assert repr(imported.composition) == (
        "zero1(dp=4) * tensor(tp=2, sequence=True) * pipeline(pp=2, microbatches=8, "
        "schedule='interleaved', chunks=2) * recompute('full')"
    )
    assert imported.batch.global_batch == 32
    assert [f.rule for f in imported.findings] == ["backend of the environment"]
