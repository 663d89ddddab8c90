"""A DeepSpeed file that a trainer's file names, with the trainer's values where it says auto."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placement_proofs.configs.batch import ACCUMULATION, GLOBAL, MICRO_BATCH
from placement_proofs.configs.deepspeed import Engine, engine_of
from placement_proofs.configs.document import Block, Item, Scalar, Section, Value
from placement_proofs.configs.hjson_text import read_hjson
from placement_proofs.configs.notes import Notes, World
from placement_proofs.model import Model

_WHERE = "huggingface/transformers: src/transformers/integrations/deepspeed.py"


@dataclass(frozen=True)
class Trainer:
    """What the trainer's file says; ``None`` where it leaves it open."""

    directory: Path
    section: Section
    key: str
    micro: int | None
    accumulation: int | None
    bf16: bool | None
    fp16: bool | None
    tp: int = 1

    def values(self) -> Mapping[str, Scalar]:
        """The trainer's value for each key that it fills."""
        return {MICRO_BATCH: self.micro, ACCUMULATION: self.accumulation}


def included_engine(
    trainer: Trainer, world: World, notes: Notes, model: Model | None
) -> Engine | None:
    """The engine of the named file; ``None`` and a finding if it is not there.

    Raises:
        IllFormed: the file is there and has no meaning.
    """
    name = trainer.section.word(trainer.key) or ""
    path = trainer.directory / name
    if not _exists(path):
        _absent(trainer, name, notes)
        return None
    notes.add("deepspeed_config_file", name, "literal", trainer.section.place(trainer.key))
    items = dict(read_hjson(path).items)
    section = Section(path.name, Block(1, _filled(items, trainer)))
    _mismatches(section, trainer, notes)
    return engine_of(section, world, notes, filled=True, model=model)


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _absent(trainer: Trainer, name: str, notes: Notes) -> None:
    place = trainer.section.place(trainer.key)
    notes.find(
        "unlikely",
        "included file",
        place,
        f"the file {name[:80]!r} is not there, seen from this file's folder",
        "put it there, or write its path relative to this file (the trainer: to the start folder)",
        _WHERE,
    )
    for field in ("zero_stage", "offload_optimizer", "offload_param"):
        notes.add(field, None, "unknown", place, "in the absent file")
    notes.assume("the ZeRO stage is in an absent file; every state is taken as replicated")


def _filled(items: dict[str, Item], trainer: Trainer) -> dict[str, Item]:
    for key, value in trainer.values().items():
        item = items.get(key, Item("auto", 1, given=False))
        if item.value == "auto" and value is not None:
            items[key] = Item(value, item.line)
    micro, steps = trainer.micro, trainer.accumulation
    if micro is not None and steps is not None and _is_auto(items, GLOBAL):
        del items[GLOBAL]
    for key, flag in (("bf16", trainer.bf16), ("fp16", trainer.fp16)):
        if key in items:
            items[key] = _decided(items[key], bool(flag))
    if trainer.tp > 1 and "tensor_parallel" not in items:
        inner = Block(1, {"autotp_size": Item(trainer.tp, 1)})
        items["tensor_parallel"] = Item(inner, 1)
    return items


def _is_auto(items: Mapping[str, Item], key: str) -> bool:
    return key in items and items[key].value == "auto"


def _decided(item: Item, enabled: bool) -> Item:
    """A precision block whose ``enabled: auto`` follows the trainer."""
    value: Value = item.value
    if not isinstance(value, Block) or not _is_auto(value.items, "enabled"):
        return item
    inner = Item(enabled, value.items["enabled"].line)
    return Item(Block(value.line, {**value.items, "enabled": inner}), item.line)


def _mismatches(section: Section, trainer: Trainer, notes: Notes) -> None:
    for key, value in trainer.values().items():
        written = section.integer(key)
        if None not in (value, written) and written != value:
            notes.find(
                "rejected",
                "two values for one setting",
                section.place(key),
                f"{key} is {written} here and {value} in {trainer.section.file}",
                'write "auto" here',
                f"{_WHERE} (trainer_config_finalize)",
            )
