"""The degrees of a Megatron job: tensor, pipeline, context, expert and data parallel ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from placement_proofs.configs.document import Block, Section, is_template
from placement_proofs.configs.notes import RANKS, Notes, World, data_ranks
from placement_proofs.configs.record import Provenance
from placement_proofs.mesh import Dim

TP, PP = "tensor_model_parallel_size", "pipeline_model_parallel_size"
CP, EP = "context_parallel_size", "expert_model_parallel_size"
ETP = "expert_tensor_parallel_size"
ULYSSES = "ds_sequence_parallel_size"
DEEPSPEED_EP = "moe_expert_parallel_size"
LAYERS_PER_CHUNK = "num_layers_per_virtual_pipeline_stage"
CHUNKS = ("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")


@dataclass(frozen=True)
class Dialect:
    """A family of configurations with Megatron's words.

    ``partial``: a key that is absent has the value of a recipe or another file, not a default.
    ``distributed``: who says that the distributed optimizer is on by default, if anybody.
    ``expert_tp``: the default of the experts' tensor degree; 0 for the tensor degree itself.
    """

    format: str
    name: str
    partial: bool = False
    distributed: str = ""
    deepspeed: bool = False
    expert_tp: int = 0


@dataclass(frozen=True)
class Job:
    """Degrees and switches. A size that the file leaves open is a symbol."""

    section: Section
    dialect: Dialect
    world: World
    tp: Dim
    pp: Dim
    cp: Dim
    sp: Dim
    ep: Dim
    etp: Dim
    dp: Dim
    layers: int | None
    chunks: int

    def given(self, key: str) -> bool:
        """Whether a switch is on."""
        return is_on(self.section, key)

    def undecided(self, name: str, notes: Notes, *keys: str) -> bool:
        """Record ``name`` as unknown if one of its switches depends on a condition."""
        place = doubtful(self.section, *keys)
        if place:
            notes.add(name, None, "cli or environment", place, "an open variable or condition")
        return bool(place)

    def whole(self, key: str) -> int | None:
        """A number that the file gives; open and absent ones are ``None``."""
        return whole(self.section, key)

    @property
    def sequence(self) -> bool:
        """Whether sequence parallelism acts: asked for, with more than one tensor rank."""
        return self.given("sequence_parallel") and self.tp != 1

    @property
    def data_group(self) -> int | None:
        """Ranks over which the distributed optimizer shards: data times context ranks."""
        sizes = (self.dp, self.cp, self.sp)
        known = [size for size in sizes if isinstance(size, int)]
        return math.prod(known) if len(known) == len(sizes) else None

    @property
    def experts_apart(self) -> bool:
        """Whether the expert axis is a part of the data axis, as in the composition."""
        if self.ep == 1 or self.etp != self.tp:
            return False
        numbers = isinstance(self.dp, int) and isinstance(self.ep, int)
        return not numbers or int(self.dp) % int(self.ep) == 0


def is_open(section: Section, key: str) -> bool:
    """Whether the value of ``key`` is left to the environment or the command line."""
    value = section.raw(key)
    return isinstance(value, str) and (is_template(value) or value == "???")


def is_on(section: Section, key: str) -> bool:
    """A switch; a value that is no truth value is taken as given, an open one as not."""
    value = section.raw(key)
    if is_open(section, key):
        return False
    if value is None or isinstance(value, bool):
        return bool(value)
    word = str(value).lower() if not isinstance(value, Block | tuple) else ""
    return word not in ("0", "false", "no", "off", "none", "null", "~")


def whole(section: Section, key: str) -> int | None:
    """A number that the file gives; open and absent ones are ``None``."""
    if is_open(section, key) or section.raw(key) in ("null", "None"):
        return None
    return section.integer(key)


def doubtful(section: Section, *keys: str) -> str:
    """The place of a switch that is open or depends on a condition; empty if there is none."""
    block = section.raw("@maybe")
    items = block.items if isinstance(block, Block) else {}
    found = [items[key] for key in keys if key in items and key not in section]
    opened = [section.place(key) for key in keys if is_open(section, key)]
    places = [f"{section.file}:{item.line} {item.shown}" for item in found]
    return next(iter((*opened, *places)), "")


def origin(section: Section, key: str) -> tuple[Provenance, str]:
    """Where the value of ``key`` comes from, with a note on the variable behind it."""
    if _origin(section, "@default", key):
        name = _origin(section, "@default", key)
        return "default", f"the file's own value for {name}, which the environment may set"
    line = _origin(section, "@set", key)
    return ("literal" if key in section else "default"), f"set on line {line}" if line else ""


def _origin(section: Section, table: str, key: str) -> str:
    block = section.raw(table)
    item = block.items.get(key) if isinstance(block, Block) else None
    return str(item.value) if item else ""


def size(section: Section, key: str, axis: str, dialect: Dialect, notes: Notes) -> Dim:
    """A degree: its number, 1 by default, or a symbol if the file leaves it open."""
    if is_open(section, key):
        name = _origin(section, "@open", key) or str(section.raw(key))[:60]
        note = f"{name} comes from the command line, the environment or a condition"
        notes.add(axis, f"N_{axis}", "cli or environment", section.place(key), note)
        return f"N_{axis}"
    place = doubtful(section, key)
    if place:
        note = "an undecided condition gives it or not"
        notes.add(axis, f"N_{axis}", "cli or environment", place, note)
        return f"N_{axis}"
    number = section.integer(key, least=1)
    if number is None and dialect.partial:
        notes.add(
            axis,
            f"N_{axis}",
            "unknown",
            "",
            f"{key} comes from the recipe or base file of {dialect.name}",
        )
        return f"N_{axis}"
    provenance, note = origin(section, key)
    place = section.place(key) if key in section else ""
    notes.add(axis, number or 1, provenance, place, note)
    return number or 1


def job_of(section: Section, dialect: Dialect, world: World, notes: Notes) -> Job:
    """Read the degrees.

    Raises:
        IllFormed: they have no meaning, or do not divide the world.
    """
    tp, pp = (size(section, k, a, dialect, notes) for k, a in ((TP, "tp"), (PP, "pp")))
    cp = size(section, CP, "cp", Dialect("", "") if dialect.deepspeed else dialect, notes)
    sp = size(section, ULYSSES, "ulysses_sp", Dialect("", ""), notes) if ULYSSES in section else 1
    ep = _experts(section, dialect, notes)
    given = _said(section, ETP)
    etp = size(section, ETP, "etp", dialect, notes) if given else dialect.expert_tp or tp
    sizes = {"tp": tp, "pp": pp, "cp": cp, "sp": sp}
    dp = _data(section, world, sizes, notes)
    if ep != 1 and not given:
        note = "" if dialect.expert_tp else "the tensor degree (core/parallel_state.py)"
        notes.add("etp", etp, "default", "", note)
    if ep != 1 or ETP in section or "num_experts" in section:
        _expert_data(world, {"etp": etp, "ep": ep, "pp": pp}, notes)
    layers = whole(section, "num_layers")
    chunks = _chunks(section, pp, layers, notes)
    return Job(section, dialect, world, tp, pp, cp, sp, ep, etp, dp, layers, chunks)


def _said(section: Section, *keys: str) -> bool:
    """Whether a key is given, be it under a condition."""
    return any(key in section for key in keys) or bool(doubtful(section, *keys))


def _experts(section: Section, dialect: Dialect, notes: Notes) -> Dim:
    dense = not _said(section, "num_experts", "num_moe_experts", EP, DEEPSPEED_EP)
    key = DEEPSPEED_EP if DEEPSPEED_EP in section else EP
    if dense and dialect.partial:
        notes.add("ep", None, "unknown", "", "no key of experts; taken as a dense model")
        return 1
    plain = Dialect("", "") if dense else dialect
    return size(section, key, "ep", plain, notes)


def _data(section: Section, world: World, sizes: Mapping[str, Dim], notes: Notes) -> Dim:
    known = {name: size for name, size in sizes.items() if isinstance(size, int)}
    if len(known) < len(sizes) or world.size is None:
        notes.add("dp", RANKS, "unknown", "", "world / (tp * pp * cp)")
        return RANKS
    dp = data_ranks(world, known, section.place(TP if TP in section else PP))
    notes.add("dp", dp, "derived", "", "world / (tp * pp * cp)")
    return dp


def _expert_data(world: World, sizes: Mapping[str, Dim], notes: Notes) -> None:
    """Ranks over which an expert's gradient is reduced: the world over the expert grid."""
    known = [size for size in sizes.values() if isinstance(size, int)]
    grid = math.prod(known)
    if len(known) == len(sizes) and world.size is not None and world.size % grid == 0:
        notes.add("edp", world.size // grid, "derived", "", "world / (etp * ep * pp)")


def _chunks(section: Section, pp: Dim, layers: int | None, notes: Notes) -> int:
    """Chunks of layers on a pipeline rank, from layers a chunk or from chunks."""
    per = whole(section, LAYERS_PER_CHUNK)
    if per:
        notes.take("vpp_layers", per, section, LAYERS_PER_CHUNK, "layers in a chunk")
        if not layers or not isinstance(pp, int):
            return 1
        chunks = max(1, layers // pp // per)
        notes.add("vpp_chunks", chunks, "derived", "", f"{layers} layers / {pp} stages / {per}")
        return chunks
    for key in CHUNKS:
        count = whole(section, key)
        if count:
            notes.take("vpp_chunks", count, section, key, "chunks of layers on a rank")
            return count
    return 1
