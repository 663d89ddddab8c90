"""Megatron-LM and Megatron-Core: argument lines, shell scripts, test YAML (NVIDIA/Megatron-LM).

Also the forks that share the flags: Megatron-DeepSpeed, ms-swift, slime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from placement_proofs.composition import compose
from placement_proofs.configs import megatron_compose as composing
from placement_proofs.configs.document import Block, Item, Section, read_text
from placement_proofs.configs.hjson_text import parse_hjson
from placement_proofs.configs.megatron_args import MARKS, parse_arguments
from placement_proofs.configs.megatron_batch import MICRO_BATCH, batch_of
from placement_proofs.configs.megatron_job import TP, Dialect, job_of
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.record import Imported
from placement_proofs.configs.shape_rules import dims_of
from placement_proofs.configs.yaml_text import parse_yaml
from placement_proofs.errors import IllFormed
from placement_proofs.model import Model

_YAML = (".yaml", ".yml")
_SECTIONS = ("model_parallel", "language_model", "MODEL_ARGS")
_PLAIN = Dialect("megatron", "Megatron-LM")
_OVERRIDES = Dialect("megatron", "the configuration", partial=True)
_DEEPSPEED = Dialect("megatron", "Megatron-DeepSpeed", deepspeed=True)
_SLIME = Dialect("megatron", "slime", distributed="slime switches the distributed optimizer on")
_SWIFT = Dialect("megatron", "ms-swift", distributed="ms-swift's default")


def read(path: Path) -> Block:
    """Read a script, or a YAML file with the same flags, as a block of arguments."""
    text = read_text(path)
    if path.suffix.lower() in _YAML:
        return _flat(parse_yaml(text, path.name))
    return parse_arguments(text, path.name)


def _flat(block: Block) -> Block:
    """The arguments of a YAML file: of the blocks that hold them, and of the top."""
    items: dict[str, Item] = {}
    for key, item in block.items.items():
        if key in _SECTIONS and isinstance(item.value, Block):
            for inner, value in item.value.items.items():
                name = inner.lstrip("-").replace("-", "_")
                items[name] = Item(value.value, value.line, f"{key}.{inner}")
        elif key == "ENV_VARS" and isinstance(item.value, Block):
            items["@environment"] = item
        else:
            items.setdefault(key, item)
    return Block(block.line, items, block.repeated)


def claims(block: Block) -> bool:
    """Whether a script or file has Megatron's arguments."""
    command = block.items.get("@command")
    if command is None:
        shown = [item.shown.partition(".")[0] for item in block.items.values()]
        return any(name in _SECTIONS for name in shown)
    return len(MARKS & block.items.keys()) >= 2


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import a file that was read.

    Raises:
        IllFormed: a value without meaning, or degrees that do not divide the world (ranks).
    """
    section = _with_deepspeed(Section(path.name, block))
    if not MARKS & block.items.keys():
        rule = "a Megatron command has flags such as --tensor-model-parallel-size"
        raise IllFormed(path.name, "no such flags", rule, "is this the right file?")
    notes = Notes("Megatron-LM")
    size = world_of(section, world, notes)
    notes.world(size, path.name)
    return imported(path, section, _dialect(section), size, notes, model)


def imported(
    path: Path,
    section: Section,
    dialect: Dialect,
    world: World,
    notes: Notes,
    model: Model | None = None,
) -> Imported:
    """The import of a section whose keys are Megatron's words."""
    from placement_proofs.configs.megatron_rules import Checked, check

    job = job_of(section, dialect, world, notes)
    stage = composing.stage_of(job, notes)
    composing.shape(job, notes)
    batch = batch_of(job, notes)
    parts = composing.strategies_of(job, stage, batch, notes)
    dtypes = composing.dtypes_of(job, notes)
    check(Checked(job, stage, batch, notes, dims_of(model)))
    _doubts(section, notes)
    return Imported(
        dialect.format,
        str(path),
        compose(*parts),
        world.size,
        tuple(notes.fields),
        tuple(notes.findings),
        batch,
        dtypes,
        tuple(notes.assumptions),
    )


def _dialect(section: Section) -> Dialect:
    command = str(section.raw("@command") or "")
    if any(key in section for key in ("deepspeed", "zero_stage", "deepspeed_config")):
        return _DEEPSPEED
    if "@overrides" in section:
        return _OVERRIDES
    if "actor_num_nodes" in section:
        return _SLIME
    return _SWIFT if command.startswith(("megatron ", "swift ")) else _PLAIN


def world_of(section: Section, world: int | None, notes: Notes) -> World:
    """The argument, else what the script starts or Slurm allocates, else unknown."""
    block = section.raw("@world")
    table: Mapping[str, Item] = block.items if isinstance(block, Block) else {}
    ranks, granted = table.get("ranks"), table.get("granted")
    if ranks and granted and ranks.value != granted.value:
        notes.find(
            "unlikely",
            "allocated ranks",
            f"{section.file}:{granted.line} {granted.shown}",
            f"{granted.value} GPUs are allocated and {ranks.value} ranks started",
            "start one rank on each GPU, or allocate fewer",
            "not a rule of the framework: Slurm's allocation against the launcher's arguments",
        )
    if world is not None:
        replaced(world, ranks.value if ranks else None, notes)
        return World(world, "", "cli or environment")
    if ranks is None or not isinstance(ranks.value, int):
        return World(None)
    place = f"{section.file}:{ranks.line} {ranks.shown}"
    return World(ranks.value, place, "literal" if ranks.given else "default")


def replaced(world: int, written: object, notes: Notes) -> None:
    """Say that the number of ranks given replaces the one in the file."""
    if isinstance(written, int) and written != world:
        notes.assume(f"the world of {world} given replaces the {written} ranks of the file")


def _with_deepspeed(section: Section) -> Section:
    """Add the ZeRO stage of the JSON that a script writes, or of the template it fills in."""
    items = dict(section.block.items)
    if "zero_stage" not in items and "deepspeed" in items:
        found = next(_stages(section), None)
        if found:
            items["zero_stage"] = found
    _current(items)
    return Section(section.file, Block(section.block.line, items, section.block.repeated))


def _current(items: dict[str, Item]) -> None:
    """Old names stand for the current ones where these are absent."""
    for old, new in (("model_parallel_size", TP), ("batch_size", MICRO_BATCH)):
        if old in items and new not in items:
            items[new] = items[old]


def _stages(section: Section) -> Iterator[Item]:
    sed = section.raw("@sed")
    if isinstance(sed, Block) and "ZERO_STAGE" in sed.items:
        item = sed.items["ZERO_STAGE"]
        yield Item(item.value, item.line, "ZERO_STAGE (sed)")
    files = section.raw("@files")
    for name, item in files.items.items() if isinstance(files, Block) else ():
        found = _json_stage(str(item.value), item.line, section.file)
        if found:
            yield Item(found.value, found.line, f"{name[-40:]} zero_optimization.stage")


def _json_stage(text: str, line: int, file: str) -> Item | None:
    """The stage in a JSON text that begins on ``line``."""
    try:
        block = parse_hjson("\n" * (line - 1) + text, file)
    except IllFormed:
        return None
    zero = block.items.get("zero_optimization")
    return zero.value.items.get("stage") if zero and isinstance(zero.value, Block) else None


def _doubts(section: Section, notes: Notes) -> None:
    """What the script leaves open, as assumptions."""
    listed = section.raw("@notes")
    for text in listed if isinstance(listed, tuple) else ():
        notes.assume(str(text))
    maybe = section.raw("@maybe")
    for name, item in maybe.items.items() if isinstance(maybe, Block) else ():
        if name in _PLACING:
            given = "replaces the value taken" if name in section else "is not in the composition"
            place = f"{section.file}:{item.line} {item.shown}"
            notes.assume(f"{place} depends on an undecided condition; it {given}")


_PLACING = MARKS | {
    "recompute_granularity",
    "recompute_activations",
    "cpu_offloading",
    "optimizer_cpu_offload",
    "num_layers_per_virtual_pipeline_stage",
    "use_megatron_fsdp",
    "use_torch_fsdp2",
    "bf16",
    "fp16",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
}
