"""Hugging Face Accelerate's YAML as a composition (huggingface/accelerate: ``commands/launch.py``).

Data parallel, FSDP1 and FSDP2, DeepSpeed (inline or in a file), Megatron-LM, meshes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import compose
from placement_proofs.configs import accelerate_engines as engines
from placement_proofs.configs.accelerate_launch import Launch, mesh_of, mesh_rules
from placement_proofs.configs.deepspeed import Engine
from placement_proofs.configs.document import Block, Section, words
from placement_proofs.configs.mesh_parts import repeated_keys
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.record import Batch, Imported
from placement_proofs.errors import IllFormed
from placement_proofs.model import Model

_MARKS = words(
    "distributed_type compute_environment fsdp_config deepspeed_config main_training_function"
)
_TOP = _MARKS | words(
    "mixed_precision use_cpu debug num_processes machine_rank num_machines gpu_ids main_process_ip "
    "main_process_port rdzv_backend same_network enable_cpu_affinity fp8_config tp_config "
    "megatron_lm_config ipex_config mpirun_config downcast_bf16 tpu_name tpu_zone tpu_use_cluster "
    "tpu_use_sudo command_file commands tpu_vm tpu_env dynamo_config parallelism_config fp16 "
    "dynamo_backend"
)
_SAGEMAKER = words(
    "ec2_instance_type iam_role_name image_uri profile region base_job_name pytorch_version "
    "transformers_version py_version sagemaker_inputs_file sagemaker_metrics_file "
    "additional_args"
)
_DEVICES = ("GPU", "CPU", "NPU", "MLU", "SDAA", "MUSA", "XPU", "HPU")
_REPLICATED = tuple(f"MULTI_{device}" for device in _DEVICES)
_CONFIG_ARGS = "commands/config/config_args.py"


def claims(block: Block) -> bool:
    """Whether a file's top-level keys are Accelerate's."""
    return bool(_MARKS & block.items.keys()) or {"num_processes", "num_machines"} <= set(
        block.items
    )


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import an Accelerate file that was read.

    Raises:
        IllFormed: an unknown top-level key, a value without meaning, degrees that do not multiply
            to the world (ranks over all machines).
    """
    section, notes = Section(path.name, block), Notes("Accelerate")
    _known_keys(section)
    launch = _launch(path, section, world, notes, model)
    repeated_keys(path.name, block, notes, f"{_CONFIG_ARGS} (YAML 1.1 in PyYAML)")
    kind = _distributed_type(section)
    notes.take("distributed_type", kind, section, "distributed_type")
    launch = _single(kind, launch) if kind in ("NO", "MPS") else launch
    notes.world(launch.world, path.name)
    _machines(launch)
    engine = _engine(kind, launch)
    return Imported(
        "accelerate",
        str(path),
        compose(*engine.strategies),
        launch.world.size,
        tuple(notes.fields),
        tuple(notes.findings),
        engine.batch,
        engine.dtypes,
        tuple(notes.assumptions),
    )


def _known_keys(section: Section) -> None:
    sagemaker = section.raw("compute_environment") == "AMAZON_SAGEMAKER"
    known = _TOP | (_SAGEMAKER if sagemaker else frozenset())
    unknown = [key for key in section if key not in known]
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.75)
        raise IllFormed(
            section.place(unknown[0]),
            f"the unknown key {unknown[0][:60]!r}",
            f"Accelerate refuses unknown top-level keys ({_CONFIG_ARGS})",
            f"did you mean {close[0]}?" if close else "remove it, or indent it under its block",
        )


def _launch(
    path: Path, section: Section, world: int | None, notes: Notes, model: Model | None
) -> Launch:
    mesh = mesh_of(section)
    size = _world(section, world, mesh.product, notes)
    machines = section.integer("num_machines", 1, least=1) or 1
    precision = section.word("mixed_precision")
    if precision is None and section.flag("fp16"):
        precision = "fp16"
    return Launch(path.parent, section, size, machines, precision, mesh, notes, model)


def _world(section: Section, world: int | None, product: int, notes: Notes) -> World:
    """The argument, else ``num_processes``, else the product of the mesh, else unknown."""
    written = section.integer("num_processes", least=-1)
    place = section.place("num_processes")
    if world is not None:
        if written not in (None, -1, world):
            notes.assume(f"the world of {world} given replaces num_processes {written} in the file")
        return World(world, "", "cli or environment")
    if written == 0:
        section.refuse("num_processes", "at least one process runs", "write the number of ranks")
    if written is not None and written > 0:
        return World(written, place, "literal")
    if product > 1:
        return World(product, section.place("parallelism_config"), "derived")
    return World(None, place if written == -1 else "")


def _distributed_type(section: Section) -> str:
    if section.raw("distributed_type") is False:
        return "NO"
    kind = section.word("distributed_type")
    if kind is None:
        rule = f"a distributed_type must be given ({_CONFIG_ARGS})"
        raise IllFormed(section.file, "no distributed_type", rule, "write distributed_type: FSDP")
    if kind not in _ENGINES:
        close = difflib.get_close_matches(kind.upper(), _ENGINES, n=1, cutoff=0.5)
        rule = f"a distributed_type is one of {', '.join(_ENGINES)}"
        section.refuse("distributed_type", rule, f"did you mean {close[0] if close else 'FSDP'}?")
    return kind


def _single(kind: str, launch: Launch) -> Launch:
    """Without a distributed type one process runs, whatever ``num_processes`` says."""
    size, section = launch.world.size, launch.section
    if size is not None and size > 1:
        launch.notes.find(
            "ignored",
            "one process",
            section.place("num_processes"),
            f"distributed_type {kind} runs one process, not {size}",
            "write distributed_type: MULTI_GPU",
            "commands/launch.py (simple_launcher)",
        )
    place = section.place("distributed_type")
    return replace(launch, world=World(1, place, "derived"))


def _machines(launch: Launch) -> None:
    """The launcher starts ``num_processes // num_machines`` processes on each machine."""
    size, machines = launch.world.size, launch.machines
    each = ""
    if size and machines > 1 and size % machines == 0:
        each = f"{size // machines} processes on each"
    launch.notes.take("machines", machines, launch.section, "num_machines", each)
    if size is None or size % machines == 0:
        return
    launch.notes.find(
        "unlikely",
        "processes per machine",
        launch.section.place("num_processes"),
        f"{size} processes on {machines} machines: {size} / {machines} = {size / machines:.6g}; "
        f"each machine starts {size // machines}",
        f"write num_processes as a multiple of {machines}: it counts all machines",
        "utils/launch.py",
    )


def _engine(kind: str, launch: Launch) -> Engine:
    _unused(kind, launch)
    mesh_rules(kind, launch)
    engine = _ENGINES[kind](launch)
    if kind != "DEEPSPEED" and engine.batch == Batch():
        note = "samples: the script's data loader and gradient_accumulation_steps decide"
        launch.notes.add("micro_batch", None, "unknown", "", note)
        launch.notes.add("accumulation", 1, "default", "", note)
        return replace(engine, batch=Batch(accumulation=1))
    return engine


def _unused(kind: str, launch: Launch) -> None:
    """Blocks of engines that ``distributed_type`` does not start."""
    for key, owner in (
        ("fsdp_config", "FSDP"),
        ("deepspeed_config", "DEEPSPEED"),
        ("megatron_lm_config", "MEGATRON_LM"),
    ):
        block = launch.section.section(key)
        if kind != owner and any(name in block for name in block):
            launch.notes.find(
                "ignored",
                "block of another engine",
                launch.section.place(key),
                f"{key} has no effect with distributed_type {kind}",
                f"write distributed_type: {owner}, or remove the block",
                "commands/launch.py",
            )


def _alone(launch: Launch) -> Engine:
    launch.notes.add("zero_stage", 0, "derived")
    return Engine((strategies.single(),), Batch(), launch.dtypes())


def _xla(launch: Launch) -> Engine:
    launch.notes.assume("XLA ranks are taken as plain data parallel")
    return engines.replicated(launch)


_ENGINES: Mapping[str, Callable[[Launch], Engine]] = {
    "NO": _alone,
    "MPS": _alone,
    **dict.fromkeys(_REPLICATED, engines.replicated),
    "FSDP": engines.fsdp,
    "DEEPSPEED": engines.deepspeed,
    "MEGATRON_LM": engines.megatron,
    "TP": engines.tensor_only,
    "XLA": _xla,
    "TPU": _xla,
    "DATA_PARALLEL": engines.replicated,
}
