"""axolotl's YAML: replicas, shards, tensor, context and expert ranks under FSDP2."""

from __future__ import annotations

from placement_proofs.configs.degrees import Reading
from placement_proofs.configs.writers.draft import Draft
from placement_proofs.configs.writers.text import given, yaml_text

CARRIED = (
    *(
        "stage",
        "replicate",
        "keep",
        "over",
        "experts_over",
        "tp",
        "vocabulary",
        "cp",
        "method",
        "ep",
    ),
    *("micro", "recompute", "offload"),
)
_STATES = ("parameters", "gradients", "optimizer")


def write(draft: Draft) -> str:
    """The text of an axolotl file: the keys that place; model and data are the user's."""
    _check(draft)
    draft.choose("base_model", "your-model", "name the model, the datasets and the optimizer")
    table: dict[str, object | None] = {"base_model": "your-model", **_degrees(draft)}
    if draft.reading.stage:
        table |= {"fsdp_version": 2, "fsdp_config": _fsdp(draft)}
    else:
        draft.away({}, "axolotl offloads under FSDP or DeepSpeed only")
    if draft.reading.cp != 1:
        table["flash_attention"] = True
    if draft.reading.ep != 1:
        plugin = "axolotl.integrations.expert_parallel.ExpertParallelPlugin"
        table["plugins"] = [plugin]
    return yaml_text(given({**table, **_batch(draft)}))


def _check(draft: Draft) -> None:
    reading = draft.reading
    draft.limit(CARRIED)
    remedy = "convert --to deepspeed, and name that file under the key deepspeed"
    draft.stages((0, 3), remedy)
    if reading.tp != 1 and reading.ep != 1:
        rule = "axolotl does not combine expert and tensor parallelism"
        draft.refuse(f"tp {reading.tp} with ep {reading.ep}", rule, "set one of them to 1")
    copies = reading.shard if reading.stage == 0 else reading.replicate
    one = reading.stage == 0 or reading.shard == 1
    if copies != 1 and one and (reading.tp != 1 or reading.cp != 1):
        rule = "copies with tensor or context ranks need dp_shard_size above 1"
        draft.refuse(f"{copies} copies, nothing sharded over data ranks", rule, "use hsdp or fsdp")
    if reading.tp != 1:
        draft.fixed("vocabulary", False, "the model's tensor-parallel plan is its blocks' layers")
    if reading.cp != 1:
        draft.fixed("method", "ring", "axolotl's context parallelism is a ring")
    draft.sharding(("cp",), "FSDP2 shards over dp_shard_size and context ranks together")
    if reading.recompute == "selective":
        draft.lose("recompute", "gradient_checkpointing recomputes whole blocks or nothing")


def _degrees(draft: Draft) -> dict[str, object | None]:
    reading = draft.reading
    sharded = reading.stage != 0
    keys = {
        "dp_replicate_size": "replicate" if sharded else "shard",
        "dp_shard_size": "shard" if sharded else "",
        "tensor_parallel_size": "tp",
        "context_parallel_size": "cp",
        "expert_parallel_size": "ep",
    }
    left = _leftover(reading)
    wanted = {k: r for k, r in keys.items() if r not in ("", left) and getattr(reading, r) != 1}
    return {key: draft.number(role) for key, role in wanted.items()}


def _leftover(reading: Reading) -> str:
    """The data degree that is a symbol: axolotl gives it the ranks that are left."""
    open_roles = [r for r in ("replicate", "shard") if isinstance(getattr(reading, r), str)]
    others = {"replicate": reading.shard, "shard": reading.replicate}
    fits = [r for r in open_roles if r == "replicate" or others[r] == 1]
    return fits[0] if len(open_roles) == 1 and fits else ""


def _fsdp(draft: Draft) -> dict[str, object]:
    reading = draft.reading
    whole = reading.offload == frozenset((s, "host") for s in _STATES)
    draft.away(
        dict.fromkeys(_STATES, ("host",)) if whole else {},
        "offload_params moves parameters, gradients and the optimizer together to the host",
    )
    return {
        "reshard_after_forward": not reading.keep,
        "offload_params": whole,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    }


def _batch(draft: Draft) -> dict[str, object | None]:
    precision = draft.dtypes.parameters
    return {
        "micro_batch_size": draft.micro_batch("micro_batch_size"),
        "gradient_accumulation_steps": draft.micro("gradient_accumulation_steps"),
        "sequence_len": draft.tokens,
        "gradient_checkpointing": draft.reading.recompute == "full",
        "bf16": True if precision == "bf16" else None,
        "fp16": True if precision == "fp16" else None,
    }
