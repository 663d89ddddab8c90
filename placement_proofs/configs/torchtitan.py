"""torchtitan's TOML as a composition (pytorch/torchtitan: ``torchtitan/config/job_config.py``).

Six schemas of TOML, their YAML twin, and the Python registry that replaced them (read as text).
Experts' ranks are borrowed from the data ranks; ``-1`` shards over the ranks that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.document import Block, Section
from placement_proofs.configs.mesh_parts import (
    Degrees,
    Pipe,
    Result,
    add_degree,
    given_world,
    imported,
    other_parts,
    repeated_keys,
    sharded_parts,
)
from placement_proofs.configs.notes import RANKS, Notes, World
from placement_proofs.configs.record import Batch, Dtypes, Imported
from placement_proofs.configs.shape_rules import dims_of
from placement_proofs.configs.toml_text import read_toml
from placement_proofs.configs.torchtitan_keys import CONFIG, DEGREES, Keys
from placement_proofs.configs.torchtitan_mesh import batch_of, chunks_of, degrees_of, local_of
from placement_proofs.configs.torchtitan_primus import VARIABLES, unwrapped
from placement_proofs.configs.yaml_text import read_yaml
from placement_proofs.mesh import Dim
from placement_proofs.model import Model

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
    return unwrapped(read_yaml(path)) if suffix in (".yaml", ".yml") else read_toml(path)


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
    variables = root.raw(VARIABLES)
    if isinstance(variables, tuple) and variables:
        named = ", ".join(str(name) for name in variables[:8])
        notes.assume(f"defaults are taken where the environment may say otherwise: {named}")


def _titan(keys: Keys, world: int | None, model: Model | None, notes: Notes) -> Titan:
    degrees, size = degrees_of(keys, given_world(world))
    notes.world(size, keys.root.file)
    sequence = keys.integer("seq_len", 2048) or 2048
    dims = dims_of(model, sequence)
    local = local_of(keys, sequence, notes)
    chunks = chunks_of(keys, degrees.pp, dims, notes)
    batch = batch_of(keys, degrees, local)
    etp = keys.integer("etp", 1) or 1
    return Titan(keys, size, degrees, etp, chunks, batch, local, sequence, dims)


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
    return Dtypes(compute, master, master, reduction, copies=False)


def _format(keys: Keys, name: str, default: str) -> str:
    word = keys.word(name, default)
    return _FORMATS.get(word, word)
