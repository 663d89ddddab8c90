"""axolotl's YAML as a composition (axolotl-ai-cloud/axolotl: ``src/axolotl/utils/``).

Degrees are taken from the world in a fixed order: experts, tensor, context, replicas, shards; what
is left over goes to the replicas or to the shards. Experts' ranks are an axis of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.configs.document import Block, Section, words
from placement_proofs.configs.mesh_parts import (
    Degrees,
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
from placement_proofs.configs.trainer_deepspeed import Trainer, included_engine
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim
from placement_proofs.model import Model
from placement_proofs.strategies import Strategy

DISTRIBUTED = "src/axolotl/utils/distributed.py (_get_parallel_config_kwargs)"
_MARKS = words(
    "datasets pretraining_dataset micro_batch_size sequence_len adapter num_epochs fsdp "
    "fsdp_config plugins chat_template sample_packing load_in_4bit load_in_8bit rl"
)
_KEYS = {
    "ep": "expert_parallel_size",
    "tp": "tensor_parallel_size",
    "cp": "context_parallel_size",
    "dp_replicate": "dp_replicate_size",
    "dp_shard": "dp_shard_size",
}
_STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")


@dataclass(frozen=True)
class Fsdp:
    """The FSDP settings, of either style; prefixes ``fsdp_`` are dropped by axolotl."""

    root: Section
    block: Section
    on: bool
    version: int
    strategy: str

    def key(self, name: str) -> str:
        return f"fsdp_{name}" if f"fsdp_{name}" in self.block else name

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.block.flag(self.key(name), default))

    def place(self, name: str) -> str:
        return self.block.place(self.key(name))

    @property
    def reshard(self) -> bool:
        if self.version == 1:
            return self.strategy not in ("shard_grad_op", "hybrid_shard_zero2")
        return self.flag("reshard_after_forward", True)


@dataclass(frozen=True)
class Run:
    """An axolotl run: its file, degrees in ranks, FSDP settings, and batch."""

    directory: Path
    root: Section
    world: World
    degrees: Degrees
    fsdp: Fsdp
    batch: Batch
    model: Model | None

    @property
    def deepspeed(self) -> bool:
        return "deepspeed" in self.root


def claims(block: Block) -> bool:
    """Whether a file's top-level keys are axolotl's."""
    return "base_model" in block.items and bool(_MARKS & block.items.keys())


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import an axolotl file that was read.

    Raises:
        IllFormed: a value without meaning, or degrees that do not fit the world.
    """
    from placement_proofs.configs.axolotl_rules import check

    notes = Notes("axolotl")
    repeated_keys(path.name, block, notes, "src/axolotl/cli/config.py (yaml.safe_load)")
    run = _run(path, Section(path.name, block), given_world(world), model)
    notes.world(run.world, path.name)
    _record(run, notes)
    result = _result(run, notes)
    check(run, notes)
    return imported("axolotl", path, result, notes)


def _run(path: Path, root: Section, world: World, model: Model | None) -> Run:
    fsdp = _fsdp(root)
    degrees, size = _degrees(root, fsdp.on, world)
    return Run(path.parent, root, size, degrees, fsdp, _batch(root, degrees), model)


def _fsdp(root: Section) -> Fsdp:
    listed = root.raw("fsdp")
    names = listed if isinstance(listed, tuple) else (listed,) if isinstance(listed, str) else ()
    block = root.section("fsdp_config")
    own = root.integer("fsdp_version", least=1)
    version = own or block.integer("fsdp_version", 1, least=1) or 1
    if version > 2:
        root.refuse("fsdp_version", "a version is 1 or 2", "write fsdp_version: 2")
    chosen = [str(name).lower() for name in names if str(name).lower() in _STRATEGIES]
    key = "fsdp_sharding_strategy" if "fsdp_sharding_strategy" in block else "sharding_strategy"
    word = (block.word(key) or "").lower() if version == 1 else ""
    if word and word not in _STRATEGIES:
        block.refuse(key, f"a strategy is one of {', '.join(_STRATEGIES)}", "write FULL_SHARD")
    strategy = word or (chosen[0] if chosen else "full_shard")
    return Fsdp(root, block, bool(names) or any(k in block for k in block), version, strategy)


def _degrees(root: Section, fsdp: bool, world: World) -> tuple[Degrees, World]:
    cp_key = context_key(root)
    ep = root.integer("expert_parallel_size", 1, least=1) or 1
    tp = root.integer("tensor_parallel_size", 1, least=1) or 1
    cp = root.integer(cp_key, 1, least=1) or 1
    shard = root.integer("dp_shard_size", least=1)
    replicate = root.integer("dp_replicate_size", 1, least=1) or 1
    sizes = {"ep": ep, "tp": tp, "cp": cp}
    data, size = _data(root, sizes, (replicate, shard), fsdp, world)
    degrees = Degrees(
        replicate=data[0],
        shard=data[1],
        cp=cp,
        ep=ep,
        tp=tp,
        cp_method="ring",
        vocabulary=False,
        over_experts=False,
    )
    return degrees, size


def context_key(root: Section) -> str:
    """The key of the context degree; ``sequence_parallel_degree`` is its old name."""
    old = "sequence_parallel_degree"
    return old if old in root and _KEYS["cp"] not in root else _KEYS["cp"]


def _data(
    root: Section,
    sizes: dict[str, int],
    written: tuple[int, int | None],
    fsdp: bool,
    world: World,
) -> tuple[tuple[Dim, Dim], World]:
    """Replicas and shards: of an unknown world only where both are written."""
    replicate, shard = written
    if world.size is not None:
        left = _remaining(root, sizes, world.size)
        return _shared_out(root, left, replicate, shard, fsdp, sizes | {"world": world.size}), world
    if replicate > 1 and shard is not None and (shard > 1 or not fsdp):
        product = math.prod(sizes.values()) * replicate * shard
        return (replicate, shard), World(product, "", "derived")
    if shard is not None and shard > 1:
        return (RANKS, shard), world
    return (replicate, RANKS), world


def _remaining(root: Section, sizes: dict[str, int], world: int) -> int:
    product = math.prod(sizes.values())
    if world % product:
        key = next((k for n, k in _KEYS.items() if sizes.get(n, 1) > 1), "tensor_parallel_size")
        raise IllFormed(
            root.place(key),
            f"{named_product(sizes)} on a world of {world}: {world} / {product} = "
            f"{world / product:.6g}",
            f"the degrees divide the number of ranks ({DISTRIBUTED})",
            f"use a world that is a multiple of {product}, or other degrees",
        )
    return world // product


def _shared_out(
    root: Section,
    left: int,
    replicate: int,
    shard: int | None,
    fsdp: bool,
    sizes: dict[str, int],
) -> tuple[Dim, Dim]:
    """axolotl's order: all to the shards if nothing is written; replicas, shards, leftovers."""
    if shard is None and replicate == 1:
        return 1, left
    rest = left // replicate
    if shard is not None and shard > 1 and rest > 1:
        over = rest // shard
        if over > 1 and replicate == 1:
            replicate, over = over, 1
        shares, rest = shard, over
    else:
        shares, rest = (rest, 1) if fsdp else (1, rest)
    if rest > 1 or replicate * shares != left:
        raise _uneven(root, left, replicate, shard, sizes)
    return replicate, shares


def _uneven(
    root: Section, left: int, replicate: int, shard: int | None, sizes: dict[str, int]
) -> IllFormed:
    key = "dp_shard_size" if "dp_shard_size" in root else "dp_replicate_size"
    others = {name: size for name, size in sizes.items() if name != "world"}
    return IllFormed(
        root.place(key),
        f"dp_replicate {replicate} * dp_shard {shard or 1} for {left} data-parallel ranks (world "
        f"{sizes['world']} without {named_product(others)})",
        f"the degrees multiply to the number of ranks ({DISTRIBUTED})",
        "correct dp_shard_size, dp_replicate_size, or the world",
    )


def _batch(root: Section, degrees: Degrees) -> Batch:
    micro = root.integer("micro_batch_size", least=1)
    steps = root.integer("gradient_accumulation_steps", least=1)
    whole = root.integer("batch_size", least=1)
    if steps is None:
        steps = max(whole // micro, 1) if whole and micro else (None if whole else 1)
    sizes = (degrees.replicate, degrees.shard, degrees.ep)
    known = [size for size in sizes if isinstance(size, int)]
    total = micro * steps * math.prod(known) if micro and steps and len(known) == 3 else None
    return Batch(micro, steps, total)


def _record(run: Run, notes: Notes) -> None:
    root, degrees = run.root, run.degrees
    notes.take("ep", degrees.ep, root, _KEYS["ep"], "an axis of its own")
    notes.take("tp", degrees.tp, root, _KEYS["tp"])
    notes.take("cp", degrees.cp, root, context_key(root))
    for name, size in (("dp_replicate", degrees.replicate), ("dp_shard", degrees.shard)):
        written = root.integer(_KEYS[name], least=1)
        if written is not None and written == size:
            notes.take(name, written, root, _KEYS[name])
        else:
            place = root.place(_KEYS[name]) if _KEYS[name] in root else ""
            note = f"{written} is written; the ranks left are added" if written else ""
            add_degree(name, size, place, notes, note)
    notes.take("micro_batch", run.batch.micro_batch, root, "micro_batch_size", "samples")
    key = "gradient_accumulation_steps"
    notes.take("accumulation", run.batch.accumulation, root, key)
    total = run.batch.global_batch
    notes.add("global_batch", total, "derived" if total else "unknown")
    notes.take("seq_len", root.integer("sequence_len", 512, least=1), root, "sequence_len")


def _result(run: Run, notes: Notes) -> Result:
    if "adapter" in run.root:
        notes.assume(
            f"adapter {str(run.root.raw('adapter'))[:20]}: only the adapter's weights are trained; "
            "the composition trains every weight"
        )
    if run.deepspeed:
        result = _deepspeed(run, notes)
        if result is not None:
            return result
    fields = {} if run.deepspeed else _sharding(run, notes)
    parts = _own_parts(run, notes, stage=fields.get("stage", 0))
    steps = run.batch.accumulation
    parts += [strategies.accumulate(micro=steps or "M")] if steps != 1 else []
    return Result([*parts, *_states(run, notes)], run.world, run.batch, _dtypes(run, notes))


def _deepspeed(run: Run, notes: Notes) -> Result | None:
    root, cp = run.root, run.degrees.cp
    trainer = Trainer(
        run.directory,
        root,
        "deepspeed",
        run.batch.micro_batch,
        run.batch.accumulation,
        _wanted(root, "bf16"),
        _wanted(root, "fp16"),
        run.degrees.tp,
    )
    size = run.world.size
    inner = World(size // cp if size else None, run.world.place, run.world.provenance)
    engine = included_engine(trainer, inner, notes, run.model)
    if engine is None:
        return None
    parts = list(engine.strategies)
    if cp > 1:
        parts.append(strategies.context(cp=cp, method="ring"))
        notes.assume(
            "ZeRO shards over the data ranks; the composition leaves the context ranks out"
        )
    recompute = _recompute(run, notes)
    return Result([*parts, *recompute], run.world, engine.batch, engine.dtypes)


def _sharding(run: Run, notes: Notes) -> dict[str, int]:
    """The ZeRO stage that FSDP comes to."""
    fsdp = run.fsdp
    stage = 0
    if fsdp.on and fsdp.strategy != "no_shard":
        stage = 3 if fsdp.reshard else 2
    if fsdp.on:
        notes.add("fsdp_version", fsdp.version, "derived", run.root.place("fsdp_version"))
        note = fsdp.strategy if fsdp.version == 1 else "reshard_after_forward decides"
        notes.add("zero_stage", stage, "derived", run.root.place("fsdp_config"), note)
    else:
        notes.add("zero_stage", 0, "derived", "", "neither fsdp nor deepspeed is given")
    return {"stage": stage}


def _own_parts(run: Run, notes: Notes, stage: int) -> list[Strategy]:
    degrees = run.degrees
    if degrees.tp > 1:
        notes.assume("the model's tensor-parallel plan shards its blocks' linear layers")
    if degrees.ep > 1:
        notes.assume(
            "dense layers are sharded over data and context ranks, and copied over the "
            "experts' ranks"
        )
    if stage == 0:
        ranks = _product(degrees.replicate, degrees.shard)
        return [strategies.data(dp=ranks), *other_parts(degrees)]
    if run.fsdp.version == 1 and run.fsdp.strategy.startswith("hybrid") and degrees.replicate == 1:
        notes.assume("hybrid groups: sharded inside a machine, whose number of ranks is unknown")
        hybrid = strategies.hsdp(
            dp_replicate="machines", dp_shard=RANKS, reshard_after_forward=run.fsdp.reshard
        )
        return [hybrid, *other_parts(degrees)]
    return sharded_parts(degrees, notes, reshard=run.fsdp.reshard)


def _product(first: Dim, second: Dim) -> Dim:
    if isinstance(first, int) and isinstance(second, int):
        return first * second
    return RANKS


def _states(run: Run, notes: Notes) -> list[Strategy]:
    parts: list[Strategy] = []
    offload = run.fsdp.on and run.fsdp.flag("offload_params")
    if not run.deepspeed:
        place = run.fsdp.place("offload_params") if run.fsdp.on else ""
        notes.add("offload_param", "host" if offload else "none", "derived", place)
    if offload:
        parts.append(strategies.offload("parameters", "gradients", "optimizer"))
    return [*parts, *_recompute(run, notes)]


def _recompute(run: Run, notes: Notes) -> list[Strategy]:
    root, fsdp = run.root, run.fsdp
    by_trainer = root.raw("gradient_checkpointing") not in (None, False)
    by_fsdp = fsdp.on and fsdp.flag("activation_checkpointing")
    on = by_trainer or by_fsdp
    place = root.place("gradient_checkpointing") if by_trainer or not by_fsdp else ""
    place = place or fsdp.place("activation_checkpointing")
    notes.add("recompute", "full" if on else "none", "literal" if on else "default", place)
    away = root.raw("activation_offloading") not in (None, False)
    notes.take("offload_activations", "host" if away else "none", root, "activation_offloading")
    parts = [strategies.recompute("full")] if on else []
    if away and on:
        notes.assume("saved activations are moved to the host; the composition keeps them")
    return parts


def _wanted(root: Section, key: str) -> bool | None:
    value = root.raw(key)
    return None if value in (None, "auto") else bool(root.flag(key))


def _dtypes(run: Run, notes: Notes) -> Dtypes:
    root = run.root
    bf16 = _wanted(root, "bf16") or _wanted(root, "bfloat16")
    fp16 = _wanted(root, "fp16") or _wanted(root, "float16")
    if root.is_auto("bf16"):
        place = root.place("bf16")
        notes.add("compute_dtype", None, "cli or environment", place, "auto: bf16 if the GPU can")
        return Dtypes()
    compute = "bf16" if bf16 else "fp16" if fp16 else "fp32"
    notes.add("compute_dtype", compute, "literal" if bf16 or fp16 else "default")
    return Dtypes(compute, "fp32", "fp32", compute if run.fsdp.on else "fp32")
