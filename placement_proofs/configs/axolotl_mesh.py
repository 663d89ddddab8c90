"""axolotl's degrees: experts, tensor, context, replicas, shards, in its order, and FSDP's keys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from placement_proofs.configs.document import Section
from placement_proofs.configs.mesh_parts import Degrees, named_product
from placement_proofs.configs.notes import RANKS, World
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim

DISTRIBUTED = "src/axolotl/utils/distributed.py (_get_parallel_config_kwargs)"
KEYS = {
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


def fsdp_of(root: Section) -> Fsdp:
    """The FSDP settings of a file."""
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


def degrees_of(root: Section, fsdp: bool, world: World) -> tuple[Degrees, World]:
    """The degrees, and the world where they say it.

    Raises:
        IllFormed: they do not fit the world.
    """
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
    return old if old in root and KEYS["cp"] not in root else KEYS["cp"]


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
        key = next((k for n, k in KEYS.items() if sizes.get(n, 1) > 1), "tensor_parallel_size")
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
