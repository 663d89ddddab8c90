"""LLaMA-Factory's YAML as a composition (hiyouga/LLaMA-Factory: ``src/llamafactory/``).

One file means different things to its three backends, which the environment chooses: Hugging
Face's Trainer (with DeepSpeed or FSDP), Megatron-Core, and the second version's own engine. The
keys that are used tell which one a file was written for.
"""

from __future__ import annotations

from pathlib import Path

from placement_proofs.configs.document import Block, Section, words
from placement_proofs.configs.llamafactory_parts import Job
from placement_proofs.configs.mesh_parts import given_world, imported, repeated_keys
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.record import Imported
from placement_proofs.model import Model

_FIRST = words("stage finetuning_type template dataset cutoff_len do_train lora_rank lora_target")
_SECOND = words(
    "dist_config model_class train_dataset kernel_config init_config cp_mode sample_backend"
)
MEGATRON = words(
    "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
    "expert_model_parallel_size virtual_pipeline_model_parallel_size sequence_parallel "
    "use_distributed_optimizer recompute_granularity expert_tensor_parallel_size "
    "overlap_grad_reduce overlap_param_gather moe_grouped_gemm"
)
_PARSER = "src/llamafactory/hparams/parser.py"


def claims(block: Block) -> bool:
    """Whether a file's keys are LLaMA-Factory's, of the first or the second version."""
    keys = block.items.keys()
    first = "model_name_or_path" in keys and bool(_FIRST & keys)
    second = "model" in keys and len(_SECOND & keys) >= 2
    return (first or second) and "base_model" not in keys


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import a LLaMA-Factory file that was read.

    Raises:
        IllFormed: a value without meaning, or degrees that do not divide the world.
    """
    from placement_proofs.configs import llamafactory_engines as engines
    from placement_proofs.configs.llamafactory_rules import check

    notes = Notes("LLaMA-Factory")
    repeated_keys(path.name, block, notes, f"{_PARSER} (the last value of a YAML key is read)")
    section = Section(path.name, block)
    job = Job(path.parent, section, _world(section, world), backend(section), notes, model)
    notes.add(
        "backend",
        job.backend,
        "derived",
        "",
        "chosen by USE_MCA, USE_MEGATRON_BRIDGE, USE_V1 in the environment",
    )
    result = engines.result(job)
    check(job)
    return imported("llamafactory", path, result, notes)


def _world(section: Section, world: int | None) -> World:
    """The argument, else the workers that Ray starts."""
    workers = section.integer("ray_num_workers", least=1)
    if world is not None or workers is None:
        return given_world(world)
    return World(workers, section.place("ray_num_workers"), "literal")


def backend(section: Section) -> str:
    """The engine that a file was written for: ``v1``, ``megatron`` or ``trainer``."""
    if "model_name_or_path" not in section:
        return "v1"
    return "megatron" if any(key in section for key in MEGATRON) else "trainer"
