"""Damaged files: an import or one clear line, never another exception, never a hang."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement_proofs.composition import parse
from placement_proofs.configs import load
from placement_proofs.errors import IllFormed

DEEPSPEED: dict[str, Any] = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "sequence_parallel_size": 1,
    "bf16": {"enabled": True},
    "fp16": {"enabled": False},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "tensor_parallel": {"autotp_size": 1, "tp": {"tp_size": 1}},
    "activation_checkpointing": {"partition_activations": True, "number_checkpoints": 2},
    "elasticity": {"enabled": False},
    "pipeline": {"stages": "auto"},
    "data_types": {"grad_accum_dtype": "fp32"},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "ratio": 0.5},
        "offload_param": {"device": "nvme", "nvme_path": "x"},
        "mics_shard_size": 4,
        "zero_hpz_partition_size": 2,
        "reduce_bucket_size": 5e8,
        "overlap_comm": True,
    },
}
ACCELERATE: dict[str, Any] = {
    "distributed_type": "FSDP",
    "num_processes": 8,
    "num_machines": 2,
    "mixed_precision": "bf16",
    "fsdp_config": {
        "fsdp_version": 1,
        "fsdp_sharding_strategy": "HYBRID_SHARD",
        "fsdp_offload_params": True,
        "fsdp_activation_checkpointing": True,
        "fsdp_auto_wrap_policy": "NO_WRAP",
        "fsdp_reshard_after_forward": True,
    },
    "deepspeed_config": {"zero_stage": 3, "deepspeed_config_file": "none", "zero3_init_flag": True},
    "megatron_lm_config": {"megatron_lm_tp_degree": 2, "megatron_lm_pp_degree": 2},
    "parallelism_config": {"parallelism_config_dp_shard_size": 4, "parallelism_config_tp_size": 2},
}

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-4, 70),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "1e9", "${X}", "none", "cpu", "nvme", "2", 4, 5, "../x", "DEEPSPEED"]),
    st.sampled_from(["MULTI_GPU", "MEGATRON_LM", "TP", "NO", "XLA", "a\0b", "x" * 400]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


def _paths(config: dict[str, Any]) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for key, value in config.items():
        paths.append((key,))
        if isinstance(value, dict):
            paths += [(key, *inner) for inner in _paths(value)]
    return paths


@st.composite
def damaged(draw: st.DrawFn, config: dict[str, Any]) -> dict[str, Any]:
    """Up to four keys dropped, retyped, or nested in themselves."""
    result = copy.deepcopy(config)
    for path in draw(st.lists(st.sampled_from(_paths(config)), min_size=1, max_size=4)):
        inner: Any = result
        for key in path[:-1]:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or path[-1] not in inner:
            continue
        action = draw(st.sampled_from(["drop", "retype", "nest"]))
        old = inner.pop(path[-1])
        if action != "drop":
            inner[path[-1]] = draw(VALUES) if action == "retype" else {path[-1]: old}
    return result


def _imports_or_refuses(file: Path, world: int | None) -> None:
    try:
        imported = load(file, world=world)
    except IllFormed as error:
        assert "\n" not in str(error)
        return
    assert repr(parse(repr(imported.composition))) == repr(imported.composition)
    json.dumps(imported.to_json())


WORLDS = st.one_of(st.none(), st.integers(1, 65))
FUZZ = settings(
    max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(config=damaged(DEEPSPEED), world=WORLDS)
def test_damaged_deepspeed(tmp_path: Path, config: dict[str, Any], world: int | None) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(config))
    _imports_or_refuses(file, world)


@FUZZ
@given(
    config=damaged(ACCELERATE),
    world=WORLDS,
    kind=st.sampled_from(["FSDP", "DEEPSPEED", "MEGATRON_LM", "MULTI_GPU", "NO", None]),
)
def test_damaged_accelerate(
    tmp_path: Path, config: dict[str, Any], world: int | None, kind: str | None
) -> None:
    file = tmp_path / "a.yaml"
    if kind:
        config = config | {"distributed_type": kind}
    file.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
    _imports_or_refuses(file, world)


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@FUZZ
@given(cut=st.integers(0, 2000), put=st.text(max_size=6), length=st.integers(0, 3))
def test_damaged_text(tmp_path: Path, suffix: str, cut: int, put: str, length: int) -> None:
    file = tmp_path / f"a{suffix}"
    text = json.dumps(DEEPSPEED) if suffix == ".json" else yaml.safe_dump(ACCELERATE)
    at = cut % (len(text) + 1)
    tail = text[at + length :] if put else ""
    file.write_text(text[:at] + put + tail, encoding="utf-8", errors="replace")
    _imports_or_refuses(file, 8)


@FUZZ
@given(raw=st.binary(max_size=60), suffix=st.sampled_from([".json", ".yaml", ".x"]))
def test_arbitrary_bytes(tmp_path: Path, raw: bytes, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    file.write_bytes(raw)
    _imports_or_refuses(file, None)
