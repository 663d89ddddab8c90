"""Lightning programs and scripts: what they become, and every rule once firing and once silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from placement_proofs.configs import Imported, detect, load
from placement_proofs.errors import IllFormed

EXAMPLE = Path(__file__).parents[1] / "examples" / "configs" / "lightning_hsdp.py"


def _load(tmp_path: Path, text: str, world: int | None = None) -> Imported:
    file = tmp_path / "a.py"
    file.write_text(text)
    assert detect(file) == "lightning"
    return load(file, world=world)


def _trainer(strategy: str, devices: str = "4", more: str = "") -> str:
    call = f"L.Trainer(devices={devices}, strategy={strategy}, {more})"
    return f"import lightning as L\ntrainer = {call}\n"


WRAP = "auto_wrap_policy={Block}"
HSDP = f"FSDPStrategy({WRAP}, sharding_strategy='HYBRID_SHARD')"
ALL = "'parameters', 'gradients', 'optimizer'"
EXPRESSIONS: list[tuple[str, str]] = [
    (_trainer("'ddp'"), "data(dp=4)"),
    (_trainer("'ddp_find_unused_parameters_true'", "[0, 1]"), "data(dp=2)"),
    (_trainer("'auto'"), "data(dp=4)"),
    (_trainer("'auto'", "1"), "single()"),
    (_trainer("'ddp'", "8", "num_nodes=2"), "data(dp=16)"),
    (_trainer("'ddp'", "'auto'"), "data(dp='N')"),
    (_trainer("'ddp'", "count()"), "data(dp='N')"),
    (_trainer("'fsdp'"), "fsdp(dp=4)"),
    (_trainer("'fsdp_cpu_offload'"), f"fsdp(dp=4) * offload({ALL})"),
    (_trainer("'deepspeed'"), "zero2(dp=4)"),
    (_trainer("'deepspeed_stage_1'"), "zero1(dp=4)"),
    (_trainer("'deepspeed_stage_2_offload'"), "zero2(dp=4) * offload('optimizer')"),
    (
        _trainer("'deepspeed_stage_3_offload'"),
        "zero3(dp=4) * offload('optimizer', 'parameters')",
    ),
    (
        _trainer("'deepspeed_stage_3_offload_nvme'"),
        "zero3(dp=4) * offload('optimizer', 'parameters', to='nvme')",
    ),
    (
        _trainer("'deepspeed'", more="accumulate_grad_batches=8"),
        "zero2(dp=4) * accumulate(micro=8)",
    ),
    (_trainer("DeepSpeedStrategy(stage=3)"), "zero3(dp=4)"),
    (_trainer("DeepSpeedStrategy(config={'zero_optimization': {'stage': 1}})"), "zero1(dp=4)"),
    (_trainer("FSDPStrategy()"), "fsdp(dp=4)"),
    (_trainer("FSDPStrategy(sharding_strategy='NO_SHARD')"), "data(dp=4)"),
    (
        _trainer("FSDPStrategy(sharding_strategy='SHARD_GRAD_OP', cpu_offload=True)"),
        f"fsdp(dp=4, reshard_after_forward=False) * offload({ALL})",
    ),
    (_trainer(HSDP, "8", "num_nodes=2"), "hsdp(dp_replicate=2, dp_shard=8)"),
    (
        _trainer(HSDP.replace("'H", "'H").replace(")", ", device_mesh=(4, 2))"), "8"),
        "hsdp(dp_replicate=4, dp_shard=2)",
    ),
    (
        _trainer("ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=2)"),
        "fsdp(dp=2) * tensor(tp=2, vocabulary=False)",
    ),
    (
        _trainer("ModelParallelStrategy()", "8", "num_nodes=2"),
        "fsdp(dp=2) * tensor(tp=8, vocabulary=False)",
    ),
    ("s = FSDPStrategy(activation_checkpointing_policy={B})\nL.Fabric(devices=4, strategy=s)",
     "fsdp(dp=4) * recompute('full')"),
    (_trainer("nl.MegatronStrategy(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)"),
     "data(dp=1) * tensor(tp=2) * pipeline(pp=2, microbatches='M')"),
    ("  if many:\n    L.Fabric(devices=4, strategy='ddp')\n", "data(dp=4)"),
    ("s = ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=2)\n"
     "L.Trainer(strategy=s)", "fsdp(dp=4) * tensor(tp=2, vocabulary=False)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, text: str, expression: str) -> None:
    assert repr(_load(tmp_path, text).composition) == expression


def test_example() -> None:
    imported = load(EXAMPLE)
    assert detect(EXAMPLE) == "lightning"
    assert repr(imported.composition) == (
        "hsdp(dp_replicate=2, dp_shard=8) * recompute('full') * accumulate(micro=4)"
    )
    assert imported.world == 16
    assert imported.findings == ()
    assert imported.field("sharding_strategy").place == ("lightning_hsdp.py:10 sharding_strategy")


def test_nothing_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    text = f"open({str(marker)!r}, 'w')\n" + _trainer("'ddp'")
    _load(tmp_path, text)
    assert not marker.exists()


def test_fully_shard_in_the_program_is_seen(tmp_path: Path) -> None:
    text = _trainer("ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=1)")
    assert _load(tmp_path, text).field("zero_stage").provenance == "unknown"
    text += "fully_shard(model)\n"
    assert _load(tmp_path, text).field("zero_stage").provenance == "literal"


def test_a_computed_strategy_is_open(tmp_path: Path) -> None:
    imported = _load(tmp_path, _trainer("choose()"))
    assert imported.field("zero_stage").provenance == "unknown"
    assert any("computed by the program" in text for text in imported.assumptions)


SCRIPT = """#SBATCH --nodes=4
#SBATCH --gres=gpu:8
cat <<EOT > ds.json
{
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu"}
  }
}
EOT
python train.py --strategy deepspeed_stage_3 --gpus %s --num_nodes %s --max_epochs 1
"""


def test_script(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(SCRIPT % (4, 1))
    imported = load(file)
    assert detect(file) == "lightning"
    assert repr(imported.composition) == "zero3(dp=4) * offload('optimizer')"
    assert imported.field("zero_stage").place == "a.sh:7 zero_optimization.stage"
    assert "allocated ranks" in [f.rule for f in imported.findings]
    file.write_text(SCRIPT % (8, 4))
    assert "allocated ranks" not in [f.rule for f in load(file).findings]


YAML = """seed_everything: 1
trainer:
  devices: 4
  num_nodes: 2
  precision: bf16-true
  strategy:
    class_path: lightning.pytorch.strategies.FSDPStrategy
    init_args:
      auto_wrap_policy: [model.Block]
      sharding_strategy: HYBRID_SHARD
model:
  class_path: model.LanguageModel
"""


def test_yaml_of_the_command_line_interface(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(YAML)
    imported = load(file)
    assert detect(file) == "lightning"
    assert repr(imported.composition) == "hsdp(dp_replicate=2, dp_shard=4)"
    assert imported.field("sharding_strategy").place == (
        "a.yaml:10 trainer.strategy.sharding_strategy"
    )
    file.write_text("trainer: {devices: 2, strategy: ddp}\n")
    assert repr(load(file).composition) == "data(dp=2)"


RULES: list[tuple[str, str, str, str]] = [
    ("FSDP units", "unlikely", _trainer("FSDPStrategy()"), _trainer(f"FSDPStrategy({WRAP})")),
    (
        "hybrid needs units",
        "rejected",
        _trainer("FSDPStrategy(sharding_strategy='HYBRID_SHARD')", more="num_nodes=2"),
        _trainer(HSDP, more="num_nodes=2"),
    ),
    (
        "hybrid shard group of one",
        "mathematics",
        _trainer(HSDP, "1", "num_nodes=2"),
        _trainer(HSDP, "2", "num_nodes=2"),
    ),
    (
        "hybrid with one replica",
        "unlikely",
        _trainer(HSDP, "4"),
        _trainer(HSDP, "4", "num_nodes=2"),
    ),
    (
        "one kind of group",
        "rejected",
        _trainer(f"FSDPStrategy({WRAP}, process_group=g, device_mesh=(2, 2))"),
        _trainer(f"FSDPStrategy({WRAP}, device_mesh=(2, 2))"),
    ),
    (
        "accumulation in Lightning",
        "rejected",
        _trainer("DeepSpeedStrategy(config={'gradient_accumulation_steps': 2})"),
        _trainer("DeepSpeedStrategy(config={'gradient_clipping': 2})"),
    ),
    (
        "samples not split",
        "unlikely",
        _trainer("'ddp'", more="use_distributed_sampler=False"),
        _trainer("'ddp'", more="use_distributed_sampler=True"),
    ),
    ("shard group of one", "unlikely", _trainer("'fsdp'", "1"), _trainer("'fsdp'", "2")),
]


@pytest.mark.parametrize(("rule", "kind", "wrong", "right"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, wrong: str, right: str) -> None:
    found = [f for f in _load(tmp_path, wrong).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert found[0].place.startswith("a.py:")
    assert rule not in [f.rule for f in _load(tmp_path, right).findings]


TWO = "data_parallel_size=2"
REFUSED: list[tuple[str, str]] = [
    (_trainer(f"ModelParallelStrategy({TWO}, tensor_parallel_size=4)"), "dp=2 * tp=4"),
    (_trainer("'colossal'"), "strategies are ddp"),
    (_trainer("FSDPStrategy(sharding_strategy='ALL')"), "FULL_SHARD"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("a.py:2 ")


def test_broken_source_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("L.Trainer(devices=4,\n")
    with pytest.raises(IllFormed, match=r"a\.py:1: found no Python"):
        load(file, format="lightning")
