"""Lightning: ``Trainer(...)``, ``Fabric(...)`` and strategy objects in Python source, or flags.

Python is read as a syntax tree and never run; a value that is not written out is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from placement_proofs.composition import compose
from placement_proofs.configs.document import Block, Item, Section, read_text
from placement_proofs.configs.lightning_source import parse_source
from placement_proofs.configs.lightning_strategies import Run, engine_for
from placement_proofs.configs.lightning_yaml import trainer_of
from placement_proofs.configs.megatron import replaced
from placement_proofs.configs.megatron_args import MARKS, parse_arguments
from placement_proofs.configs.megatron_job import whole
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.record import Imported
from placement_proofs.configs.yaml_text import parse_yaml
from placement_proofs.model import Model

_FLAGS = ("gpus", "devices", "num_nodes", "accumulate_grad_batches", "precision")
_LENGTHS = ("max_seq_length", "seq_length", "max_length", "block_size")
_MESH = ("data_parallel_size", "tensor_parallel_size")
_OWN = frozenset({"replace_sampler_ddp", "use_distributed_sampler", "max_epochs", "max_steps"})


def read(path: Path) -> Block:
    """Read Python source, YAML with a trainer, or a script whose flags are the trainer's."""
    text = read_text(path)
    if path.suffix.lower() == ".py":
        return parse_source(text, path.name)
    if path.suffix.lower() in (".yaml", ".yml"):
        return trainer_of(parse_yaml(text, path.name))
    return parse_arguments(text, path.name)


def claims(block: Block) -> bool:
    """Whether a file sets up a trainer."""
    if "@lightning" in block.items:
        return True
    keys = block.items.keys()
    flags = "strategy" in keys and bool(set(_FLAGS) & keys) and bool(_OWN & keys)
    return "@command" in keys and flags and not MARKS & keys


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import a file that was read.

    Raises:
        IllFormed: a value without meaning, or degrees that do not multiply to the world (ranks).
    """
    notes = Notes("Lightning")
    trainer, strategy = _split(Section(path.name, block))
    size = _world(trainer, strategy)
    if world is not None:
        replaced(world, size.size, notes)
        size = World(world, "", "cli or environment")
    _allocated(trainer, size, notes)
    run = Run(trainer, strategy, size, notes, model)
    notes.world(run.world, path.name)
    key = next((key for key in _LENGTHS if key in trainer), None)
    if key:
        notes.take("sequence", whole(trainer, key), trainer, key)
    engine = engine_for(run)
    return Imported(
        "lightning",
        str(path),
        compose(*engine.strategies),
        run.world.size,
        tuple(notes.fields),
        tuple(notes.findings),
        engine.batch,
        engine.dtypes,
        tuple(notes.assumptions),
    )


def _split(section: Section) -> tuple[Section, Section]:
    """The trainer's arguments and the strategy's."""
    if "@lightning" in section.block.items:
        return section.section("@trainer"), section.section("@strategy")
    items = dict(section.block.items)
    if "gpus" in items and "devices" not in items:
        items["devices"] = items["gpus"]
    if "strategy" in items:
        name = {"@name": items["strategy"]}
        return Section(section.file, Block(1, items)), Section(section.file, Block(1, name))
    return Section(section.file, Block(1, items)), Section(section.file, Block(1))


def _world(trainer: Section, strategy: Section) -> World:
    """Devices times machines; one machine is Lightning's default.

    Without devices, the two sizes of a mesh, which multiply to the world.
    """
    devices = trainer.raw("devices")
    nodes = trainer.raw("num_nodes") if "num_nodes" in trainer else 1
    numbers = [_count(devices), _count(nodes)]
    place = trainer.place("devices") if "devices" in trainer else ""
    mesh = [_count(strategy.raw(key)) for key in _MESH]
    if "devices" not in trainer and None not in mesh:
        place = strategy.place(_MESH[0])
        return World((mesh[0] or 1) * (mesh[1] or 1), place, "derived")
    if None in numbers:
        return World(None, place)
    size = 1
    for number in numbers:
        size *= number or 1
    return World(size, place, "literal")


def _count(value: object) -> int | None:
    """Devices as a number or as a list of indices."""
    if isinstance(value, tuple):
        return len(value) or None
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and value > 0 else None


def _allocated(trainer: Section, world: World, notes: Notes) -> None:
    """Fewer ranks than Slurm allocates."""
    block = trainer.raw("@world")
    table: Mapping[str, Item] = block.items if isinstance(block, Block) else {}
    granted = table.get("granted")
    if granted is None or world.size is None or granted.value == world.size:
        return
    notes.find(
        "unlikely",
        "allocated ranks",
        f"{trainer.file}:{granted.line} {granted.shown}",
        f"{granted.value} GPUs are allocated and {world.size} ranks started",
        "start one rank on each GPU, or allocate fewer",
        "not a rule of the framework: Slurm's allocation against the trainer's arguments",
    )
