"""Where the six schemas of torchtitan keep their keys; found by key, not by version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement_proofs.configs.document import Section, words
from placement_proofs.configs.notes import Notes

CONFIG = "torchtitan/config/job_config.py"

PLACES: Mapping[str, tuple[str, ...]] = {
    "dp_replicate": (
        "parallelism.data_parallel_replicate_degree",
        "training.data_parallel_replicate_degree",
    ),
    "dp_shard": (
        "parallelism.data_parallel_shard_degree",
        "training.data_parallel_shard_degree",
        "training.data_parallel_degree",
        "training.data_parallel_size",
    ),
    "tp": (
        "parallelism.tensor_parallel_degree",
        "training.tensor_parallel_degree",
        "training.tensor_parallel_size",
        "training.model_parallel_size",
        "training.sequence_parallel_degree",
        "training.sequence_parallel_size",
    ),
    "pp": (
        "parallelism.pipeline_parallel_degree",
        "experimental.pipeline_parallel_degree",
        "training.pipeline_parallel_degree",
        "training.pipeline_parallel_size",
    ),
    "cp": (
        "parallelism.context_parallel_degree",
        "experimental.context_parallel_degree",
        "training.context_parallel_degree",
    ),
    "ep": (
        "parallelism.expert_parallel_degree",
        "experimental.expert_parallel_degree",
    ),
    "etp": ("parallelism.expert_tensor_parallel_degree",),
    "rotate": (
        "parallelism.context_parallel_rotate_method",
        "experimental.context_parallel_rotate_method",
    ),
    "schedule": (
        "parallelism.pipeline_parallel_schedule",
        "experimental.pipeline_parallel_schedule",
    ),
    "schedule_csv": (
        "parallelism.pipeline_parallel_schedule_csv",
        "experimental.pipeline_parallel_schedule_csv",
    ),
    "split_points": (
        "parallelism.module_fqns_per_model_part",
        "parallelism.pipeline_parallel_split_points",
        "experimental.pipeline_parallel_split_points",
    ),
    "layers_per_stage": (
        "parallelism.pipeline_parallel_layers_per_stage",
        "experimental.pipeline_parallel_layers_per_stage",
    ),
    "microbatch_size": ("parallelism.pipeline_parallel_microbatch_size",),
    "microbatches": (
        "parallelism.num_pp_microbatches",
        "parallelism.pipeline_parallel_microbatches",
        "experimental.pipeline_parallel_microbatches",
    ),
    "async_tp": (
        "parallelism.enable_async_tensor_parallel",
        "experimental.enable_async_tensor_parallel",
        "compile.enable_async_tensor_parallel",
    ),
    "sequence_parallel": ("parallelism.enable_sequence_parallel",),
    "reshard": ("parallelism.fsdp_reshard_after_forward",),
    "local_batch": ("training.local_batch_size", "training.batch_size"),
    "global_batch": ("training.global_batch_size",),
    "tokens": ("training.num_tokens_per_microbatch_per_dp_rank",),
    "seq_len": ("training.seq_len", "training.max_context_length"),
    "offload": ("training.enable_cpu_offload", "experimental.enable_cpu_offload"),
    "dp_type": ("training.data_parallel_type",),
    "param_dtype": ("training.mixed_precision_param",),
    "reduce_dtype": ("training.mixed_precision_reduce",),
    "master_dtype": ("training.dtype",),
    "recompute": ("activation_checkpoint.mode",),
    "recompute_option": ("activation_checkpoint.selective_ac_option",),
    "compile": ("compile.enable", "training.compile"),
    "components": ("compile.components",),
    "fault_tolerance": ("fault_tolerance.enable",),
}
"""Logical names and their keys, the newest schema first."""

_SCHEMAS = (
    ("training.num_tokens_per_microbatch_per_dp_rank", "since February 2026"),
    ("parallelism", "March 2025 to February 2026"),
    ("training.data_parallel_shard_degree", "September 2024 to February 2025"),
    ("training.data_parallel_replicate_degree", "September 2024 to February 2025"),
    ("experimental", "July to August 2024"),
    ("training.data_parallel_degree", "May to July 2024"),
    ("training", "February to May 2024"),
)

DEGREES = frozenset(
    path
    for name in ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep", "etp", "tokens")
    for path in PLACES[name]
)
"""The key paths that tell a torchtitan file."""

PARALLELISM = frozenset(
    key.partition(".")[2]
    for keys in PLACES.values()
    for key in keys
    if key.startswith("parallelism.")
) | words(
    "disable_loss_parallel enable_loss_parallel enable_compiled_autograd "
    "pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers "
    "pipeline_parallel_expert_parallel_overlap context_parallel_load_balancer "
    "expert_parallel_comm_backend expert_parallel_a2a_impl spmd_backend full_dtensor "
    "hybridep_non_blocking_capacity_factor deepep_token_alignment"
)
ACTIVATIONS = words(
    "mode selective_ac_option per_op_sac_force_recompute_mm_shapes_by_fqns early_stop "
    "memory_budget visualize_memory_budget_pareto preserve_rng_state determinism_check debug"
)
SINGLE = words("1f1b gpipe")
LOOPED = words(
    "interleaved1f1b loopedbfs interleavedzerobubble zbvzerobubble dualpipev interleaved_1f1b "
    "flexible_interleaved_1f1b"
)
OTHER = words("pipelineschedulesingle pipelineschedulemulti _pipelinescheduleruntime")


@dataclass(frozen=True)
class Keys:
    """A torchtitan file by logical names."""

    root: Section

    def find(self, name: str) -> tuple[Section, str]:
        """The section and key that hold ``name``; where it would be written if it is absent."""
        for path in PLACES[name]:
            section, key = self._at(path)
            if key in section:
                return section, key
        return self._at(PLACES[name][0])

    def _at(self, path: str) -> tuple[Section, str]:
        table, _, key = path.partition(".")
        return self.root.section(table), key

    def __contains__(self, name: str) -> bool:
        section, key = self.find(name)
        return key in section

    def place(self, name: str) -> str:
        """``file:line key`` of a logical name, or of the file if it is absent."""
        section, key = self.find(name)
        return section.place(key) if key in section else ""

    def integer(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        section, key = self.find(name)
        return section.integer(key, default, least=least)

    def flag(self, name: str, default: bool = False) -> bool:
        section, key = self.find(name)
        return bool(section.flag(key, default))

    def word(self, name: str, default: str) -> str:
        section, key = self.find(name)
        return section.word(key, default) or default

    def count(self, name: str) -> int:
        """How many members a list has; a text counts its commas."""
        section, key = self.find(name)
        value = section.raw(key)
        if isinstance(value, tuple):
            return len(value)
        return len([part for part in str(value or "").split(",") if part.strip()])

    def take(
        self,
        field: str,
        value: bool | int | float | str | None,
        name: str,
        notes: Notes,
        note: str = "",
    ) -> None:
        """Record a value read from a logical name."""
        section, key = self.find(name)
        notes.take(field, value, section, key, note)

    def newer(self) -> bool:
        """Whether the degrees are in a table of their own (March 2025 and later)."""
        return "parallelism" in self.root

    def schema(self) -> str:
        """The time of the newest schema whose keys are used."""
        for path, age in _SCHEMAS:
            table, _, key = path.partition(".")
            if table in self.root and (not key or key in self.root.section(table)):
                return age
        return "unknown"


def mixed(keys: Keys, notes: Notes) -> None:
    """Keys of two schemas: one degree twice, or a key of an older schema beside the new table."""
    for name, paths in PLACES.items():
        given = [path for path in paths if path in _Given(keys.root)]
        newest = paths[0].startswith("parallelism.")
        older = [path for path in given if newest and not path.startswith("parallelism.")]
        if name == "async_tp" or not (len(given) > 1 or (older and keys.newer())):
            continue
        section, key = keys.find(name)
        both = " and ".join([*given, "parallelism"] if len(given) == 1 else given)
        notes.find(
            "rejected",
            "keys of two schemas",
            section.place(key),
            f"{both} belong to different versions; {given[0]} is taken",
            "keep the one that your version knows",
            f"{CONFIG} (unknown keys are errors)",
        )


@dataclass(frozen=True)
class _Given:
    root: Section

    def __contains__(self, path: object) -> bool:
        table, _, key = str(path).partition(".")
        return key in self.root.section(table)
