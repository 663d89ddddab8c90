"""What axolotl rejects, ignores, or does otherwise than a file suggests; one rule a function."""

from __future__ import annotations

from collections.abc import Callable

from placement_proofs.configs.axolotl import Run
from placement_proofs.configs.axolotl_mesh import context_key
from placement_proofs.configs.document import words
from placement_proofs.configs.mesh_parts import (
    auto_values,
    misspelt_keys,
    one_rank,
    unknown_keys,
)
from placement_proofs.configs.notes import Notes
from placement_proofs.configs.record import Kind
from placement_proofs.configs.shape_rules import Fit, check_fit, dims_of

_SCHEMA = "src/axolotl/utils/schemas/validation.py"
_PLUGIN = "src/axolotl/integrations/expert_parallel/plugin.py"
_ACCELERATE = "huggingface/accelerate: parallelism_config.py"
_FSDP_KEYS = words(
    "fsdp_version activation_checkpointing offload_params sync_module_states use_orig_params "
    "cpu_ram_efficient_loading state_dict_type final_state_dict_type auto_wrap_policy "
    "transformer_layer_cls_to_wrap reshard_after_forward mixed_precision_policy "
    "limit_all_gathers sharding_strategy backward_prefetch forward_prefetch min_num_params "
    "backward_prefetch_policy version wrap_policy"
)
_MISPLACED = (
    "offload_params",
    "reshard_after_forward",
    "auto_wrap_policy",
    "transformer_layer_cls_to_wrap",
    "state_dict_type",
    "activation_checkpointing",
    "cpu_ram_efficient_loading",
)
_PLACEMENT = words(
    "dp_shard_size dp_replicate_size tensor_parallel_size context_parallel_size "
    "expert_parallel_size sequence_parallel_degree fsdp fsdp_config fsdp_version deepspeed "
    "micro_batch_size gradient_accumulation_steps batch_size gradient_checkpointing "
    "activation_offloading gradient_checkpointing_kwargs fsdp_final_state_dict_type "
    "activation_offload"
)


def check(run: Run, notes: Notes) -> None:
    """Apply every rule."""
    for rule in RULES:
        rule(run, notes)


def _find(
    run: Run, notes: Notes, kind: Kind, rule: str, key: str, texts: tuple[str, str], where: str
) -> None:
    notes.find(kind, rule, run.root.place(key), texts[0], texts[1], where)


def _keys(run: Run, notes: Notes) -> None:
    misspelt_keys(run.root, _PLACEMENT, "ignored", "axolotl", "src/axolotl/utils/schemas", notes)
    block = run.fsdp.block
    known = _FSDP_KEYS | {f"fsdp_{key}" for key in _FSDP_KEYS}
    where = "src/axolotl/utils/schemas/fsdp.py"
    unknown_keys(block, known, "ignored", "axolotl's fsdp_config", where, notes)
    auto_values(run.root, _PLACEMENT, "axolotl", "src/axolotl/utils/schemas/config.py", notes)
    for key in _MISPLACED:
        if key in run.root:
            texts = (f"{key} belongs in fsdp_config and has no effect here", "indent it there")
            _find(run, notes, "ignored", "key outside its block", key, texts, where)
    old = "sequence_parallel_degree"
    if old in run.root and "context_parallel_size" in run.root:
        texts = (f"{old} and context_parallel_size are two names of one degree", f"remove {old}")
        _find(run, notes, "ignored", "old name", old, texts, _SCHEMA)


def _one_engine(run: Run, notes: Notes) -> None:
    if run.deepspeed and run.fsdp.on:
        texts = ("deepspeed and fsdp are both given", "keep one of the two")
        _find(run, notes, "rejected", "DeepSpeed or FSDP", "deepspeed", texts, f"{_SCHEMA} L1228")
    written = run.root.integer("dp_shard_size", 1, least=1) or 1
    if written > 1 and not run.fsdp.on:
        texts = (
            f"dp_shard_size {written} without fsdp_config",
            "write fsdp_version: 2 and fsdp_config",
        )
        where = "src/axolotl/utils/distributed.py"
        _find(run, notes, "rejected", "shards need FSDP", "dp_shard_size", texts, where)


def _version(run: Run, notes: Notes) -> None:
    degrees, fsdp = run.degrees, run.fsdp
    several = degrees.tp > 1 or degrees.cp > 1 or degrees.replicate not in (1, "N")
    if fsdp.on and fsdp.version == 1 and several:
        texts = ("tensor, context or replica ranks with FSDP version 1", "write fsdp_version: 2")
        key = "fsdp_version" if "fsdp_version" in run.root else "fsdp_config"
        _find(run, notes, "rejected", "mesh needs FSDP version 2", key, texts, _ACCELERATE)
    key = fsdp.key("sharding_strategy")
    if fsdp.version == 2 and key in fsdp.block:
        message = f"{key} has no effect in fsdp_version 2"
        remedy = "write reshard_after_forward"
        where = "src/axolotl/utils/schemas/fsdp.py"
        notes.find("ignored", "version 1 key", fsdp.block.place(key), message, remedy, where)
    if degrees.shard == 1 and degrees.replicate not in (1, "N"):
        _replicas(run, notes)


def _replicas(run: Run, notes: Notes) -> None:
    if run.degrees.tp > 1 or run.degrees.cp > 1:
        texts = (
            "replicas with tensor or context ranks, but one shard",
            "set dp_shard_size above 1, or dp_replicate_size to 1",
        )
        rule = "tp or cp with replicas needs dp_shard"
        _find(run, notes, "rejected", rule, "dp_replicate_size", texts, _ACCELERATE)


def _context(run: Run, notes: Notes) -> None:
    root, cp = run.root, run.degrees.cp
    if cp == 1:
        return
    key = context_key(root)
    attention = str(root.raw("attn_implementation") or "")
    if not root.raw("flash_attention") and "flash" not in attention:
        texts = (f"{key} {cp} without flash attention", "write flash_attention: true")
        _find(run, notes, "rejected", "ring attention needs flash", key, texts, f"{_SCHEMA} L1655")
    micro = run.batch.micro_batch or 1
    if micro > 1 and root.raw("sample_packing"):
        texts = (
            f"{key} {cp} with sample packing and micro_batch_size {micro}",
            "write micro_batch_size: 1",
        )
        rule = "packed context parallelism"
        _find(run, notes, "rejected", rule, "micro_batch_size", texts, f"{_SCHEMA} L1655")


def _optimizer(run: Run, notes: Notes) -> None:
    name = str(run.root.raw("optimizer") or "").lower()
    fsdp = run.fsdp
    if "8bit" not in name:
        return
    offload = fsdp.on and fsdp.version == 2 and fsdp.flag("offload_params")
    if run.degrees.tp > 1 or offload:
        what = "FSDP2 offload" if offload else "tensor parallelism"
        texts = (f"the 8-bit optimizer {name[:40]} with {what}", "use adamw_torch_fused")
        _find(run, notes, "rejected", "8-bit optimizer", "optimizer", texts, f"{_SCHEMA} L1136")


def _experts(run: Run, notes: Notes) -> None:
    ep, root = run.degrees.ep, run.root
    if ep == 1:
        return
    if run.degrees.tp > 1:
        texts = (f"expert degree {ep} with tensor degree {run.degrees.tp}", "set one of them to 1")
        _find(run, notes, "rejected", "experts or tensor", "expert_parallel_size", texts, _PLUGIN)
    plugins = root.raw("plugins")
    names = plugins if isinstance(plugins, tuple) else (plugins,)
    if not any("ExpertParallel" in str(name) for name in names):
        texts = (
            "expert_parallel_size without the expert-parallel plugin",
            "add axolotl.integrations.expert_parallel.ExpertParallelPlugin to plugins",
        )
        _find(
            run, notes, "ignored", "experts need a plugin", "expert_parallel_size", texts, _PLUGIN
        )


def _batch(run: Run, notes: Notes) -> None:
    root = run.root
    if "batch_size" in root and "gradient_accumulation_steps" in root:
        texts = ("batch_size and gradient_accumulation_steps are both given", "remove batch_size")
        _find(run, notes, "rejected", "two of three batch keys", "batch_size", texts, _SCHEMA)
    whole, micro = root.integer("batch_size", least=1), run.batch.micro_batch
    if whole and micro and whole % micro:
        texts = (
            f"batch_size {whole} over micro_batch_size {micro}: {whole / micro:.6g}",
            f"write a multiple of {micro}",
        )
        where = "src/axolotl/utils/config/__init__.py"
        _find(run, notes, "ignored", "batch remainder", "batch_size", texts, where)


def _recompute(run: Run, notes: Notes) -> None:
    root, fsdp = run.root, run.fsdp
    by_trainer = root.raw("gradient_checkpointing") not in (None, False)
    if by_trainer and fsdp.on and fsdp.flag("activation_checkpointing"):
        texts = (
            "gradient_checkpointing and FSDP's activation_checkpointing are both on",
            "keep one of the two",
        )
        where = "huggingface/transformers: src/transformers/trainer.py"
        _find(run, notes, "rejected", "one recomputation", "gradient_checkpointing", texts, where)
    away = root.raw("activation_offloading") not in (None, False)
    if away and not by_trainer:
        texts = (
            "activation_offloading without gradient_checkpointing",
            "write gradient_checkpointing: true",
        )
        rule = "offload needs recomputation"
        _find(run, notes, "ignored", rule, "activation_offloading", texts, _SCHEMA)


def _formats(run: Run, notes: Notes) -> None:
    root = run.root
    if root.raw("bf16") is True and root.raw("fp16") is True:
        texts = ("fp16 and bf16 are both on", "keep one of them")
        _find(run, notes, "rejected", "one 16-bit format", "bf16", texts, _SCHEMA)


def _device_map(run: Run, notes: Notes) -> None:
    if run.root.raw("device_map") == "auto" and (run.fsdp.on or run.deepspeed):
        texts = (
            "device_map auto lays whole layers on devices; sharding wants one per rank",
            "remove device_map",
        )
        where = "src/axolotl/loaders/model.py"
        _find(run, notes, "unlikely", "device map", "device_map", texts, where)


def _share_of_one(run: Run, notes: Notes) -> None:
    degrees = run.degrees
    if run.fsdp.on and degrees.cp == 1 and degrees.ep == 1:
        key = "dp_shard_size" if "dp_shard_size" in run.root else "fsdp_config"
        one_rank(degrees.shard, run.root.place(key), notes)


def _shape(run: Run, notes: Notes) -> None:
    degrees, root = run.degrees, run.root
    sizes = {"tp": degrees.tp, "cp": degrees.cp, "ep": degrees.ep}
    places = {
        "tp": root.place("tensor_parallel_size"),
        "ep": root.place("expert_parallel_size"),
        "cp": root.place(context_key(root)),
    }
    sources = {"ep": "src/axolotl/integrations/expert_parallel/shard.py L193"}
    check_fit(Fit(dims_of(run.model), sizes, places, sources), notes, skip=("tokens",))


RULES: tuple[Callable[[Run, Notes], None], ...] = (
    _keys,
    _one_engine,
    _version,
    _context,
    _optimizer,
    _experts,
    _batch,
    _recompute,
    _formats,
    _device_map,
    _share_of_one,
    _shape,
)
