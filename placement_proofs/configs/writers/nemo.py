"""NeMo's YAML (the schema with ``trainer`` and ``model``): Megatron's words, chunks as chunks."""

from __future__ import annotations

from placement_proofs.configs.writers import megatron
from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given, yaml_text

_RENAMED = {
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "recompute_granularity": "activations_checkpoint_granularity",
    "recompute_method": "activations_checkpoint_method",
    "recompute_num_layers": "activations_checkpoint_num_layers",
    "num_experts": "num_moe_experts",
    "seq_length": "encoder_seq_length",
}
_PRECISIONS = {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32"}
_PER_MACHINE = 8


def write(draft: Draft) -> str:
    """The text of a NeMo file: the keys that place; model and data are the user's."""
    _check(draft)
    reading = draft.reading
    model: dict[str, object] = {
        _RENAMED.get(key, key): value for key, value in given(megatron.words(draft)).items()
    }
    model["optim"] = {"name": _optimizer(reading.stage)}
    if reading.stage == 3:
        model["fsdp"] = True
    draft.away({}, "the schema has no key that offloads a state")
    return yaml_text({"trainer": _trainer(draft), "model": model})


def _check(draft: Draft) -> None:
    reading = draft.reading
    megatron.check(draft)
    draft.stages((0, 1, 3), "use zero1 or zero3")
    if reading.stage == 3 and reading.pp != 1:
        rule = "NeMo's FSDP does not run with a pipeline"
        draft.refuse(f"ZeRO stage 3 with pp {reading.pp}", rule, "use zero1")
    if reading.replicate != 1:
        rule = "a file of NeMo has no expression of copies of shard groups"
        draft.refuse(f"dp_replicate {reading.replicate}", rule, "use one data axis")


def _optimizer(stage: int) -> str:
    return "mcore_distributed_optim" if stage == 1 else "fused_adam"


def _trainer(draft: Draft) -> dict[str, object]:
    table: dict[str, object] = {}
    size = draft.reading.world
    if size is None:
        draft.choose("trainer.devices", "left out", "pass --world to write it")
    else:
        each = _PER_MACHINE if size % _PER_MACHINE == 0 else size
        draft.choose("trainer.devices", each, f"{size // each} machines of {each} ranks")
        table = {"devices": each, "num_nodes": size // each}
    word = _PRECISIONS.get(draft.dtypes.parameters or "")
    return {**table, **({"precision": word} if word else {})}
