"""LLaMA-Factory's YAML: the backend that has the placement, Trainer, Megatron-Core or version 1."""

from __future__ import annotations

from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given, yaml_text

_STATES = ("parameters", "gradients", "optimizer")
_USER = "name the model, the data and the template"


def write(draft: Draft) -> str:
    """The text of a LLaMA-Factory file; ``USE_MCA`` or ``USE_V1`` chooses its backend."""
    reading = draft.reading
    remedy = "convert --to deepspeed, and name that file under the key deepspeed"
    draft.stages((0, 1, 3), remedy)
    axes = reading.tp != 1 or reading.pp != 1 or reading.cp != 1
    if reading.stage == 1 or (reading.stage == 0 and (axes or reading.ep != 1)):
        return _megatron(draft)
    if reading.sp != 1 or reading.ep != 1 or reading.replicate != 1:
        return _second(draft)
    return _trainer(draft)


def _trainer(draft: Draft) -> str:
    reading = draft.reading
    carried = ("stage", "keep", "micro", "recompute", "offload")
    draft.limit(carried, under=f"with ZeRO stage {reading.stage}")
    if reading.recompute == "selective":
        draft.lose("recompute", "the Trainer recomputes whole blocks or nothing")
    table: dict[str, object | None] = {**_first(draft)}
    table["disable_gradient_checkpointing"] = True if reading.recompute != "full" else None
    if reading.stage == 0:
        draft.away({}, "without FSDP or DeepSpeed nothing is offloaded")
        return yaml_text(given(table))
    whole = reading.offload == frozenset((s, "host") for s in _STATES)
    reason = "FSDP's offload moves parameters, gradients and the optimizer together to the host"
    draft.away(dict.fromkeys(_STATES, ("host",)) if whole else {}, reason)
    kind = "shard_grad_op" if reading.keep else "full_shard"
    table["fsdp"] = f"{kind} auto_wrap" + (" offload" if whole else "")
    return yaml_text(given(table))


def _megatron(draft: Draft) -> str:
    """Megatron-Core's words, read under ``USE_MCA=1``."""
    reading = draft.reading
    carried = ("stage", "over", "experts_over", "tp", "sequence", "cp", "method", "ep", "pp")
    loop = ("micro", "chunks", "schedule", "recompute")
    draft.limit((*carried, *loop), under="under Megatron-Core")
    if reading.schedule not in ("1f1b", "interleaved"):
        draft.lose("schedule", "Megatron runs 1F1B")
    if reading.cp != 1:
        draft.fixed("method", "ring", "Megatron's default is a ring (cp_comm_type p2p)")
    reason = "the distributed optimizer shards over data, context and expert ranks"
    draft.sharding(("cp", "ep"), reason)
    full = reading.recompute == "full"
    table = {
        **_first(draft),
        "tensor_model_parallel_size": draft.number("tp"),
        "pipeline_model_parallel_size": draft.number("pp"),
        "context_parallel_size": draft.number("cp") if reading.cp != 1 else None,
        "expert_model_parallel_size": draft.number("ep") if reading.ep != 1 else None,
        "virtual_pipeline_model_parallel_size": reading.chunks if reading.chunks > 1 else None,
        "sequence_parallel": True if reading.sequence else None,
        "use_distributed_optimizer": reading.stage == 1,
        "recompute_granularity": None if reading.recompute == "none" else reading.recompute,
        "recompute_method": "uniform" if full else None,
        "recompute_num_layers": 1 if full else None,
    }
    draft.choose("backend", "USE_MCA=1", "the environment chooses Megatron-Core")
    return yaml_text(given(table))


def _first(draft: Draft) -> dict[str, object | None]:
    """Keys of the first version: the user's model and data, batch, number format."""
    draft.choose("model_name_or_path", "your-model", _USER)
    precision = draft.dtypes.parameters
    key = "per_device_train_batch_size"
    return {
        "model_name_or_path": "your-model",
        "stage": "sft",
        "finetuning_type": "full",
        key: draft.micro_batch(key),
        "gradient_accumulation_steps": draft.micro("gradient_accumulation_steps"),
        "cutoff_len": draft.tokens,
        "bf16": True if precision == "bf16" else None,
        "fp16": True if precision == "fp16" else None,
    }


def _second(draft: Draft) -> str:
    """The second version: FSDP2 with copies, Ulysses and experts' ranks."""
    reading = draft.reading
    lost = {"recompute": "checkpointing of activations is the model's own setting"}
    carried = ("stage", "over", "experts_over", "replicate", "sp", "ep", "micro")
    draft.limit(carried, lost, "under its second version")
    if reading.stage == 0 and reading.ep != 1:
        rule = "experts' ranks are taken from those that FSDP2 shards over"
        draft.refuse(f"ep {reading.ep} without sharding", rule, "use fsdp with shard_over")
    draft.sharding(("sp", "ep"), "FSDP2 shards over all ranks of a copy")
    draft.away({}, "dist_config has no key that offloads a state")
    draft.choose("model", "your-model", _USER)
    draft.choose("backend", "USE_V1=1", "the environment chooses the second version")
    table = {
        "model": "your-model",
        "train_dataset": "your-data",
        "cp_mode": "ulysses" if reading.sp != 1 else None,
        "cp_size": draft.number("sp") if reading.sp != 1 else None,
        "micro_batch_size": draft.micro_batch("micro_batch_size"),
        "global_batch_size": draft.global_batch("global_batch_size"),
        "dist_config": _ranks(draft),
    }
    return yaml_text(given(table))


def _ranks(draft: Draft) -> dict[str, object]:
    reading = draft.reading
    if reading.stage == 0:
        return {"name": "none"}
    size = reading.world
    return given(
        {
            "name": "fsdp2" if reading.ep == 1 else "fsdpturbo",
            "mp_replicate_size": draft.number("replicate") if reading.replicate != 1 else None,
            "mp_shard_size": size // draft.number("replicate") if size else None,
            "ep_size": draft.number("ep") if reading.ep != 1 else None,
        }
    )
