"""Megatron-LM's arguments in a script: all degrees, distributed optimizer or Megatron-FSDP.

:func:`words` are the arguments under Megatron's names, which NeMo and LLaMA-Factory share.
"""

from __future__ import annotations

from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given

CARRIED = (
    *(
        "stage",
        "replicate",
        "over",
        "experts_over",
        "tp",
        "sequence",
        "cp",
        "sp",
        "method",
        "ep",
        "pp",
    ),
    *("micro", "schedule", "chunks", "recompute", "offload"),
)
_SHARDED = {2: "optim_grads", 3: "optim_grads_params"}
_PER_MACHINE = 8


def write(draft: Draft) -> str:
    """The text of a shell script; data and the model's shape are passed to it."""
    lines = [_launcher(draft), *(_flag(k, v) for k, v in arguments(draft).items())]
    lines.append('"$@"')
    return "#!/usr/bin/env bash\n" + " \\\n    ".join(lines) + "\n"


def _launcher(draft: Draft) -> str:
    size = draft.reading.world
    if size is None:
        draft.refuse("an unknown number of ranks", "a script starts ranks", "pass --world")
    each = _PER_MACHINE if size % _PER_MACHINE == 0 else size
    draft.choose("nproc_per_node", each, f"{size // each} machines of {each} ranks")
    return f"torchrun --nproc_per_node {each} --nnodes {size // each} pretrain_gpt.py"


def _flag(key: str, value: object) -> str:
    name = "--" + key.replace("_", "-")
    return name if value is True else f"{name} {value}"


def arguments(draft: Draft) -> dict[str, object]:
    """The flags of a Megatron-LM command."""
    check(draft)
    table = {**words(draft), **_sharding(draft)}
    kept = draft.away(
        {"optimizer": ("host",)}, "Megatron offloads the optimizer to the host, and no other state"
    )
    offload = True if kept else None
    table |= {"optimizer_cpu_offload": offload, "use_precision_aware_optimizer": offload}
    return {**given(table), **_formats(draft)}


def check(draft: Draft) -> None:
    """What Megatron does in one way only."""
    reading = draft.reading
    draft.limit(CARRIED)
    if reading.schedule not in ("1f1b", "interleaved"):
        draft.lose("schedule", "Megatron runs 1F1B")
    if reading.cp != 1 and reading.sp != 1:
        rule = "context ranks and Ulysses together need hierarchical groups (cp_comm_type a2a+p2p)"
        draft.refuse(f"cp {reading.cp} with sp {reading.sp}", rule, "keep one of the two")
    if reading.stage == 0 and reading.replicate != 1:
        draft.refuse("copies of nothing", "without sharding there is one data axis", "use data")
    draft.sharding(
        ("cp", "sp"), "states are sharded over data and context ranks, without an expert axis"
    )


def words(draft: Draft) -> dict[str, object | None]:
    """Degrees, loop and recomputation under Megatron's names."""
    reading = draft.reading
    context = "sp" if reading.sp != 1 else "cp"
    degree = draft.number(context)
    method = {"ring": "p2p", "all-gather": "allgather"}[reading.method]
    full = reading.recompute == "full"
    return {
        "tensor_model_parallel_size": draft.number("tp"),
        "pipeline_model_parallel_size": draft.number("pp"),
        "context_parallel_size": degree if degree > 1 else None,
        "cp_comm_type": ("a2a" if context == "sp" else method) if degree > 1 else None,
        "expert_model_parallel_size": draft.number("ep") if reading.ep != 1 else None,
        "num_experts": draft.experts("num_experts"),
        "sequence_parallel": True if reading.sequence else None,
        "num_virtual_stages_per_pipeline_rank": reading.chunks if reading.chunks > 1 else None,
        "micro_batch_size": draft.micro_batch("micro_batch_size"),
        "global_batch_size": draft.global_batch("global_batch_size"),
        "seq_length": draft.tokens,
        "recompute_granularity": None if reading.recompute == "none" else reading.recompute,
        "recompute_method": "uniform" if full else None,
        "recompute_num_layers": 1 if full else None,
    }


def _sharding(draft: Draft) -> dict[str, object | None]:
    reading = draft.reading
    table: dict[str, object | None] = {}
    if reading.stage == 1:
        table["use_distributed_optimizer"] = True
    elif reading.stage:
        table |= {"use_distributed_optimizer": True, "use_megatron_fsdp": True}
        table |= {"ckpt_format": "fsdp_dtensor"}
        table["data_parallel_sharding_strategy"] = _SHARDED[reading.stage]
    if reading.replicate != 1:
        table["num_distributed_optimizer_instances"] = draft.number("replicate")
    return table


def _formats(draft: Draft) -> dict[str, object]:
    own = draft.dtypes
    table: dict[str, object] = {}
    if own.parameters in ("bf16", "fp16"):
        table[own.parameters] = True
    if own.parameters == "bf16" and own.reduction == "bf16":
        table["grad_reduce_in_bf16"] = True
    return table
