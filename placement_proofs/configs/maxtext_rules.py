"""What MaxText rejects, ignores, or does otherwise than its settings suggest; one rule each."""

from __future__ import annotations

from collections.abc import Callable

from placement_proofs.configs.document import Section, Value, words
from placement_proofs.configs.maxtext import TYPES, Job, repeats
from placement_proofs.configs.maxtext_mesh import AXES, GROUPS
from placement_proofs.configs.mesh_parts import auto_values, misspelt_keys, one_rank
from placement_proofs.configs.notes import Notes
from placement_proofs.configs.record import Kind
from placement_proofs.configs.shape_rules import Fit, check_fit

_KEYS = frozenset(f"{group}_{axis}_parallelism" for group in GROUPS for axis in AXES) | words(
    "per_device_batch_size gradient_accumulation_steps num_pipeline_microbatches "
    "num_layers_per_pipeline_stage num_pipeline_repeats pipeline_parallel_layers remat_policy "
    "shard_optimizer_over_data optimizer_memory_host_offload parameter_memory_host_offload "
    "context_parallel_strategy context_parallel_load_balance mesh_axes logical_axis_rules "
    "data_sharding base_config max_target_length eval_per_device_batch_size "
    "ici_context_usp_ulysses_parallelism"
)
_METHODS = ("all_gather", "ring", "ulysses", "usp")
_UTILS = "src/maxtext/utils/maxtext_utils.py"
_RULES = "src/maxtext/configs/base.yml (logical_axis_rules)"


def check(job: Job, notes: Notes) -> None:
    """Apply every rule."""
    for rule in RULES:
        rule(job, notes)


def _find(
    job: Job, notes: Notes, kind: Kind, rule: str, key: str, texts: tuple[str, str], where: str
) -> None:
    notes.find(kind, rule, job.root.place(key), texts[0], texts[1], where)


def _keys(job: Job, notes: Notes) -> None:
    where = f"{TYPES} (extra keys are forbidden)"
    auto_values(job.root, _KEYS, "MaxText", TYPES, notes)
    misspelt_keys(job.root, _KEYS, "rejected", "MaxText", where, notes)


def _inert(job: Job, notes: Notes) -> None:
    """Degrees of axes that ``mesh_axes`` leaves out have no effect."""
    axes = job.mesh.axes
    for axis in AXES if axes is not None else ():
        for group in GROUPS:
            key = f"{group}_{axis}_parallelism"
            if axes is not None and axis not in axes and (job.root.integer(key, 1, least=-1) != 1):
                texts = (
                    f"{axis} is not in mesh_axes: {key} has no effect",
                    f"add it, or remove {key}",
                )
                _find(job, notes, "ignored", "axis outside the mesh", key, texts, TYPES)


def _rule_list(job: Job, notes: Notes) -> None:
    """A logical name that is given twice with the same axes, and axes that the mesh has not."""
    raw, axes = job.root.raw("logical_axis_rules"), job.root.raw("mesh_axes")
    pairs = [_pair(rule) for rule in raw] if isinstance(raw, tuple) else []
    seen: set[tuple[str, tuple[str, ...]]] = set()
    key = "logical_axis_rules"
    known = {str(name) for name in axes} if isinstance(axes, tuple) else None
    for name, used in filter(None, pairs):
        if (name, used) in seen:
            texts = (f"the rule for {name[:40]} is given twice", "remove one of the two")
            _find(job, notes, "ignored", "rule given twice", key, texts, _RULES)
        seen.add((name, used))
        missing = [axis for axis in used if known is not None and axis not in known]
        if missing:
            texts = (
                f"the rule for {name[:40]} names {missing[0][:40]}, which is not in mesh_axes",
                "add the axis, or correct the rule",
            )
            _find(job, notes, "unlikely", "rule names an absent axis", key, texts, _RULES)


def _pair(rule: Value) -> tuple[str, tuple[str, ...]] | None:
    if not isinstance(rule, tuple) or len(rule) != 2:
        return None
    name, axes = rule
    used = axes if isinstance(axes, tuple) else (axes,)
    return str(name), tuple(str(axis) for axis in used if axis not in (None, ""))


def _pipeline(job: Job, notes: Notes) -> None:
    root, pp = job.root, job.degrees.pp
    written = root.integer("num_pipeline_microbatches", -1, least=-1) or -1
    if pp == 1:
        for key in ("num_pipeline_microbatches", "num_pipeline_repeats"):
            if (root.integer(key, -1, least=-1) or -1) > 1:
                texts = (
                    f"{key} has no effect without a pipeline",
                    "remove it, or set ici_pipeline_parallelism",
                )
                _find(job, notes, "ignored", "pipeline settings", key, texts, TYPES)
        return
    if written > 0 and written % pp:
        texts = (
            f"{written} micro-batches on {pp} stages: {written / pp:.6g}",
            f"write a multiple of {pp}",
        )
        key = "num_pipeline_microbatches"
        _find(job, notes, "rejected", "micro-batches on stages", key, texts, f"{TYPES} L3581-3624")
    _layers(job, pp, notes)
    _cut(job, notes)


def _layers(job: Job, pp: int, notes: Notes) -> None:
    root = job.root
    own = root.integer("pipeline_parallel_layers", -1, least=-1) or -1
    layers = own if own > 0 else job.dims.get("L", 0)
    depth = root.integer("num_layers_per_pipeline_stage", 1, least=1) or 1
    times = repeats(root, pp, job.dims) or 1
    if layers and pp * depth * times != layers:
        texts = (
            f"{pp} stages * {depth} layers * {times} repeats = {pp * depth * times} for "
            f"{layers} layers",
            "make the three multiply to the layers of the pipeline",
        )
        key = "num_layers_per_pipeline_stage"
        if key not in root:
            key = "num_pipeline_repeats"
        _find(job, notes, "rejected", "layers of the pipeline", key, texts, f"{TYPES} L3581-3624")


def _cut(job: Job, notes: Notes) -> None:
    total, steps = job.batch.global_batch, job.batch.accumulation
    if total and steps and total % steps:
        texts = (
            f"a global batch of {total} in {steps} micro-batches: {total / steps:.6g}",
            f"choose micro-batches that divide {total}",
        )
        key = "num_pipeline_microbatches"
        _find(job, notes, "rejected", "batch in micro-batches", key, texts, f"{TYPES} L3581-3624")


def _context(job: Job, notes: Notes) -> None:
    root = job.root
    key = "context_parallel_strategy"
    word = (root.word(key, "all_gather") or "").lower()
    ranks = max(job.degrees.cp, job.degrees.sp)
    if word not in _METHODS:
        texts = (f"no strategy is called {word[:40]}", f"write one of {', '.join(_METHODS)}")
        _find(job, notes, "rejected", "context strategy", key, texts, f"{TYPES} L3040-3130")
    elif word != "all_gather" and ranks == 1:
        texts = (f"{key} {word} has no effect with one context rank", "remove it")
        _find(job, notes, "ignored", "context strategy without ranks", key, texts, TYPES)
    elif word == "usp":
        notes.assume("usp mixes Ulysses and ring; the composition gathers keys and values")


def _batch(job: Job, notes: Notes) -> None:
    if job.batch.micro_batch is None:
        each = job.root.real("per_device_batch_size", 12.0)
        texts = (
            f"{each} samples a device: the devices that share a sample do not make whole "
            "samples of it",
            "choose it so that times tensor, context and stage degrees it is a whole number",
        )
        key = "per_device_batch_size"
        _find(job, notes, "rejected", "whole samples", key, texts, f"{TYPES} (batch sizes)")


def _share_of_one(job: Job, notes: Notes) -> None:
    degrees = job.degrees
    key = "shard_optimizer_over_data"
    if job.root.flag(key, False) and degrees.replicate == 1:
        one_rank(1, job.root.place(key), notes)


def _experts(job: Job, notes: Notes) -> None:
    experts = job.root.integer("num_experts", least=1)
    dims = dict(job.dims) | ({"E": experts} if experts else {})
    degrees = job.degrees
    if degrees.ep > 1 and experts == 1:
        key = _axis_key(job.root, "expert")
        texts = (f"{degrees.ep} experts' ranks for num_experts 1", "remove the expert degree")
        _find(job, notes, "unlikely", "experts' ranks without experts", key, texts, TYPES)
    balanced = job.root.flag("context_parallel_load_balance", True)
    sizes = {"tp": degrees.tp, "ep": degrees.ep, "sp": degrees.sp, "cp": degrees.cp}
    axes = {"tp": "tensor", "ep": "expert", "sp": "context", "cp": "context"}
    places = {name: job.mesh.place(axis) for name, axis in axes.items()}
    sources = {"cp": f"{TYPES} L3040-3130", "sp": f"{TYPES} L4009-4075", "tp": _UTILS}
    skip = () if balanced else ("tokens",)
    check_fit(Fit(dims, sizes, places, sources), notes, skip=skip)


def _axis_key(root: Section, axis: str) -> str:
    keys = [f"{group}_{axis}_parallelism" for group in GROUPS]
    return next((key for key in keys if key in root), keys[0])


RULES: tuple[Callable[[Job, Notes], None], ...] = (
    _keys,
    _inert,
    _rule_list,
    _pipeline,
    _context,
    _batch,
    _share_of_one,
    _experts,
)
