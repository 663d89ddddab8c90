"""NeMo-RL's other backend: ``policy.dtensor_cfg``, FSDP2 over the ranks that are left."""

from __future__ import annotations

from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy, compose
from placement_proofs.configs.document import Block, Item, Section, Value
from placement_proofs.configs.interpolation import resolve
from placement_proofs.configs.megatron_job import whole
from placement_proofs.configs.notes import MICRO, RANKS, Notes, World, data_ranks
from placement_proofs.configs.record import Batch, Dtypes, Imported
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim

_KEYS = {
    "tp": "tensor_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_parallel_size",
    "dp_replicate": "dp_replicate_size",
}


def chosen(block: Block) -> bool:
    """Whether the file trains with ``dtensor_cfg``: it is there and not switched off."""
    policy = block.items["policy"].value
    assert isinstance(policy, Block)
    return _on(policy, "dtensor_cfg") and not (_on(policy, "megatron_cfg", explicit=True))


def _on(policy: Block, key: str, explicit: bool = False) -> bool:
    item = policy.items.get(key)
    if item is None or not isinstance(item.value, Block):
        return False
    enabled: Value = item.value.items.get("enabled", Item(None, 1)).value
    return enabled is True if explicit else enabled is not False


def describe(path: Path, block: Block, world: World, notes: Notes) -> Imported:
    """Import the FSDP2 backend.

    Raises:
        IllFormed: a value without meaning, or degrees that do not divide the world (ranks).
    """
    policy = Section(path.name, _resolved(block, block, ())).section("policy")
    section = policy.section("dtensor_cfg")
    sizes = {name: section.integer(key, 1, least=1) or 1 for name, key in _KEYS.items()}
    for name, key in _KEYS.items():
        note = "" if key in section else "taken as 1; the file in defaults may set it"
        notes.take(name, sizes[name], section, key, note)
    notes.assume("degrees that dtensor_cfg does not give are taken as 1")
    inner = {name: sizes[name] for name in ("tp", "cp", "dp_replicate")}
    shard = data_ranks(world, inner, section.place())
    notes.add("dp_shard", shard, "unknown" if shard == RANKS else "derived", "", "FSDP2")
    notes.add("zero_stage", 3, "default", "", "FSDP2 reshards after the forward pass")
    parts = [*_data(shard, sizes, section, notes), *_others(section, sizes)]
    batch = _batch(policy, shard, sizes, notes)
    steps: Dim = batch.accumulation or MICRO
    parts += [strategies.accumulate(micro=steps)] if steps != 1 else []
    return Imported(
        "nemo",
        str(path),
        compose(*parts, *_memory(section, notes)),
        world.size,
        tuple(notes.fields),
        tuple(notes.findings),
        batch,
        Dtypes(policy.word("precision")),
        tuple(notes.assumptions),
    )


def _resolved(block: Block, root: Block, path: tuple[str, ...]) -> Block:
    """The policy with what the file itself fills in."""
    items: dict[str, Item] = {}
    for key, item in block.items.items():
        inside = (*path, key)
        deeper = inside in (("policy",), ("policy", "dtensor_cfg"))
        if deeper and isinstance(item.value, Block):
            items[key] = Item(_resolved(item.value, root, inside), item.line)
        else:
            items[key] = Item(resolve(item.value, root, inside).value, item.line)
    return Block(block.line, items, block.repeated)


def _data(shard: Dim, sizes: dict[str, int], section: Section, notes: Notes) -> list[Strategy]:
    """FSDP over data and context ranks; the expert axis is a part of them."""
    ep = sizes["ep"]
    if ep > 1 and isinstance(shard, int) and shard * sizes["cp"] % ep:
        raise IllFormed(
            section.place(_KEYS["ep"]),
            f"ep={ep} on {shard} * cp {sizes['cp']} = {shard * sizes['cp']} ranks that shard",
            "the expert degree divides the ranks over which FSDP2 shards",
            f"use a divisor of {shard * sizes['cp']}",
        )
    apart = ep > 1 and (not isinstance(shard, int) or shard % ep == 0)
    dp: Dim = shard // ep if apart and isinstance(shard, int) else shard
    over = ("dp", "cp") if sizes["cp"] > 1 else None
    parts: list[Strategy] = []
    if sizes["dp_replicate"] > 1 and over is None:
        parts.append(strategies.hsdp(dp_replicate=sizes["dp_replicate"], dp_shard=dp))
    else:
        if sizes["dp_replicate"] > 1:
            parts.append(strategies.place(dp_replicate=sizes["dp_replicate"], batch="S(0)"))
        parts.append(strategies.fsdp(dp=dp, shard_over=over))
    if apart:
        parts.append(strategies.expert(ep=ep))
        notes.assume(
            "states of dense layers are sharded over all ranks of FSDP2; the composition shards "
            "them over dp without the expert axis, which needs more memory"
        )
    return parts


def _others(section: Section, sizes: dict[str, int]) -> list[Strategy]:
    sequence = bool(section.flag("sequence_parallel"))
    parts = [strategies.tensor(tp=sizes["tp"], sequence=sequence)] if sizes["tp"] > 1 else []
    return parts + ([strategies.context(cp=sizes["cp"], method="ring")] if sizes["cp"] > 1 else [])


def _memory(section: Section, notes: Notes) -> list[Strategy]:
    """Recomputation and offload."""
    again = bool(section.flag("activation_checkpointing"))
    notes.take("recompute", "full" if again else "none", section, "activation_checkpointing")
    away = bool(section.flag("cpu_offload"))
    notes.take("offload_param", "host" if away else "none", section, "cpu_offload")
    parts = [strategies.recompute("full")] if again else []
    states = ("parameters", "gradients", "optimizer")
    return parts + ([strategies.offload(*states)] if away else [])


def _batch(policy: Section, shard: Dim, sizes: dict[str, int], notes: Notes) -> Batch:
    micro = whole(policy, "train_micro_batch_size")
    total = whole(policy, "train_global_batch_size")
    notes.take("micro_batch", micro, policy, "train_micro_batch_size")
    notes.take("global_batch", total, policy, "train_global_batch_size")
    steps = None
    if micro and total and isinstance(shard, int):
        step = micro * shard * sizes["dp_replicate"]
        steps = total // step or None
        if total % step:
            notes.find(
                "rejected",
                "batch triple",
                policy.place("train_global_batch_size"),
                f"global batch {total} is not a multiple of micro {micro} * "
                f"{shard * sizes['dp_replicate']} data-parallel ranks",
                f"write a multiple of {step}",
                "nemo_rl/models/policy (batch sizes)",
            )
    notes.add("accumulation", steps, "derived" if steps else "unknown")
    return Batch(micro, steps, total)
