"""MaxText settings: leftovers in both groups, what each becomes, rules firing and silent."""

from __future__ import annotations

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
MODEL = transformer(Shape(layers=24, heads=16, kv_heads=4, hidden=32, experts=8))


def _config(**keys: Any) -> Config:
    """Short names: ``ici_fsdp`` is ``ici_fsdp_parallelism``."""
    named = {
        f"{key}_parallelism" if key.startswith(("ici_", "dcn_")) else key: value
        for key, value in keys.items()
    }
    return {"per_device_batch_size": 2, "max_target_length": 4096} | named


def _one(**keys: Any) -> Config:
    """On one slice."""
    return _config(dcn_data=1, **keys)


def _load(
    tmp_path: Path, config: Config | str, world: int | None = 16, name: str = "m.yml"
) -> Imported:
    file = tmp_path / name
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False))
    return load(file, world=world, model=MODEL)


def _experts(ranks: int) -> str:
    """The shards of the experts over the ranks that have the same ones."""
    modes = "parameters='S*', optimizer='S', gradients='S'"
    return " * ".join(
        f"place(dp={ranks}, group='{group}', {modes})" for group in ("expert_in", "expert_out")
    )


FULL = "recompute('full')"
EXPRESSIONS: list[tuple[Config, int | None, str]] = [
    (_one(), 16, f"fsdp(dp=16) * {FULL}"),
    (_one(), None, f"fsdp(dp='N') * {FULL}"),
    (_config(), None, f"hsdp(dp_replicate='S', dp_shard='N') * {FULL}"),
    (_config(ici_fsdp=8), 16, f"hsdp(dp_replicate=2, dp_shard=8) * {FULL}"),
    (_config(ici_fsdp=8), None, f"hsdp(dp_replicate='N', dp_shard=8) * {FULL}"),
    (_config(dcn_data=2, dcn_fsdp=2), 16, f"hsdp(dp_replicate=2, dp_shard=8) * {FULL}"),
    (_config(dcn_data=2, ici_fsdp=4), None, f"hsdp(dp_replicate=2, dp_shard=4) * {FULL}"),
    (_one(ici_data=16, ici_fsdp=1), 16, f"data(dp=16) * {FULL}"),
    (
        _one(ici_data=16, ici_fsdp=1, shard_optimizer_over_data=True),
        16,
        f"zero1(dp=16) * {FULL}",
    ),
    (_one(ici_tensor=4), 16, f"fsdp(dp=4) * tensor(tp=4) * {FULL}"),
    (_one(ici_tensor_sequence=4), 16, f"fsdp(dp=4) * tensor(tp=4, sequence=True) * {FULL}"),
    (_one(ici_fsdp_transpose=4), 16, f"fsdp(dp=16) * {FULL}"),
    (_one(ici_context=4), 16, f"fsdp(dp=4, shard_over=('dp', 'cp')) * context(cp=4) * {FULL}"),
    (
        _one(ici_context=4, context_parallel_strategy="ring"),
        16,
        f"fsdp(dp=4, shard_over=('dp', 'cp')) * context(cp=4, method='ring') * {FULL}",
    ),
    (
        _one(ici_context=4, context_parallel_strategy="ulysses"),
        16,
        f"fsdp(dp=4, shard_over=('dp', 'sp')) * ulysses(sp=4) * {FULL}",
    ),
    (
        _one(ici_expert=4),
        16,
        f"fsdp(dp=4, shard_over=('dp', 'ep')) * expert(ep=4) * {_experts(4)} * {FULL}",
    ),
    (_one(gradient_accumulation_steps=4), 16, f"fsdp(dp=16) * accumulate(micro=4) * {FULL}"),
    (
        _one(ici_pipeline=4, num_layers_per_pipeline_stage=6),
        16,
        f"fsdp(dp=4) * pipeline(pp=4, microbatches=4, schedule='gpipe') * {FULL}",
    ),
    (
        _one(ici_pipeline=4, num_layers_per_pipeline_stage=3, num_pipeline_microbatches=8),
        16,
        f"fsdp(dp=4) * pipeline(pp=4, microbatches=8, schedule='interleaved', chunks=2) * {FULL}",
    ),
    (
        _one(optimizer_memory_host_offload=True),
        16,
        f"fsdp(dp=16) * offload('optimizer') * {FULL}",
    ),
    (_one(remat_policy="minimal"), 16, "fsdp(dp=16) * recompute('selective')"),
    (_config(mesh_axes=["fsdp"]), 16, f"fsdp(dp=16) * {FULL}"),
]


@pytest.mark.parametrize(("config", "world", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, config: Config, world: int | None, expression: str) -> None:
    imported = _load(tmp_path, config, world)
    assert repr(imported.composition) == expression
    assert parse(expression) == imported.composition


def test_a_share_of_a_sample_on_every_device(tmp_path: Path) -> None:
    imported = _load(tmp_path, _one(ici_context=4, per_device_batch_size=0.25))
    assert imported.batch.micro_batch == 1
    assert imported.batch.global_batch == 4


def test_slices_that_nobody_gave_are_an_assumption(tmp_path: Path) -> None:
    imported = _load(tmp_path, _config(), 16)
    assert imported.field("slices").provenance == "unknown"
    assert any("one slice" in text for text in imported.assumptions)


SHELL = """#!/bin/bash
# ici_fsdp_parallelism=99
TP=4
ARGS="model_name=llama \\
  ici_tensor_parallelism=${TP} \\
  per_device_batch_size=0.5 remat_policy=full \\
  ici_fsdp_parallelism=-1"  # dcn_data_parallelism=7
xpk workload create --num-slices=2 --command="python3 train.py base.yml ${ARGS} run_name=$NAME"
"""


def test_shell_is_read_and_never_run(tmp_path: Path) -> None:
    imported = _load(tmp_path, SHELL, 32, "run.sh")
    assert repr(imported.composition) == (
        f"hsdp(dp_replicate=2, dp_shard=4) * tensor(tp=4) * {FULL}"
    )
    assert imported.field("tp").place == "run.sh:5 ici_tensor_parallelism"
    assert imported.batch.micro_batch == 2


def test_unset_variable_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(IllFormed, match=r"run.sh:5 ici_tensor_parallelism.*placeholder"):
        _load(tmp_path, SHELL.replace("TP=4\n", "\n"), 32, "run.sh")


TWO = """python3 MaxText/train.py base.yml ici_fsdp_parallelism=64 dcn_data_parallelism=2\\
  per_device_batch_size=16
python3 MaxText/train.py base.yml ici_fsdp_parallelism=64 dcn_data_parallelism=4
"""


def test_two_trainings_in_one_script_are_two_configurations(tmp_path: Path) -> None:
    with pytest.raises(IllFormed, match=r"run.sh:3 dcn_data_parallelism: found 4 here and 2 on"):
        _load(tmp_path, TWO, None, "run.sh")
    one = _load(tmp_path, TWO.replace("dcn_data_parallelism=4", "steps=1"), None, "run.sh")
    assert one.world == 128
    again = _load(tmp_path, TWO[: TWO.index("python3", 9)] + "steps=1 steps=2", None, "run.sh")
    assert "key given twice" in [f.rule for f in again.findings]


def test_base_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text("ici_tensor_parallelism: 4\ndcn_data_parallelism: 1\n")
    imported = _load(tmp_path, _config(base_config="own.yml"))
    assert imported.degrees() == {"dp": 4, "tp": 4}
    assert "in own.yml" in imported.field("tp").place
    (tmp_path / "own.yml").write_text("base_config: m.yml\n")
    with pytest.raises(IllFormed, match="build on each other"):
        _load(tmp_path, _config(base_config="own.yml"))


@pytest.mark.parametrize(
    ("config", "world", "message"),
    [
        (_one(ici_tensor=-1), 16, "are -1"),
        (_config(dcn_fsdp=-1), 16, "are -1"),
        (_one(ici_tensor=3), 16, "ici_tensor 3 = 3 for 16 devices"),
        (_one(ici_fsdp=8), 16, "ici_fsdp 8 = 8 for 16 devices of a slice"),
        (_config(dcn_data=3), 16, "3 slices for a world of 16"),
        (_one(ici_tensor=0), 16, "a degree is -1"),
        (_one(ici_fsdp=1, ici_tensor=-1), None, "their number is not known"),
        (_one(per_device_batch_size=0), 16, "above 0"),
        (_one(ici_tensor="$TP"), 16, "placeholder"),
    ],
)
def test_refusal(tmp_path: Path, config: Config, world: int | None, message: str) -> None:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, config, world)
    assert message in str(caught.value)
    assert str(caught.value).startswith("m.yml:")


PIPE = {"ici_pipeline": 4, "num_layers_per_pipeline_stage": 6}
TWICE = [["embed", ["fsdp"]], ["embed", ["fsdp"]]]
ONCE = [["embed", ["fsdp"]], ["embed", []]]
RULES: list[tuple[str, str, Config, Config]] = [
    ("unknown key", "rejected", _one(ici_tensors=2), _one(ici_tensor=2)),
    ("auto needs a filler", "rejected", _one(ici_tensor="auto"), _one(ici_tensor=2)),
    (
        "axis outside the mesh",
        "ignored",
        _config(mesh_axes=["fsdp"], ici_tensor=2),
        _config(mesh_axes=["fsdp", "tensor"], ici_tensor=2),
    ),
    (
        "rule given twice",
        "ignored",
        _one(mesh_axes=["data", "fsdp"], logical_axis_rules=TWICE),
        _one(mesh_axes=["data", "fsdp"], logical_axis_rules=ONCE),
    ),
    (
        "rule names an absent axis",
        "unlikely",
        _one(mesh_axes=["data", "fsdp"], logical_axis_rules=[["mlp", ["tensor"]]]),
        _one(mesh_axes=["data", "fsdp"], logical_axis_rules=[["mlp", ["fsdp"]]]),
    ),
    ("pipeline settings", "ignored", _one(num_pipeline_microbatches=8), _one()),
    (
        "micro-batches on stages",
        "rejected",
        _one(num_pipeline_microbatches=6, **PIPE),
        _one(num_pipeline_microbatches=8, **PIPE),
    ),
    (
        "layers of the pipeline",
        "rejected",
        _one(**(PIPE | {"num_layers_per_pipeline_stage": 5})),
        _one(**PIPE),
    ),
    (
        "batch in micro-batches",
        "rejected",
        _one(num_pipeline_microbatches=12, **PIPE),
        _one(num_pipeline_microbatches=8, **PIPE),
    ),
    (
        "context strategy",
        "rejected",
        _one(context_parallel_strategy="star"),
        _one(context_parallel_strategy="all_gather"),
    ),
    (
        "context strategy without ranks",
        "ignored",
        _one(context_parallel_strategy="ring"),
        _one(context_parallel_strategy="ring", ici_context=2),
    ),
    (
        "whole samples",
        "rejected",
        _one(per_device_batch_size=0.25, ici_context=2),
        _one(per_device_batch_size=0.5, ici_context=2),
    ),
    (
        "sharding over one rank",
        "unlikely",
        _one(shard_optimizer_over_data=True),
        _one(shard_optimizer_over_data=True, ici_data=2),
    ),
    (
        "experts' ranks without experts",
        "unlikely",
        _one(num_experts=1, ici_expert=2),
        _one(num_experts=8, ici_expert=2),
    ),
    ("experts divide", "rejected", _one(ici_expert=16), _one(ici_expert=8)),
    ("key-value heads divide", "rejected", _one(ici_tensor=8), _one(ici_tensor=4)),
    (
        "tokens divide",
        "rejected",
        _one(ici_context=2, max_target_length=4090),
        _one(ici_context=2, max_target_length=4090, context_parallel_load_balance=False),
    ),
]


@pytest.mark.parametrize(("rule", "kind", "fires", "silent"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, fires: Config, silent: Config) -> None:
    found = [f for f in _load(tmp_path, fires).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert found[0].place.startswith("m.yml:")
    assert rule not in [f.rule for f in _load(tmp_path, silent).findings]


def test_example() -> None:
    imported = load(ROOT / "examples/configs/maxtext_slices.yml", world=128)
    assert repr(imported.composition) == (
        f"hsdp(dp_replicate=2, dp_shard=16) * tensor(tp=4) * offload('optimizer') * {FULL}"
    )
    assert imported.batch.micro_batch == 2
    assert imported.batch.global_batch == 64
    assert imported.findings == ()
