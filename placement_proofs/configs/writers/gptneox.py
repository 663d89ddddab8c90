"""GPT-NeoX's YAML: pipeline and model parallel ranks, DeepSpeed's blocks below."""

from __future__ import annotations

from dataclasses import replace

from placement_proofs.configs.writers import deepspeed
from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given, yaml_text

CARRIED = ("stage", "tp", "sequence", "pp", "micro", "recompute", "offload")


def write(draft: Draft) -> str:
    """The text of a GPT-NeoX file: the keys that place; model and data are the user's."""
    reading = draft.reading
    draft.limit(CARRIED, {"ep": "this package's reader places experts as other layers"})
    if reading.pp != 1 and reading.stage >= 2:
        rule = "DeepSpeed's pipeline engine refuses ZeRO stages 2 and 3 (runtime/pipe/engine.py)"
        draft.refuse(f"ZeRO stage {reading.stage} with pp {reading.pp}", rule, "use zero1")
    draft.sharding((), "DeepSpeed shards over the data ranks")
    if reading.schedule != "1f1b":
        draft.lose("schedule", "DeepSpeed's pipeline engine runs 1F1B")
    if reading.recompute == "selective":
        draft.lose("recompute", "checkpoint_activations recomputes whole layers or nothing")
    depth = draft.number("pp")
    table = {
        "pipe_parallel_size": 0 if reading.stage >= 2 else depth,
        "model_parallel_size": draft.number("tp"),
        "moe_expert_parallel_size": draft.number("ep") if reading.ep != 1 else None,
        "moe_num_experts": draft.experts("moe_num_experts"),
        "sequence_parallel": True if reading.sequence else None,
        "checkpoint_activations": reading.recompute == "full",
        "seq_length": draft.tokens,
        "train_micro_batch_size_per_gpu": draft.micro_batch("train_micro_batch_size_per_gpu"),
        "gradient_accumulation_steps": draft.micro("gradient_accumulation_steps"),
        **deepspeed.engine_keys(_without_tensor(draft)),
    }
    return yaml_text(given(table))


def _without_tensor(draft: Draft) -> Draft:
    """DeepSpeed's part knows nothing of tensor ranks; losses are still collected in ``draft``."""
    return replace(draft, reading=replace(draft.reading, tp=1))
