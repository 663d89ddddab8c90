"""Primus' experiments for torchtitan: its trainer's overrides, variables at their defaults."""

from __future__ import annotations

from placement_proofs.configs.document import Block, Item, Value
from placement_proofs.configs.interpolation import resolve

VARIABLES = "@variables"
"""The key under which :func:`unwrapped` leaves the variables that can replace a value."""

_TABLES = ("parallelism", "training")


def unwrapped(block: Block) -> Block:
    """The overrides of ``modules.pre_trainer`` for torchtitan; any other block as it is."""
    trainer = _block(_block(block, "modules"), "pre_trainer")
    overrides = _block(trainer, "overrides")
    framework = trainer.items.get("framework")
    named = framework is not None and framework.value == "torchtitan"
    if not named and not any(_titan(_block(overrides, table)) for table in _TABLES):
        return block
    found: list[str] = []
    filled = _filled(overrides, block, found)
    more = {VARIABLES: Item(tuple(found), overrides.line)} if found else {}
    extends = {"extends": trainer.items["config"]} if "config" in trainer.items else {}
    job = {"job": Item(Block(trainer.line), trainer.line)}
    return Block(overrides.line, {**job, **extends, **filled.items, **more}, overrides.repeated)


def _block(block: Block, key: str) -> Block:
    item = block.items.get(key)
    return item.value if item and isinstance(item.value, Block) else Block()


def _titan(table: Block) -> bool:
    return any(key.endswith("_parallel_degree") for key in table.items)


def _filled(block: Block, root: Block, found: list[str]) -> Block:
    """The block with variables at their defaults; their names are added to ``found``."""
    items: dict[str, Item] = {}
    for key, item in block.items.items():
        value: Value = item.value
        if isinstance(value, Block):
            items[key] = Item(_filled(value, root, found), item.line)
            continue
        resolved = resolve(value, root, ())
        if resolved.variable:
            found.append(f"{resolved.variable} (line {item.line}, {key})")
        items[key] = Item(resolved.value, item.line)
    return Block(block.line, items, block.repeated)
