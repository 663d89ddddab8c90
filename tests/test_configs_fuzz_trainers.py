"""Damaged files of the training frameworks: an import or one clear line, never anything else."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement_proofs.composition import parse
from placement_proofs.configs import load
from placement_proofs.errors import IllFormed
from placement_proofs.models import Shape, transformer

EXAMPLES = ROOT / "examples" / "configs"
MODEL = transformer(Shape(layers=8, heads=8, kv_heads=2, experts=4))


def _yaml(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / name).read_text()))


MORE: Mapping[str, dict[str, Any]] = {
    "axolotl": {
        "expert_parallel_size": 1,
        "deepspeed": None,
        "fsdp": ["full_shard"],
        "batch_size": None,
        "optimizer": "adamw_8bit",
        "plugins": [],
        "activation_offloading": True,
    },
    "llamafactory": {
        "context_parallel_size": 1,
        "expert_model_parallel_size": 2,
        "deepspeed": None,
        "fsdp": None,
        "fp16": False,
    },
    "maxtext": {
        "ici_pipeline_parallelism": 1,
        "ici_context_parallelism": 2,
        "ici_expert_parallelism": 1,
        "num_pipeline_microbatches": -1,
        "num_pipeline_repeats": -1,
        "context_parallel_strategy": "all_gather",
        "mesh_axes": ["data", "fsdp", "tensor", "context", "stage", "expert"],
        "logical_axis_rules": [["embed", ["fsdp"]]],
        "base_config": "base.yml",
        "num_slices": None,
    },
    "nanotron": {},
}
FILES: Mapping[str, dict[str, Any]] = {
    "axolotl": _yaml("axolotl_nd.yaml") | MORE["axolotl"],
    "llamafactory": _yaml("llamafactory_megatron.yaml") | MORE["llamafactory"],
    "maxtext": _yaml("maxtext_slices.yml") | MORE["maxtext"],
    "nanotron": _yaml("nanotron_context.yaml"),
    "torchtitan": tomllib.loads((EXAMPLES / "torchtitan_moe.toml").read_text()),
    "second": {
        "model": "a/b",
        "model_class": "llm",
        "dist_config": {
            "name": "fsdpturbo",
            "mp_replicate_size": 1,
            "mp_shard_size": 16,
            "ep_size": 2,
            "config_file": "no.json",
        },
        "cp_size": 2,
        "cp_mode": "ulysses",
        "micro_batch_size": 1,
        "global_batch_size": 32,
    },
    "primus": {
        "modules": {
            "pre_trainer": {
                "framework": "torchtitan",
                "config": "pre_trainer.yaml",
                "overrides": {
                    "training": {"local_batch_size": 4, "seq_len": "${SEQ:4096}"},
                    "parallelism": {"tensor_parallel_degree": "${PRIMUS_TP:2}"},
                },
            }
        }
    },
    "legacy": {
        "training": {
            "data_parallel_degree": -1,
            "tensor_parallel_degree": 2,
            "batch_size": 8,
            "data_parallel_type": "fsdp",
            "enable_cpu_offload": True,
        },
        "experimental": {
            "pipeline_parallel_degree": 2,
            "pipeline_parallel_microbatches": 4,
            "context_parallel_degree": 1,
            "pipeline_parallel_split_points": ["layers.4"],
            "pipeline_parallel_schedule": "1F1B",
        },
    },
}

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-4, 70),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["auto", "1e9", "${X}", "none", "cpu", "2", -1, 0, "../x", ".", "full", "ring"]
    ),
    st.sampled_from(["a\0b", "x" * 400, "Interleaved1F1B", "GPipe", "deepspeed", 10**14, 0.25]),
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
    """Up to four keys dropped, retyped, scaled, or nested in themselves."""
    result = copy.deepcopy(config)
    for path in draw(st.lists(st.sampled_from(_paths(config)), min_size=1, max_size=4)):
        inner: Any = result
        for key in path[:-1]:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or path[-1] not in inner:
            continue
        action = draw(st.sampled_from(["drop", "retype", "nest", "scale"]))
        old = inner.pop(path[-1])
        if action == "scale" and isinstance(old, int | float):
            inner[path[-1]] = old * draw(st.sampled_from([2, 3, 0.5, 10**9, -1]))
        elif action != "drop":
            inner[path[-1]] = draw(VALUES) if action == "retype" else {path[-1]: old}
    return result


def _imports_or_refuses(file: Path, world: int | None, shaped: bool) -> None:
    try:
        imported = load(file, world=world, model=MODEL if shaped else None)
    except IllFormed as error:
        assert "\n" not in str(error)
        return
    assert repr(parse(repr(imported.composition))) == repr(imported.composition)
    json.dumps(imported.to_json())


def _toml(value: Any) -> str:
    """TOML for plain data, tables inline."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        return '"none"'
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def _text(config: dict[str, Any], suffix: str) -> str:
    if suffix == ".toml":
        pairs = (f"{json.dumps(key)} = {_toml(value)}" for key, value in config.items())
        return "\n".join(pairs)
    return yaml.safe_dump(config, allow_unicode=True, sort_keys=False)


WORLDS = st.one_of(st.none(), st.integers(1, 65), st.sampled_from([96, 128]))
FUZZ = settings(
    max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(data=st.data(), world=WORLDS, shaped=st.booleans())
def test_damaged_file(
    tmp_path: Path, name: str, data: st.DataObject, world: int | None, shaped: bool
) -> None:
    suffix = ".toml" if name in ("torchtitan", "legacy") else ".yaml"
    file = tmp_path / f"a{suffix}"
    config = data.draw(damaged(FILES[name]))
    file.write_text(_text(config, suffix), encoding="utf-8", errors="replace")
    _imports_or_refuses(file, world, shaped)


SHELL = """#!/bin/bash
export TP=4
ARGS="model_name=x ici_tensor_parallelism=${TP} per_device_batch_size=0.5 \\
  ici_fsdp_parallelism=-1 remat_policy=full"
run --num-slices=2 --command="python3 -m maxtext.train base.yml ${ARGS}"
"""
PYTHON = """def one():
    return Config(
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=4 * 4096, seq_len=4096),
        parallelism=ParallelismConfig(tensor_parallel_degree=2, expert_parallel_degree=2),
        activation_checkpoint=SelectiveAC.Config(),
    )
"""
TEXTS = {
    "a.toml": (EXAMPLES / "torchtitan_moe.toml").read_text(),
    "a.yaml": (EXAMPLES / "axolotl_nd.yaml").read_text(),
    "b.yaml": (EXAMPLES / "nanotron_context.yaml").read_text(),
    "c.yml": (EXAMPLES / "maxtext_slices.yml").read_text(),
    "d.yaml": (EXAMPLES / "llamafactory_megatron.yaml").read_text(),
    "a.sh": SHELL,
    "a.py": PYTHON,
}


@pytest.mark.parametrize("name", TEXTS)
@FUZZ
@given(cut=st.integers(0, 2000), put=st.text(max_size=6), length=st.integers(0, 3))
def test_damaged_text(tmp_path: Path, name: str, cut: int, put: str, length: int) -> None:
    text = TEXTS[name]
    at = cut % (len(text) + 1)
    tail = text[at + length :] if put else ""
    file = tmp_path / name
    file.write_text(text[:at] + put + tail, encoding="utf-8", errors="replace")
    _imports_or_refuses(file, 64, True)


@FUZZ
@given(raw=st.binary(max_size=60), suffix=st.sampled_from([".toml", ".yml", ".py", ".sh"]))
def test_arbitrary_bytes(tmp_path: Path, raw: bytes, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    file.write_bytes(raw)
    _imports_or_refuses(file, None, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "a = " + "[" * 50_000),
        ("a.toml", "a = " + "{b = " * 5_000),
        ("a.toml", "[" + "a." * 5_000 + "a]\nb = 1"),
        ("a.toml", "a = " + "9" * 100_000),
        ("a.toml", "x = [" + "1," * 100_000 + "]"),
        ("a.py", "ParallelismConfig(" * 20_000),
        ("a.py", "ParallelismConfig(" + "(" * 9_000 + ")" * 9_000 + ")"),
        ("a.sh", "ici_fsdp_parallelism=" + "9" * 100_000),
        ("a.sh", "per_device_batch_size=1 " + "a=b " * 100_000),
        ("a.sh", "A=1\n" * 100_000 + "per_device_batch_size=1"),
    ],
)
def test_large_and_deep(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    _imports_or_refuses(file, 8, False)
