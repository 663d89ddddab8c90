"""MaxText's mesh: degrees inside and between slices, leftovers, and the axes that count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from placement_proofs.configs.document import Section
from placement_proofs.configs.mesh_parts import named_product
from placement_proofs.configs.notes import RANKS, Notes, World
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim

AXES = (
    "diloco",
    "data",
    "pipeline",
    "fsdp",
    "fsdp_transpose",
    "sequence",
    "context",
    "context_usp_ulysses",
    "context_autoregressive",
    "tensor",
    "tensor_transpose",
    "tensor_sequence",
    "expert",
    "autoregressive",
)
GROUPS: Mapping[str, str] = {"ici": "fsdp", "dcn": "data"}
"""The two groups of degrees, and the axis whose default is ``-1``."""

_DATA = ("diloco", "data", "fsdp", "fsdp_transpose")

SLICES = "S"
"""The symbol for the number of slices when nobody said it."""

_FILL = "src/maxtext/utils/max_utils.py (fill_unspecified_mesh_axes)"


@dataclass(frozen=True)
class Group:
    """The degrees of one group as written; ``open`` is the axis that takes what is left."""

    section: Section
    prefix: str
    sizes: Mapping[str, int]
    open: str | None

    @property
    def product(self) -> int:
        return math.prod(self.sizes.values())

    def key(self, axis: str) -> str:
        return f"{self.prefix}_{axis}_parallelism"

    def filled(self, target: int | None, symbol: str = RANKS) -> Mapping[str, Dim]:
        """The degrees with the leftover, ``symbol`` where the group's size is unknown.

        Raises:
            IllFormed: the degrees do not multiply to ``target``, or a leftover that is no data
                axis waits for the world.
        """
        if self.open is None:
            self._check(target, self.product)
            return self.sizes
        if target is None:
            self._data_only()
            return {**self.sizes, self.open: symbol}
        left = target // self.product
        self._check(target, self.product * left)
        return {**self.sizes, self.open: left}

    def _data_only(self) -> None:
        if self.open is not None and self.open not in _DATA:
            self.section.refuse(
                self.key(self.open),
                "this axis takes the ranks that are left, and their number is not known",
                "pass --world, or write the degree",
            )

    def _check(self, target: int | None, product: int) -> None:
        if target is None or product == target:
            return
        what = "devices of a slice" if self.prefix == "ici" else "slices"
        named = {f"{self.prefix}_{k}": v for k, v in self.sizes.items() if v > 1}
        key = next((self.key(k) for k, v in self.sizes.items() if v > 1), self.key("fsdp"))
        raise IllFormed(
            self.section.place(key),
            f"{named_product(named or {'degree': 1})} = {self.product} for {target} {what}: "
            f"{target / self.product:.6g}",
            f"the degrees multiply to the {what} ({_FILL})",
            "correct a degree, or the world",
        )


@dataclass(frozen=True)
class Mesh:
    """Degrees of both groups; ``axes`` are the names in ``mesh_axes`` (all if it is absent)."""

    section: Section
    world: World
    ici: Mapping[str, Dim]
    dcn: Mapping[str, Dim]
    axes: frozenset[str] | None

    def size(self, axis: str) -> Dim:
        """Ranks of an axis over both groups; one for an axis that the mesh does not have."""
        if self.axes is not None and axis not in self.axes:
            return 1
        return _times(self.ici.get(axis, 1), self.dcn.get(axis, 1))

    def product(self, *axes: str) -> Dim:
        """Ranks of several axes together."""
        total: Dim = 1
        for axis in axes:
            total = _times(total, self.size(axis))
        return total

    def place(self, axis: str) -> str:
        """Where a degree of an axis is written, or empty."""
        keys = [f"{group}_{axis}_parallelism" for group in GROUPS]
        return next((self.section.place(key) for key in keys if key in self.section), "")


def _times(first: Dim, second: Dim) -> Dim:
    """A product; a symbol stands for the whole of it."""
    if isinstance(first, int) and isinstance(second, int):
        return first * second
    return first if isinstance(first, str) else second


def mesh_of(section: Section, world: World, notes: Notes) -> Mesh:
    """Read and complete the degrees.

    Raises:
        IllFormed: more than one leftover in a group, or degrees that do not fit the world.
    """
    axes = axes_of(section)
    ici, dcn = (_group(section, prefix, axes) for prefix in GROUPS)
    slices = _slices(section, ici, dcn, world, notes)
    inside = _inside(section, world, slices, dcn)
    size = world
    if world.size is None and ici.open is None and slices is not None:
        size = World(ici.product * slices, "", "derived")
    symbol = RANKS if ici.open is None else SLICES
    return Mesh(section, size, ici.filled(inside), dcn.filled(slices, symbol), axes)


def axes_of(section: Section) -> frozenset[str] | None:
    """The axes of ``mesh_axes``, where the file has it; a stage is the pipeline's axis."""
    raw = section.raw("mesh_axes")
    if not isinstance(raw, tuple):
        return None
    return frozenset("pipeline" if name == "stage" else str(name) for name in raw)


def _group(section: Section, prefix: str, axes: frozenset[str] | None) -> Group:
    sizes: dict[str, int] = {}
    opened: list[str] = []
    for axis in [name for name in AXES if axes is None or name in axes]:
        key = f"{prefix}_{axis}_parallelism"
        default = -1 if GROUPS[prefix] == axis else 1
        size = section.integer(key, default, least=-1)
        if size == 0:
            section.refuse(key, "a degree is -1, or 1 and above", "write 1")
        if size == -1:
            opened.append(axis)
        else:
            sizes[axis] = size or 1
    if len(opened) > 1:
        _two_leftovers(section, prefix, opened)
    return Group(section, prefix, sizes, opened[0] if opened else None)


def _two_leftovers(section: Section, prefix: str, opened: list[str]) -> None:
    keys = [f"{prefix}_{axis}_parallelism" for axis in opened]
    written = next((key for key in keys if key in section), keys[0])
    default = f"{prefix}_{GROUPS[prefix]}_parallelism"
    raise IllFormed(
        section.place(written),
        f"{' and '.join(keys)} are -1",
        f"one degree of a group takes what is left ({_FILL}); {default} is -1 by default",
        f"write {default}: 1, or a number for {written}",
    )


def _slices(section: Section, ici: Group, dcn: Group, world: World, notes: Notes) -> int | None:
    """The number of slices: written, or the product between slices, or what the world leaves."""
    for key in ("num_slices", "compile_topology_num_slices"):
        written = section.integer(key, -1, least=-1) or -1
        if written > 0:
            notes.take("slices", written, section, key)
            return written
    if dcn.open is None:
        notes.add("slices", dcn.product, "derived", "", "the product of dcn degrees")
        return dcn.product
    if world.size is not None and ici.open is None:
        if world.size % ici.product:
            ici.filled(world.size)
        notes.add("slices", world.size // ici.product, "derived", "", "world / ici degrees")
        return world.size // ici.product
    notes.add("slices", None, "unknown", "", "given by the machine or the launcher")
    if world.size is None:
        return None
    notes.assume("the number of slices is not in the file; all ranks are taken as one slice")
    return 1


def _inside(section: Section, world: World, slices: int | None, dcn: Group) -> int | None:
    if world.size is None or slices is None:
        return None
    if world.size % slices:
        raise IllFormed(
            section.place(dcn.key("data")),
            f"{slices} slices for a world of {world.size}: {world.size / slices:.6g}",
            f"slices have equal numbers of devices ({_FILL})",
            "correct a dcn degree, or the world",
        )
    return world.size // slices
