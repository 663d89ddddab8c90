"""NeMo, Megatron-Bridge, NeMo-RL and Primus: what they become, and the rules of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from placement_proofs.configs import Imported, detect, load
from placement_proofs.configs.interpolation import resolve
from placement_proofs.configs.yaml_text import parse_yaml
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse

EXAMPLE = Path(__file__).parents[1] / "examples" / "configs" / "nemo_llama.yaml"
Config = dict[str, Any]
SHORT = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
}


def _load(tmp_path: Path, config: Config, world: int | None = None) -> Imported:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    assert detect(file) == "nemo"
    return load(file, world=world)


def _keys(values: Config) -> Config:
    return {SHORT.get(key, key): value for key, value in values.items()}


def _nemo(nodes: int | None = 2, optim: str = "fused_adam", **model: Any) -> Config:
    keys = {"mbs": 1, "gbs": 64, "num_layers": 16, "tp": 1} | model
    trainer = {"devices": 8, "precision": "bf16"} | ({"num_nodes": nodes} if nodes else {})
    return {"trainer": trainer, "model": _keys(keys) | {"optim": {"name": optim}}}


def _bridge(**model: Any) -> Config:
    batch = {"global_batch_size": 16, "micro_batch_size": 1}
    return {"model": _keys(model), "train": batch, "dist": {"use_torch_fsdp2": False}}


def _rl(nodes: int = 2, **policy: Any) -> Config:
    return {
        "defaults": "../base.yaml",
        "policy": {"train_micro_batch_size": 1, "train_global_batch_size": 64, **policy},
        "cluster": {"gpus_per_node": 8, "num_nodes": nodes},
    }


def _primus(**keys: Any) -> Config:
    return {"modules": {"pre_trainer": {"framework": "megatron", "overrides": _keys(keys)}}}


ALL = {"tp": 2, "pp": 1, "cp": 1}
EXPRESSIONS: list[tuple[Config, int | None, str]] = [
    (_nemo(), None, "data(dp=16) * accumulate(micro=4)"),
    (_nemo(optim="mcore_distributed_optim"), None, "zero1(dp=16) * accumulate(micro=4)"),
    (_nemo(nodes=None), None, "data(dp='N') * accumulate(micro='M')"),
    (
        _nemo(tp=2, pp=4, vpp=2, sequence_parallel=True),
        None,
        "data(dp=2) * tensor(tp=2, sequence=True) * pipeline(pp=4, microbatches=32, "
        "schedule='interleaved', chunks=2)",
    ),
    (
        _nemo(activations_checkpoint_granularity="selective"),
        None,
        "data(dp=16) * accumulate(micro=4) * recompute('selective')",
    ),
    (_nemo(fsdp=True), None, "zero3(dp=16) * accumulate(micro=4)"),
    (
        _nemo(tp="${.heads}", heads=4),
        None,
        "data(dp=4) * tensor(tp=4) * accumulate(micro=16)",
    ),
    (_nemo(tp="${oc.env:TP}"), None, "data(dp='N') * tensor(tp='N_tp') * accumulate(micro='M')"),
    (
        _bridge(tp=8),
        None,
        "data(dp='N') * tensor(tp=8) * context(cp='N_cp', method='ring') * "
        "pipeline(pp='N_pp', microbatches='M')",
    ),
    (_bridge(**ALL), 8, "data(dp=4) * tensor(tp=2) * accumulate(micro=4)"),
    (
        _rl(megatron_cfg={"enabled": True, "activation_checkpointing": True, **_keys(ALL)}),
        None,
        "data(dp=8) * tensor(tp=2) * accumulate(micro=8) * recompute('full')",
    ),
    (
        _rl(dtensor_cfg={"dp_replicate_size": 2}),
        None,
        "hsdp(dp_replicate=2, dp_shard=8) * accumulate(micro=4)",
    ),
    (
        _rl(dtensor_cfg={"tensor_parallel_size": 2, "cpu_offload": True}),
        None,
        "fsdp(dp=8) * tensor(tp=2) * accumulate(micro=8) * "
        "offload('parameters', 'gradients', 'optimizer')",
    ),
    (
        _rl(dtensor_cfg={"context_parallel_size": 2}),
        None,
        "fsdp(dp=8, shard_over=('dp', 'cp')) * context(cp=2, method='ring') * accumulate(micro=8)",
    ),
    (
        _rl(dtensor_cfg={"expert_parallel_size": 16, "activation_checkpointing": True}),
        None,
        "fsdp(dp=1) * expert(ep=16) * accumulate(micro=4) * recompute('full')",
    ),
    (
        _primus(tp="${PRIMUS_TP:2}", pp=1, cp=1, mbs=1, gbs=16),
        8,
        "data(dp=4) * tensor(tp=2) * accumulate(micro=4)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "world", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, config: Config, world: int | None, expression: str) -> None:
    imported = _load(tmp_path, config, world)
    assert repr(imported.composition) == expression
    assert repr(parse(expression)) == expression


def test_example() -> None:
    imported = load(EXAMPLE)
    assert imported.world == 32
    assert imported.findings == ()
    assert imported.field("ffn").value == 4 * 4096
    assert imported.field("vpp_chunks").place == (
        "nemo_llama.yaml:13 model.virtual_pipeline_model_parallel_size"
    )
    assert repr(imported.composition) == (
        "zero1(dp=4) * tensor(tp=4, sequence=True) * pipeline(pp=2, microbatches=32, "
        "schedule='interleaved', chunks=4) * recompute('selective')"
    )


def test_an_override_leaves_absent_degrees_to_the_recipe(tmp_path: Path) -> None:
    imported = _load(tmp_path, _bridge(tp=8), 16)
    assert imported.field("pp").provenance == "unknown"
    assert "recipe" in imported.field("pp").note
    assert imported.field("dp").value == "N"


def test_an_environment_default_is_said(tmp_path: Path) -> None:
    imported = _load(tmp_path, _primus(tp="${PRIMUS_TP:2}", mbs=1))
    assert imported.field("tp").provenance == "default"
    assert "PRIMUS_TP" in imported.field("tp").note


def test_files_in_defaults_are_said_not_to_be_read(tmp_path: Path) -> None:
    imported = _load(tmp_path, _rl(dtensor_cfg={"dp_replicate_size": 2}))
    assert any("../base.yaml is not read" in text for text in imported.assumptions)


def test_the_degrees_of_generation_are_not_training(tmp_path: Path) -> None:
    generation = {"vllm_cfg": {"tensor_parallel_size": 8}}
    imported = _load(tmp_path, _rl(dtensor_cfg={"dp_replicate_size": 1}, generation=generation))
    assert imported.field("tp").value == 1


RULES: list[tuple[str, str, Config, Config]] = [
    (
        "hierarchical context parallel",
        "mathematics",
        _nemo(cp=4, cp_comm_type="a2a+p2p"),
        _nemo(cp=4, cp_comm_type="a2a+p2p", hierarchical_context_parallel_sizes=[2, 2]),
    ),
    (
        "selective recomputation",
        "ignored",
        _nemo(
            activations_checkpoint_granularity="selective", activations_checkpoint_method="block"
        ),
        _nemo(activations_checkpoint_granularity="selective"),
    ),
    ("layers on chunks", "rejected", _nemo(pp=2, vpp=3), _nemo(pp=2, vpp=4)),
    ("sequence needs tp", "ignored", _nemo(sequence_parallel=True), _nemo()),
    (
        "layers on stages",
        "rejected",
        _nemo(pp=2, num_layers_in_last_pipeline_stage=5, num_layers_in_first_pipeline_stage=5),
        _nemo(pp=2, num_layers_in_last_pipeline_stage=5, num_layers_in_first_pipeline_stage=11),
    ),
    (
        "batch triple",
        "rejected",
        _rl(dtensor_cfg={}, train_global_batch_size=65),
        _rl(dtensor_cfg={}, train_global_batch_size=32),
    ),
    ("batch triple", "rejected", _nemo(gbs=65), _nemo(gbs=64)),
]


@pytest.mark.parametrize(("rule", "kind", "wrong", "right"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, wrong: Config, right: Config) -> None:
    found = [f for f in _load(tmp_path, wrong).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert rule not in [f.rule for f in _load(tmp_path, right).findings]


def test_refusals_name_the_key(tmp_path: Path) -> None:
    with pytest.raises(IllFormed, match=r"model\.tensor_model_parallel_size: found tp=3"):
        _load(tmp_path, _nemo(tp=3))
    with pytest.raises(IllFormed, match=r"policy\.dtensor_cfg\.expert_parallel_size"):
        _load(tmp_path, _rl(dtensor_cfg={"expert_parallel_size": 3}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${b.c}", 4),
        ("${.x}", 2),
        ("${..top}", 7),
        ("${multiply:${b.c}, ${.x}}", 8),
        ("${mul:2,3}", 6),
        ("${oc.env:NAME,5}", 5),
        ("${NAME:null}", "null"),
        ("${loop}", "${loop}"),
        ("${missing}", "${missing}"),
        ("${oc.env:NAME}", "${oc.env:NAME}"),
        ("plain", "plain"),
    ],
)
def test_interpolation(text: str, value: object) -> None:
    root = parse_yaml("{top: 7, loop: '${loop}', b: {c: 4, x: 2}}", "a.yaml")
    assert resolve(text, root, ("b", "key")).value == value
