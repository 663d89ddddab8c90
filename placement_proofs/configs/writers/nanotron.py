"""nanotron's YAML: data, tensor, pipeline and context ranks; ZeRO stage 1 over data ranks."""

from __future__ import annotations

from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given, yaml_text

CARRIED = ("stage", "over", "tp", "sequence", "cp", "method", "pp", "micro", "schedule")
_FORMATS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def write(draft: Draft) -> str:
    """The text of a nanotron file: the blocks that place; model and data are the user's."""
    reading = draft.reading
    draft.limit((*CARRIED, "recompute"), {"chunks": "nanotron does not interleave"})
    draft.stages((0, 1), "use zero1: nanotron takes every stage above 0 as 1")
    draft.sharding((), "ZeRO shards over data ranks only (src/nanotron/helpers.py)")
    if reading.cp != 1:
        draft.fixed("method", "ring", "nanotron's context parallelism is a ring")
    if reading.schedule not in ("1f1b", "gpipe"):
        draft.lose("schedule", "nanotron has 1F1B and all-forward-all-backward")
    if reading.recompute == "selective":
        draft.lose("recompute", "nanotron recomputes whole layers or nothing")
    return yaml_text({"parallelism": _parallelism(draft), **_others(draft)})


def _parallelism(draft: Draft) -> dict[str, object]:
    reading = draft.reading
    return given(
        {
            "dp": draft.number("shard"),
            "tp": draft.number("tp"),
            "pp": draft.number("pp"),
            "context_parallel_size": draft.number("cp") if reading.cp != 1 else None,
            "tp_mode": "REDUCE_SCATTER" if reading.sequence else "ALL_REDUCE",
            "pp_engine": "afab" if reading.schedule == "gpipe" else "1f1b",
            "recompute_layer": reading.recompute == "full",
        }
    )


def _others(draft: Draft) -> dict[str, object]:
    steps = draft.micro("batch_accumulation_per_replica")
    tokens = {
        "micro_batch_size": draft.micro_batch("micro_batch_size"),
        "batch_accumulation_per_replica": steps,
        "sequence_length": draft.tokens,
    }
    optimizer: dict[str, object] = {"zero_stage": draft.reading.stage}
    if draft.dtypes.gradients is not None:
        optimizer["accumulate_grad_in_fp32"] = draft.dtypes.gradients == "fp32"
    table: dict[str, object] = {"tokens": given(tokens), "optimizer": optimizer}
    word = _FORMATS.get(draft.dtypes.parameters or "")
    return {**table, **({"model": {"dtype": word}} if word else {})}
