"""Accelerate's engines: data parallel, FSDP, DeepSpeed, Megatron-LM, tensor parallel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.accelerate_fsdp import fsdp_engine
from placement_proofs.configs.accelerate_launch import Launch
from placement_proofs.configs.batch import loop
from placement_proofs.configs.deepspeed import Engine, engine_of
from placement_proofs.configs.document import Block, Item, Section, Value, words
from placement_proofs.configs.hjson_text import read_hjson
from placement_proofs.configs.notes import Notes, data_ranks
from placement_proofs.configs.record import Batch
from placement_proofs.configs.shape_rules import (
    Fit,
    check_bubble,
    check_fit,
    check_layers,
    check_sequence_split,
    dims_of,
)

_DEEPSPEED_KEYS = words(
    "deepspeed_config_file deepspeed_exclusion_filter deepspeed_hostfile "
    "deepspeed_inclusion_filter deepspeed_multinode_launcher deepspeed_moe_layer_cls_names "
    "gradient_accumulation_steps gradient_clipping offload_optimizer_device "
    "offload_optimizer_nvme_path offload_param_device offload_param_nvme_path zero3_init_flag "
    "zero3_save_16bit_model zero_stage"
)
_IN_FILE = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_param_nvme_path",
    "offload_optimizer_nvme_path",
    "zero3_save_16bit_model",
)
_PLUGIN = "utils/dataclasses.py (DeepSpeedPlugin)"


def replicated(launch: Launch) -> Engine:
    """Every rank the whole model and its own samples (DistributedDataParallel)."""
    tp = launch.mesh["tp"]
    dp = data_ranks(launch.world, {"tp": tp}, launch.mesh.section.place())
    launch.notes.add("zero_stage", 0, "derived")
    launch.notes.add("dp", dp, "derived" if isinstance(dp, int) else "unknown")
    parts = [strategies.data(dp=dp)]
    if tp > 1:
        parts.append(strategies.tensor(tp=tp, vocabulary=False))
    return Engine(tuple(parts), Batch(), launch.dtypes())


def tensor_only(launch: Launch) -> Engine:
    """The short-lived ``distributed_type: TP`` with ``tp_config`` (Accelerate 1.3 to 1.5)."""
    block = launch.section.section("tp_config")
    tp = block.integer("tp_size", 1, least=1) or 1
    dp = data_ranks(launch.world, {"tp": tp}, block.place("tp_size"))
    launch.notes.take("tp", tp, block, "tp_size")
    parts = (strategies.data(dp=dp), strategies.tensor(tp=tp, vocabulary=False))
    return Engine(parts, Batch(), launch.dtypes())


def fsdp(launch: Launch) -> Engine:
    """PyTorch FSDP, version 1 or 2."""
    return fsdp_engine(launch)


def deepspeed(launch: Launch) -> Engine:
    """DeepSpeed, from the block's own keys or from the file that it names."""
    block = launch.section.section("deepspeed_config")
    _known_keys(block, launch.notes)
    name = block.word("deepspeed_config_file")
    if name and name.lower() != "none":
        engine = _included(launch, block, name)
    else:
        engine = _inline(launch, block)
    return engine


def _known_keys(block: Section, notes: Notes) -> None:
    for key in block:
        if key not in _DEEPSPEED_KEYS:
            notes.find(
                "ignored",
                "unknown key",
                block.place(key),
                f"deepspeed_config has no key {key[:60]!r}",
                "write it in a DeepSpeed file named by deepspeed_config_file",
                "commands/launch.py",
            )


def _included(launch: Launch, block: Section, name: str) -> Engine:
    path = launch.directory / name
    _conflicts(launch, block)
    if not _exists(path):
        return _absent(launch, block, name)
    launch.notes.add("deepspeed_config_file", name, "literal", block.place("deepspeed_config_file"))
    items = {**_precision(launch), **read_hjson(path).items}
    for key in ("bf16", "fp16"):
        items[key] = _decided(items[key], launch.precision == key)
    items.setdefault("sequence_parallel_size", _sequence(launch))
    section = Section(path.name, Block(1, items))
    return _run(section, launch, block)


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _absent(launch: Launch, block: Section, name: str) -> Engine:
    place, notes = block.place("deepspeed_config_file"), launch.notes
    notes.find(
        "rejected",
        "included file",
        place,
        f"the file {name[:80]!r} is not there, seen from this file's folder",
        "put it there, or write its path relative to this file (Accelerate: to the start folder)",
        _PLUGIN,
    )
    for field in ("zero_stage", "offload_optimizer", "offload_param", "accumulation"):
        notes.add(field, None, "unknown", place, "in the absent file")
    notes.assume("the ZeRO stage is in an absent file; every state is taken as replicated")
    sp = launch.mesh["sp"]
    parts: list[Strategy] = [strategies.data(dp=data_ranks(launch.world, {"sp": sp}, place))]
    if sp > 1:
        parts.append(strategies.ulysses(sp=sp))
    return Engine((*parts, *loop(Batch(), notes)), Batch(), launch.dtypes())


def _conflicts(launch: Launch, block: Section) -> None:
    """Keys that may not stand beside ``deepspeed_config_file``."""
    places = [block.place(key) for key in _IN_FILE if key in block]
    if "mixed_precision" in launch.section:
        places.append(launch.section.place("mixed_precision"))
    for place in places:
        launch.notes.find(
            "rejected",
            "one source",
            place,
            "this key stands beside deepspeed_config_file",
            "write it in the DeepSpeed file only",
            f"{_PLUGIN[:-1]}._deepspeed_config_checks)",
        )


def _inline(launch: Launch, block: Section) -> Engine:
    """The configuration that the plugin builds from its own keys."""
    zero: dict[str, Item] = {"stage": _moved(block, "zero_stage", 2)}
    for what in ("offload_optimizer", "offload_param"):
        key = f"{what}_device"
        if key in block:
            device = _moved(block, key, "none")
            shown = block.place(key).partition(" ")[2]
            zero[what] = Item(Block(device.line, {"device": device}), device.line, shown)
    line = block.block.line
    items: dict[str, Item] = {
        "zero_optimization": Item(Block(line, zero), line),
        "gradient_accumulation_steps": _moved(block, "gradient_accumulation_steps", 1),
        "train_micro_batch_size_per_gpu": Item("auto", line, given=False),
        "train_batch_size": Item("auto", line, given=False),
        "sequence_parallel_size": _sequence(launch),
        **_precision(launch),
    }
    return _run(Section(block.file, Block(line, items)), launch, block)


def _moved(block: Section, key: str, default: Value) -> Item:
    """A key of the YAML block as an item of a DeepSpeed configuration."""
    if key not in block:
        return Item(default, block.line(key), given=False)
    return Item(block.raw(key), block.line(key), block.place(key).partition(" ")[2])


def _precision(launch: Launch) -> dict[str, Item]:
    line = launch.section.line("mixed_precision")
    return {
        key: Item(Block(line, {"enabled": Item(launch.precision == key, line)}), line, given=False)
        for key in ("bf16", "fp16")
    }


def _decided(item: Item, enabled: bool) -> Item:
    """A 16-bit block whose ``auto`` Accelerate fills from ``mixed_precision``."""
    block = item.value
    if not isinstance(block, Block) or "enabled" not in block.items:
        return item
    old = block.items["enabled"]
    if old.value != "auto":
        return item
    filled = {**block.items, "enabled": Item(enabled, old.line)}
    return Item(Block(block.line, filled), item.line)


def _sequence(launch: Launch) -> Item:
    mesh = launch.mesh
    line, shown = mesh.section.line(mesh.key("sp")), f"parallelism_config.{mesh.key('sp')}"
    return Item(mesh["sp"], line, shown, given=mesh["sp"] > 1)


def _run(section: Section, launch: Launch, block: Section) -> Engine:
    engine = engine_of(section, launch.world, launch.notes, filled=True, model=launch.model)
    launch.dtypes()
    stage = section.section("zero_optimization").raw("stage")
    if stage == 3 and block.flag("zero3_init_flag") is False:
        launch.notes.find(
            "unlikely",
            "stage 3 at load",
            block.place("zero3_init_flag"),
            "ZeRO stage 3 without zero3_init_flag: every rank first builds the whole model",
            "write zero3_init_flag: true",
            _PLUGIN,
        )
    return engine


def megatron(launch: Launch) -> Engine:
    """The Megatron-LM plugin: tensor, pipeline and context axes with data parallelism."""
    block = launch.section.section("megatron_lm_config")
    sizes = {name: _degree(block, key, name, launch) for name, key in _MEGATRON.items()}
    degrees = {name: sizes[name] for name in ("tp", "pp", "cp")}
    dp = data_ranks(launch.world, degrees, block.place())
    launch.notes.add("dp", dp, "derived" if isinstance(dp, int) else "unknown")
    parts: list[Strategy] = [_optimizer(block, dp, sizes["cp"])]
    parts += _model_axes(block, sizes, launch.notes)
    _plugin_shape(block, sizes, launch)
    if block.flag(_key(block, "recompute_activations")):
        parts.append(strategies.recompute("selective"))
    return Engine(tuple(parts), Batch(None, sizes["micro"], None), launch.dtypes())


def _plugin_shape(block: Section, sizes: Mapping[str, int], launch: Launch) -> None:
    places = {name: block.place(_key(block, _MEGATRON[name])) for name in sizes}
    where = "NVIDIA/Megatron-LM: megatron/training/arguments.py (validate_args)"
    fit = Fit(dims_of(launch.model), sizes, places, dict.fromkeys(sizes, where))
    check_fit(fit, launch.notes)
    check_layers(fit, 1, launch.notes, even=True)
    if block.flag(_key(block, "sequence_parallelism")):
        check_sequence_split(fit, launch.notes)
    check_bubble(sizes["pp"], sizes["micro"], places["micro"], where, launch.notes)


_MEGATRON: Mapping[str, str] = {
    "tp": "tp_degree",
    "pp": "pp_degree",
    "cp": "context_parallel_size",
    "micro": "num_micro_batches",
}


def _key(block: Section, name: str) -> str:
    return f"megatron_lm_{name}" if f"megatron_lm_{name}" in block else name


def _degree(block: Section, name: str, field: str, launch: Launch) -> int:
    key = _key(block, name)
    size = block.integer(key, 1, least=1) or 1
    launch.notes.take("accumulation" if field == "micro" else field, size, block, key)
    return size


def _optimizer(block: Section, dp: int | str, cp: int) -> Strategy:
    if not block.flag(_key(block, "use_distributed_optimizer")):
        return strategies.data(dp=dp)
    return strategies.zero1(dp=dp, shard_over=("dp", "cp") if cp > 1 else None)


def _model_axes(block: Section, sizes: Mapping[str, int], notes: Notes) -> list[Strategy]:
    parts: list[Strategy] = []
    key = _key(block, "sequence_parallelism")
    sequence = bool(block.flag(key))
    if sizes["tp"] > 1:
        parts.append(strategies.tensor(tp=sizes["tp"], sequence=sequence))
    elif sequence:
        message, where = "sequence_parallelism with tp 1 is switched off", "megatron arguments.py"
        remedy = "set tp_degree above 1, or remove it"
        notes.find("ignored", "sequence needs tp", block.place(key), message, remedy, where)
    if sizes["cp"] > 1:
        parts.append(strategies.context(cp=sizes["cp"], method="ring"))
    if sizes["pp"] > 1:
        parts.append(strategies.pipeline(pp=sizes["pp"], microbatches=sizes["micro"]))
    elif sizes["micro"] > 1:
        parts.append(strategies.accumulate(micro=sizes["micro"]))
    return parts
