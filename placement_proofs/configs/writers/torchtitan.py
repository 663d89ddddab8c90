"""torchtitan's TOML (the schema with a ``[parallelism]`` table, March 2025 to February 2026)."""

from __future__ import annotations

from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import Table, given, toml_text

CARRIED = (
    *(
        "stage",
        "replicate",
        "keep",
        "over",
        "experts_over",
        "tp",
        "sequence",
        "cp",
        "method",
        "ep",
        "pp",
    ),
    *("micro", "schedule", "chunks", "recompute", "offload", "vocabulary"),
)
_SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
_FORMATS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_STATES = ("parameters", "gradients", "optimizer")


def write(draft: Draft) -> str:
    """The text of a torchtitan file: the tables that place; model and data are the user's."""
    _check(draft)
    tables: dict[str, Table] = {
        "parallelism": _parallelism(draft),
        "training": given({**_batch(draft), **_formats(draft), **_offload(draft)}),
        "activation_checkpoint": {"mode": draft.reading.recompute},
    }
    return toml_text(tables)


def _check(draft: Draft) -> None:
    reading = draft.reading
    draft.limit(CARRIED)
    if reading.replicate_kv:
        draft.lose("replicate_kv")
    remedy = "use fsdp(reshard_after_forward=False), which gathers parameters once a step"
    draft.stages((0, 3), remedy)
    if reading.stage == 0 and reading.ep != 1:
        rule = "torchtitan takes experts' ranks from those that FSDP shards over"
        draft.refuse(f"ep {reading.ep} without sharding", rule, "use fsdp with shard_over")
    if reading.stage == 0 and reading.cp != 1:
        draft.lose("stage", "with context parallelism torchtitan shards over the context ranks")
        draft.lose("over", "with context parallelism torchtitan shards over the context ranks")
    if reading.tp != 1:
        draft.fixed("sequence", True, "torchtitan's tensor parallelism shards the sequence too")
        draft.fixed("vocabulary", True, "embedding and head are sharded over tensor ranks")
    draft.sharding(("cp", "ep"), "FSDP2 shards over data, context and expert ranks together")


def _parallelism(draft: Draft) -> dict[str, object]:
    reading = draft.reading
    plain = reading.stage == 0
    table: dict[str, object] = {
        "data_parallel_replicate_degree": draft.number("shard" if plain else "replicate"),
        "data_parallel_shard_degree": 1 if plain else _shard(draft),
        "fsdp_reshard_after_forward": "never" if reading.keep else "always",
        "tensor_parallel_degree": draft.number("tp"),
        "context_parallel_degree": draft.number("cp"),
        "pipeline_parallel_degree": draft.number("pp"),
        "expert_parallel_degree": draft.number("ep"),
    }
    if reading.cp != 1:
        method = "alltoall" if reading.method == "ring" else "allgather"
        table["context_parallel_rotate_method"] = method
    if reading.pp != 1:
        if reading.schedule not in _SCHEDULES:
            draft.lose("schedule", "torchtitan's zero-bubble schedules have chunks of layers")
        table["pipeline_parallel_schedule"] = _SCHEDULES.get(reading.schedule, "1F1B")
        table["pipeline_parallel_microbatch_size"] = draft.batch.micro_batch or 1
        if reading.chunks > 2:
            reason = "it is pipeline_parallel_layers_per_stage = layers / (pp * chunks)"
            draft.lose("chunks", f"{reason}, which needs the model's depth")
    return table


def _shard(draft: Draft) -> int:
    """All ranks that FSDP shards over, those of experts included; -1 for a symbol."""
    reading = draft.reading
    if not isinstance(reading.shard, int):
        return -1
    return reading.shard * draft.number("ep")


def _batch(draft: Draft) -> dict[str, object | None]:
    """A pipeline cuts the local batch; without one the global batch makes the accumulation."""
    steps = draft.reading.micro
    cut = steps if draft.reading.pp != 1 and isinstance(steps, int) else 1
    local = draft.micro_batch("local_batch_size") * cut
    ranks = draft.reading.samples
    total = local * ranks if cut > 1 and ranks else None
    return {
        "local_batch_size": local,
        "global_batch_size": total
        or (draft.global_batch("global_batch_size") if cut == 1 else None),
        "seq_len": draft.tokens,
    }


def _formats(draft: Draft) -> dict[str, object | None]:
    own = draft.dtypes
    return {
        "mixed_precision_param": _FORMATS.get(own.parameters or ""),
        "mixed_precision_reduce": "float32" if own.reduction == "fp32" else None,
    }


def _offload(draft: Draft) -> dict[str, object | None]:
    whole = draft.reading.offload == frozenset((s, "host") for s in _STATES)
    whole = whole and draft.reading.stage == 3
    draft.away(
        dict.fromkeys(_STATES, ("host",)) if whole else {},
        "enable_cpu_offload moves parameters, gradients and the optimizer together, under FSDP",
    )
    return {"enable_cpu_offload": True if whole else None}
