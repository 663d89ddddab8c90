"""torchtitan's degrees, leftovers, stages and batch, from the keys of any of its schemas."""

from __future__ import annotations

import math

from placement_proofs.configs.mesh_parts import Degrees, named_product
from placement_proofs.configs.notes import RANKS, Notes, World
from placement_proofs.configs.record import Batch
from placement_proofs.configs.torchtitan_keys import LOOPED, Keys
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim

_DIMS = "torchtitan/distributed/parallel_dims.py (_validate)"


def degrees_of(keys: Keys, world: World) -> tuple[Degrees, World]:
    """The degrees in ranks, and the world where they say it.

    Raises:
        IllFormed: they do not multiply to the world.
    """
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


def local_of(keys: Keys, sequence: int, notes: Notes) -> int | None:
    """Samples of a data-parallel rank in one forward pass; newer files give tokens."""
    tokens = keys.integer("tokens")
    if tokens is None:
        return keys.integer("local_batch", 8)
    keys.take("tokens_per_microbatch_per_dp_rank", tokens, "tokens", notes, "tokens")
    return tokens // sequence if tokens % sequence == 0 else None


def chunks_of(keys: Keys, pp: int, dims: dict[str, int], notes: Notes) -> int:
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


def batch_of(keys: Keys, degrees: Degrees, local: int | None) -> Batch:
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
