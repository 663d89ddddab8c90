"""MaxText's settings as a composition (AI-Hypercomputer/maxtext: ``src/maxtext/configs/``).

Every axis has a degree inside a slice (``ici_``) and between slices (``dcn_``); in each of the two
groups one ``-1`` takes what is left. Experts are an axis of the mesh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.document import Block, Section, words
from placement_proofs.configs.maxtext_mesh import AXES, Mesh, mesh_of
from placement_proofs.configs.mesh_parts import (
    Degrees,
    Pipe,
    Result,
    add_degree,
    given_world,
    imported,
    repeated_keys,
    sharded_parts,
    stage_parts,
)
from placement_proofs.configs.notes import Notes
from placement_proofs.configs.record import Batch, Dtypes, Imported
from placement_proofs.configs.shape_rules import dims_of, take_shape
from placement_proofs.mesh import Dim
from placement_proofs.model import Model

_MARKS = words("per_device_batch_size max_target_length remat_policy hardware model_name run_name")
_FORMATS = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
TYPES = "src/maxtext/configs/types.py"
_SHAPE = {
    "layers": "base_num_decoder_layers",
    "hidden": "base_emb_dim",
    "heads": "base_num_query_heads",
    "kv_heads": "base_num_kv_heads",
    "ffn": "base_mlp_dim",
    "vocabulary": "vocab_size",
    "experts": "num_experts",
}


@dataclass(frozen=True)
class Job:
    """MaxText settings: the mesh, its degrees in ranks, pipeline and batch."""

    root: Section
    mesh: Mesh
    degrees: Degrees
    pipe: Pipe
    batch: Batch
    dims: Mapping[str, int]


def read(path: Path) -> Block:
    """Read YAML with the files that it builds on, or the arguments in a shell script."""
    from placement_proofs.configs.maxtext_text import read_settings

    return read_settings(path)


def claims(block: Block) -> bool:
    """Whether the keys are MaxText's: degrees of its axes, its rules, or its base file."""
    keys = set(block.items)
    degrees = any(key.startswith(("ici_", "dcn_")) for key in keys)
    rules = {"mesh_axes", "logical_axis_rules"} <= keys
    return (
        degrees
        or rules
        or ("base_config" in keys and len(_MARKS & keys) >= 2)
        or ({"per_device_batch_size", "max_target_length"} <= keys)
    )


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import MaxText settings that were read.

    Raises:
        IllFormed: two leftovers in one group, or degrees that do not multiply to the world.
    """
    from placement_proofs.configs.maxtext_rules import check

    notes = Notes("MaxText")
    where = "src/maxtext/configs/pyconfig.py (the last value of a key is read)"
    repeated_keys(path.name, block, notes, where)
    root = Section(path.name, block)
    _base(root, notes)
    mesh = mesh_of(root, given_world(world), notes)
    notes.world(mesh.world, path.name)
    job = _job(root, mesh, _dims(root, model, notes))
    _record(job, notes)
    parts = _parts(job, notes)
    check(job, notes)
    return imported(
        "maxtext", path, Result(parts, mesh.world, job.batch, _dtypes(root, notes)), notes
    )


def _base(root: Section, notes: Notes) -> None:
    name = root.word("base_config")
    if name and not any(item.shown for item in root.block.items.values()):
        notes.assume(
            f"{root.place('base_config')}: {name[:60]} is not beside this file; MaxText's own "
            "base.yml (ici_fsdp and dcn_data are -1, the others 1) is taken"
        )


def _dims(root: Section, model: Model | None, notes: Notes) -> dict[str, int]:
    """The model that was given; else the file's ``base_`` sizes, unless a named model has its own.

    Sizes that ``global_parameter_scale`` multiplies are left out.
    """
    dims = dims_of(model, root.integer("max_target_length", 2048, least=1))
    named = root.word("model_name", "default") != "default"
    scaled = (root.integer("global_parameter_scale", 1) or 1) != 1
    if model is not None or scaled or (named and not root.flag("override_model_config", False)):
        return dims
    return dims | take_shape(root, _SHAPE, notes)


def _job(root: Section, mesh: Mesh, dims: dict[str, int]) -> Job:
    pp = _whole(mesh.size("pipeline"))
    degrees = Degrees(
        replicate=mesh.product("data", "diloco"),
        shard=mesh.product("fsdp", "fsdp_transpose"),
        cp=_whole(mesh.product("context", "sequence", "context_autoregressive"))
        if _strategy(root) != "ulysses"
        else 1,
        sp=_whole(mesh.product("context", "sequence")) if _strategy(root) == "ulysses" else 1,
        ep=_whole(mesh.size("expert")),
        tp=_whole(mesh.product("tensor", "tensor_transpose", "tensor_sequence", "autoregressive")),
        pp=pp,
        cp_method="ring" if _strategy(root) == "ring" else "all-gather",
        sequence=mesh.size("tensor_sequence") != 1,
    )
    return Job(root, mesh, degrees, _pipe(root, pp, dims), _batch(root, mesh, pp), dims)


def _whole(size: Dim) -> int:
    """Only data and fsdp may stay open; another axis that is left over counts as one."""
    return size if isinstance(size, int) else 1


def _strategy(root: Section) -> str:
    return (root.word("context_parallel_strategy", "all_gather") or "all_gather").lower()


def _pipe(root: Section, pp: int, dims: Mapping[str, int]) -> Pipe:
    """Repeats are chunks on a rank; micro-batches default to the number of stages."""
    steps = root.integer("gradient_accumulation_steps", 1, least=1) or 1
    if pp == 1:
        return Pipe(1, steps)
    micro = root.integer("num_pipeline_microbatches", -1, least=-1) or -1
    micro = micro if micro > 0 else pp
    return Pipe(pp, micro * steps, "gpipe", repeats(root, pp, dims) or 1)


def repeats(root: Section, pp: int, dims: Mapping[str, int]) -> int | None:
    """``num_pipeline_repeats``; ``-1`` follows from the layers, which the model has."""
    written = root.integer("num_pipeline_repeats", -1, least=-1) or -1
    if written > 0:
        return written
    layers = root.integer("pipeline_parallel_layers", -1, least=-1) or -1
    layers = layers if layers > 0 else dims.get("L", -1)
    depth = root.integer("num_layers_per_pipeline_stage", 1, least=1) or 1
    return max(layers // (pp * depth), 1) if layers > 0 else None


def _batch(root: Section, mesh: Mesh, pp: int) -> Batch:
    """``per_device_batch_size`` counts every device: a group that shares a sample has a part."""
    each = root.real("per_device_batch_size", 12.0)
    steps = root.integer("gradient_accumulation_steps", 1, least=1) or 1
    apart = {"data", "diloco", "fsdp", "fsdp_transpose", "expert"}
    shared = math.prod(_whole(mesh.size(name)) for name in AXES if name not in apart)
    if not math.isfinite(each) or each <= 0:
        root.refuse("per_device_batch_size", "it is a number above 0", "write 1")
    micro, size = each * shared, mesh.world.size
    number = _pipe(root, pp, {}).micro if pp > 1 else steps
    total = each * size * steps if size else None
    own = micro / (number // steps) if isinstance(number, int) and pp > 1 else micro
    return Batch(
        int(own) if own == int(own) and own >= 1 else None,
        number if isinstance(number, int) else None,
        int(total) if total and total == int(total) else None,
    )


def _record(job: Job, notes: Notes) -> None:
    root, mesh, degrees = job.root, job.mesh, job.degrees
    add_degree("dp_replicate", degrees.replicate, mesh.place("data"), notes, "data axis")
    add_degree("dp_shard", degrees.shard, mesh.place("fsdp"), notes, "fsdp axes")
    for name, size, axis in (
        ("cp", max(degrees.cp, degrees.sp), "context"),
        ("ep", degrees.ep, "expert"),
        ("tp", degrees.tp, "tensor"),
        ("pp", degrees.pp, "pipeline"),
    ):
        place = mesh.place(axis)
        notes.add(name, size, "derived" if place else "default", place, "inside * between slices")
    notes.take(
        "per_device_batch_size",
        root.real("per_device_batch_size", 12.0),
        root,
        "per_device_batch_size",
        "samples of every device; may be a part",
    )
    known = job.batch.micro_batch is not None
    notes.add("micro_batch", job.batch.micro_batch, "derived" if known else "unknown")
    notes.take("accumulation", job.batch.accumulation, root, "gradient_accumulation_steps")
    total = job.batch.global_batch
    notes.add("global_batch", total, "derived" if total else "unknown")
    length = root.integer("max_target_length", 2048, least=1)
    notes.take("seq_len", length, root, "max_target_length", "tokens")


def stage_of(job: Job) -> int:
    """The ZeRO stage: 3 where weights are sharded, 1 for ``shard_optimizer_over_data``."""
    degrees = job.degrees
    if degrees.shard != 1 or max(degrees.cp, degrees.sp, degrees.ep) > 1:
        return 3
    return 1 if job.root.flag("shard_optimizer_over_data", False) else 0


def _parts(job: Job, notes: Notes) -> list[Strategy]:
    stage, degrees = stage_of(job), job.degrees
    notes.add("zero_stage", stage, "derived", job.mesh.place("fsdp"))
    if stage == 3:
        if job.root.flag("shard_optimizer_over_data", False) and degrees.replicate != 1:
            notes.assume(
                "the optimizer is sharded over the data axis too; the composition copies it there"
            )
        parts = sharded_parts(degrees, notes)
    else:
        ranks = degrees.replicate
        plain = Degrees(shard=ranks, ep=degrees.ep, tp=degrees.tp, sequence=degrees.sequence)
        parts = stage_parts(stage, plain, notes)
    if degrees.pp > 1:
        notes.add("chunks", job.pipe.chunks, "derived", "", "repeats on a rank")
        notes.assume("MaxText runs all micro-batches forward before the first backward pass")
    return [*parts, *job.pipe.parts(), *_states(job, notes)]


def _states(job: Job, notes: Notes) -> list[Strategy]:
    root = job.root
    away = {
        "optimizer": bool(root.flag("optimizer_memory_host_offload", False)),
        "parameters": bool(root.flag("parameter_memory_host_offload", False)),
    }
    for state, name in (("optimizer", "offload_optimizer"), ("parameters", "offload_param")):
        key = {"optimizer": "optimizer", "parameters": "parameter"}[state]
        value = "host" if away[state] else "none"
        notes.take(name, value, root, f"{key}_memory_host_offload")
    chosen = [state for state, on in away.items() if on]
    parts = [strategies.offload(*chosen)] if chosen else []
    return [*parts, *_recompute(root, notes)]


def _recompute(root: Section, notes: Notes) -> list[Strategy]:
    policy = root.word("remat_policy", "full") or "full"
    notes.take("recompute", policy, root, "remat_policy")
    if policy == "full":
        return [strategies.recompute("full")]
    notes.assume(
        f"remat_policy {policy[:40]} chooses tensors to keep; the composition recomputes the "
        "attention core"
    )
    if any(root.raw(key) == "offload" for key in root):
        notes.assume("tensors marked offload go to the host; the composition keeps them")
    return [strategies.recompute("selective")]


def _dtypes(root: Section, notes: Notes) -> Dtypes:
    compute = _format(root, "dtype", "bfloat16")
    weights = _format(root, "weight_dtype", "float32")
    gradients = _format(root, "grad_dtype", "float32")
    notes.take("compute_dtype", compute, root, "dtype")
    if root.word("quantization"):
        notes.assume(
            f"quantization {str(root.raw('quantization'))[:30]} changes the number format "
            "of products; rounding is not modelled"
        )
    return Dtypes(compute, weights, gradients, gradients, copies=False)


def _format(root: Section, key: str, default: str) -> str:
    word = root.word(key, default) or default
    return _FORMATS.get(word, word)
