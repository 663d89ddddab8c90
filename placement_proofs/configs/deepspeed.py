"""DeepSpeed's JSON as a composition (deepspeedai/DeepSpeed: ``runtime/config.py``, ``zero/``).

ZeRO stages 0 to 3, offload, MiCS, hpZ, Ulysses, AutoTP, accumulation. The pipeline's depth, native
experts and checkpointing live in a program's code; the file cannot tell them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy, compose
from placement_proofs.configs import batch as batches
from placement_proofs.configs import deepspeed_keys as keys
from placement_proofs.configs.document import Block, Item, Section
from placement_proofs.configs.hjson_text import read_hjson
from placement_proofs.configs.notes import RANKS, Notes, World, data_ranks
from placement_proofs.configs.record import Batch, Dtypes, Imported
from placement_proofs.configs.shape_rules import Fit, check_fit, dims_of
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim
from placement_proofs.model import Model

_ZERO = (strategies.data, strategies.zero1, strategies.zero2, strategies.zero3)
_DEVICES: Mapping[str, str | None] = {"none": None, "cpu": "host", "nvme": "nvme"}


@dataclass(frozen=True)
class Setup:
    """A DeepSpeed file's degrees. ``filled``: an integration (Accelerate) replaces ``auto``."""

    section: Section
    zero: Section
    stage: int
    world: World
    dp: Dim
    tp: int
    sp: int
    filled: bool

    @property
    def mics(self) -> int:
        """The MiCS shard group in ranks; 0 when off (stage 3 only)."""
        size = self.zero.integer("mics_shard_size", -1, least=-1) or 0
        return max(size, 0) if self.stage == 3 else 0

    @property
    def hpz(self) -> int:
        """The group of hpZ's second copy in ranks; 1 when off (stage 3 only)."""
        size = self.zero.integer("zero_hpz_partition_size", 1) or 1
        return size if self.stage == 3 else 1

    def device(self, what: str) -> str | None:
        """Where ``offload_param`` or ``offload_optimizer`` stores its state, as written."""
        old = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_param"}[what]
        if what not in self.zero:
            return "host" if self.zero.flag(old) else None
        block = self.zero.section(what)
        word = block.word("device", "none") or "none"
        if word == "auto":
            return None
        if word not in _DEVICES:
            rule = "a device is none, cpu or nvme (DeepSpeed runtime/zero/offload_config.py)"
            block.refuse("device", rule, 'write "cpu"')
        return _DEVICES[word]


@dataclass(frozen=True)
class Engine:
    """What a DeepSpeed configuration comes to."""

    strategies: tuple[Strategy, ...]
    batch: Batch
    dtypes: Dtypes


def read(path: Path) -> Block:
    """DeepSpeed reads its files as hjson: comments, bare words and trailing commas are legal."""
    return read_hjson(path)


def claims(block: Block) -> bool:
    """Whether a file's top-level keys are DeepSpeed's."""
    return bool(keys.MARKS & block.items.keys()) and not keys.FOREIGN & block.items.keys()


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import a DeepSpeed file that was read.

    Raises:
        IllFormed: a value that has no meaning, or degrees that do not divide ``world`` (ranks).
    """
    section = Section(path.name, block)
    notes = Notes("DeepSpeed")
    size = _world(section, world)
    notes.world(size, path.name)
    engine = engine_of(section, size, notes, filled=False, model=model)
    return Imported(
        "deepspeed",
        str(path),
        compose(*engine.strategies),
        size.size,
        tuple(notes.fields),
        tuple(notes.findings),
        engine.batch,
        engine.dtypes,
        tuple(notes.assumptions),
    )


def _world(section: Section, given: int | None) -> World:
    """The ranks that the launcher starts, or those for which the batch numbers are right."""
    ranks = batches.implied_ranks(section)
    if given is not None or ranks is None:
        return World(given, "", "unknown" if given is None else "cli or environment")
    tp, sp = _model_ranks(section)
    return World(ranks * tp * sp, section.place(batches.GLOBAL), "derived")


def engine_of(
    section: Section, world: World, notes: Notes, *, filled: bool, model: Model | None = None
) -> Engine:
    """Strategies, batch and number formats of a DeepSpeed configuration; rules into ``notes``."""
    from placement_proofs.configs.deepspeed_rules import check

    setup = _setup(section, world, filled)
    _degrees(setup, notes)
    parts = [*_data(setup, notes), *_others(setup, notes), *_offload(setup, notes)]
    batch = batches.deepspeed_batch(section, setup.dp, notes)
    dtypes = _dtypes(setup, notes)
    _sizes(setup, notes, model)
    check(setup, notes)
    _shape(setup, notes, model)
    return Engine((*parts, *batches.loop(batch, notes)), batch, dtypes)


def _shape(setup: Setup, notes: Notes, model: Model | None) -> None:
    """Ulysses gives a rank whole heads and equal parts of a sequence."""
    place = setup.section.place("sequence_parallel_size")
    where = "runtime/sequence_parallel/ulysses_sp.py"
    fit = Fit(dims_of(model), {"sp": setup.sp}, {"sp": place}, {"sp": where})
    check_fit(fit, notes)


def _setup(section: Section, world: World, filled: bool) -> Setup:
    zero, stage = _stage(section)
    tp, sp = _model_ranks(section)
    place = section.place("tensor_parallel" if tp > 1 else "sequence_parallel_size")
    dp = data_ranks(world, {"tp": tp, "sp": sp}, place)
    return Setup(section, zero, stage, world, dp, tp, sp, filled)


def _stage(section: Section) -> tuple[Section, int]:
    """The ZeRO block and its stage; ``true`` in its place is the old form of stage 1."""
    old = section.raw("zero_optimization")
    if isinstance(old, bool):
        line = section.line("zero_optimization")
        items = {"stage": Item(int(old), line, "zero_optimization")}
        return Section(section.file, Block(line, items), ("zero_optimization",)), int(old)
    zero = section.section("zero_optimization")
    if isinstance(zero.raw("stage"), tuple):
        rule = "a list of stages is a search by the autotuner, not one placement"
        zero.refuse("stage", rule, "write the stage that the autotuner chose")
    stage = zero.integer("stage", 0) or 0
    if stage > 3:
        zero.refuse(
            "stage", "a stage is 0, 1, 2 or 3 (DeepSpeed runtime/zero/config.py)", "write 3"
        )
    return zero, stage


def _model_ranks(section: Section) -> tuple[int, int]:
    return _tensor_degree(section), section.integer("sequence_parallel_size", 1, least=1) or 1


def _tensor_degree(section: Section) -> int:
    block = section.section("tensor_parallel")
    auto = block.integer("autotp_size", 0) or 0
    inner = block.section("tp").integer("tp_size", 1, least=1) or 1
    return auto or inner


def _degrees(setup: Setup, notes: Notes) -> None:
    notes.take("zero_stage", setup.stage, setup.zero, "stage")
    notes.add(
        "dp", setup.dp, "unknown" if setup.dp == RANKS else "derived", "", "world / (tp * sp)"
    )
    notes.take("tp", setup.tp, setup.section, "tensor_parallel")
    notes.take("sp", setup.sp, setup.section, "sequence_parallel_size")


def _data(setup: Setup, notes: Notes) -> tuple[Strategy, ...]:
    """The strategy of the data axes: ZeRO, or MiCS's shard groups."""
    if setup.mics:
        return (_mics(setup, notes),)
    if setup.hpz > 1:
        notes.take("hpz_group", setup.hpz, setup.zero, "zero_hpz_partition_size")
        notes.assume(
            "hpZ keeps a second 16-bit copy of the parameters, sharded over "
            f"{setup.hpz} ranks, and gathers it in the backward pass; the composition has the "
            "first copy only and takes the second to be fresh"
        )
    if setup.sp == 1 or setup.stage == 0:
        return (_ZERO[setup.stage](dp=setup.dp),)
    sharded = (strategies.zero1, strategies.zero2, strategies.zero3)[setup.stage - 1]
    return (sharded(dp=setup.dp, shard_over=("dp", "sp")),)


def _mics(setup: Setup, notes: Notes) -> Strategy:
    place, size = setup.zero.place("mics_shard_size"), setup.mics
    if setup.sp > 1:
        raise IllFormed(
            place,
            f"mics_shard_size {size} with sequence_parallel_size {setup.sp}",
            "no placement is known for shard groups over data and sequence ranks together",
            "set one of the two to 1",
        )
    if isinstance(setup.dp, int) and setup.dp % size:
        raise IllFormed(
            place,
            f"shard groups of {size} on {setup.dp} data-parallel ranks: "
            f"{setup.dp} / {size} = {setup.dp / size:.6g}",
            "MiCS needs shard groups of equal size (DeepSpeed runtime/zero/mics_utils.py)",
            f"use a world of {-(-setup.dp // size) * size * setup.tp}, or another shard group",
        )
    groups: Dim = setup.dp // size if isinstance(setup.dp, int) else RANKS
    notes.take("dp_shard", size, setup.zero, "mics_shard_size")
    notes.add("dp_replicate", groups, "derived" if isinstance(groups, int) else "unknown")
    notes.assume("the model is built under MiCS_Init; without it DeepSpeed shards over all ranks")
    return strategies.hsdp(dp_replicate=groups, dp_shard=size)


def _others(setup: Setup, notes: Notes) -> tuple[Strategy, ...]:
    parts: list[Strategy] = []
    if setup.tp > 1:
        parts.append(strategies.tensor(tp=setup.tp, vocabulary=False))
        notes.assume("AutoTP shards the linear layers of the blocks; embedding and head stay whole")
    if setup.sp > 1:
        parts.append(strategies.ulysses(sp=setup.sp))
    if setup.section.section("expert_parallel").flag("enabled"):
        notes.assume(
            "expert_parallel is not in the composition: experts are placed as other layers"
        )
    return tuple(parts)


def _offload(setup: Setup, notes: Notes) -> tuple[Strategy, ...]:
    """Offloaded states: the optimizer at stages 1 to 3, parameters at stage 3 only."""
    effective: dict[str, str] = {}
    for what, state, least in (
        ("offload_optimizer", "optimizer", 1),
        ("offload_param", "parameters", 3),
    ):
        device = setup.device(what)
        notes.take(what, device or "none", setup.zero, what)
        if device and setup.stage >= least:
            effective[state] = device
    return tuple(
        strategies.offload(*(s for s in effective if effective[s] == where), to=where)
        for where in sorted(set(effective.values()))
    )


def _dtypes(setup: Setup, notes: Notes) -> Dtypes:
    section = setup.section
    bf16 = section.section("bfloat16" if "bfloat16" in section else "bf16")
    fp16 = section.section("fp16")
    undecided = fp16.is_auto("enabled") or bf16.is_auto("enabled")
    compute = "bf16" if bf16.flag("enabled") else "fp16" if fp16.flag("enabled") else "fp32"
    if undecided and compute == "fp32":
        notes.add("compute_dtype", None, "cli or environment", fp16.place("enabled"))
        return Dtypes()
    notes.add("compute_dtype", compute, "literal" if compute != "fp32" else "default")
    gradients = section.section("data_types").word("grad_accum_dtype")
    wide = compute == "bf16" and setup.stage == 0
    return Dtypes(
        parameters=compute,
        master="bf16" if bf16.flag("bf16_master_weights_and_grads") else "fp32",
        gradients=gradients or ("fp32" if wide else compute),
        reduction=section.word("communication_data_type") or compute,
    )


def _sizes(setup: Setup, notes: Notes, model: Model | None) -> None:
    """Bucket sizes in elements; ``auto`` follows the hidden size where an integration fills it."""
    hidden = model.dims.get("h") if model else None
    rules: Mapping[str, Callable[[int], int]] = {
        "reduce_bucket_size": lambda h: h * h,
        "prefetch_bucket_size": lambda h: int(0.9 * h * h),
        "param_persistence_threshold": lambda h: 10 * h,
    }
    for name, (key, default) in keys.BUCKETS.items():
        used = key if key in setup.zero else name
        value = setup.zero.integer(used, default)
        if setup.zero.is_auto(used) and hidden and name in rules:
            note = f"elements, auto from a hidden size of {hidden} (Accelerate accelerator.py)"
            notes.add(name, rules[name](hidden), "derived", setup.zero.place(used), note)
        else:
            notes.take(name, value, setup.zero, used, unit="elements")
    overlap = setup.zero.flag("overlap_comm", setup.stage == 3)
    notes.take("overlap_comm", overlap, setup.zero, "overlap_comm")
