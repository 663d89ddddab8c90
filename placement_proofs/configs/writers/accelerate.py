"""Accelerate's YAML: the engine that has the placement, FSDP2, DeepSpeed, Megatron-LM or DDP."""

from __future__ import annotations

from placement_proofs.configs.writers import deepspeed
from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given, yaml_text

_FSDP_STATES = frozenset((s, "host") for s in ("parameters", "gradients", "optimizer"))
_SCRIPT = "the script's Accelerator(gradient_accumulation_steps=...) and data loader say it"


def write(draft: Draft) -> str:
    """The text of an Accelerate file."""
    engine = _engine(draft)
    table = {"compute_environment": "LOCAL_MACHINE", **engine, **_launch(draft)}
    return yaml_text(table)


def _engine(draft: Draft) -> dict[str, object]:
    reading = draft.reading
    if reading.world == 1 and reading.micro == 1:
        draft.limit(("stage",))
        return {"distributed_type": "NO"}
    model_axes = reading.tp != 1 or reading.cp != 1 or reading.pp != 1 or reading.ep != 1
    if reading.stage <= 1 and model_axes:
        return _megatron(draft)
    if reading.stage == 0 and reading.sp == 1 and not _accumulates(draft):
        draft.limit((), {"micro": _SCRIPT})
        return {"distributed_type": "MULTI_GPU"}
    return _deepspeed(draft) if _wants_deepspeed(draft) else _fsdp(draft)


def _accumulates(draft: Draft) -> bool:
    """DeepSpeed's block has a key for accumulation; FSDP and DDP leave it to the script."""
    return draft.reading.micro != 1 and draft.reading.replicate == 1


def _wants_deepspeed(draft: Draft) -> bool:
    reading = draft.reading
    if reading.stage < 3 or reading.sp != 1:
        return True
    if reading.keep or (reading.replicate, reading.tp, reading.cp) != (1, 1, 1):
        return False
    if reading.offload not in (frozenset(), _FSDP_STATES):
        return True
    return _accumulates(draft) and reading.recompute != "full"


def _fsdp(draft: Draft) -> dict[str, object]:
    reading = draft.reading
    carried = ("stage", "keep", "over", "cp", "method", "tp", "replicate", "recompute", "offload")
    draft.limit((*carried, "vocabulary"), {"micro": _SCRIPT}, "with FSDP")
    if reading.tp != 1:
        draft.fixed("vocabulary", False, "the model's tensor-parallel plan is its blocks' layers")
    draft.sharding(("cp",), "FSDP2 shards over dp_shard and cp together")
    if reading.shard == 1 and reading.cp == 1:
        rule = "FSDP needs dp_shard or cp above 1 (parallelism_config.py)"
        draft.refuse("one rank to shard over", rule, "use a larger dp")
    if reading.recompute == "selective":
        draft.lose("recompute", "FSDP recomputes whole blocks or nothing")
    whole = reading.offload == _FSDP_STATES
    draft.away(
        {s: ("host",) for s, _ in _FSDP_STATES} if whole else {},
        "fsdp_offload_params moves parameters, gradients and the optimizer together to the host",
    )
    block = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": not reading.keep,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_offload_params": whole,
        "fsdp_activation_checkpointing": reading.recompute == "full",
    }
    return {"distributed_type": "FSDP", "fsdp_config": block, **_mesh(draft)}


def _mesh(draft: Draft) -> dict[str, object]:
    """``parallelism_config``, where more than plain FSDP is asked for."""
    reading = draft.reading
    if (reading.replicate, reading.cp, reading.tp) == (1, 1, 1):
        return {}
    roles = {"dp_replicate": "replicate", "dp_shard": "shard", "cp": "cp", "tp": "tp"}
    block: dict[str, object] = {
        f"parallelism_config_{axis}_size": draft.number(role) for axis, role in roles.items()
    }
    if reading.cp != 1:
        method = "alltoall" if reading.method == "ring" else "allgather"
        block["parallelism_config_cp_comm_strategy"] = method
    return {"parallelism_config": block}


def _deepspeed(draft: Draft) -> dict[str, object]:
    reading = draft.reading
    carried = ("stage", "over", "sp", "micro", "offload")
    lost = {"recompute": "the model or the trainer switches it under DeepSpeed"}
    draft.limit(carried, lost, f"with ZeRO stage {reading.stage}")
    draft.sharding(("sp",), "DeepSpeed shards over data and sequence ranks together")
    zero = deepspeed.zero_block(draft)
    block: dict[str, object] = {"zero_stage": zero["stage"]}
    for key in ("offload_optimizer", "offload_param"):
        inner = zero.get(key)
        if isinstance(inner, dict):
            block[f"{key}_device"] = inner["device"]
    block["gradient_accumulation_steps"] = deepspeed.steps_or_auto(draft)
    if reading.stage == 3:
        block["zero3_init_flag"] = True
    table: dict[str, object] = {"distributed_type": "DEEPSPEED", "deepspeed_config": block}
    if reading.sp != 1:
        shard, sp = draft.number("shard"), draft.number("sp")
        sizes = {"dp_shard": shard, "sp": sp}
        table["parallelism_config"] = {
            **{f"parallelism_config_{axis}_size": size for axis, size in sizes.items()},
            "parallelism_config_sp_backend": "deepspeed",
        }
    return table


def _megatron(draft: Draft) -> dict[str, object]:
    reading = draft.reading
    carried = ("stage", "over", "tp", "sequence", "cp", "method", "pp", "micro", "recompute")
    lost = {"ep": "this package's reader does not know the key that says it"}
    draft.limit(carried, lost, "in its Megatron-LM plugin")
    draft.sharding(("cp",), "Megatron's distributed optimizer shards over dp and cp together")
    if reading.cp != 1:
        draft.fixed("method", "ring", "the plugin's context parallelism is a ring")
    if reading.recompute == "full":
        draft.lose("recompute", "the plugin recomputes the attention core or nothing")
    block = {
        "megatron_lm_tp_degree": draft.number("tp"),
        "megatron_lm_pp_degree": draft.number("pp"),
        "megatron_lm_context_parallel_size": draft.number("cp") if reading.cp != 1 else None,
        "megatron_lm_expert_model_parallel_size": draft.number("ep") if reading.ep != 1 else None,
        "megatron_lm_num_micro_batches": draft.micro("num_micro_batches"),
        "megatron_lm_sequence_parallelism": reading.sequence,
        "megatron_lm_recompute_activations": reading.recompute == "selective",
        "megatron_lm_use_distributed_optimizer": reading.stage == 1,
    }
    return {"distributed_type": "MEGATRON_LM", "megatron_lm_config": given(block)}


def _launch(draft: Draft) -> dict[str, object]:
    """Ranks over all machines, and the number format."""
    table: dict[str, object] = {}
    size = draft.reading.world
    if size is None:
        draft.choose("num_processes", "left out", "pass it to accelerate launch")
    else:
        table = {"num_machines": 1, "num_processes": size}
        draft.choose("num_machines", 1, "num_processes counts the ranks of all machines")
    if draft.batch.micro_batch is not None:
        value = str(draft.batch.micro_batch)
        draft.lose("micro_batch", "the script's data loader sets it", value)
    precision = draft.dtypes.parameters
    if precision is not None:
        table["mixed_precision"] = precision if precision in ("bf16", "fp16") else "no"
    return table
