"""Damaged scripts, programs and files: an import or one clear line, never another exception."""

from __future__ import annotations

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

ROOT = Path(__file__).parents[1] / "examples" / "configs"
FILES = ["megatron_moe.sbatch", "nemo_llama.yaml", "gptneox.yml", "lightning_hsdp.py"]
SNIPPETS = [
    "'", '"', "`", "$(", "${", "$((", "))", ")", "}", "<<EOF\n", "\\\n", "\\", "if [ ", "then",
    "fi", "for x in", "do", "done", "case x in", "esac", ";;", "&&", "||", "|", "#", "--", "=",
    "+=(", "--tensor-model-parallel-size", "--num-layers 0", "${A:-", "$@", "[[", "]]", "((",
    "eval ", "f() {\n", "function f {", "\n}\nf ",
    "bash -c ", "0", "-1", "1e9", "99999999999999999999", "true", "null", "\n", "\t", "é", "\r\n",
    "{", "[", ":", "- ", "? ", "&a ", "*a", "!!x ", "<<: ", "${.x}", "lambda: ", "**", "A=$A$A\n",
]  # fmt: skip
FUZZ = settings(
    max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WORLDS = st.one_of(st.none(), st.integers(1, 130))


def _imports_or_refuses(file: Path, world: int | None) -> None:
    try:
        imported = load(file, world=world)
    except IllFormed as error:
        assert "\n" not in str(error)
        return
    assert repr(parse(repr(imported.composition))) == repr(imported.composition)
    json.dumps(imported.to_json())


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 12), st.sampled_from(["", *SNIPPETS])),
        min_size=1,
        max_size=4,
    ),
    keep=st.floats(0.1, 1.5),
    world=WORLDS,
)
def test_damaged_text(
    tmp_path: Path, name: str, changes: list[tuple[int, int, str]], keep: float, world: int | None
) -> None:
    text = (ROOT / name).read_text()
    for at, length, put in changes:
        at %= len(text) + 1
        text = text[:at] + put + text[at + length :]
    text = text[: int(len(text) * keep)]
    file = tmp_path / name
    file.write_text(text, encoding="utf-8", newline="")
    _imports_or_refuses(file, world)


VALUES: st.SearchStrategy[str] = st.one_of(
    st.integers(-4, 70).map(str),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        ["", "$X", "${10}", "true", "a b", "'x y'", "[0]*3", "full", "selective", "1_0"]
    ),
    st.sampled_from(["a2a", "a2a+p2p", "allgather", "optim", "no_shard", "$(date)", "1 2 3", "'"]),
)
FLAGS = [
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "expert-model-parallel-size",
    "expert-tensor-parallel-size",
    "num-experts",
    "num-layers",
    "hidden-size",
    "num-attention-heads",
    "num-query-groups",
    "seq-length",
    "micro-batch-size",
    "global-batch-size",
    "rampup-batch-size",
    "sequence-parallel",
    "use-distributed-optimizer",
    "use-megatron-fsdp",
    "data-parallel-sharding-strategy",
    "use-torch-fsdp2",
    "recompute-granularity",
    "recompute-method",
    "recompute-modules",
    "num-layers-per-virtual-pipeline-stage",
    "num-virtual-stages-per-pipeline-rank",
    "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
    "cp-comm-type",
    "hierarchical-context-parallel-sizes",
    "num-distributed-optimizer-instances",
    "zero-stage",
    "deepspeed",
    "ds-sequence-parallel-size",
    "moe-expert-parallel-size",
    "optimizer-cpu-offload",
    "cpu-offloading-num-layers",
    "actor-num-nodes",
    "actor-num-gpus-per-node",
    "nproc_per_node",
    "nnodes",
    "optimizer-offload-fraction",
    "vocab-size",
    "bf16",
    "fp16",
    "megatron-fsdp-version",
    "fp8-format",
]


@FUZZ
@given(
    flags=st.lists(st.tuples(st.sampled_from(FLAGS), VALUES), min_size=1, max_size=10), world=WORLDS
)
def test_random_flags(tmp_path: Path, flags: list[tuple[str, str]], world: int | None) -> None:
    words = " ".join(f"--{name} {value}" for name, value in flags)
    file = tmp_path / "a.sh"
    file.write_text(f"python pretrain.py --num-layers 8 --hidden-size 64 {words}\n")
    _imports_or_refuses(file, world)


MODEL = "model.tensor_model_parallel_size"
NEMO: dict[str, Any] = yaml.safe_load((ROOT / "nemo_llama.yaml").read_text())
RL: dict[str, Any] = {
    "defaults": "x.yaml",
    "policy": {
        "train_micro_batch_size": 1,
        "train_global_batch_size": 64,
        "precision": "bfloat16",
        "dtensor_cfg": {"expert_parallel_size": 2, "tensor_parallel_size": 2, "cpu_offload": True},
        "megatron_cfg": {"enabled": False, "pipeline_model_parallel_size": 2},
    },
    "cluster": {"gpus_per_node": 8, "num_nodes": 2},
}
NEOX: dict[str, Any] = {
    "pipe-parallel-size": 2,
    "model-parallel-size": 2,
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}},
    "checkpoint_activations": True,
    "precision": "fp16",
}
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.integers(), st.floats(), st.text(max_size=6),
    st.sampled_from(["${.x}", "${A:1}", "${multiply:2,3}", "???", "auto", "full", "1e9", [1], {}]),
    st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2),
)  # fmt: skip


def _damage(config: dict[str, Any], draw: st.DataObject) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(config))
    for _ in range(draw.draw(st.integers(1, 4))):
        block = result
        while True:
            key = draw.draw(st.sampled_from(sorted(block))) if block else None
            if key is None:
                break
            if isinstance(block[key], dict) and draw.draw(st.booleans()):
                block = block[key]
                continue
            if draw.draw(st.booleans()):
                block[key] = draw.draw(PLAIN)
            else:
                block.pop(key)
            break
    return result


@pytest.mark.parametrize("config", [NEMO, RL, NEOX], ids=["nemo", "rl", "neox"])
@FUZZ
@given(data=st.data(), world=WORLDS)
def test_damaged_yaml(
    tmp_path: Path, config: dict[str, Any], data: st.DataObject, world: int | None
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(_damage(config, data), allow_unicode=True), encoding="utf-8")
    _imports_or_refuses(file, world)


@pytest.mark.parametrize("suffix", [".sh", ".py", ".slurm"])
@FUZZ
@given(text=st.text(alphabet="ab$(){}[]'\"\\`\n;|&<>#=+-*/ EOF1", max_size=80))
def test_arbitrary_text(tmp_path: Path, suffix: str, text: str) -> None:
    file = tmp_path / f"a{suffix}"
    file.write_text(text)
    _imports_or_refuses(file, None)
