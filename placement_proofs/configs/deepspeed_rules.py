"""What DeepSpeed rejects, ignores, or does otherwise than a file suggests; one rule a function."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from placement_proofs.configs import deepspeed_keys as keys
from placement_proofs.configs.batch import KEYS as BATCH_KEYS
from placement_proofs.configs.deepspeed import Setup
from placement_proofs.configs.document import Block, Section
from placement_proofs.configs.notes import Notes


def check(setup: Setup, notes: Notes) -> None:
    """Apply every rule."""
    for rule in RULES:
        rule(setup, notes)


def _known_keys(setup: Setup, notes: Notes) -> None:
    for key in _others(setup.section, keys.TOP):
        _unknown(setup.section, key, keys.TOP, "ignored", "runtime/config.py", notes)
    for key in _others(setup.zero, keys.ZERO):
        _unknown(setup.zero, key, keys.ZERO, "rejected", "runtime/config_utils.py", notes)
    for name, known in keys.OFFLOAD.items():
        block = setup.zero.section(name)
        for key in _others(block, known):
            _unknown(block, key, known, "rejected", "runtime/config_utils.py", notes)


def _others(section: Section, known: frozenset[str]) -> list[str]:
    return [key for key in section if key not in known]


def _unknown(
    section: Section, key: str, known: frozenset[str], kind: str, where: str, notes: Notes
) -> None:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    notes.find(
        "rejected" if kind == "rejected" else "ignored",
        "unknown key",
        section.place(key),
        f"DeepSpeed does not know the key {key[:60]!r}",
        f"did you mean {close[0]}?" if close else "remove it, or move it to its block",
        where,
    )


def _both_halves(setup: Setup, notes: Notes) -> None:
    section = setup.section
    if section.section("fp16").flag("enabled") and section.section("bf16").flag("enabled"):
        notes.find(
            "rejected",
            "one 16-bit format",
            section.section("bf16").place("enabled"),
            "fp16 and bf16 are both enabled",
            "enable one of them",
            "runtime/config.py (_initialize_params)",
        )


def _amp(setup: Setup, notes: Notes) -> None:
    if setup.stage and setup.section.section("amp").flag("enabled"):
        notes.find(
            "rejected",
            "amp without ZeRO",
            setup.section.place("amp"),
            f"amp with ZeRO stage {setup.stage}",
            "use bf16 or fp16 instead of amp",
            "runtime/engine.py (_do_args_sanity_check and optimizer checks)",
        )


def _optimizer(setup: Setup, notes: Notes) -> None:
    block = setup.section.section("optimizer")
    parameters = block.section("params")
    name = (block.word("type") or "").lower()
    if setup.stage and name in ("onebitadam", "zerooneadam", "onebitlamb"):
        notes.find(
            "rejected",
            "compressed optimizer without ZeRO",
            block.place("type"),
            f"{name} with ZeRO stage {setup.stage}",
            "set stage 0, or use Adam",
            "runtime/engine.py (_configure_zero_optimizer)",
        )
    if "max_grad_norm" in parameters:
        notes.find(
            "rejected",
            "clipping key",
            parameters.place("max_grad_norm"),
            "max_grad_norm is a parameter of the optimizer here",
            "write gradient_clipping at the top level",
            "runtime/engine.py (_configure_basic_optimizer)",
        )


def _offload_levels(setup: Setup, notes: Notes) -> None:
    for what, least in (("offload_param", 3), ("offload_optimizer", 1)):
        if setup.device(what) and setup.stage < least:
            notes.find(
                "ignored",
                f"{what} needs stage {least}",
                setup.zero.place(what),
                f"{what} has no effect at ZeRO stage {setup.stage}",
                f"set stage {least}, or remove {what}",
                "runtime/engine.py",
            )


def _partial_offload(setup: Setup, notes: Notes) -> None:
    block = setup.zero.section("offload_optimizer")
    ratio = block.real("ratio", 1.0)
    if not setup.device("offload_optimizer"):
        return
    if ratio < 1 and setup.stage == 3:
        notes.take("offload_optimizer_ratio", ratio, block, "ratio")
        notes.assume(
            f"{ratio:.0%} of the optimizer state is offloaded; the composition offloads all"
        )
    elif (ratio < 1 or block.flag("super_offload")) and setup.stage:
        notes.find(
            "ignored",
            "partial offload needs stage 3",
            block.place("ratio" if ratio < 1 else "super_offload"),
            f"ratio and super_offload have no effect at stage {setup.stage}",
            "set stage 3, or remove them",
            "runtime/zero/offload_config.py",
        )


def _old_keys(setup: Setup, notes: Notes) -> None:
    for old, new in (
        ("cpu_offload", "offload_optimizer"),
        ("cpu_offload_param", "offload_param"),
        ("stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"),
    ):
        if old in setup.zero:
            both = new in setup.zero
            notes.find(
                "rejected" if both else "unlikely",
                "deprecated key",
                setup.zero.place(old),
                f"{old} and its successor {new} are both given" if both else f"{old} is deprecated",
                f"keep {new}" if both else f"write {new}",
                "runtime/config_utils.py",
            )


def _sum(setup: Setup, notes: Notes) -> None:
    if setup.stage == 3 and setup.section.word("gradient_allreduce_op") == "sum":
        notes.find(
            "rejected",
            "sum of gradients at stage 3",
            setup.section.place("gradient_allreduce_op"),
            "gradient_allreduce_op sum with ZeRO stage 3",
            "remove it: gradients are averaged",
            "runtime/config.py (_do_error_check)",
        )
    elif setup.section.word("gradient_allreduce_op") == "sum":
        notes.find(
            "mathematics",
            "sum of gradients",
            setup.section.place("gradient_allreduce_op"),
            "gradients are summed, not averaged: they are dp times those of one device",
            "remove it, unless the loss is divided by the data-parallel ranks",
            "runtime/config.py",
            f"rescale scale gradient by={'dp' if setup.sp == 1 else 'dp*sp'}",
        )


def _shards(setup: Setup, notes: Notes) -> None:
    ranks = setup.dp * setup.sp if isinstance(setup.dp, int) else None
    if setup.stage and ranks == 1:
        notes.find(
            "unlikely",
            "ZeRO over one rank",
            setup.zero.place("stage"),
            f"ZeRO stage {setup.stage} over one data-parallel rank shards nothing",
            "use more data-parallel ranks, or offload",
            "deepspeedai/DeepSpeed: issues 237, 3889",
        )


def _hpz(setup: Setup, notes: Notes) -> None:
    size, ranks = setup.zero.integer("zero_hpz_partition_size", 1) or 1, setup.world.size
    if size == 1:
        return
    place = setup.zero.place("zero_hpz_partition_size")
    where = "utils/groups.py (_create_zero_param_parallel_group)"
    found = f"a second copy over {size} ranks"
    if setup.stage < 3:
        message, remedy = f"{found} has no effect at stage {setup.stage}", "set stage 3"
        notes.find("ignored", "hpZ needs stage 3", place, message, remedy, where)
    elif ranks and ranks % min(size, ranks):
        message = f"{found} on a world of {ranks}: {ranks} / {size} = {ranks / size:.6g}"
        notes.find("rejected", "hpZ divides the world", place, message, "use a divisor", where)
    elif ranks and size >= ranks:
        message = f"{found} on a world of {ranks} only doubles the sharded parameters"
        remedy = "use the number of GPUs of a node"
        notes.find("unlikely", "hpZ below the world", place, message, remedy, where)
    elif size > 8:
        message = f"{found} spans more than one node of 8 GPUs, so its gathers leave the node"
        remedy = "use the number of GPUs of a node"
        notes.find("unlikely", "hpZ inside a node", place, message, remedy, where)


def _mics(setup: Setup, notes: Notes) -> None:
    size = setup.zero.integer("mics_shard_size", -1, least=-1) or 0
    place = setup.zero.place("mics_shard_size")
    if size > 0 and setup.stage < 3:
        message = f"mics_shard_size has no effect at stage {setup.stage}"
        remedy = "set stage 3, or remove it"
        notes.find("ignored", "MiCS needs stage 3", place, message, remedy, "runtime/engine.py")
    if setup.mics and (setup.device("offload_param") or setup.device("offload_optimizer")):
        message, remedy = "MiCS with offload", "remove mics_shard_size or the offload"
        notes.find("rejected", "MiCS on device", place, message, remedy, "runtime/zero/mics.py")
    if setup.mics == 1:
        message = "shard groups of one rank: every rank holds all states"
        remedy = "use the number of GPUs of a node, or stage 0"
        where = "runtime/zero/mics.py"
        notes.find("unlikely", "shard group of one", place, message, remedy, where)


def _checkpointing(setup: Setup, notes: Notes) -> None:
    block = setup.section.section("activation_checkpointing")
    if not any(block.flag(key) for key in _CHECKPOINT_FLAGS if key in block):
        return
    place = setup.section.place("activation_checkpointing")
    notes.add("recompute", None, "unknown", place, "the model's code decides")
    notes.find(
        "unlikely",
        "checkpointing in code",
        place,
        "this block acts only if the model calls deepspeed.checkpointing",
        "for Hugging Face models use gradient_checkpointing",
        "runtime/activation_checkpointing/checkpointing.py",
    )
    whole = block.flag("partition_activations") and "number_checkpoints" in block
    if block.flag("contiguous_memory_optimization") and not whole:
        notes.find(
            "rejected",
            "contiguous checkpoints",
            block.place("contiguous_memory_optimization"),
            "contiguous_memory_optimization without partition_activations and number_checkpoints",
            "set both, or remove it",
            "runtime/activation_checkpointing/checkpointing.py",
        )


_CHECKPOINT_FLAGS = (
    "partition_activations",
    "cpu_checkpointing",
    "contiguous_memory_optimization",
)


def _elastic(setup: Setup, notes: Notes) -> None:
    block = setup.section.section("elasticity")
    given = [key for key in BATCH_KEYS if key in setup.section]
    if block.flag("enabled") and given and not block.flag("ignore_non_elastic_batch_info"):
        notes.find(
            "rejected",
            "elastic batch",
            setup.section.place(given[0]),
            f"elasticity sets the batch, and {', '.join(given)} is given too",
            "remove the batch keys, or set ignore_non_elastic_batch_info",
            "runtime/config.py",
        )


def _tensor(setup: Setup, notes: Notes) -> None:
    block = setup.section.section("tensor_parallel")
    inner = block.section("tp")
    size = inner.integer("tp_size", 1, least=1)
    if size not in (1, setup.tp):
        notes.find(
            "rejected",
            "one tensor degree",
            inner.place("tp_size"),
            f"tp_size {size} beside autotp_size {setup.tp}",
            f"write tp_size {setup.tp} or leave it out",
            "runtime/engine.py (AutoTP)",
        )


def _sequence(setup: Setup, notes: Notes) -> None:
    key = "seq_parallel_communication_data_type"
    if key in setup.section and setup.sp == 1:
        notes.assume(
            f"{setup.section.place(key)}: the program may set a sequence-parallel degree; it is "
            "not in the file, and the composition has none"
        )


def _pipeline(setup: Setup, notes: Notes) -> None:
    if "pipeline" not in setup.section:
        return
    place = setup.section.place("pipeline")
    notes.add("pp", None, "unknown", place, "PipelineModule(num_stages=...) in code decides")
    notes.assume("no pipeline: its depth is in the program's code")
    if setup.stage >= 2:
        message = f"the pipeline engine refuses ZeRO stage {setup.stage}"
        remedy = "use stage 0 or 1 with a pipeline"
        notes.find("rejected", "pipeline stage", place, message, remedy, "runtime/pipe/engine.py")


def _quantised(setup: Setup, notes: Notes) -> None:
    for key in ("zero_quantized_weights", "zero_quantized_gradients"):
        if setup.zero.flag(key):
            notes.take(key, True, setup.zero, key)
            notes.assume(f"{key}: values travel with fewer bits; rounding is not modelled")


def _auto(setup: Setup, notes: Notes) -> None:
    if setup.filled:
        return
    places = _autos(setup.section)
    if places:
        more = f" and in {len(places) - 1} other places" if len(places) > 1 else ""
        notes.find(
            "unlikely",
            "auto needs a filler",
            places[0],
            f"auto stands here{more}: DeepSpeed alone drops it or fails",
            "run under Hugging Face Trainer or Accelerate, or write values",
            "runtime/config_utils.py; huggingface/accelerate accelerator.py (_prepare_deepspeed)",
        )


def _autos(section: Section) -> list[str]:
    places = [section.place(key) for key in section if section.is_auto(key)]
    for key in section:
        if isinstance(section.raw(key), Block):
            places += _autos(section.section(key))
    return places


RULES: tuple[Callable[[Setup, Notes], None], ...] = (
    _known_keys,
    _both_halves,
    _amp,
    _optimizer,
    _offload_levels,
    _partial_offload,
    _old_keys,
    _sum,
    _shards,
    _hpz,
    _mics,
    _checkpointing,
    _elastic,
    _tensor,
    _sequence,
    _pipeline,
    _quantised,
    _auto,
)
