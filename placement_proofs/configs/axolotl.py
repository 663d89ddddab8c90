"""axolotl's YAML as a composition (axolotl-ai-cloud/axolotl: ``src/axolotl/utils/``).

Degrees are taken from the world in a fixed order: experts, tensor, context, replicas, shards; what
is left over goes to the replicas or to the shards. Experts' ranks are an axis of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.axolotl_mesh import KEYS, Fsdp, context_key, degrees_of, fsdp_of
from placement_proofs.configs.document import Block, Section, words
from placement_proofs.configs.mesh_parts import (
    Degrees,
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
from placement_proofs.configs.trainer_deepspeed import Trainer, included_engine
from placement_proofs.mesh import Dim
from placement_proofs.model import Model

_MARKS = words(
    "datasets pretraining_dataset micro_batch_size sequence_len adapter num_epochs fsdp "
    "fsdp_config plugins chat_template sample_packing load_in_4bit load_in_8bit rl"
)


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
    fsdp = fsdp_of(root)
    degrees, size = degrees_of(root, fsdp.on, world)
    return Run(path.parent, root, size, degrees, fsdp, _batch(root, degrees), model)


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
    notes.take("ep", degrees.ep, root, KEYS["ep"], "an axis of its own")
    notes.take("tp", degrees.tp, root, KEYS["tp"])
    notes.take("cp", degrees.cp, root, context_key(root))
    for name, size in (("dp_replicate", degrees.replicate), ("dp_shard", degrees.shard)):
        written = root.integer(KEYS[name], least=1)
        if written is not None and written == size:
            notes.take(name, written, root, KEYS[name])
        else:
            place = root.place(KEYS[name]) if KEYS[name] in root else ""
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
    if value in (None, "auto"):
        return None
    return value == "full" or bool(root.flag(key))


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
    return Dtypes(compute, "fp32", "fp32", compute if run.fsdp.on else "fp32", copies=False)
