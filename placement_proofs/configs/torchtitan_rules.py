"""What torchtitan rejects, ignores, or does otherwise than a file suggests; one rule a function."""

from __future__ import annotations

import math
from collections.abc import Callable

from placement_proofs.configs.mesh_parts import auto_values, one_rank, unknown_keys
from placement_proofs.configs.notes import Notes
from placement_proofs.configs.record import Kind
from placement_proofs.configs.shape_rules import Fit, check_bubble, check_fit, check_layers
from placement_proofs.configs.torchtitan import Titan
from placement_proofs.configs.torchtitan_keys import (
    ACTIVATIONS,
    CONFIG,
    LOOPED,
    OTHER,
    PARALLELISM,
    SINGLE,
    mixed,
)

_DIMS = "torchtitan/distributed/parallel_dims.py"
_PIPE = "torchtitan/distributed/pipeline_parallel.py"
_FSDP = "torchtitan/distributed/fsdp.py"
_TRAIN = "torchtitan/train.py"


def check(titan: Titan, notes: Notes) -> None:
    """Apply every rule."""
    for rule in RULES:
        rule(titan, notes)


def _find(
    titan: Titan, notes: Notes, kind: Kind, rule: str, name: str, texts: tuple[str, str], where: str
) -> None:
    place = titan.keys.place(name) or titan.keys.root.file
    notes.find(kind, rule, place, texts[0], texts[1], where)


def _schema(titan: Titan, notes: Notes) -> None:
    mixed(titan.keys, notes)
    for table in ("parallelism", "training", "experimental"):
        auto_values(titan.keys.root.section(table), None, "torchtitan", CONFIG, notes)
    job = titan.keys.root.section("job")
    experimental = titan.keys.root.section("experimental")
    if any(
        key in section
        for section in (job, experimental)
        for key in ("custom_config_module", "custom_args_module")
    ):
        return
    for table, known in (("parallelism", PARALLELISM), ("activation_checkpoint", ACTIVATIONS)):
        section = titan.keys.root.section(table)
        unknown_keys(section, known, "rejected", "torchtitan", CONFIG, notes)


def _experts(titan: Titan, notes: Notes) -> None:
    degrees, etp = titan.degrees, titan.etp
    if degrees.ep == 1:
        if etp > 1:
            texts = (
                f"an expert tensor degree of {etp} has no effect with expert degree 1",
                "remove it, or set expert_parallel_degree",
            )
            _find(titan, notes, "ignored", "expert tensor degree", "etp", texts, _DIMS)
        return
    if etp not in (1, degrees.tp):
        texts = (
            f"expert tensor degree {etp} with tensor degree {degrees.tp}",
            f"write 1 or {degrees.tp}",
        )
        _find(titan, notes, "rejected", "expert tensor degree", "etp", texts, _DIMS)
    if isinstance(degrees.shard, int):
        _expert_groups(titan, degrees.shard * degrees.cp * degrees.tp, notes)


def _expert_groups(titan: Titan, ranks: int, notes: Notes) -> None:
    degrees, ep = titan.degrees, titan.degrees.ep
    if ranks % ep:
        texts = (
            f"groups of {ep} experts' ranks in dp_shard {degrees.shard} * cp {degrees.cp} * tp "
            f"{degrees.tp} = {ranks}: {ranks} / {ep} = {ranks / ep:.6g}",
            f"choose an expert degree that divides {ranks}",
        )
        _find(titan, notes, "rejected", "expert groups", "ep", texts, f"{_DIMS} (_validate)")


def _batch(titan: Titan, notes: Notes) -> None:
    total = titan.keys.integer("global_batch", -1, least=-1) or -1
    replicate, shard = titan.degrees.replicate, titan.degrees.shard
    if total < 1 or not titan.local or not isinstance(shard, int) or not isinstance(replicate, int):
        return
    step = titan.local * replicate * shard
    if total % step:
        texts = (
            f"global_batch_size {total} over local {titan.local} * {replicate * shard} data ranks: "
            f"{total} / {step} = {total / step:.6g}",
            f"write a multiple of {step}",
        )
        _find(titan, notes, "rejected", "global batch", "global_batch", texts, _TRAIN)


def _micro_batches(titan: Titan, notes: Notes) -> None:
    local, pp = titan.local, titan.degrees.pp
    if pp == 1 or not local:
        return
    size = titan.keys.integer("microbatch_size", 1) or 1
    number = titan.keys.integer("microbatches", -1, least=-1) or -1
    name, step = ("microbatches", number) if number > 0 else ("microbatch_size", size)
    if local % step:
        texts = (
            f"a local batch of {local} in parts of {step}: {local / step:.6g}",
            f"choose a number that divides {local}",
        )
        _find(titan, notes, "rejected", "pipeline micro-batches", name, texts, _PIPE)
    place = titan.keys.place("local_batch") or titan.keys.place("pp")
    check_bubble(pp * titan.chunks, titan.batch.accumulation, place, _PIPE, notes)


def _accumulated(titan: Titan, notes: Notes) -> None:
    """A pipeline with several passes before a step: some versions scaled the sum at each pass."""
    total = titan.keys.integer("global_batch", -1, least=-1) or -1
    replicate, shard = titan.degrees.replicate, titan.degrees.shard
    if titan.degrees.pp == 1 or not titan.local or not isinstance(replicate, int):
        return
    if isinstance(shard, int) and total > titan.local * replicate * shard:
        texts = (
            "a pipeline with gradient accumulation: versions before pull request 1732 scale the "
            "accumulated gradients at every pass",
            "use a later version, or write global_batch_size -1",
        )
        where = "pytorch/torchtitan: issue 1733"
        rule = "accumulation in a pipeline"
        _find(titan, notes, "unlikely", rule, "global_batch", texts, where)


def _schedule(titan: Titan, notes: Notes) -> None:
    keys, pp = titan.keys, titan.degrees.pp
    word = keys.word("schedule", "1F1B")
    if word.lower() not in SINGLE | LOOPED | OTHER:
        texts = (f"no schedule is called {word[:40]}", 'write "1F1B" or "Interleaved1F1B"')
        _find(titan, notes, "rejected", "schedule name", "schedule", texts, _PIPE)
    elif pp == 1 and word != "1F1B":
        texts = (
            f"the schedule {word} has no effect with pipeline degree 1",
            "remove it, or set pipeline_parallel_degree",
        )
        _find(titan, notes, "ignored", "schedule without pipeline", "schedule", texts, _PIPE)
    elif pp > 1:
        _stages(titan, word, notes)


def _stages(titan: Titan, word: str, notes: Notes) -> None:
    """Single-stage schedules have one stage on a rank, looped ones two or more."""
    keys, pp = titan.keys, titan.degrees.pp
    stages = _virtual(titan)
    name = "split_points" if keys.count("split_points") else "layers_per_stage"
    if stages is None:
        return
    if stages % pp:
        texts = (
            f"{stages} stages on {pp} pipeline ranks: {stages / pp:.6g} on each",
            f"choose stages that are a multiple of {pp}",
        )
        _find(titan, notes, "rejected", "stages on a rank", name, texts, _PIPE)
    elif (stages // pp == 1) == (word.lower() in LOOPED):
        texts = (
            f"{word} with {stages // pp} stages on a rank",
            "looped schedules need two or more, the others exactly one",
        )
        _find(titan, notes, "rejected", "stages and schedule", name, texts, _PIPE)


def _virtual(titan: Titan) -> int | None:
    """All stages, where the file (with the model's depth) says them."""
    keys = titan.keys
    listed = keys.count("split_points")
    if listed:
        return listed if keys.find("split_points")[1].startswith("module") else listed + 1
    layers, depth = titan.dims.get("L"), keys.integer("layers_per_stage")
    if not layers or not depth:
        return None
    sections = keys.root.section("parallelism")
    ends = [
        sections.integer(f"pipeline_parallel_{end}_stage_less_layers", 1) or 0
        for end in ("first", "last")
    ]
    return math.ceil((layers + sum(ends)) / depth)


def _async(titan: Titan, notes: Notes) -> None:
    keys = titan.keys
    if not keys.flag("async_tp"):
        return
    keys.take("async_tp", True, "async_tp", notes)
    section, key = keys.find("components")
    components = section.raw(key)
    model = components is None or "model" in (
        components if isinstance(components, tuple) else (components,)
    )
    if titan.degrees.tp == 1:
        texts = ("asynchronous tensor parallelism with tensor degree 1", "remove it")
    elif not keys.flag("compile") or not model:
        texts = (
            "asynchronous tensor parallelism works in compiled models only",
            'set compile.enable and the component "model"',
        )
    else:
        return
    _find(titan, notes, "ignored", "asynchronous tensor parallelism", "async_tp", texts, CONFIG)


def _recompute(titan: Titan, notes: Notes) -> None:
    keys = titan.keys
    mode = keys.word("recompute", "selective")
    if mode not in ("none", "selective", "full", "memory_budget"):
        texts = (f"no mode is called {mode[:40]}", 'write "none", "selective" or "full"')
        where = "torchtitan/distributed/activation_checkpoint.py"
        _find(titan, notes, "rejected", "recomputation mode", "recompute", texts, where)
    elif mode != "selective" and "recompute_option" in keys:
        texts = (f"selective_ac_option has no effect with mode {mode}", "remove it")
        _find(titan, notes, "ignored", "selective option", "recompute_option", texts, CONFIG)
    elif mode == "memory_budget" and not keys.flag("compile"):
        texts = ("a memory budget is met by the compiler, which is off", "set compile.enable")
        _find(titan, notes, "rejected", "memory budget", "recompute", texts, _TRAIN)


def _replicas(titan: Titan, notes: Notes) -> None:
    degrees = titan.degrees
    if degrees.replicate != 1 and not titan.sharded and (degrees.tp > 1 or degrees.pp > 1):
        texts = (
            "replicated data parallelism (DDP) with another axis, and no shard axis",
            "set data_parallel_shard_degree above 1",
        )
        where = "torchtitan/models/llama3/infra/parallelize.py"
        _find(titan, notes, "rejected", "one axis with DDP", "dp_replicate", texts, where)


def _offload(titan: Titan, notes: Notes) -> None:
    if titan.keys.flag("offload") and not titan.sharded:
        texts = ("CPU offload works in FSDP, which is off", "shard over data ranks, or remove it")
        _find(titan, notes, "ignored", "offload without FSDP", "offload", texts, _FSDP)


def _shard_group(titan: Titan, notes: Notes) -> None:
    written = titan.keys.integer("dp_shard", -1, least=-1)
    left = written == -1 and titan.degrees.shard == 1 and titan.degrees.cp == 1
    if left and titan.degrees.replicate == 1:
        one_rank(titan.degrees.shard, titan.keys.place("dp_shard") or titan.keys.root.file, notes)


def _sequence(titan: Titan, notes: Notes) -> None:
    """Tokens are cut in two pieces for each context rank, and over the tensor ranks."""
    degrees = titan.degrees
    step = degrees.tp * degrees.cp * 2
    if degrees.tp > 1 and titan.sequence % step:
        texts = (
            f"{titan.sequence} tokens over tp {degrees.tp} * cp {degrees.cp} * 2: "
            f"{titan.sequence / step:.6g}",
            f"write a seq_len that is a multiple of {step}",
        )
        where = f"{_DIMS} (seq_len_divisor)"
        _find(titan, notes, "rejected", "tokens over tensor ranks", "seq_len", texts, where)


def _shape(titan: Titan, notes: Notes) -> None:
    degrees, keys = titan.degrees, titan.keys
    sizes = {"tp": degrees.tp, "cp": degrees.cp, "pp": degrees.pp, "ep": degrees.ep}
    places = {name: keys.place(name) for name in sizes}
    sources = {
        "pp": _PIPE,
        "ep": "torchtitan/distributed/expert_parallel.py",
        "tp": "torchtitan/models/llama3/infra/parallelize.py",
        "cp": "pytorch/pytorch: torch/distributed/tensor/experimental",
    }
    fit = Fit(titan.dims, sizes, places, sources)
    check_fit(fit, notes)
    check_layers(fit, titan.chunks, notes, even=False)


RULES: tuple[Callable[[Titan, Notes], None], ...] = (
    _schema,
    _experts,
    _batch,
    _micro_batches,
    _accumulated,
    _schedule,
    _async,
    _recompute,
    _replicas,
    _offload,
    _shard_group,
    _sequence,
    _shape,
)
