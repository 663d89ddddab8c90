"""Megatron's arguments: what they become, and every rule once firing and once silent."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from placement_proofs.configs import Batch, Imported, detect, load
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse

EXAMPLE = Path(__file__).parents[1] / "examples" / "configs" / "megatron_moe.sbatch"
SHAPE = (
    "--num-layers 16 --hidden-size 64 --num-attention-heads 16 --seq-length 1024 "
    "--micro-batch-size 1 --global-batch-size 64 --bf16 "
)


def _text(tmp_path: Path, text: str, world: int | None = 16) -> Imported:
    file = tmp_path / "a.sh"
    file.write_text(text)
    return load(file, world=world)


def _load(tmp_path: Path, flags: str, world: int | None = 16, before: str = "") -> Imported:
    return _text(tmp_path, f"{before}\npython pretrain_gpt.py {SHAPE} {flags}\n", world)


def _sizes(tp: int = 1, pp: int = 1, cp: int = 1, ep: int = 1, more: str = "") -> str:
    named = {"tensor-model": tp, "pipeline-model": pp, "context": cp, "expert-model": ep}
    flags = [f"--{name}-parallel-size {size}" for name, size in named.items() if size > 1]
    return " ".join([*flags, more])


DISTRIBUTED = "--use-distributed-optimizer"
MOE = "--num-experts 16"
EXPRESSIONS: list[tuple[str, str]] = [
    ("", "data(dp=16) * accumulate(micro=4)"),
    (DISTRIBUTED, "zero1(dp=16) * accumulate(micro=4)"),
    (_sizes(tp=4), "data(dp=4) * tensor(tp=4) * accumulate(micro=16)"),
    (
        _sizes(tp=4, more="--group-query-attention --num-query-groups 4"),
        "data(dp=4) * tensor(tp=4) * accumulate(micro=16)",
    ),
    (
        _sizes(tp=4, more="--group-query-attention --num-query-groups 2"),
        "data(dp=4) * tensor(tp=4, replicate_kv=True) * accumulate(micro=16)",
    ),
    (
        _sizes(tp=4, more="--sequence-parallel"),
        "data(dp=4) * tensor(tp=4, sequence=True) * accumulate(micro=16)",
    ),
    (
        _sizes(cp=2, more=DISTRIBUTED),
        "zero1(dp=8, shard_over=('dp', 'cp')) * context(cp=2, method='ring') * accumulate(micro=8)",
    ),
    (
        _sizes(cp=2, more="--cp-comm-type allgather"),
        "data(dp=8) * context(cp=2) * accumulate(micro=8)",
    ),
    (
        _sizes(cp=2, more=f"--cp-comm-type a2a {DISTRIBUTED}"),
        "zero1(dp=8, shard_over=('dp', 'sp')) * ulysses(sp=2) * accumulate(micro=8)",
    ),
    (_sizes(pp=4), "data(dp=4) * pipeline(pp=4, microbatches=16)"),
    (
        _sizes(pp=4, more="--num-layers-per-virtual-pipeline-stage 2"),
        "data(dp=4) * pipeline(pp=4, microbatches=16, schedule='interleaved', chunks=2)",
    ),
    (
        _sizes(pp=4, more="--num-virtual-stages-per-pipeline-rank 4"),
        "data(dp=4) * pipeline(pp=4, microbatches=16, schedule='interleaved', chunks=4)",
    ),
    (
        _sizes(ep=4, more=f"{MOE} {DISTRIBUTED}"),
        "zero1(dp=4) * expert(ep=4) * accumulate(micro=4)",
    ),
    (
        _sizes(tp=4, ep=8, more=f"{MOE} --expert-tensor-parallel-size 1 --sequence-parallel"),
        "data(dp=4) * tensor(tp=4, sequence=True) * accumulate(micro=16)",
    ),
    (
        f"--num-distributed-optimizer-instances 2 {DISTRIBUTED}",
        "place(dp_replicate=2, batch='S(0)') * zero1(dp=8) * accumulate(micro=4)",
    ),
    (
        f"--use-megatron-fsdp {DISTRIBUTED}",
        "zero3(dp=16) * accumulate(micro=4)",
    ),
    (
        f"--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads {DISTRIBUTED}",
        "zero2(dp=16) * accumulate(micro=4)",
    ),
    (
        f"--use-megatron-fsdp --data-parallel-sharding-strategy no_shard {DISTRIBUTED}",
        "data(dp=16) * accumulate(micro=4)",
    ),
    (
        "--use-torch-fsdp2 --untie-embeddings-and-output-weights",
        "zero3(dp=16) * accumulate(micro=4)",
    ),
    ("--recompute-activations", "data(dp=16) * accumulate(micro=4) * recompute('selective')"),
    (
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "data(dp=16) * accumulate(micro=4) * recompute('full')",
    ),
    (
        f"{DISTRIBUTED} --optimizer-cpu-offload --use-precision-aware-optimizer",
        "zero1(dp=16) * accumulate(micro=4) * offload('optimizer')",
    ),
    (
        "--deepspeed --zero-stage 2 --ds-sequence-parallel-size 4",
        "zero2(dp=4, shard_over=('dp', 'sp')) * ulysses(sp=4) * accumulate(micro=16)",
    ),
    (
        "--tensor-model-parallel-size $TP",
        "data(dp='N') * tensor(tp='N_tp') * accumulate(micro='M')",
    ),
    (
        "--pipeline-model-parallel-size ${11} --expert-model-parallel-size $EP --num-experts 8",
        "data(dp='N') * expert(ep='N_ep') * pipeline(pp='N_pp', microbatches='M')",
    ),
]


@pytest.mark.parametrize(("flags", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, flags: str, expression: str) -> None:
    imported = _load(tmp_path, flags)
    assert repr(imported.composition) == expression
    assert repr(parse(expression)) == expression


def test_example() -> None:
    imported = load(EXAMPLE)
    assert detect(EXAMPLE) == "megatron"
    assert repr(imported.composition) == (
        "zero1(dp=1) * expert(ep=8) * tensor(tp=4, sequence=True) * pipeline(pp=2, "
        "microbatches=32, schedule='interleaved', chunks=4) * recompute('selective')"
    )
    assert imported.world == 64
    assert imported.findings == ()
    assert {name: imported.field(name).value for name in ("dp", "edp", "etp", "vpp_layers")} == {
        "dp": 8,
        "edp": 1,
        "etp": 4,
        "vpp_layers": 4,
    }
    assert imported.field("pp").provenance == "default"
    assert "PP" in imported.field("pp").note
    assert imported.field("tp").place == "megatron_moe.sbatch:33 --tensor-model-parallel-size"
    assert imported.dtypes.gradients == "fp32"


def test_open_degrees_name_their_variable(tmp_path: Path) -> None:
    imported = _load(tmp_path, "--tensor-model-parallel-size ${10} --context-parallel-size $CP")
    field = imported.field("tp")
    assert (field.value, field.provenance) == ("N_tp", "cli or environment")
    assert field.place == "a.sh:2 --tensor-model-parallel-size"
    assert field.note.startswith("10 ")
    assert imported.field("cp").note.startswith("CP ")
    assert imported.field("layers").value == 16


def test_a_degree_under_a_condition_is_open(tmp_path: Path) -> None:
    before = 'X=""\nif [ $M = a ]; then X="--expert-model-parallel-size 4 --num-experts 8"; fi'
    imported = _load(tmp_path, "$X", before=before)
    field = imported.field("ep")
    assert (field.value, field.provenance) == ("N_ep", "cli or environment")
    assert field.place == "a.sh:2 --expert-model-parallel-size"
    assert [f.rule for f in imported.findings] == []


def test_open_switches_are_unknown(tmp_path: Path) -> None:
    fsdp = f"--use-megatron-fsdp --data-parallel-sharding-strategy $S {DISTRIBUTED}"
    field = _load(tmp_path, fsdp).field("zero_stage")
    assert (field.value, field.provenance) == (None, "cli or environment")
    field = _load(tmp_path, "--deepspeed --zero-stage $Z").field("zero_stage")
    assert field.place == "a.sh:2 --zero-stage"
    field = _load(tmp_path, _sizes(tp=2, more="--sequence_parallel=$SP")).field("sequence_parallel")
    assert (field.value, field.provenance) == (None, "cli or environment")


def test_a_world_that_is_given_replaces_the_written_one(tmp_path: Path) -> None:
    text = f"torchrun --nproc_per_node 8 x.py {SHAPE}"
    assert "replaces the 8 ranks" in " ".join(_text(tmp_path, text, 16).assumptions)
    assert _text(tmp_path, text, 8).assumptions == ()


def test_a_missing_world_is_unknown(tmp_path: Path) -> None:
    imported = _load(tmp_path, _sizes(tp=2), None)
    assert imported.world is None
    assert imported.field("world").provenance == "unknown"
    assert repr(imported.composition) == "data(dp='N') * tensor(tp=2) * accumulate(micro='M')"


def test_undecided_flags_are_said(tmp_path: Path) -> None:
    before = 'X=""\nif [ $MODE = a ]; then X="--sequence-parallel"; fi'
    imported = _load(tmp_path, _sizes(tp=2, more="$X $MORE"), before=before)
    assert any("a.sh:2 --sequence-parallel depends" in text for text in imported.assumptions)
    assert any("MORE is set outside" in text for text in imported.assumptions)
    field = imported.field("sequence_parallel")
    assert (field.value, field.provenance) == (None, "cli or environment")
    assert field.place == "a.sh:2 --sequence-parallel"


def test_the_stage_of_a_json_that_the_script_writes(tmp_path: Path) -> None:
    json = 'Z=1\ncat <<EOT > c.json\n{"zero_optimization": {"stage": $Z}}\nEOT'
    assert _load(tmp_path, "--deepspeed", before=json).field("zero_stage").value == 1
    sed = 'sed "s/ZERO_STAGE/2/" t.json > c.json'
    imported = _load(tmp_path, "--deepspeed", before=sed)
    assert imported.field("zero_stage").place == "a.sh:1 ZERO_STAGE (sed)"
    assert imported.field("zero_stage").value == 2


def test_yaml_of_the_same_flags(tmp_path: Path) -> None:
    file = tmp_path / "model_config.yaml"
    arguments = {
        "--num-layers": 8,
        "--hidden-size": 64,
        "--tensor-model-parallel-size": 2,
        "--micro-batch-size": 1,
        "--global-batch-size": 8,
    }
    file.write_text(yaml.safe_dump({"ENV_VARS": {"A": 1}, "MODEL_ARGS": arguments}))
    assert detect(file) == "megatron"
    imported = load(file, world=8)
    assert repr(imported.composition) == "data(dp=4) * tensor(tp=2) * accumulate(micro=2)"
    assert imported.field("tp").place.endswith("MODEL_ARGS.--tensor-model-parallel-size")


def test_the_exports_of_another_script(tmp_path: Path) -> None:
    text = (
        "export DGXNNODES=4\nexport DGXNGPU=8\nexport TENSOR_MODEL_PARALLEL=4\n"
        "export PIPELINE_MODEL_PARALLEL=2\nexport INTERLEAVED_PIPELINE=4\nexport SEQ_PARALLEL=True"
    )
    imported = _text(tmp_path, text, None)
    assert imported.world == 32
    text += "\nexport MINIBS=16\nexport MICRO_BATCH_SIZE=2"
    assert _text(tmp_path, text, None).batch == Batch(2, 8, 64)
    assert repr(imported.composition) == (
        "data(dp=4) * tensor(tp=4, sequence=True) * pipeline(pp=2, microbatches='M', "
        "schedule='interleaved', chunks=4)"
    )


def test_old_names_stand_for_the_current_ones(tmp_path: Path) -> None:
    text = "python x.py --num-layers 8 --hidden-size 8 --model-parallel-size 2 --batch-size 4"
    imported = _text(tmp_path, text, 8)
    assert repr(imported.composition) == "data(dp=4) * tensor(tp=2)"
    assert imported.batch == Batch(4, 1, 16)
    assert [f.rule for f in imported.findings] == ["removed flag", "removed flag"]


def test_overrides_of_another_configuration(tmp_path: Path) -> None:
    text = (
        "python train.py --config-name=llama trainer.num_nodes=4 trainer.devices=8 \\\n"
        " model.tensor_model_parallel_size=4 ++model.pipeline_model_parallel_size=2 \\\n"
        " model.context_parallel_size=1 model.global_batch_size=${GBS:-128} \\\n"
        " model.micro_batch_size=1"
    )
    imported = _text(tmp_path, text, None)
    assert imported.world == 32
    assert repr(imported.composition) == (
        "data(dp=4) * tensor(tp=4) * pipeline(pp=2, microbatches=32)"
    )
    assert imported.field("tp").place == "a.sh:2 model.tensor_model_parallel_size"
    assert imported.field("global_batch").provenance == "default"
    assert imported.field("zero_stage").provenance == "unknown"


REFUSED: list[tuple[str, str]] = [
    (_sizes(tp=3), "16 / 3 = 5.33333 data-parallel ranks"),
    ("--tensor-model-parallel-size four", "a number belongs here"),
    ("--tensor-model-parallel-size 0", "lies between 1"),
    ("--tensor-model-parallel-size --bf16", "a number belongs here"),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy all", "optim_grads_params"),
    ("--deepspeed --zero-stage 4", "a stage is 0, 1, 2 or 3"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_refused(tmp_path: Path, flags: str, message: str) -> None:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, flags)
    assert message in str(caught.value)
    assert "a.sh:2 --" in str(caught.value)


FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
SP = "--sequence-parallel"
TWO_RANKS = "CUDA_DEVICE_MAX_CONNECTIONS"
OVERLAP = "--overlap-param-gather --overlap-grad-reduce"
RULES: list[tuple[str, str, str, str]] = [
    ("expert grid", "rejected", _sizes(pp=4, ep=8, more=MOE), _sizes(pp=2, ep=8, more=MOE)),
    ("expert grid", "rejected", _sizes(tp=4, ep=8, more=f"{MOE} {SP}"),
     _sizes(tp=4, ep=8, more=f"{MOE} {SP} --expert-tensor-parallel-size 1")),
    ("experts on ranks", "rejected", _sizes(ep=4, more="--num-experts 6"), _sizes(ep=4, more=MOE)),
    ("experts needed", "rejected", _sizes(ep=4), _sizes(ep=4, more=MOE)),
    ("expert degree without experts", "ignored", "--expert-tensor-parallel-size 4",
     f"--expert-tensor-parallel-size 1 {MOE}"),
    ("experts need sequence parallel", "rejected", _sizes(tp=2, more=MOE),
     _sizes(tp=2, more=f"{MOE} {SP}")),
    ("expert gradients across grids", "mathematics",
     _sizes(tp=2, more=f"{MOE} {SP} --expert-tensor-parallel-size 1"),
     _sizes(tp=2, more=f"{MOE} {SP}")),
    ("optimizer instances", "rejected", f"{DISTRIBUTED} --num-distributed-optimizer-instances 3",
     f"{DISTRIBUTED} --num-distributed-optimizer-instances 4"),
    ("shard group of one", "unlikely", f"{DISTRIBUTED} --num-distributed-optimizer-instances 16",
     f"{DISTRIBUTED} --num-distributed-optimizer-instances 4"),
    ("shard group of one", "unlikely", _sizes(tp=16, more=DISTRIBUTED),
     _sizes(tp=8, cp=2, more=DISTRIBUTED)),
    ("sequence needs tp", "ignored", SP, _sizes(tp=2, more=SP)),
    ("overlap needs sequence", "rejected", _sizes(tp=2, more="--tp-comm-overlap"),
     _sizes(tp=2, more=f"--tp-comm-overlap {SP}")),
    ("heads on ranks", "rejected", _sizes(tp=8, more="--num-attention-heads 12"), _sizes(tp=8)),
    ("groups on ranks", "rejected", _sizes(tp=4, more="--num-query-groups 6"),
     _sizes(tp=4, more="--num-query-groups 2")),
    ("sequence on ranks", "rejected", _sizes(cp=2, more="--seq-length 1022"), _sizes(cp=2)),
    ("sequence on ranks", "rejected", _sizes(tp=4, more=f"--seq-length 1022 {SP}"),
     _sizes(tp=4, more="--seq-length 1022")),
    ("vocabulary on ranks", "rejected", _sizes(tp=4, more="--pad-vocab-size-to 250"),
     _sizes(tp=4, more="--pad-vocab-size-to 252")),
    ("Ulysses without tp", "rejected", _sizes(tp=2, more="--ds-sequence-parallel-size 2"),
     "--ds-sequence-parallel-size 2"),
    ("hierarchical context parallel", "rejected", _sizes(cp=4, more="--cp-comm-type a2a+p2p"),
     _sizes(cp=4, more="--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2")),
    ("layers on stages", "rejected", _sizes(pp=4, more="--num-layers 30"), _sizes(pp=4)),
    ("layers on stages", "rejected",
     _sizes(pp=4, more="--num-layers 61 --decoder-last-pipeline-num-layers 14"),
     _sizes(pp=4, more="--num-layers 61 --decoder-last-pipeline-num-layers 13")),
    ("layers on stages", "rejected", _sizes(pp=2, more=(
        "--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 6")),
     _sizes(pp=2, more=(
         "--decoder-first-pipeline-num-layers 10 --decoder-last-pipeline-num-layers 6"))),
    ("layers dropped", "mathematics", "--decoder-last-pipeline-num-layers 4",
     _sizes(pp=4, more="--decoder-last-pipeline-num-layers 4")),
    ("layers on chunks", "rejected",
     _sizes(pp=4, more="--num-layers-per-virtual-pipeline-stage 3"),
     _sizes(pp=4, more="--num-layers-per-virtual-pipeline-stage 2")),
    ("layers on chunks", "rejected",
     _sizes(pp=4, more="--num-virtual-stages-per-pipeline-rank 3"),
     _sizes(pp=4, more="--num-virtual-stages-per-pipeline-rank 2")),
    ("one chunk", "ignored", _sizes(pp=4, more="--num-layers-per-virtual-pipeline-stage 4"),
     _sizes(pp=4, more="--num-layers-per-virtual-pipeline-stage 1")),
    ("one way to interleave", "rejected", _sizes(pp=4, more=(
        "--num-layers-per-virtual-pipeline-stage 2 --num-virtual-stages-per-pipeline-rank 2")),
     _sizes(pp=4, more="--num-virtual-stages-per-pipeline-rank 2")),
    ("interleaving needs pp", "rejected", "--num-layers-per-virtual-pipeline-stage 2",
     _sizes(pp=2, more="--num-layers-per-virtual-pipeline-stage 2")),
    ("interleaved micro-batches", "rejected", _sizes(pp=4, more=(
        "--num-virtual-stages-per-pipeline-rank 2 --global-batch-size 24")),
     _sizes(pp=4, more="--num-virtual-stages-per-pipeline-rank 2 --global-batch-size 32")),
    ("micro-batches fill stages", "unlikely", _sizes(pp=4, more="--global-batch-size 8"),
     _sizes(pp=4, more="--global-batch-size 16")),
    ("batch triple", "rejected", "--global-batch-size 65", "--global-batch-size 80"),
    ("batch triple", "rejected", "--global-batch-size 8", "--global-batch-size 16"),
    ("batch rounded down", "ignored",
     "--global-batch-size 65 --decrease-batch-size-if-needed",
     "--global-batch-size 64 --decrease-batch-size-if-needed"),
    ("batch ramp", "rejected", "--rampup-batch-size 16 8 1000", "--rampup-batch-size 16 16 1000"),
    ("batch schedule", "rejected", "--step-batch-size-schedule 1:2", ""),
    ("one sharding", "rejected", f"--use-torch-fsdp2 --use-megatron-fsdp {DISTRIBUTED}",
     "--use-torch-fsdp2"),
    ("torch FSDP2 alone", "rejected", f"--use-torch-fsdp2 {DISTRIBUTED}", "--use-torch-fsdp2"),
    ("torch FSDP2 alone", "rejected", _sizes(pp=2, more="--use-torch-fsdp2"),
     _sizes(tp=2, more="--use-torch-fsdp2")),
    ("FSDP with distributed optimizer", "unlikely", "--use-megatron-fsdp",
     f"--use-megatron-fsdp {DISTRIBUTED}"),
    ("FSDP with distributed optimizer", "rejected",
     f"--use-megatron-fsdp --megatron-fsdp-version 2 {DISTRIBUTED}",
     "--use-megatron-fsdp --megatron-fsdp-version 2"),
    ("FSDP version 2 alone", "rejected",
     _sizes(tp=2, more="--use-megatron-fsdp --megatron-fsdp-version 2"),
     "--use-megatron-fsdp --megatron-fsdp-version 2"),
    ("sharding without FSDP", "ignored", "--data-parallel-sharding-strategy optim",
     f"--data-parallel-sharding-strategy optim --use-megatron-fsdp {DISTRIBUTED}"),
    ("gather needs sharding", "rejected", OVERLAP, f"{OVERLAP} {DISTRIBUTED}"),
    ("gather needs reduce", "rejected", f"--overlap-param-gather {DISTRIBUTED}",
     f"{OVERLAP} {DISTRIBUTED}"),
    ("one 16-bit format", "rejected", "--fp16", ""),
    ("gradient format", "ignored",
     "--grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32", "--grad-reduce-in-bf16"),
    ("full recomputation", "rejected", "--recompute-granularity full", FULL),
    ("selective recomputation", "rejected",
     "--recompute-granularity selective --recompute-method uniform",
     "--recompute-granularity selective"),
    ("recompute method alone", "ignored", "--recompute-method uniform", FULL),
    ("saved activations", "rejected", f"--distribute-saved-activations {FULL}",
     _sizes(tp=2, more=f"--distribute-saved-activations {FULL}")),
    ("offload needs aware optimizer", "rejected", "--optimizer-cpu-offload",
     "--optimizer-cpu-offload --use-precision-aware-optimizer"),
    ("offload fraction alone", "ignored", "--optimizer-offload-fraction 0.5",
     "--optimizer-offload-fraction 0.5 --optimizer-cpu-offload --use-precision-aware-optimizer"),
    ("offloaded activations", "rejected", _sizes(pp=2, more="--cpu-offloading-num-layers 2"),
     "--cpu-offloading-num-layers 2"),
    ("loss over context ranks", "mathematics", _sizes(cp=2, more="--sft"),
     _sizes(cp=2, more="--sft --calculate-per-token-loss")),
    ("pipeline stage", "rejected", _sizes(pp=2, more="--deepspeed --zero-stage 2"),
     _sizes(pp=2, more="--deepspeed --zero-stage 1")),
    ("removed flag", "rejected", "--batch-size 4", ""),
    ("removed flag", "rejected", "--checkpoint-activations",
     "--checkpoint-activations --deepspeed --zero-stage 1"),
    ("arguments of a checkpoint", "unlikely", "--use-checkpoint-args", ""),
    ("unknown flag", "rejected", "--tensor-model-paralel-size 2", _sizes(tp=2)),
    ("unknown flag", "rejected", "--tensor-model-parallel 2", _sizes(tp=2)),
    ("flag given twice", "ignored", "--seq-length 2048", "--seq-length 1024"),
    ("command cut off", "ignored", "\n--sequence-parallel", "\\\n--recompute-activations"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "kind", "wrong", "right"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, wrong: str, right: str) -> None:
    found = [f for f in _load(tmp_path, wrong).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert found[0].place.startswith("a.sh:")
    assert found[0].source and found[0].remedy
    assert rule not in [f.rule for f in _load(tmp_path, right).findings]


ENVIRONMENT: list[tuple[str, str, str]] = [
    (f"export {TWO_RANKS}=32", _sizes(tp=2), f"export {TWO_RANKS}=1"),
    (f"export {TWO_RANKS}=1", f"--use-megatron-fsdp {DISTRIBUTED}", f"unset {TWO_RANKS}"),
]


@pytest.mark.parametrize(("wrong", "flags", "right"), ENVIRONMENT)
def test_hardware_queues(tmp_path: Path, wrong: str, flags: str, right: str) -> None:
    assert "hardware queues" in [f.rule for f in _load(tmp_path, flags, before=wrong).findings]
    assert "hardware queues" not in [f.rule for f in _load(tmp_path, flags, before=right).findings]


def test_allocated_ranks(tmp_path: Path) -> None:
    head = "#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\n"
    for each, fires in ((4, True), (8, False)):
        run = f"torchrun --nproc_per_node {each} --nnodes 4 pretrain_gpt.py {SHAPE}"
        rules = [f.rule for f in _text(tmp_path, head + run, None).findings]
        assert ("allocated ranks" in rules) == fires


@pytest.mark.parametrize(("flags", "_"), EXPRESSIONS)
def test_good_flags_have_no_findings(tmp_path: Path, flags: str, _: str) -> None:
    allowed = ("expert degree without experts", "FSDP with distributed optimizer")
    findings = [f for f in _load(tmp_path, flags).findings if f.rule not in allowed]
    assert [str(f) for f in findings] == []
