"""DeepSpeed files: what each key becomes, and every rule once firing and once silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from placement_proofs import check, read_subject
from placement_proofs.configs import Imported, load
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, transformer

Config = dict[str, Any]
BASE: Config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
}


def _load(tmp_path: Path, config: Config, world: int | None = 8, **more: Any) -> Imported:
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(config, indent=1))
    return load(file, world=world, **more)


def _zero(**keys: Any) -> Config:
    return BASE | {"zero_optimization": keys}


CPU, NVME = {"device": "cpu"}, {"device": "nvme", "nvme_path": "scratch"}

EXPRESSIONS: list[tuple[Config, int | None, str]] = [
    (BASE, 8, "data(dp=8)"),
    (_zero(stage=0), 8, "data(dp=8)"),
    (_zero(stage=1), 8, "zero1(dp=8)"),
    (_zero(stage=2.0), 8, "zero2(dp=8)"),
    (_zero(stage=3), 8, "zero3(dp=8)"),
    (_zero(stage=3), None, "zero3(dp='N')"),
    (BASE | {"zero_optimization": True}, 8, "zero1(dp=8)"),
    (BASE | {"zero_optimization": False}, 8, "data(dp=8)"),
    (BASE | {"gradient_accumulation_steps": 4}, 8, "data(dp=8) * accumulate(micro=4)"),
    (
        BASE | {"gradient_accumulation_steps": "auto"},
        8,
        "data(dp=8) * accumulate(micro='M')",
    ),
    (_zero(stage=2, offload_optimizer=CPU), 8, "zero2(dp=8) * offload('optimizer')"),
    (_zero(stage=2, cpu_offload=True), 8, "zero2(dp=8) * offload('optimizer')"),
    (_zero(stage=2, offload_param=CPU), 8, "zero2(dp=8)"),
    (_zero(stage=0, offload_optimizer=CPU), 8, "data(dp=8)"),
    (_zero(stage=3, offload_param={"device": "none"}), 8, "zero3(dp=8)"),
    (
        _zero(stage=3, offload_param=NVME, offload_optimizer=NVME),
        8,
        "zero3(dp=8) * offload('optimizer', 'parameters', to='nvme')",
    ),
    (_zero(stage=3, mics_shard_size=4), 16, "hsdp(dp_replicate=4, dp_shard=4)"),
    (_zero(stage=3, mics_shard_size=4), None, "hsdp(dp_replicate='N', dp_shard=4)"),
    (_zero(stage=3, zero_hpz_partition_size=4), 8, "zero3(dp=8)"),
    (
        _zero(stage=3) | {"sequence_parallel_size": 2},
        8,
        "zero3(dp=4, shard_over=('dp', 'sp')) * ulysses(sp=2)",
    ),
    (BASE | {"sequence_parallel_size": 2}, 8, "data(dp=4) * ulysses(sp=2)"),
    (
        _zero(stage=1) | {"tensor_parallel": {"autotp_size": 4}},
        8,
        "zero1(dp=2) * tensor(tp=4, vocabulary=False)",
    ),
    (
        _zero(stage=1) | {"tensor_parallel": {"tp": {"tp_size": 4}}},
        8,
        "zero1(dp=2) * tensor(tp=4, vocabulary=False)",
    ),
]


@pytest.mark.parametrize(("config", "world", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, config: Config, world: int | None, expression: str) -> None:
    imported = _load(tmp_path, config, world)
    assert repr(imported.composition) == expression
    assert repr(parse(expression)) == expression
    assert imported.world == world


BATCHES: list[tuple[Config, int | None, str]] = [
    (_zero(stage=3) | {"train_batch_size": 32}, 16, "zero3(dp=16)"),
    (_zero(stage=3) | {"train_batch_size": 33}, None, "zero3(dp='N')"),
    (_zero(stage=3) | {"train_batch_size": "auto"}, None, "zero3(dp='N')"),
    (
        _zero(stage=3) | {"train_batch_size": 32, "sequence_parallel_size": 2},
        32,
        "zero3(dp=16, shard_over=('dp', 'sp')) * ulysses(sp=2)",
    ),
]


@pytest.mark.parametrize(("config", "world", "expression"), BATCHES)
def test_three_batch_numbers_are_right_for_one_number_of_ranks(
    tmp_path: Path, config: Config, world: int | None, expression: str
) -> None:
    imported = _load(tmp_path, config, None)
    assert (imported.world, repr(imported.composition)) == (world, expression)
    impossible = config["train_batch_size"] == 33
    assert impossible == any(f.rule == "batch triple" for f in imported.findings)


RULES: list[tuple[str, str, Config, Config]] = [
    ("unknown key", "rejected", _zero(stage=1, stages=2), _zero(stage=1)),
    (
        "unknown key",
        "rejected",
        _zero(stage=1, offload_optimizer={"devise": "cpu"}),
        _zero(stage=1, offload_optimizer=CPU),
    ),
    ("unknown key", "ignored", BASE | {"gradient_cliping": 1.0}, BASE | {"gradient_clipping": 1}),
    ("one 16-bit format", "rejected", BASE | {"fp16": {"enabled": True}}, BASE),
    (
        "amp without ZeRO",
        "rejected",
        _zero(stage=1) | {"amp": {"enabled": True}},
        BASE | {"amp": {"enabled": True}},
    ),
    (
        "compressed optimizer without ZeRO",
        "rejected",
        _zero(stage=1) | {"optimizer": {"type": "OneBitAdam"}},
        _zero(stage=1) | {"optimizer": {"type": "Adam"}},
    ),
    (
        "clipping key",
        "rejected",
        BASE | {"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}}},
        BASE | {"optimizer": {"type": "Adam", "params": {"lr": 1}}},
    ),
    (
        "offload_param needs stage 3",
        "ignored",
        _zero(stage=2, offload_param=CPU),
        _zero(stage=3, offload_param=CPU),
    ),
    (
        "offload_optimizer needs stage 1",
        "ignored",
        _zero(stage=0, offload_optimizer=CPU),
        _zero(stage=1, offload_optimizer=CPU),
    ),
    (
        "partial offload needs stage 3",
        "ignored",
        _zero(stage=2, offload_optimizer=CPU | {"ratio": 0.3}),
        _zero(stage=3, offload_optimizer=CPU | {"ratio": 0.3}),
    ),
    ("deprecated key", "unlikely", _zero(stage=2, cpu_offload=True), _zero(stage=2)),
    (
        "deprecated key",
        "rejected",
        _zero(stage=2, cpu_offload=True, offload_optimizer=CPU),
        _zero(stage=2, offload_optimizer=CPU),
    ),
    (
        "sum of gradients at stage 3",
        "rejected",
        _zero(stage=3) | {"gradient_allreduce_op": "sum"},
        _zero(stage=3),
    ),
    ("sum of gradients", "mathematics", BASE | {"gradient_allreduce_op": "sum"}, BASE),
    (
        "hpZ needs stage 3",
        "ignored",
        _zero(stage=2, zero_hpz_partition_size=4),
        _zero(stage=3, zero_hpz_partition_size=4),
    ),
    (
        "hpZ divides the world",
        "rejected",
        _zero(stage=3, zero_hpz_partition_size=3),
        _zero(stage=3, zero_hpz_partition_size=4),
    ),
    (
        "hpZ below the world",
        "unlikely",
        _zero(stage=3, zero_hpz_partition_size=8),
        _zero(stage=3, zero_hpz_partition_size=4),
    ),
    (
        "MiCS needs stage 3",
        "ignored",
        _zero(stage=2, mics_shard_size=4),
        _zero(stage=3, mics_shard_size=4),
    ),
    (
        "MiCS on device",
        "rejected",
        _zero(stage=3, mics_shard_size=4, offload_param=CPU),
        _zero(stage=3, mics_shard_size=-1, offload_param=CPU),
    ),
    (
        "checkpointing in code",
        "unlikely",
        BASE | {"activation_checkpointing": {"partition_activations": True}},
        BASE | {"activation_checkpointing": {"partition_activations": False}},
    ),
    (
        "contiguous checkpoints",
        "rejected",
        BASE | {"activation_checkpointing": {"contiguous_memory_optimization": True}},
        BASE
        | {
            "activation_checkpointing": {
                "contiguous_memory_optimization": True,
                "partition_activations": True,
                "number_checkpoints": 4,
            }
        },
    ),
    (
        "elastic batch",
        "rejected",
        BASE | {"elasticity": {"enabled": True}},
        BASE | {"elasticity": {"enabled": True, "ignore_non_elastic_batch_info": True}},
    ),
    (
        "one tensor degree",
        "rejected",
        BASE | {"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}},
        BASE | {"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 2}}},
    ),
    (
        "pipeline stage",
        "rejected",
        _zero(stage=2) | {"pipeline": {"stages": "auto"}},
        _zero(stage=1) | {"pipeline": {"stages": "auto"}},
    ),
    ("auto needs a filler", "unlikely", BASE | {"gradient_clipping": "auto"}, BASE),
    ("batch triple", "rejected", BASE | {"train_batch_size": 17}, BASE | {"train_batch_size": 16}),
    ("batch triple", "rejected", {"train_batch_size": 2}, {"train_batch_size": 8}),
    ("batch size present", "rejected", {"bf16": {"enabled": True}}, {"train_batch_size": 8}),
]


@pytest.mark.parametrize(("rule", "kind", "faulty", "sound"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, faulty: Config, sound: Config) -> None:
    found = {(f.rule, str(f.kind)): f for f in _load(tmp_path, faulty).findings}
    assert (rule, kind) in found
    finding = found[rule, kind]
    assert finding.place.startswith("ds.json:")
    assert finding.source and finding.remedy
    assert (rule, kind) not in {(f.rule, f.kind) for f in _load(tmp_path, sound).findings}


def test_a_batch_that_gives_some_ranks_nothing(tmp_path: Path) -> None:
    """No micro-batch of 0 samples is named or costed."""
    (finding,) = _load(tmp_path, {"train_batch_size": 2}, 8).findings
    assert finding.message.endswith(
        "less than the 8 samples of one micro-batch on each of 8 data-parallel ranks"
    )
    assert check(read_subject(tmp_path / "ds.json", world=8)).memory["saved_activations"] > 0


def test_rules_that_depend_on_the_world(tmp_path: Path) -> None:
    def rules(config: Config, world: int | None) -> set[str]:
        return {finding.rule for finding in _load(tmp_path, config, world).findings}

    assert "ZeRO over one rank" in rules(_zero(stage=2), 1)
    assert "ZeRO over one rank" not in rules(_zero(stage=2), 2)
    assert "world size" in rules(BASE, None)
    assert "world size" not in rules(BASE, 8)
    assert "hpZ inside a node" in rules(_zero(stage=3, zero_hpz_partition_size=16), 64)
    assert "hpZ inside a node" not in rules(_zero(stage=3, zero_hpz_partition_size=8), 64)


def test_a_missing_world_is_a_symbol_and_said(tmp_path: Path) -> None:
    imported = _load(tmp_path, BASE, None)
    assert imported.world is None
    assert imported.field("world").provenance == "unknown"
    assert imported.field("dp").value == "N"
    (finding,) = imported.findings
    assert str(finding) == (
        "ds.json: the file does not say on how many ranks it runs; N stands for the data-parallel "
        "ranks; pass --world with the number of ranks [unlikely: world size]"
    )


def _message(tmp_path: Path, config: Config, world: int | None = 8) -> str:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, config, world)
    return str(caught.value)


def test_degrees_that_do_not_divide_show_the_arithmetic(tmp_path: Path) -> None:
    config = BASE | {"tensor_parallel": {"autotp_size": 3}}
    assert _message(tmp_path, config) == (
        "ds.json:7 tensor_parallel: found tp=3 on a world of 8: 8 / 3 = 2.66667 data-parallel "
        "ranks; the degrees divide the number of ranks; use a world that is a multiple of 3, or "
        "other degrees"
    )
    message = _message(tmp_path, _zero(stage=3, mics_shard_size=3))
    assert "shard groups of 3 on 8 data-parallel ranks: 8 / 3 = 2.66667" in message


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (_zero(stage=4), "found 4; a stage is 0, 1, 2 or 3"),
        (_zero(stage=[1, 2]), "a search by the autotuner"),
        (_zero(stage=True), "found True; a number belongs here"),
        (_zero(stage="three"), "found 'three'"),
        (_zero(stage=3, offload_param={"device": "gpu"}), "a device is none, cpu or nvme"),
        (_zero(stage=3, offload_param="cpu"), "a block of keys and values belongs here"),
        (BASE | {"gradient_accumulation_steps": 0}, "it lies between 1 and"),
        (BASE | {"train_batch_size": 1.5}, "a whole number belongs here"),
        (BASE | {"zero_optimization": [1]}, "found a list of 1"),
        (BASE | {"bf16": {"enabled": "maybe"}}, "true or false belongs here"),
        (
            _zero(stage=3, mics_shard_size=4) | {"sequence_parallel_size": 2},
            "no placement is known",
        ),
    ],
)
def test_values_without_meaning(tmp_path: Path, config: Config, part: str) -> None:
    assert part in _message(tmp_path, config)


@pytest.mark.parametrize(
    ("micro", "steps", "total", "triple"),
    [
        (2, 4, None, (2, 4, 64)),
        (2, None, 64, (2, 4, 64)),
        (None, 4, 64, (2, 4, 64)),
        (None, None, 64, (8, 1, 64)),
        (2, None, None, (2, 1, 16)),
        (2, 4, 64, (2, 4, 64)),
        ("auto", "auto", "auto", (None, None, None)),
        (2, "auto", 64, (2, 4, 64)),
    ],
)
def test_batch_triple_is_completed_as_deepspeed_does(
    tmp_path: Path, micro: Any, steps: Any, total: Any, triple: tuple[int | None, ...]
) -> None:
    keys = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    given = zip(keys, (micro, steps, total), strict=True)
    batch = _load(tmp_path, {key: value for key, value in given if value is not None}).batch
    assert (batch.micro_batch, batch.accumulation, batch.global_batch) == triple


def test_batch_triple_counts_data_parallel_ranks_not_the_world(tmp_path: Path) -> None:
    config = BASE | {"sequence_parallel_size": 4, "train_batch_size": 4}
    assert not _load(tmp_path, config, 8).findings
    wrong = _load(tmp_path, config | {"train_batch_size": 16}, 8)
    assert wrong.findings[0].message == (
        "train_batch_size 16 is not micro batch 2 * accumulation 1 * 2 data-parallel ranks = 4"
    )


def test_auto_sizes_follow_the_hidden_size(tmp_path: Path) -> None:
    config = _zero(stage=3, reduce_bucket_size="auto", stage3_prefetch_bucket_size="auto")
    field = _load(tmp_path, config).field("reduce_bucket_size")
    assert (field.value, field.provenance) == (None, "cli or environment")
    model = transformer(Shape(hidden=64, heads=4, kv_heads=4))
    imported = _load(tmp_path, config, model=model)
    assert imported.field("reduce_bucket_size").value == 4096
    assert imported.field("prefetch_bucket_size").value == 3686
    assert imported.field("reduce_bucket_size").provenance == "derived"


def test_provenance_and_places(tmp_path: Path) -> None:
    imported = _load(tmp_path, _zero(stage=3, prefetch_bucket_size=7))
    stage = imported.field("zero_stage")
    assert (stage.value, stage.provenance) == (3, "literal")
    assert stage.place == "ds.json:8 zero_optimization.stage"
    assert imported.field("prefetch_bucket_size").value == 7
    assert imported.field("allgather_bucket_size").provenance == "default"
    assert imported.field("overlap_comm").value is True
    with pytest.raises(KeyError):
        imported.field("nothing")


def test_formats_of_numbers(tmp_path: Path) -> None:
    assert _load(tmp_path, _zero(stage=1)).dtypes.gradients == "bf16"
    assert _load(tmp_path, BASE).dtypes.gradients == "fp32"
    config = BASE | {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp16"}
    dtypes = _load(tmp_path, config | {"zero_optimization": {"stage": 2}}).dtypes
    assert (dtypes.parameters, dtypes.gradients, dtypes.reduction) == ("bf16", "fp32", "fp16")
    undecided = _load(tmp_path, {"train_batch_size": 8, "fp16": {"enabled": "auto"}})
    assert undecided.dtypes.parameters is None


def test_assumptions_say_what_the_composition_does_not(tmp_path: Path) -> None:
    def assumed(config: Config) -> str:
        return " ".join(_load(tmp_path, config).assumptions)

    assert "second 16-bit copy" in assumed(_zero(stage=3, zero_hpz_partition_size=4))
    assert "MiCS_Init" in assumed(_zero(stage=3, mics_shard_size=4))
    assert "rounding" in assumed(_zero(stage=3, zero_quantized_gradients=True))
    assert "30%" in assumed(_zero(stage=3, offload_optimizer=CPU | {"ratio": 0.3}))
    mixed = _zero(stage=3, offload_param=CPU, offload_optimizer=NVME)
    assert "offload('parameters') * offload('optimizer', to='nvme')" in repr(
        _load(tmp_path, mixed).composition
    )
    sequence = BASE | {"seq_parallel_communication_data_type": "bf16"}
    assert "sequence-parallel degree" in assumed(sequence)
    assert "experts" in assumed(BASE | {"expert_parallel": {"enabled": True}})
    assert assumed(BASE) == ""


def test_json_of_an_import(tmp_path: Path) -> None:
    data = json.loads(json.dumps(_load(tmp_path, _zero(stage=3), None).to_json()))
    assert data["schema"] == 1
    assert data["composition"] == "zero3(dp='N')"
    assert data["degrees"] == {"dp": "N"}
    assert data["batch"] == {"micro_batch": 2, "accumulation": 1, "global_batch": None}
    assert data["findings"][0]["rule"] == "world size"
    assert {"name", "value", "provenance", "place", "note"} == set(data["fields"][0])


def test_the_example(tmp_path: Path) -> None:
    file = Path(__file__).parents[1] / "examples" / "configs" / "deepspeed_zero3.json"
    imported = load(file, world=64)
    expression = "zero3(dp=64) * offload('optimizer') * accumulate(micro=4)"
    assert repr(imported.composition) == expression
    assert not imported.findings
