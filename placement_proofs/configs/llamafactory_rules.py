"""What LLaMA-Factory rejects, ignores, or does otherwise than a file suggests."""

from __future__ import annotations

import math
from collections.abc import Callable

from placement_proofs.configs.document import words
from placement_proofs.configs.llamafactory_parts import Job
from placement_proofs.configs.mesh_parts import auto_values, misspelt_keys, one_rank
from placement_proofs.configs.record import Kind
from placement_proofs.configs.shape_rules import (
    Fit,
    check_bubble,
    check_fit,
    check_layers,
    check_sequence_split,
    dims_of,
)

_PARSER = "src/llamafactory/hparams/parser.py"
_BRIDGE = "src/llamafactory/hparams/megatron_bridge_args.py"
_MEGATRON = "NVIDIA/Megatron-LM: megatron/training/arguments.py"
_SCHEDULES = "NVIDIA/Megatron-LM: megatron/core/pipeline_parallel/schedules.py L1161-1180"
_PLACEMENT = words(
    "deepspeed fsdp fsdp_config per_device_train_batch_size gradient_accumulation_steps "
    "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
    "expert_model_parallel_size virtual_pipeline_model_parallel_size sequence_parallel "
    "use_distributed_optimizer recompute_granularity recompute_method recompute_num_layers "
    "gradient_checkpointing disable_gradient_checkpointing expert_tensor_parallel_size "
    "per_device_eval_batch_size gradient_checkpointing_kwargs"
)
_ENVIRONMENT = frozenset(key for key in _PLACEMENT if "parallel" in key or "optimizer" in key)
_SECOND = words(
    "dist_config cp_size cp_mode micro_batch_size global_batch_size kernel_config init_config"
)


def check(job: Job) -> None:
    """Apply the rules of the file's backend."""
    for rule in RULES[job.backend]:
        rule(job)


def _find(job: Job, kind: Kind, rule: str, key: str, texts: tuple[str, str], where: str) -> None:
    job.notes.find(kind, rule, job.root.place(key), texts[0], texts[1], where)


def _keys(job: Job) -> None:
    known = _SECOND if job.backend == "v1" else _PLACEMENT
    where = f"{_PARSER} L161 (ALLOW_EXTRA_ARGS=1 lets them pass)"
    auto_values(job.root, known, "LLaMA-Factory", _PARSER, job.notes)
    misspelt_keys(job.root, known, "rejected", "LLaMA-Factory", where, job.notes)


def _zero3(job: Job) -> None:
    """Settings that cannot run under ZeRO-3."""
    stage = next((f.value for f in job.notes.fields if f.name == "zero_stage"), None)
    if "deepspeed" not in job.root or stage != 3:
        return
    for key in ("pure_bf16", "predict_with_generate", "use_unsloth"):
        if job.root.flag(key, False):
            texts = (f"{key} with ZeRO-3", "remove it, or use ZeRO-2")
            _find(job, "rejected", "not with ZeRO-3", key, texts, f"{_PARSER} L487-532")


def _low_rank(job: Job) -> None:
    for key in ("use_galore", "use_apollo"):
        if "deepspeed" in job.root and job.root.flag(key, False):
            texts = (f"{key} with DeepSpeed", "remove one of the two")
            _find(job, "rejected", "GaLore with DeepSpeed", key, texts, f"{_PARSER} L518")


def _one_engine(job: Job) -> None:
    if "deepspeed" not in job.root:
        return
    if "fsdp" in job.root:
        texts = ("deepspeed and fsdp are both given", "keep one of the two")
        where = "huggingface/transformers: src/transformers/training_args.py"
        _find(job, "rejected", "DeepSpeed or FSDP", "deepspeed", texts, where)
    if job.backend == "megatron":
        texts = ("deepspeed with Megatron's degrees", "remove deepspeed")
        _find(job, "rejected", "DeepSpeed or Megatron", "deepspeed", texts, f"{_BRIDGE} L440")


def _formats(job: Job) -> None:
    if job.root.flag("bf16", False) and job.root.flag("fp16", False):
        texts = ("fp16 and bf16 are both on", "keep one of them")
        where = "huggingface/transformers: src/transformers/training_args.py"
        _find(job, "rejected", "one 16-bit format", "bf16", texts, where)


def _degrees(job: Job) -> dict[str, int]:
    return {
        "tp": job.degree("tensor_model_parallel_size"),
        "pp": job.degree("pipeline_model_parallel_size"),
        "cp": job.degree("context_parallel_size"),
        "ep": job.degree("expert_model_parallel_size"),
    }


def _environment(job: Job) -> None:
    texts = (
        "Megatron's degrees are read only with USE_MCA=1 or USE_MEGATRON_BRIDGE=1 in the "
        "environment; the Trainer refuses these keys",
        "set the variable where the job starts",
    )
    key = next((k for k in job.root if k in _ENVIRONMENT), "tensor_model_parallel_size")
    _find(job, "unlikely", "backend of the environment", key, texts, _PARSER)


def _sequence(job: Job) -> None:
    degrees, key = _degrees(job), "sequence_parallel"
    on = bool(job.root.flag(key, False))
    if on and degrees["tp"] == 1:
        texts = (
            "sequence_parallel has no effect with one tensor rank (USE_MEGATRON_BRIDGE refuses it)",
            "raise tensor_model_parallel_size, or remove it",
        )
        rule = "sequence parallelism at one tensor rank"
        _find(job, "ignored", rule, key, texts, f"{_MEGATRON} L1433; {_BRIDGE}")
    experts = degrees["ep"] > 1 or bool(dims_of(job.model).get("E"))
    if experts and degrees["tp"] > 1 and not on:
        texts = (
            "experts with tensor ranks need sequence parallelism",
            "write sequence_parallel: true",
        )
        where = "NVIDIA/Megatron-LM: megatron/core/transformer/moe/moe_layer.py L636"
        _find(job, "rejected", "experts need sequence parallelism", key, texts, where)


def _experts(job: Job) -> None:
    """Expert ranks: a factor of the world for the bridge, of the data ranks for Megatron."""
    degrees, world = _degrees(job), job.world.size
    if degrees["ep"] == 1 or world is None:
        return
    key, product = "expert_model_parallel_size", math.prod(degrees.values())
    etp = job.root.integer("expert_tensor_parallel_size", degrees["tp"], least=1) or 1
    grid = etp * degrees["pp"] * degrees["ep"]
    if world % grid:
        texts = (
            f"expert tensor {etp} * pipeline {degrees['pp']} * expert {degrees['ep']} = "
            f"{grid} for a world of {world}: {world / grid:.6g} (the expert tensor degree "
            "follows the tensor degree)",
            "set expert_tensor_parallel_size, or lower ep",
        )
        where = "NVIDIA/Megatron-LM: megatron/core/parallel_state.py L898-906"
        _find(job, "rejected", "expert grid", key, texts, where)
    elif world % product:
        texts = (
            f"tp * pp * cp * ep = {product} does not divide the world of {world}: "
            "USE_MEGATRON_BRIDGE refuses it, USE_MCA does not",
            "lower a degree",
        )
        _find(job, "rejected", "bridge's product", key, texts, f"{_BRIDGE} L344")


def _pipeline(job: Job) -> None:
    degrees, root = _degrees(job), job.root
    pp, key = degrees["pp"], "virtual_pipeline_model_parallel_size"
    chunks = job.degree(key)
    steps = root.integer("gradient_accumulation_steps", 1, least=1) or 1
    if pp == 1 and chunks > 1:
        texts = (
            f"{key} {chunks} without a pipeline",
            "remove it, or set pipeline_model_parallel_size",
        )
        _find(job, "ignored", "chunks without pipeline", key, texts, f"{_MEGATRON} L1002")
    elif chunks > 1 and (steps < pp or 0 < steps % pp < pp):
        texts = (
            f"{steps} micro-batches on {pp} pipeline ranks with {chunks} chunks: "
            f"interleaving wants a multiple of {pp}",
            f"write gradient_accumulation_steps: {max(steps // pp, 1) * pp}",
        )
        rule = "micro-batches of the interleaved schedule"
        place = "gradient_accumulation_steps"
        _find(job, "rejected", rule, place, texts, _SCHEDULES)
    else:
        place = root.place("gradient_accumulation_steps")
        check_bubble(pp, steps, place, _SCHEDULES, job.notes)


def _recompute(job: Job) -> None:
    root = job.root
    word = root.word("recompute_granularity", "none")
    others = [k for k in ("recompute_method", "recompute_num_layers") if k in root]
    if word == "full" and len(others) < 2:
        texts = (
            "full recomputation needs recompute_method and recompute_num_layers",
            "write recompute_method: uniform and recompute_num_layers: 1",
        )
    elif word != "full" and others:
        texts = (f"{others[0]} belongs to recompute_granularity: full", f"remove {others[0]}")
    else:
        return
    kind: Kind = "ignored" if word == "none" else "rejected"
    where = "NVIDIA/Megatron-LM: megatron/core/transformer/transformer_config.py L1896-1945"
    key = others[0] if others else "recompute_granularity"
    _find(job, kind, "recomputation settings", key, texts, where)


def _optimizer(job: Job) -> None:
    key = "use_distributed_optimizer"
    if job.root.flag(key, False) and job.degree("context_parallel_size") == 1:
        ranks = next((f.value for f in job.notes.fields if f.name == "dp"), None)
        one_rank(ranks if isinstance(ranks, int) else "N", job.root.place(key), job.notes)


def _shape(job: Job) -> None:
    degrees, root = _degrees(job), job.root
    names = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
    }
    where = "NVIDIA/Megatron-LM: megatron/core/transformer/transformer_config.py L1447, L1465"
    sources = {
        "tp": where,
        "cp": f"{_MEGATRON} L582",
        "pp": f"{_MEGATRON} L968-1000",
        "ep": f"{_MEGATRON} L1656",
    }
    places = {name: root.place(key) for name, key in names.items()}
    dims = dims_of(job.model, root.integer("cutoff_len", 2048, least=1))
    fit = Fit(dims, degrees, places, sources)
    check_fit(fit, job.notes)
    check_layers(fit, job.degree("virtual_pipeline_model_parallel_size"), job.notes, even=True)
    if root.flag("sequence_parallel", False):
        check_sequence_split(fit, job.notes)


def _second_batch(job: Job) -> None:
    total = job.root.integer("global_batch_size", least=1)
    micro = job.root.integer("micro_batch_size", 1, least=1) or 1
    world, cp = job.world.size, job.degree("cp_size")
    step = micro * (world // cp) if world else None
    if total and step and total % step:
        texts = (
            f"global_batch_size {total} over {micro} samples * {world // cp if world else 0} "
            f"data ranks: {total / step:.6g}",
            f"write a multiple of {step}",
        )
        where = "src/llamafactory/v1/core/utils/batching.py"
        _find(job, "rejected", "global batch", "global_batch_size", texts, where)


def _second_experts(job: Job) -> None:
    dist = job.root.section("dist_config")
    ep, world = dist.integer("ep_size", 1, least=1) or 1, job.world.size
    if ep > 1 and dist.word("name") != "fsdpturbo":
        job.notes.find(
            "ignored",
            "experts of fsdpturbo",
            dist.place("ep_size"),
            f"ep_size {ep} is read by the engine fsdpturbo only",
            "write name: fsdpturbo",
            "src/llamafactory/v1/plugins",
        )
    if ep > 1 and world and world % ep:
        job.notes.find(
            "rejected",
            "expert groups",
            dist.place("ep_size"),
            f"groups of {ep} experts' ranks in a world of {world}: {world / ep:.6g}",
            f"choose a degree that divides {world}",
            "src/llamafactory/v1/plugins",
        )
    fit = Fit(
        dims_of(job.model),
        {"ep": ep, "sp": job.degree("cp_size")},
        {"ep": dist.place("ep_size"), "sp": job.root.place("cp_size")},
    )
    check_fit(fit, job.notes)


_COMMON = (_keys, _one_engine, _formats)
RULES: dict[str, tuple[Callable[[Job], None], ...]] = {
    "trainer": (*_COMMON, _zero3, _low_rank),
    "megatron": (
        *_COMMON,
        _environment,
        _sequence,
        _experts,
        _pipeline,
        _recompute,
        _optimizer,
        _shape,
    ),
    "v1": (*_COMMON, _second_batch, _second_experts),
}
