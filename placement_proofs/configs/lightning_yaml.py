"""LightningCLI's and Hydra's YAML: a ``trainer`` block with a strategy, as the source's blocks."""

from __future__ import annotations

from placement_proofs.configs.document import Block, Item


def trainer_of(block: Block) -> Block:
    """The trainer and strategy of a file; the file itself if it has no such block."""
    trainer = block.items.get("trainer")
    if trainer is None or not isinstance(trainer.value, Block):
        return block
    items = {
        key: Item(item.value, item.line, f"trainer.{key}")
        for key, item in trainer.value.items.items()
        if item.value is not None
    }
    if "strategy" not in items:
        return block
    return Block(
        block.line,
        {
            "@lightning": Item(True, 1),
            "@trainer": Item(Block(trainer.line, items), trainer.line),
            "@strategy": _strategy(items["strategy"]),
        },
    )


def _strategy(item: Item) -> Item:
    """A word, or a class with its arguments (``class_path`` or ``_target_``)."""
    if not isinstance(item.value, Block):
        named = {"@name": Item(str(item.value), item.line, "trainer.strategy")}
        return Item(Block(item.line, named), item.line)
    inner = item.value.items
    path = inner.get("class_path") or inner.get("_target_") or Item("${strategy}", item.line)
    given = inner.get("init_args")
    arguments = given.value.items if given and isinstance(given.value, Block) else inner
    items = {
        key: Item(value.value, value.line, f"trainer.strategy.{key}")
        for key, value in arguments.items()
        if value.value is not None and key not in ("class_path", "_target_")
    }
    name = str(path.value).rpartition(".")[2] if "$" not in str(path.value) else str(path.value)
    items["@name"] = Item(name, path.line, "trainer.strategy")
    return Item(Block(item.line, items), item.line)
