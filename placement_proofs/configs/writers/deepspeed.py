"""DeepSpeed's JSON: ZeRO, MiCS, AutoTP, Ulysses, offload, the batch triple.

Pipeline stages, experts and recomputation live in the program that reads the file.
"""

from __future__ import annotations

from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given, json_text

CARRIED = ("stage", "replicate", "tp", "sp", "micro", "offload", "over", "vocabulary")
_DEVICES = {"host": "cpu", "nvme": "nvme"}
_PROGRAM = {
    "pp": "the depth is PipelineModule(num_stages=...) in the program",
    "schedule": "DeepSpeed's pipeline engine runs 1F1B",
    "ep": "the degree is MoE(ep_size=...) in the program",
    "recompute": "the model or the trainer switches it (gradient_checkpointing), not this file",
    "sequence": "AutoTP keeps the residual stream whole on every tensor rank",
}


def write(draft: Draft) -> str:
    """The text of a DeepSpeed file."""
    _check(draft)
    return json_text({**batch_keys(draft), **engine_keys(draft)})


def _check(draft: Draft) -> None:
    reading = draft.reading
    draft.limit(CARRIED, _PROGRAM)
    if reading.tp != 1:
        draft.fixed("vocabulary", False, "AutoTP keeps embedding and head whole")
    if reading.pp != 1 and reading.stage >= 2:
        rule = "DeepSpeed's pipeline engine refuses ZeRO stages 2 and 3 (runtime/pipe/engine.py)"
        draft.refuse(f"ZeRO stage {reading.stage} with pp {reading.pp}", rule, "use zero1")
    if reading.replicate != 1 and (reading.stage != 3 or reading.sp != 1):
        rule = (
            "MiCS copies shard groups at ZeRO stage 3 without Ulysses only (runtime/zero/mics.py)"
        )
        draft.refuse(f"dp_replicate {reading.replicate}", rule, "use hsdp, or one data axis")
    draft.sharding(("sp",), "DeepSpeed shards over data and sequence ranks together")


def batch_keys(draft: Draft) -> dict[str, object]:
    """Samples of a rank and accumulation; DeepSpeed multiplies them by the ranks."""
    micro = draft.micro_batch("train_micro_batch_size_per_gpu")
    return {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps_or_auto(draft),
    }


def steps_or_auto(draft: Draft) -> object:
    """Micro-batches of a step, for the trainer to fill where the source leaves them open."""
    if isinstance(draft.reading.micro, int):
        return draft.reading.micro
    draft.choose("gradient_accumulation_steps", "auto", "left open, for the trainer to fill")
    return "auto"


def engine_keys(draft: Draft) -> dict[str, object]:
    """ZeRO, number formats and the other degrees."""
    reading = draft.reading
    table: dict[str, object] = {"zero_optimization": zero_block(draft)}
    if draft.dtypes.parameters in ("bf16", "fp16"):
        table[draft.dtypes.parameters] = {"enabled": True}
    wire = draft.dtypes.reduction
    if wire in ("bf16", "fp16", "fp32") and wire != draft.dtypes.parameters:
        table["communication_data_type"] = wire
    if draft.dtypes.gradients in ("bf16", "fp16", "fp32"):
        table["data_types"] = {"grad_accum_dtype": draft.dtypes.gradients}
    if reading.tp != 1:
        table["tensor_parallel"] = {"autotp_size": draft.number("tp")}
    if reading.sp != 1:
        table["sequence_parallel_size"] = draft.number("sp")
    return table


def zero_block(draft: Draft) -> dict[str, object]:
    """Stage, offload, and MiCS's group."""
    reading = draft.reading
    places = {"optimizer": ("host", "nvme")} if reading.stage else {}
    if reading.stage == 3 and reading.replicate == 1:
        places["parameters"] = ("host", "nvme")
    if reading.replicate != 1:
        places = {}
    kept = draft.away(places, _offload_reason(draft))
    blocks = {
        key: {"device": _DEVICES[kept[state]]}
        for state, key in (("optimizer", "offload_optimizer"), ("parameters", "offload_param"))
        if state in kept
    }
    group = draft.number("shard") if reading.replicate != 1 else None
    return given({"stage": reading.stage, "mics_shard_size": group, **blocks})


def _offload_reason(draft: Draft) -> str:
    if draft.reading.replicate != 1:
        return "MiCS offloads nothing (runtime/zero/mics.py)"
    return (
        "DeepSpeed offloads the optimizer from ZeRO stage 1 on and parameters at stage 3; "
        "gradients follow the optimizer without a key, activations are the program's"
    )
