"""MaxText's YAML: every axis inside one slice, remat, host memory, pipeline repeats."""

from __future__ import annotations

import math

from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given, yaml_text

CARRIED = (
    *("stage", "replicate", "over", "experts_over", "tp", "sequence", "cp", "method", "sp", "ep"),
    *("pp", "micro", "schedule", "chunks", "recompute", "offload"),
)
_POLICIES = {"full": "full", "selective": "minimal", "none": "minimal_with_context"}
_FORMATS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def write(draft: Draft) -> str:
    """The text of a MaxText file over ``base.yml``; the model is the user's."""
    _check(draft)
    reading = draft.reading
    draft.choose("dcn degrees", 1, "all ranks are in one slice")
    table = {
        **_degrees(draft),
        **_pipeline(draft),
        "remat_policy": _POLICIES[reading.recompute],
        **_offload(draft),
        "per_device_batch_size": _per_device(draft),
        "max_target_length": draft.tokens,
        "dtype": _FORMATS.get(draft.dtypes.parameters or ""),
        "weight_dtype": _FORMATS.get(draft.dtypes.master or ""),
        "grad_dtype": _FORMATS.get(draft.dtypes.gradients or ""),
    }
    return yaml_text(given(table))


def _check(draft: Draft) -> None:
    reading = draft.reading
    draft.limit(CARRIED)
    draft.stages((0, 1, 3), "use zero1 or zero3")
    if reading.cp != 1 and reading.sp != 1:
        rule = "context_parallel_strategy is one of all_gather, ring, ulysses"
        draft.refuse(f"cp {reading.cp} with sp {reading.sp}", rule, "keep one of the two")
    if reading.stage == 1 and reading.replicate != 1:
        rule = "shard_optimizer_over_data shards over the whole data axis"
        draft.refuse(f"dp_replicate {reading.replicate}", rule, "use one data axis")
    if reading.recompute == "none":
        reason = "MaxText always recomputes something; minimal_with_context keeps most"
        draft.lose("recompute", reason)
    if reading.pp != 1 and reading.schedule not in ("gpipe", "interleaved"):
        draft.lose("schedule", "MaxText runs all micro-batches forward first")
    _weights(draft)


def _weights(draft: Draft) -> None:
    """Weights are sharded over context and expert ranks, whatever the data ranks do."""
    reading = draft.reading
    extra = reading.cp != 1 or reading.sp != 1 or reading.ep != 1
    if extra and reading.stage != 3:
        reason = "MaxText's rules shard weights over context and expert ranks"
        for role in ("stage", "over"):
            draft.lose(role, reason)
        if reading.ep != 1:
            sizes = {"cp": reading.cp, "sp": reading.sp}
            draft.fixed("experts_over", frozenset(n for n in sizes if sizes[n] != 1), reason)
    elif reading.stage == 3:
        reason = "weights are sharded over fsdp, context and expert ranks together"
        draft.sharding(("cp", "sp", "ep"), reason)


def _degrees(draft: Draft) -> dict[str, object | None]:
    reading = draft.reading
    sharded = reading.stage == 3
    data, fsdp = ("replicate", "shard") if sharded else ("shard", "")
    tensor = "tensor_sequence" if reading.sequence else "tensor"
    context = "sp" if reading.sp != 1 else "cp"
    method = {"ring": "ring", "all-gather": "all_gather"}[reading.method]
    strategy = "ulysses" if context == "sp" else method
    degrees = {
        "data": _open(draft, data),
        "fsdp": _open(draft, fsdp) if fsdp else 1,
        tensor: draft.number("tp"),
        "context": draft.number(context),
        "expert": draft.number("ep"),
        "pipeline": draft.number("pp"),
    }
    always = ("data", "fsdp")
    named: dict[str, object | None] = {
        f"ici_{axis}_parallelism": size
        for axis, size in degrees.items()
        if size != 1 or axis in always
    }
    named["dcn_data_parallelism"] = 1
    named["context_parallel_strategy"] = strategy if degrees["context"] != 1 else None
    named["shard_optimizer_over_data"] = True if reading.stage == 1 else None
    return named


def _open(draft: Draft, role: str) -> int:
    """A data degree; -1, the ranks left, for a symbol."""
    return -1 if role == "shard" and isinstance(draft.reading.shard, str) else draft.number(role)


def _pipeline(draft: Draft) -> dict[str, object | None]:
    reading = draft.reading
    if reading.pp == 1:
        return {"gradient_accumulation_steps": draft.micro("gradient_accumulation_steps")}
    draft.choose(
        "num_layers_per_pipeline_stage",
        "left out",
        "stages * layers per stage * repeats must be the model's layers",
    )
    return {
        "num_pipeline_microbatches": draft.micro("num_pipeline_microbatches"),
        "num_pipeline_repeats": reading.chunks,
    }


def _offload(draft: Draft) -> dict[str, object | None]:
    kept = draft.away(
        {"optimizer": ("host",), "parameters": ("host",)},
        "MaxText moves the optimizer and parameters to the host, and no other state",
    )
    return {
        "optimizer_memory_host_offload": True if "optimizer" in kept else None,
        "parameter_memory_host_offload": True if "parameters" in kept else None,
    }


def _per_device(draft: Draft) -> float | int:
    """Samples of every device: ranks that share a sample have a part of it each."""
    reading = draft.reading
    each = draft.micro_batch("per_device_batch_size")
    if reading.pp != 1:
        each *= reading.micro if isinstance(reading.micro, int) else draft.number("pp")
    shared = math.prod(draft.number(role) for role in ("tp", "cp", "sp", "pp"))
    return each // shared if each % shared == 0 else each / shared
