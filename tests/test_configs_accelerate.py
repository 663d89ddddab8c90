"""Accelerate files: what each engine becomes, and every rule once firing and once silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from placement_proofs.configs import Imported, load
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse

Config = dict[str, Any]


def _load(tmp_path: Path, config: Config | str, world: int | None = None) -> Imported:
    file = tmp_path / "acc.yaml"
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False))
    return load(file, world=world)


def _base(kind: str, processes: Any = 8, **more: Any) -> Config:
    config: Config = {"distributed_type": kind, "num_processes": processes, **more}
    return {key: value for key, value in config.items() if value is not None}


WRAP = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}


def _fsdp(processes: int | None = 8, machines: int | None = None, **keys: Any) -> Config:
    fsdp = WRAP | {f"fsdp_{key}": value for key, value in keys.items()}
    return _base("FSDP", processes, num_machines=machines, fsdp_config=fsdp)


def _mesh(processes: int | None = 8, version: int = 2, **sizes: int) -> Config:
    mesh = {f"parallelism_config_{name}_size": size for name, size in sizes.items()}
    return _fsdp(processes, version=version) | {"parallelism_config": mesh}


def _deepspeed(processes: int | None = 8, **keys: Any) -> Config:
    return _base("DEEPSPEED", processes, mixed_precision="bf16", deepspeed_config=keys)


def _megatron(processes: int | None = 16, **keys: Any) -> Config:
    block = {f"megatron_lm_{key}": value for key, value in keys.items()}
    return _base("MEGATRON_LM", processes, megatron_lm_config=block)


HOST = "offload('parameters', 'gradients', 'optimizer')"

EXPRESSIONS: list[tuple[Config, str]] = [
    (_base("NO", None), "single()"),
    (_base("MPS", 1), "single()"),
    (_base("MULTI_GPU"), "data(dp=8)"),
    (_base("MULTI_GPU", None), "data(dp='N')"),
    (_base("XLA"), "data(dp=8)"),
    (_base("TP", tp_config={"tp_size": 4}), "data(dp=2) * tensor(tp=4, vocabulary=False)"),
    (_fsdp(), "fsdp(dp=8)"),
    (_fsdp(None), "fsdp(dp='N')"),
    (_fsdp(sharding_strategy="FULL_SHARD"), "fsdp(dp=8)"),
    (_fsdp(sharding_strategy=1), "fsdp(dp=8)"),
    (_fsdp(sharding_strategy="SHARD_GRAD_OP"), "fsdp(dp=8, reshard_after_forward=False)"),
    (_fsdp(sharding_strategy=2), "fsdp(dp=8, reshard_after_forward=False)"),
    (_fsdp(sharding_strategy="NO_SHARD"), "data(dp=8)"),
    (_fsdp(sharding_strategy="3"), "data(dp=8)"),
    (_fsdp(machines=2, sharding_strategy=4), "hsdp(dp_replicate=2, dp_shard=4)"),
    (_fsdp(None, 2, sharding_strategy=4), "hsdp(dp_replicate=2, dp_shard='N')"),
    (
        _fsdp(machines=2, sharding_strategy="HYBRID_SHARD_ZERO2"),
        "hsdp(dp_replicate=2, dp_shard=4, reshard_after_forward=False)",
    ),
    (_fsdp(reshard_after_forward="SHARD_GRAD_OP"), "fsdp(dp=8, reshard_after_forward=False)"),
    (_fsdp(version=2), "fsdp(dp=8)"),
    (_fsdp(version=2, reshard_after_forward=False), "fsdp(dp=8, reshard_after_forward=False)"),
    (_fsdp(offload_params=True), f"fsdp(dp=8) * {HOST}"),
    (_fsdp(activation_checkpointing=True), "fsdp(dp=8) * recompute('full')"),
    (_base("FSDP", fsdp_config=WRAP | {"sharding_strategy": "NO_SHARD"}), "data(dp=8)"),
    (
        _mesh(dp_replicate=2, dp_shard=2, tp=2),
        "hsdp(dp_replicate=2, dp_shard=2) * tensor(tp=2, vocabulary=False)",
    ),
    (_mesh(None, dp_shard=4, tp=2), "fsdp(dp=4) * tensor(tp=2, vocabulary=False)"),
    (_mesh(2, cp=2), "fsdp(dp=1, shard_over=('dp', 'cp')) * context(cp=2)"),
    (
        _mesh(dp_replicate=2, dp_shard=2, cp=2),
        "place(dp_replicate=2, batch='S(0)') * fsdp(dp=2, shard_over=('dp', 'cp')) * context(cp=2)",
    ),
    (_mesh(dp_replicate=8), "data(dp=8)"),
    (_deepspeed(), "zero2(dp=8)"),
    (_deepspeed(zero_stage=0), "data(dp=8)"),
    (_deepspeed(zero_stage=3, gradient_accumulation_steps=4), "zero3(dp=8) * accumulate(micro=4)"),
    (_deepspeed(gradient_accumulation_steps="auto"), "zero2(dp=8) * accumulate(micro='M')"),
    (
        _deepspeed(zero_stage=3, offload_optimizer_device="cpu", offload_param_device="cpu"),
        "zero3(dp=8) * offload('optimizer', 'parameters')",
    ),
    (_deepspeed(zero_stage=2, offload_param_device="cpu"), "zero2(dp=8)"),
    (
        _deepspeed(zero_stage=3) | {"parallelism_config": {"parallelism_config_sp_size": 2}},
        "zero3(dp=4, shard_over=('dp', 'sp')) * ulysses(sp=2)",
    ),
    (
        _megatron(tp_degree=2, pp_degree=2, num_micro_batches=4, sequence_parallelism=True),
        "data(dp=4) * tensor(tp=2, sequence=True) * pipeline(pp=2, microbatches=4)",
    ),
    (
        _megatron(
            tp_degree=2,
            num_micro_batches=4,
            use_distributed_optimizer=True,
            recompute_activations=True,
            context_parallel_size=2,
        ),
        "zero1(dp=4, shard_over=('dp', 'cp')) * tensor(tp=2) * context(cp=2, method='ring')"
        " * accumulate(micro=4) * recompute('selective')",
    ),
]


@pytest.mark.parametrize(("config", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, config: Config, expression: str) -> None:
    imported = _load(tmp_path, config)
    assert repr(imported.composition) == expression
    assert repr(parse(expression)) == expression


EIGHT = _base("MULTI_GPU")
RULES: list[tuple[str, str, Config, Config]] = [
    ("world size", "unlikely", _base("MULTI_GPU", None), EIGHT),
    ("world size", "unlikely", _base("MULTI_GPU", -1), EIGHT),
    (
        "block of another engine",
        "ignored",
        EIGHT | {"fsdp_config": {"fsdp_version": 2}},
        EIGHT | {"fsdp_config": {"fsdp_version": None}, "deepspeed_config": {}},
    ),
    ("one process", "ignored", _base("NO", 4), _base("NO", 1)),
    (
        "processes per machine",
        "unlikely",
        _base("MULTI_GPU", num_machines=3),
        _base("MULTI_GPU", num_machines=2),
    ),
    (
        "unknown key",
        "ignored",
        _fsdp(backward_prefetch_policy="BACKWARD_PRE"),
        _fsdp(backward_prefetch="BACKWARD_PRE"),
    ),
    ("unknown key", "ignored", _deepspeed(stage=3), _deepspeed(zero_stage=3)),
    (
        "unknown key",
        "ignored",
        EIGHT | {"parallelism_config": {"parallelism_config_pp_size": 1}},
        EIGHT | {"parallelism_config": {"parallelism_config_tp_size": 1}},
    ),
    ("reshard_after_forward", "rejected", _fsdp(reshard_after_forward=True), _fsdp()),
    (
        "reshard_after_forward",
        "rejected",
        _fsdp(version=2, reshard_after_forward="FULL_SHARD"),
        _fsdp(version=2, reshard_after_forward=True),
    ),
    ("no wrapping", "unlikely", _base("FSDP"), _fsdp()),
    (
        "efficient loading needs sync",
        "rejected",
        _fsdp(cpu_ram_efficient_loading=True, sync_module_states=False),
        _fsdp(cpu_ram_efficient_loading=True, sync_module_states=True),
    ),
    (
        "version 1 key",
        "ignored",
        _fsdp(version=2, use_orig_params=True),
        _fsdp(use_orig_params=True),
    ),
    (
        "forward prefetch",
        "rejected",
        _fsdp(version=2, forward_prefetch=True),
        _fsdp(forward_prefetch=True),
    ),
    ("sharding over one rank", "unlikely", _fsdp(1), _fsdp(2)),
    (
        "hybrid shard of one rank",
        "mathematics",
        _fsdp(8, 8, sharding_strategy="HYBRID_SHARD"),
        _fsdp(8, 4, sharding_strategy="HYBRID_SHARD"),
    ),
    (
        "hybrid shard on one machine",
        "unlikely",
        _fsdp(8, 1, sharding_strategy="HYBRID_SHARD"),
        _fsdp(8, 2, sharding_strategy="HYBRID_SHARD"),
    ),
    (
        "mesh needs FSDP version 2",
        "rejected",
        _mesh(version=1, dp_shard=8),
        _mesh(version=2, dp_shard=8),
    ),
    ("cp or sp", "rejected", _mesh(cp=2, sp=4), _mesh(cp=2, dp_shard=4)),
    (
        "tp or cp with replicas needs dp_shard",
        "rejected",
        _mesh(dp_replicate=4, tp=2),
        _mesh(dp_replicate=2, dp_shard=2, tp=2),
    ),
    ("FSDP needs a shard axis", "rejected", _mesh(tp=8), _mesh(dp_shard=2, tp=4)),
    (
        "mesh product",
        "unlikely",
        _deepspeed() | {"parallelism_config": {"sp_size": 2}},
        _deepspeed() | {"parallelism_config": {"sp_size": 2, "dp_shard_size": 4}},
    ),
    (
        "stage 3 at load",
        "unlikely",
        _deepspeed(zero_stage=3, zero3_init_flag=False),
        _deepspeed(zero_stage=3, zero3_init_flag=True),
    ),
    (
        "offload_param needs stage 3",
        "ignored",
        _deepspeed(zero_stage=2, offload_param_device="cpu"),
        _deepspeed(zero_stage=3, offload_param_device="cpu"),
    ),
    (
        "sequence needs tp",
        "ignored",
        _megatron(sequence_parallelism=True),
        _megatron(sequence_parallelism=True, tp_degree=2),
    ),
]


@pytest.mark.parametrize(("rule", "kind", "faulty", "sound"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, faulty: Config, sound: Config) -> None:
    found = {(f.rule, str(f.kind)): f for f in _load(tmp_path, faulty).findings}
    assert (rule, kind) in found
    finding = found[rule, kind]
    assert finding.place.startswith("acc.yaml")
    assert finding.source and finding.remedy
    assert (rule, kind) not in {(f.rule, f.kind) for f in _load(tmp_path, sound).findings}


def _message(tmp_path: Path, config: Config | str, world: int | None = None) -> str:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, config, world)
    return str(caught.value)


def test_unknown_top_level_keys_are_refused(tmp_path: Path) -> None:
    assert _message(tmp_path, EIGHT | {"num_proceses": 8}) == (
        "acc.yaml:3 num_proceses: found the unknown key 'num_proceses'; Accelerate refuses unknown "
        "top-level keys (commands/config/config_args.py); did you mean num_processes?"
    )


def test_lost_indentation_is_refused(tmp_path: Path) -> None:
    text = "distributed_type: MEGATRON_LM\nmegatron_lm_config:\nmegatron_lm_tp_degree: 2\n"
    assert "megatron_lm_tp_degree" in _message(tmp_path, text)


def test_mesh_must_multiply_to_the_world(tmp_path: Path) -> None:
    assert _message(tmp_path, _mesh(4, dp_shard=8, tp=2)) == (
        "acc.yaml:6 parallelism_config: found dp_replicate 1 * dp_shard 8 * cp 1 * sp 1 * tp 2 = "
        "16 for a world of 4; the degrees multiply to num_processes (parallelism_config.py, "
        "_validate_accelerator); write num_processes 16, or other degrees"
    )


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (_base("FULLY_SHARDED"), "a distributed_type is one of"),
        (_base("multi_gpu"), "did you mean MULTI_GPU?"),
        ({"num_processes": 2, "num_machines": 1}, "a distributed_type must be given"),
        (_base("MULTI_GPU", 0), "at least one process runs"),
        (_base("MULTI_GPU", "${GPUS}"), "found '${GPUS}'; it is a placeholder"),
        (_base("MULTI_GPU", num_machines="{{ nodes }}"), "it is a placeholder"),
        (_base("MULTI_GPU", mixed_precision="int4"), "mixed_precision is one of"),
        (_fsdp(version=3), "fsdp_version is 1 or 2"),
        (_fsdp(sharding_strategy="ZERO"), "a sharding strategy is one of"),
        (_fsdp(sharding_strategy=6), "a sharding strategy is one of"),
        (_mesh(dp_shard=-1), "it lies between 1 and"),
        (_fsdp(machines=3, sharding_strategy=4), "8 / 3 = 2.66667"),
        (_megatron(tp_degree=3), "16 / 3 = 5.33333"),
        (_base("FSDP", fsdp_config=[1]), "a block of keys and values belongs here"),
        (_deepspeed(zero_stage=5), "deepspeed_config.zero_stage: found 5; a stage is 0"),
    ],
)
def test_values_without_meaning(tmp_path: Path, config: Config, part: str) -> None:
    assert part in _message(tmp_path, config)


def test_the_argument_world_replaces_the_written_one(tmp_path: Path) -> None:
    imported = _load(tmp_path, _fsdp(8), world=32)
    assert repr(imported.composition) == "fsdp(dp=32)"
    assert imported.field("world").provenance == "cli or environment"
    assert "replaces num_processes 8" in imported.assumptions[0]
    assert not _load(tmp_path, _fsdp(8), world=8).assumptions


def test_processes_are_counted_over_all_machines(tmp_path: Path) -> None:
    """Whoever writes the processes of one machine reads how few each gets."""
    for machines, told in ((4, "2 processes on each"), (1, ""), (3, "")):
        imported = _load(tmp_path, _base("MULTI_GPU", 8, num_machines=machines))
        (value,) = (v for v in imported.fields if v.name == "machines")
        assert value.note == told


def test_yaml_words_that_are_no_words(tmp_path: Path) -> None:
    text = "distributed_type: NO\ndowncast_bf16: no\nmixed_precision: no\nnum_processes: 1\n"
    assert repr(_load(tmp_path, text).composition) == "single()"


def test_a_key_given_twice_is_reported(tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_processes: 8\n"
    imported = _load(tmp_path, text)
    assert imported.world == 8
    (finding,) = imported.findings
    assert (finding.rule, finding.place) == ("key given twice", "acc.yaml:3 num_processes")


def test_places_of_moved_keys(tmp_path: Path) -> None:
    imported = _load(tmp_path, _deepspeed(zero_stage=3, gradient_accumulation_steps=2))
    assert imported.field("zero_stage").place == "acc.yaml:5 deepspeed_config.zero_stage"
    steps = imported.field("accumulation")
    assert steps.place == "acc.yaml:6 deepspeed_config.gradient_accumulation_steps"
    assert imported.field("global_batch").provenance == "cli or environment"
    assert _load(tmp_path, _deepspeed()).field("zero_stage").provenance == "default"


def test_formats_of_numbers(tmp_path: Path) -> None:
    plain = _load(tmp_path, _base("MULTI_GPU", mixed_precision="bf16")).dtypes
    assert (plain.parameters, plain.reduction) == ("bf16", "fp32")
    sharded = _load(tmp_path, _fsdp() | {"mixed_precision": "bf16"}).dtypes
    assert (sharded.parameters, sharded.master, sharded.reduction) == ("bf16", "fp32", "bf16")
    assert _load(tmp_path, _deepspeed()).dtypes.parameters == "bf16"
    legacy = _load(tmp_path, EIGHT | {"fp16": True})
    assert legacy.dtypes.parameters == "fp16"


def test_an_included_deepspeed_file(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "ds.json").write_text(
        '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},\n'
        ' "gradient_accumulation_steps": 2, "train_micro_batch_size_per_gpu": "auto"}'
    )
    config = _base("DEEPSPEED", deepspeed_config={"deepspeed_config_file": "sub/ds.json"})
    imported = _load(tmp_path, config)
    assert repr(imported.composition) == "zero3(dp=8) * accumulate(micro=2)"
    assert not imported.findings
    assert imported.field("zero_stage").place == "ds.json:1 zero_optimization.stage"
    doubled = config | {"mixed_precision": "bf16"}
    (finding,) = _load(tmp_path, doubled).findings
    assert (finding.kind, finding.rule) == ("rejected", "one source")
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": STAGE}}')
    assert _message(tmp_path, config).startswith("ds.json:1 zero_optimization.stage: found STAGE")


def test_an_absent_included_file_is_reported_not_guessed(tmp_path: Path) -> None:
    imported = _load(tmp_path, _base("DEEPSPEED", deepspeed_config={"deepspeed_config_file": "x"}))
    (finding,) = imported.findings
    assert (finding.kind, finding.rule) == ("rejected", "included file")
    assert imported.field("zero_stage").provenance == "unknown"
    assert imported.field("zero_stage").value is None
    assert "absent file" in imported.assumptions[0]


def test_context_parallel_methods(tmp_path: Path) -> None:
    config = _mesh(2, cp=2)
    config["parallelism_config"]["parallelism_config_cp_comm_strategy"] = "alltoall"
    assert "method='ring'" in repr(_load(tmp_path, config).composition)
    config["parallelism_config"]["parallelism_config_cp_comm_strategy"] = "magic"
    assert "it is allgather or alltoall" in _message(tmp_path, config)


def test_the_example() -> None:
    file = Path(__file__).parents[1] / "examples" / "configs" / "accelerate_fsdp2.yaml"
    imported = load(file)
    assert repr(imported.composition) == (
        "hsdp(dp_replicate=2, dp_shard=4) * tensor(tp=2, vocabulary=False) * recompute('full')"
    )
    assert imported.world == 16
    assert not imported.findings
