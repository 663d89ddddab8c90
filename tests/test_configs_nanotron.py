"""nanotron files: what each becomes, and every rule once firing and once silent."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

from placement_proofs.configs import Imported, load
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse

Config = dict[str, Any]
BASE: Config = {
    "model": {
        "dtype": "bfloat16",
        "model_config": {
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "num_hidden_layers": 24,
            "max_position_embeddings": 4096,
        },
    },
    "optimizer": {"zero_stage": 0, "accumulate_grad_in_fp32": True},
    "parallelism": {"dp": 4, "tp": 1, "pp": 1},
    "tokens": {
        "micro_batch_size": 2,
        "batch_accumulation_per_replica": 1,
        "sequence_length": 4096,
    },
}


def _config(**keys: Any) -> Config:
    """The base with keys of its blocks replaced; ``None`` removes one."""
    config = copy.deepcopy(BASE)
    blocks = [config["parallelism"], config["tokens"], config["optimizer"], config["model"]]
    blocks.append(config["model"]["model_config"])
    for key, value in keys.items():
        block = next((b for b in blocks if key in b), config["parallelism"])
        block[key] = value
        if value is None:
            del block[key]
    return config


def _load(tmp_path: Path, config: Config | str, world: int | None = None) -> Imported:
    file = tmp_path / "n.yaml"
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False))
    return load(file, world=world)


STEPS = "batch_accumulation_per_replica"
SCATTER = {"tp_mode": "REDUCE_SCATTER"}
EXPRESSIONS: list[tuple[Config, str]] = [
    (_config(), "data(dp=4)"),
    (_config(zero_stage=1), "zero1(dp=4)"),
    (_config(zero_stage=3), "zero1(dp=4)"),
    (_config(tp=2), "data(dp=4) * tensor(tp=2)"),
    (_config(tp=2, **SCATTER), "data(dp=4) * tensor(tp=2, sequence=True)"),
    (_config(context_parallel_size=2), "data(dp=4) * context(cp=2, method='ring')"),
    (_config(**{STEPS: 8}), "data(dp=4) * accumulate(micro=8)"),
    (
        _config(pp=2, **{STEPS: 8}),
        "data(dp=4) * pipeline(pp=2, microbatches=8, schedule='gpipe')",
    ),
    (
        _config(pp=2, pp_engine="1f1b", **{STEPS: 8}),
        "data(dp=4) * pipeline(pp=2, microbatches=8)",
    ),
    (_config(recompute_layer=True), "data(dp=4) * recompute('full')"),
    (_config(expert_parallel_size=2), "data(dp=4) * expert(ep=2)"),
]


@pytest.mark.parametrize(("config", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, config: Config, expression: str) -> None:
    imported = _load(tmp_path, config)
    assert repr(imported.composition) == expression
    assert parse(expression) == imported.composition
    assert imported.field("world").provenance == "derived"


def test_batch_and_formats(tmp_path: Path) -> None:
    imported = _load(tmp_path, _config(context_parallel_size=2, **{STEPS: 3}), 8)
    assert (imported.batch.micro_batch, imported.batch.accumulation) == (2, 3)
    assert imported.batch.global_batch == 2 * 3 * 4
    assert imported.dtypes.parameters == "bf16"
    assert imported.dtypes.gradients == imported.dtypes.master == "fp32"


def test_evaluation_degrees_are_another_job(tmp_path: Path) -> None:
    config = _config() | {"lighteval": {"parallelism": {"dp": 64, "tp": 8, "pp": 1}}}
    assert _load(tmp_path, config).degrees() == {"dp": 4}


@pytest.mark.parametrize(
    ("config", "world", "message"),
    [
        (_config(tp=2), 4, "dp 4 * tp 2 = 8 for a world of 4"),
        (_config(dp=None), 4, "no dp"),
        (_config(dp="auto"), 4, "nobody fills auto"),
        (_config(tp=0), 4, "it lies between 1"),
        (_config(dp="${DP}"), 4, "placeholder"),
        (_config(tp_mode="ring"), 4, "ALL_REDUCE or REDUCE_SCATTER"),
        (_config(pp_engine="dfs"), 4, "afab or 1f1b"),
        (_config(zero_stage="one"), 4, "a number belongs here"),
    ],
)
def test_refusal(tmp_path: Path, config: Config, world: int, message: str) -> None:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, config, world)
    assert message in str(caught.value)
    assert str(caught.value).startswith("n.yaml:")


LONG = {"sequence_length": 8192}
RULES: list[tuple[str, str, Config, Config]] = [
    ("unknown key", "rejected", _config(recompute_granularity="full"), _config()),
    ("auto needs a filler", "rejected", _config(context_parallel_size="auto"), _config()),
    ("expert ranks and world", "rejected", _config(expert_parallel_size=2), _config()),
    ("zero_stage is required", "rejected", _config(zero_stage=None), _config()),
    ("ZeRO above stage 1", "ignored", _config(zero_stage=3), _config(zero_stage=1)),
    ("sharding over one rank", "unlikely", _config(zero_stage=1, dp=1), _config(zero_stage=1)),
    (
        "micro-batches of 1F1B",
        "rejected",
        _config(pp=4, pp_engine="1f1b", **{STEPS: 2}),
        _config(pp=4, pp_engine="1f1b", **{STEPS: 3}),
    ),
    (
        "micro-batches fill the pipeline",
        "unlikely",
        _config(pp=4, **{STEPS: 2}),
        _config(pp=4, **{STEPS: 4}),
    ),
    (
        "sequence parallelism at one tensor rank",
        "ignored",
        _config(**SCATTER),
        _config(tp=2, **SCATTER),
    ),
    ("heads divide", "rejected", _config(tp=3), _config(tp=2)),
    ("key-value heads divide", "rejected", _config(tp=8), _config(tp=4)),
    (
        "tokens divide",
        "rejected",
        _config(context_parallel_size=2, sequence_length=4090),
        _config(context_parallel_size=2),
    ),
    (
        "tokens over tensor ranks",
        "rejected",
        _config(tp=4, sequence_length=4090, **SCATTER),
        _config(tp=4, sequence_length=4090),
    ),
    ("layers over stages", "rejected", _config(pp=48), _config(pp=24)),
    ("layers over stages", "unlikely", _config(pp=5), _config(pp=4)),
    ("sequence within positions", "unlikely", _config(**LONG), _config()),
    ("16-bit master weights", "unlikely", _config(accumulate_grad_in_fp32=False), _config()),
]


@pytest.mark.parametrize(("rule", "kind", "fires", "silent"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, fires: Config, silent: Config) -> None:
    found = [f for f in _load(tmp_path, fires).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert found[0].place.startswith("n.yaml:")
    assert rule not in [f.rule for f in _load(tmp_path, silent).findings]


def test_experts_of_the_model(tmp_path: Path) -> None:
    config = _config(expert_parallel_size=3)
    config["model"]["model_config"]["moe_config"] = {"num_experts": 8}
    assert "experts divide" in [f.rule for f in _load(tmp_path, config).findings]


def test_key_given_twice(tmp_path: Path) -> None:
    text = yaml.safe_dump(_config()) + "general:\n  run: a\n  run: b\n"
    (found,) = _load(tmp_path, text).findings
    assert (found.kind, found.rule) == ("ignored", "key given twice")


def test_example() -> None:
    imported = load(ROOT / "examples/configs/nanotron_context.yaml")
    assert repr(imported.composition) == (
        "zero1(dp=4) * context(cp=4, method='ring') * tensor(tp=2, sequence=True) * "
        "accumulate(micro=8) * recompute('full')"
    )
    assert imported.world == 32
    assert imported.batch.global_batch == 32
    assert imported.findings == ()
