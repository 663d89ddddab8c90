"""torchtitan's TOML as a composition (pytorch/torchtitan: ``torchtitan/config/job_config.py``).

Six schemas of TOML, their YAML twin, and the Python registry that replaced them (read as text).
Experts' ranks are borrowed from the data ranks; ``-1`` shards over the ranks that are left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.configs.document import Block, Section
from placement_proofs.configs.mesh_parts import (
    Degrees,
    Pipe,
    Result,
    add_degree,
    given_world,
    imported,
    named_product,
    other_parts,
    repeated_keys,
    sharded_parts,
)
from placement_proofs.configs.notes import RANKS, Notes, World
from placement_proofs.configs.record import Batch, Dtypes, Imported
from placement_proofs.configs.shape_rules import dims_of
from placement_proofs.configs.toml_text import read_toml
from placement_proofs.configs.torchtitan_keys import CONFIG, DEGREES, LOOPED, Keys
from placement_proofs.configs.yaml_text import read_yaml
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim
from placement_proofs.model import Model
from placement_proofs.strategies import Strategy

_DIMS = "torchtitan/distributed/parallel_dims.py (_validate)"
_FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True)
class Titan:
    """A torchtitan job: degrees in ranks (``shard`` counts experts' ranks), and its batch."""

    keys: Keys
    world: World
    degrees: Degrees
    etp: int
    chunks: int
    batch: Batch
    local: int | None
    sequence: int
    dims: dict[str, int]

    @property
    def sharded(self) -> bool:
        """FSDP runs where parameters are sharded over data or context ranks."""
        return self.degrees.shard != 1 or self.degrees.cp > 1


def read(path: Path) -> Block:
    """Read TOML, its YAML rendition, or the Python registry, by the file's ending."""
    from placement_proofs.configs.torchtitan_python import read_registry

    suffix = path.suffix.lower()
    if suffix == ".py":
        return read_registry(path)
    return read_yaml(path) if suffix in (".yaml", ".yml") else read_toml(path)


def claims(block: Block) -> bool:
    """Whether the tables hold degrees of torchtitan, or its job and training tables."""
    names = set(block.items)
    written = {
        f"{table}.{key}"
        for table in ("parallelism", "training", "experimental")
        for key in _table(block, table)
    }
    return bool(written & DEGREES) or {"job", "training"} <= names or {"job", "model"} <= names


def _table(block: Block, name: str) -> tuple[str, ...]:
    item = block.items.get(name)
    return tuple(item.value.items) if item and isinstance(item.value, Block) else ()


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import a torchtitan file that was read.

    Raises:
        IllFormed: a value without meaning, or degrees that do not multiply to the world.
    """
    from placement_proofs.configs.torchtitan_rules import check

    notes = Notes("torchtitan")
    repeated_keys(path.name, block, notes, f"{CONFIG} (the last value of a YAML key is read)")
    keys = Keys(Section(path.name, block))
    _extends(keys.root, notes)
    titan = _titan(keys, world, model, notes)
    _record(titan, notes)
    parts = [*_parts(titan, notes), *_extras(titan, notes)]
    check(titan, notes)
    result = Result(parts, titan.world, titan.batch, _dtypes(keys, titan, notes))
    return imported("torchtitan", path, result, notes)


def _extends(root: Section, notes: Notes) -> None:
    """Primus builds a file on others; their values are not read."""
    if "extends" in root:
        notes.assume(
            f"the files that {root.place('extends')} names are not read; what this file leaves "
            "out is torchtitan's default"
        )


def _titan(keys: Keys, world: int | None, model: Model | None, notes: Notes) -> Titan:
    degrees, size = _degrees(keys, given_world(world))
    notes.world(size, keys.root.file)
    sequence = keys.integer("seq_len", 2048) or 2048
    dims = dims_of(model, sequence)
    local = _local(keys, sequence, notes)
    chunks = _chunks(keys, degrees.pp, dims, notes)
    batch = _batch(keys, degrees, local)
    etp = keys.integer("etp", 1) or 1
    return Titan(keys, size, degrees, etp, chunks, batch, local, sequence, dims)


def _degrees(keys: Keys, world: World) -> tuple[Degrees, World]:
    others = {name: keys.integer(name, 1) or 1 for name in ("dp_replicate", "tp", "cp", "pp")}
    written = keys.integer("dp_shard", -1, least=-1)
    if written == 0:
        section, key = keys.find("dp_shard")
        section.refuse(key, f"a degree is -1, or 1 and above ({_DIMS})", "write -1")
    left = _leftover(keys, others, written, world)
    only = keys.word("dp_type", "fsdp").lower() == "ddp" and others["dp_replicate"] == 1
    size = _world(world, others, left)
    degrees = Degrees(
        replicate=left if only else others["dp_replicate"],
        shard=1 if only else left,
        cp=others["cp"],
        ep=keys.integer("ep", 1) or 1,
        tp=others["tp"],
        pp=others["pp"],
        cp_method="ring" if keys.word("rotate", "allgather") == "alltoall" else "all-gather",
        sequence=keys.flag("sequence_parallel", True),
        borrowed=True,
    )
    return degrees, size


def _leftover(keys: Keys, others: dict[str, int], written: int | None, world: World) -> Dim:
    """``-1`` is the floor of the world over the other degrees; then the product must fit."""
    product = math.prod(others.values())
    if written not in (None, -1):
        shard = written or 1
    elif world.size is None:
        return RANKS
    else:
        shard = world.size // product
    if world.size is not None and shard * product != world.size:
        raise _misfit(keys, others, shard, world.size, written)
    return shard


def _misfit(
    keys: Keys, others: dict[str, int], shard: int, world: int, written: int | None
) -> IllFormed:
    product = math.prod(others.values())
    sizes = {"dp_shard": shard} | others if written not in (None, -1) else others
    shown = f"{named_product(sizes)} on a world of {world}"
    left = f"{world} / {product} = {world / product:.6g} ranks left to shard over"
    if written not in (None, -1):
        left = f"their product is {shard * product}"
    section, key = keys.find("dp_shard")
    place = section.place(key) if key in section else keys.place("tp") or keys.place("pp")
    return IllFormed(
        place or keys.root.file,
        f"{shown}: {left}",
        f"the degrees multiply to WORLD_SIZE ({_DIMS})",
        f"use a world that is a multiple of {product}, or other degrees",
    )


def _world(world: World, others: dict[str, int], shard: Dim) -> World:
    if world.size is None and isinstance(shard, int):
        return World(shard * math.prod(others.values()), "", "derived")
    return world


def _local(keys: Keys, sequence: int, notes: Notes) -> int | None:
    """Samples of a data-parallel rank in one forward pass; newer files give tokens."""
    tokens = keys.integer("tokens")
    if tokens is None:
        return keys.integer("local_batch", 8)
    keys.take("tokens_per_microbatch_per_dp_rank", tokens, "tokens", notes, "tokens")
    return tokens // sequence if tokens % sequence == 0 else None


def _chunks(keys: Keys, pp: int, dims: dict[str, int], notes: Notes) -> int:
    """Stages on one rank: given as modules, as layers of a stage, or two where looped."""
    looped = keys.word("schedule", "1F1B").lower() in LOOPED
    stages = keys.count("split_points")
    if pp == 1:
        return 1
    if stages:
        stages += 0 if "module_fqns_per_model_part" in keys.find("split_points")[1] else 1
        return max(stages // pp, 1)
    layers, depth = dims.get("L"), keys.integer("layers_per_stage")
    if layers and depth:
        return max(math.ceil(math.ceil(layers / depth) / pp), 1)
    if depth:
        notes.assume(
            "layers per stage are given; without the model's depth, "
            f"{2 if looped else 1} stages on each rank are taken"
        )
    return 2 if looped else 1


def _batch(keys: Keys, degrees: Degrees, local: int | None) -> Batch:
    """Local batch, cut into micro-batches by a pipeline; accumulation reaches the global batch."""
    written = keys.integer("global_batch", -1, least=-1) or -1
    ranks = _data_ranks(degrees)
    steps: int | None = 1
    total = written if written > 0 else None
    if written > 0:
        steps = written // (local * ranks) if local and ranks else None
    elif local and ranks:
        total = local * ranks
    micro = _pipeline_micro(keys, degrees.pp, local)
    if degrees.pp > 1 and "tokens" in keys:
        return Batch(local, keys.integer("microbatches", None, least=-1), total)
    if degrees.pp > 1 and local and micro:
        steps = None if steps is None else steps * (local // micro)
        local = micro
    return Batch(local, max(steps, 1) if steps is not None else None, total)


def _data_ranks(degrees: Degrees) -> int | None:
    replicate, shard = degrees.replicate, degrees.shard
    return replicate * shard if isinstance(replicate, int) and isinstance(shard, int) else None


def _pipeline_micro(keys: Keys, pp: int, local: int | None) -> int | None:
    """Samples of a pipeline's micro-batch; older files give the number of micro-batches."""
    number = keys.integer("microbatches", None, least=-1)
    if number is not None and number > 0:
        return max((local or 0) // number, 1) if local else None
    if number is not None or not keys.newer():
        return max((local or 0) // pp, 1) if local else None
    return keys.integer("microbatch_size", 1)


def _record(titan: Titan, notes: Notes) -> None:
    keys, degrees = titan.keys, titan.degrees
    notes.add("schema", keys.schema(), "derived")
    for name, value in (("tp", degrees.tp), ("pp", degrees.pp), ("cp", degrees.cp)):
        keys.take(name, value, name, notes)
    keys.take("ep", degrees.ep, "ep", notes, "borrowed from dp_shard * cp * tp")
    keys.take("etp", titan.etp, "etp", notes)
    keys.take("dp_replicate", _plain(degrees.replicate), "dp_replicate", notes)
    literal = (keys.integer("dp_shard", -1, least=-1) or -1) > 0
    if literal:
        keys.take("dp_shard", _plain(degrees.shard), "dp_shard", notes)
    else:
        left = degrees.shard
        unknown = f"{degrees.ep} * {RANKS}" if left == RANKS and degrees.ep > 1 else left
        add_degree("dp_shard", unknown, keys.place("dp_shard"), notes, "-1: the ranks left")
    notes.add("zero_stage", 3 if titan.sharded else 0, "derived")
    keys.take("seq_len", titan.sequence, "seq_len", notes, "tokens")
    _record_batch(titan, notes)


def _plain(size: Dim) -> int | None:
    return size if isinstance(size, int) else None


def _record_batch(titan: Titan, notes: Notes) -> None:
    keys, batch = titan.keys, titan.batch
    name = "tokens" if "tokens" in keys else "local_batch"
    cut = "cut into pipeline micro-batches" if titan.degrees.pp > 1 else ""
    keys.take("micro_batch", batch.micro_batch, name, notes, cut)
    known = batch.accumulation is not None
    notes.add("accumulation", batch.accumulation, "derived" if known else "unknown")
    written = (keys.integer("global_batch", -1, least=-1) or -1) > 0
    if written:
        keys.take("global_batch", batch.global_batch, "global_batch", notes)
    else:
        total = batch.global_batch
        notes.add("global_batch", total, "derived" if total else "unknown")


def _parts(titan: Titan, notes: Notes) -> list[Strategy]:
    degrees, keys = titan.degrees, titan.keys
    reshard = _reshard(titan, notes)
    if degrees.tp > 1:
        keys.take("sequence_parallel", degrees.sequence, "sequence_parallel", notes)
        if degrees.ep > 1 and titan.etp == 1:
            notes.assume(
                "experts are not split over tensor ranks (expert tensor degree 1); the "
                "composition's tensor() splits them too"
            )
    if titan.sharded:
        own = sharded_parts(degrees, notes, reshard=reshard)
    else:
        own = [strategies.data(dp=degrees.replicate)] if degrees.replicate != 1 else []
        own += other_parts(replace(degrees, ep=1))
    return [*own, *_pipe(titan, notes).parts()]


def _reshard(titan: Titan, notes: Notes) -> bool:
    """``default`` keeps parameters gathered under a pipeline, and reshards without one."""
    keys = titan.keys
    word = keys.word("reshard", "default").lower()
    if word not in ("default", "always", "never"):
        section, key = keys.find("reshard")
        section.refuse(key, f"it is default, always or never ({CONFIG})", 'write "default"')
    reshard = word == "always" or (word == "default" and titan.degrees.pp == 1)
    keys.take("reshard_after_forward", reshard, "reshard", notes, word)
    return reshard


def _pipe(titan: Titan, notes: Notes) -> Pipe:
    keys, pp = titan.keys, titan.degrees.pp
    word = keys.word("schedule", "1F1B")
    micro: Dim = titan.batch.accumulation or "M"
    if pp > 1:
        keys.take("pp_schedule", word, "schedule", notes)
        notes.add(
            "chunks", titan.chunks, "derived", keys.place("layers_per_stage"), "stages on a rank"
        )
    if pp > 1 and word.lower() not in ("1f1b", "gpipe", "interleaved1f1b"):
        notes.assume(f"the schedule {word[:40]} is taken as 1F1B over {titan.chunks} chunks")
    return Pipe(pp, micro, "gpipe" if word.lower() == "gpipe" else "1f1b", titan.chunks)


def _extras(titan: Titan, notes: Notes) -> list[Strategy]:
    keys, parts = titan.keys, list[Strategy]()
    offload = keys.flag("offload") and titan.sharded
    keys.take("offload_param", "host" if offload else "none", "offload", notes)
    if offload:
        parts.append(strategies.offload("parameters", "gradients", "optimizer"))
    mode = keys.word("recompute", "selective" if titan.keys.schema() != "unknown" else "none")
    keys.take("recompute", mode, "recompute", notes, keys.word("recompute_option", ""))
    if mode in ("selective", "memory_budget"):
        notes.assume(
            f"activation_checkpoint mode {mode} chooses layers or operations; the composition "
            "recomputes the attention core"
        )
    if mode.lower() != "none":
        parts.append(strategies.recompute("full" if mode == "full" else "selective"))
    if keys.flag("fault_tolerance"):
        notes.assume(
            "torchft's replica groups are outside the world; their synchronisation is "
            "not in the composition"
        )
    return parts


def _dtypes(keys: Keys, titan: Titan, notes: Notes) -> Dtypes:
    compute = _format(keys, "param_dtype", "bfloat16")
    reduction = _format(keys, "reduce_dtype", "float32")
    master = _format(keys, "master_dtype", "float32")
    keys.take("compute_dtype", compute, "param_dtype", notes)
    if not titan.sharded:
        reduction = master
    return Dtypes(compute, master, master, reduction)


def _format(keys: Keys, name: str, default: str) -> str:
    word = keys.word(name, default)
    return _FORMATS.get(word, word)
