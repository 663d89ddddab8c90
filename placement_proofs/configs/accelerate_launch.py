"""Accelerate's launch: world, machines, precision, and the mesh of ``parallelism_config``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from placement_proofs.configs.document import Section, words
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.record import Dtypes
from placement_proofs.configs.shape_rules import Fit, check_fit, dims_of
from placement_proofs.errors import IllFormed
from placement_proofs.model import Model

_PREFIX = "parallelism_config_"
_NAMES = ("dp_replicate", "dp_shard", "cp", "sp", "tp")
_OTHER = words(
    "cp_comm_strategy cp_backend sp_backend sp_seq_length sp_seq_length_is_variable "
    "sp_attn_implementation"
)
_WHERE = "parallelism_config.py"


@dataclass(frozen=True)
class ParallelMesh:
    """The degrees of ``parallelism_config`` in ranks, in mesh order."""

    section: Section
    sizes: dict[str, int] = field(default_factory=dict)
    cp_method: str = "all-gather"

    @property
    def product(self) -> int:
        return math.prod(self.sizes.values())

    def __getitem__(self, name: str) -> int:
        return self.sizes.get(name, 1)

    def key(self, name: str) -> str:
        """The key of a degree as this file spells it."""
        long = f"{_PREFIX}{name}_size"
        return long if long in self.section else f"{name}_size"


@dataclass(frozen=True)
class Launch:
    """Everything that an engine of Accelerate is set up from."""

    directory: Path
    section: Section
    world: World
    machines: int
    precision: str | None
    mesh: ParallelMesh
    notes: Notes
    model: Model | None = None

    def dtypes(self, *, sharded: bool = False) -> Dtypes:
        """Formats under ``mixed_precision``: autocast, or FSDP's own policy when ``sharded``."""
        precision = self.precision or "no"
        known = ("no", "bf16", "fp16", "fp8")
        if precision.lower() not in (*known, "false"):
            rule = f"mixed_precision is one of {', '.join(known)}"
            self.section.refuse("mixed_precision", rule, "write bf16")
        self.notes.take("mixed_precision", precision, self.section, "mixed_precision")
        if precision not in ("bf16", "fp16"):
            wide = None if precision == "fp8" else "fp32"
            return Dtypes(wide, "fp32", wide, wide)
        narrow = precision if sharded else "fp32"
        return Dtypes(precision, "fp32", "fp32", narrow, copies=False)


def mesh_of(section: Section) -> ParallelMesh:
    """Read ``parallelism_config``.

    Raises:
        IllFormed: a degree below one, or no whole number.
    """
    block = section.section("parallelism_config")
    empty = ParallelMesh(block)
    sizes = {name: block.integer(empty.key(name), 1, least=1) or 1 for name in _NAMES}
    method = block.word(f"{_PREFIX}cp_comm_strategy") or block.word("cp_comm_strategy")
    if method not in (None, "allgather", "alltoall"):
        key = f"{_PREFIX}cp_comm_strategy"
        block.refuse(key, f"it is allgather or alltoall ({_WHERE})", "write allgather")
    return ParallelMesh(block, sizes, "ring" if method == "alltoall" else "all-gather")


def mesh_rules(kind: str, launch: Launch) -> None:
    """Record the degrees and apply the rules of ``parallelism_config``.

    Raises:
        IllFormed: the degrees do not multiply to the world.
    """
    mesh, notes = launch.mesh, launch.notes
    _unknown(mesh, notes)
    if mesh.product == 1:
        return
    for name, size in mesh.sizes.items():
        notes.take(name, size, mesh.section, mesh.key(name))
    _product(kind, launch)
    _exclusive(mesh, notes)
    _engine_for_mesh(kind, launch)
    _shape(launch)


def _shape(launch: Launch) -> None:
    """Heads and tokens of the model that was given; DeepSpeed's own rules see Ulysses."""
    mesh = launch.mesh
    sizes = {name: mesh[name] for name in ("tp", "cp")}
    places = {name: mesh.section.place(mesh.key(name)) for name in sizes}
    sources = {
        "tp": "huggingface/transformers: src/transformers/integrations/tensor_parallel.py",
        "cp": "pytorch/pytorch: torch/distributed/tensor/experimental",
    }
    check_fit(Fit(dims_of(launch.model), sizes, places, sources), launch.notes)


def _unknown(mesh: ParallelMesh, notes: Notes) -> None:
    known = {f"{name}_size" for name in _NAMES} | _OTHER
    for key in mesh.section:
        if key.removeprefix(_PREFIX) not in known:
            notes.find(
                "ignored",
                "unknown key",
                mesh.section.place(key),
                f"parallelism_config has no key {key[:60]!r}",
                "remove it",
                "commands/launch.py",
            )


def _product(kind: str, launch: Launch) -> None:
    mesh, size = launch.mesh, launch.world.size
    if size is None or mesh.product == size:
        return
    arithmetic = " * ".join(f"{name} {degree}" for name, degree in mesh.sizes.items())
    found = f"{arithmetic} = {mesh.product} for a world of {size}"
    if kind == "DEEPSPEED" and mesh["sp"] > 1:
        launch.notes.find(
            "unlikely",
            "mesh product",
            mesh.section.place(),
            f"{found}; Accelerate does not check it here, DeepSpeed takes sp only",
            "write degrees that multiply to num_processes",
            f"{_WHERE} (_validate_accelerator)",
        )
        return
    raise IllFormed(
        mesh.section.place(),
        found,
        f"the degrees multiply to num_processes ({_WHERE}, _validate_accelerator)",
        f"write num_processes {mesh.product}, or other degrees",
    )


def _exclusive(mesh: ParallelMesh, notes: Notes) -> None:
    if mesh["cp"] > 1 and mesh["sp"] > 1:
        notes.find(
            "rejected",
            "cp or sp",
            mesh.section.place(mesh.key("sp")),
            f"cp {mesh['cp']} together with sp {mesh['sp']}",
            "set one of the two to 1",
            _WHERE,
        )
    model_axes = mesh["tp"] > 1 or mesh["cp"] > 1
    if model_axes and mesh["dp_replicate"] > 1 and mesh["dp_shard"] == 1:
        notes.find(
            "rejected",
            "tp or cp with replicas needs dp_shard",
            mesh.section.place(mesh.key("dp_replicate")),
            f"dp_replicate {mesh['dp_replicate']} with tp or cp, but dp_shard 1",
            "set dp_shard above 1, or dp_replicate to 1",
            _WHERE,
        )


def _engine_for_mesh(kind: str, launch: Launch) -> None:
    version = launch.section.section("fsdp_config").raw("fsdp_version")
    if kind == "DEEPSPEED" or (kind == "FSDP" and str(version) == "2"):
        return
    launch.notes.find(
        "rejected",
        "mesh needs FSDP version 2",
        launch.mesh.section.place(),
        f"parallelism_config with distributed_type {kind}"
        + (f" and fsdp_version {version or 1}" if kind == "FSDP" else ""),
        "write distributed_type: FSDP and fsdp_version: 2",
        f"{_WHERE}; commands/launch.py",
    )
