"""NVIDIA NeMo, Megatron-Bridge, NeMo-RL and AMD Primus: YAML with Megatron's words.

NeMo counts virtual pipeline stages in chunks. Bridge, NeMo-RL and Primus files are overrides: a
degree that is absent has the value of a recipe or of the file in ``defaults``, which is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from placement_proofs.configs import nemo_dtensor
from placement_proofs.configs.document import Block, Item, Section, Value
from placement_proofs.configs.interpolation import resolve
from placement_proofs.configs.megatron import imported, replaced
from placement_proofs.configs.megatron_job import Dialect
from placement_proofs.configs.mesh_parts import repeated_keys
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.overrides import RENAMED
from placement_proofs.configs.record import Imported, Kind
from placement_proofs.model import Model

_DEGREE = "tensor_model_parallel_size"
_NEMO = Dialect("nemo", "NeMo")
_BRIDGE = Dialect("nemo", "Megatron-Bridge", partial=True)
_RL = Dialect("nemo", "NeMo-RL", partial=True, expert_tp=1)
_PRIMUS = Dialect("nemo", "Primus", partial=True)


@dataclass(frozen=True)
class Layout:
    """Where a member of the family keeps its keys; a later block replaces an earlier one."""

    dialect: Dialect
    blocks: tuple[str, ...]
    machines: tuple[str, str] = ("", "")


_LAYOUTS: Mapping[str, Layout] = {
    "nemo": Layout(
        _NEMO,
        ("trainer.strategy", "trainer.plugins", "data", "model.config", "model", "model.optim"),
        ("trainer.devices", "trainer.num_nodes"),
    ),
    "bridge": Layout(
        _BRIDGE, ("optimizer", "comm_overlap", "dataset", "train", "ddp", "dist", "model")
    ),
    "rl": Layout(
        _RL, ("policy", "policy.megatron_cfg"), ("cluster.gpus_per_node", "cluster.num_nodes")
    ),
    "primus": Layout(_PRIMUS, ("modules.pre_trainer.overrides",)),
}
_SHARDED = ("distributed_fused_adam", "mcore_distributed_optim")
_TRAINING = ("micro_batch_size", "global_batch_size", _DEGREE, "num_layers")


def claims(block: Block) -> bool:
    """Whether a file is of one of the family."""
    return _kind(block) is not None


def _kind(block: Block) -> str | None:
    top = block.items
    policy = _at(block, "policy")
    if isinstance(policy, Block) and {"megatron_cfg", "dtensor_cfg"} & policy.items.keys():
        return "rl"
    if isinstance(_at(block, "modules.pre_trainer"), Block):
        return "primus"
    model, strategy = _at(block, "model"), _at(block, "trainer.strategy")
    words = {*_keys(model), *_keys(strategy)}
    if "trainer" in top and words & set(_TRAINING):
        return "nemo"
    bridge = {"train", "ddp", "dist", "scheduler", "checkpoint"} & top.keys()
    megatron = {"micro_batch_size", "global_batch_size"} & _keys(_at(block, "train"))
    if isinstance(model, Block) and bridge and (megatron or _DEGREE in words):
        return "bridge"
    return None


def _keys(value: Value) -> set[str]:
    return set(value.items) if isinstance(value, Block) else set()


def _at(block: Block, path: str) -> Value:
    value: Value = block
    for key in path.split("."):
        item = value.items.get(key) if isinstance(value, Block) else None
        value = item.value if item else None
    return value


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import a file that was read.

    Raises:
        IllFormed: a value without meaning, or degrees that do not divide the world (ranks).
    """
    layout = _LAYOUTS[_kind(block) or "nemo"]
    notes = Notes(layout.dialect.name)
    kind: Kind = "ignored" if layout.dialect is _PRIMUS else "rejected"
    repeated_keys(path.name, block, notes, "omry/omegaconf: omegaconf/_utils.py (loader)", kind)
    found = _world(Section(path.name, block), layout, world, notes)
    notes.world(found, path.name)
    _inherited(Section(path.name, block), notes)
    if layout.dialect is _RL and nemo_dtensor.chosen(block):
        return nemo_dtensor.describe(path, block, found, notes)
    section = Section(path.name, _moved(block, layout))
    return imported(path, section, layout.dialect, found, notes, model)


def _world(section: Section, layout: Layout, world: int | None, notes: Notes) -> World:
    """The argument, else devices times machines where both are given."""
    found = _written(section, layout)
    if world is None:
        return found
    replaced(world, found.size, notes)
    return World(world, "", "cli or environment")


def _written(section: Section, layout: Layout) -> World:
    sizes: list[int] = []
    place = ""
    for path in filter(None, layout.machines):
        name, _, key = path.partition(".")
        block = section.section(name)
        value = block.raw(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            return World(None, block.place(key) if key in block else "")
        sizes.append(value)
        place = block.place(key)
    return World(sizes[0] * sizes[1], place, "literal") if sizes else World(None)


def _inherited(section: Section, notes: Notes) -> None:
    for key in ("defaults", "extends"):
        if key in section:
            value = section.raw(key)
            named = value if isinstance(value, str) else "other files"
            notes.assume(f"{section.place(key)}: {named[:80]} is not read; its keys are unknown")


def _moved(block: Block, layout: Layout) -> Block:
    """The family's keys under Megatron's words."""
    items: dict[str, Item] = {}
    defaults: dict[str, Item] = {}
    for path in layout.blocks:
        inner = _at(block, path)
        for key, item in inner.items.items() if isinstance(inner, Block) else ():
            name = RENAMED.get(key, key)
            if item.value is None or (name in items and key != name):
                continue
            found = resolve(item.value, block, (*path.split("."), key))
            items[name] = Item(found.value, item.line, f"{path}.{key}")
            if found.variable:
                defaults[name] = Item(found.variable, item.line)
    items |= dict(_derived(block, items))
    items["@default"] = Item(Block(block.line, defaults), block.line)
    return Block(block.line, items)


def _derived(block: Block, items: Mapping[str, Item]) -> Iterator[tuple[str, Item]]:
    """Switches that the family writes in other words."""
    optimizer = _item(block, "model.optim.name")
    if optimizer is not None:
        shown = "model.optim.name"
        yield "use_distributed_optimizer", Item(optimizer.value in _SHARDED, optimizer.line, shown)
    precision = _item(block, "trainer.precision") or _item(block, "policy.precision")
    if precision is not None:
        word = str(precision.value).lower()
        for name, signs in (("bf16", ("bf16",)), ("fp16", ("16", "16-mixed", "fp16", "float16"))):
            on = "bf" in word if name == "bf16" else word in signs
            yield name, Item(on, precision.line, "precision")
    if "activation_checkpointing" in items and items["activation_checkpointing"].value is True:
        yield "recompute_granularity", _as(items["activation_checkpointing"], "full")
        yield "recompute_method", _as(items["activation_checkpointing"], "uniform")
        yield "recompute_num_layers", _as(items["activation_checkpointing"], 1)
    if "fsdp" in items and items["fsdp"].value is True:
        yield "use_megatron_fsdp", items["fsdp"]


def _as(item: Item, value: Value) -> Item:
    return Item(value, item.line, item.shown)


def _item(block: Block, path: str) -> Item | None:
    outer, _, key = path.rpartition(".")
    inner = _at(block, outer)
    item = inner.items.get(key) if isinstance(inner, Block) else None
    return item if item is not None and item.value is not None else None
