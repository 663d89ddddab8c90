"""A Megatron job as strategies: what shards over which axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.document import Block, Section
from placement_proofs.configs.megatron_job import Job, is_open, origin
from placement_proofs.configs.notes import MICRO, RANKS, Notes
from placement_proofs.configs.record import Batch, Dtypes
from placement_proofs.mesh import Dim

FLAVOURS: Mapping[str, int] = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""Megatron-FSDP's names of what is sharded, as ZeRO stages."""

SHARDING = "data_parallel_sharding_strategy"
INSTANCES = "num_distributed_optimizer_instances"
_ZERO: tuple[Callable[..., Strategy], ...] = (
    strategies.data,
    strategies.zero1,
    strategies.zero2,
    strategies.zero3,
)


def strategies_of(job: Job, stage: int, batch: Batch, notes: Notes) -> tuple[Strategy, ...]:
    """The strategies in the order data, expert, tensor, context, pipeline."""
    parts = [*data_axes(job, stage, notes), *_experts(job, notes)]
    if job.tp != 1:
        parts.append(_tensor(job, notes))
    parts += _context(job)
    if job.sp != 1:
        parts.append(strategies.ulysses(sp=job.sp))
    parts += _loop(job, batch, notes)
    return (*parts, *_recompute(job, notes), *_offload(job, notes))


def _tensor(job: Job, notes: Notes) -> Strategy:
    """Key-value groups that are fewer than the ranks are used by several ranks each."""
    groups = number(job, "kv_heads")
    fewer = groups is not None and isinstance(job.tp, int) and job.tp > groups
    if fewer:
        notes.assume(
            f"{groups} key-value groups on tp {job.tp}: their projections are placed whole on "
            "every rank, where Megatron stores parts of them and gathers what they give"
        )
    return strategies.tensor(tp=job.tp, sequence=job.sequence, replicate_kv=fewer)


def stage_of(job: Job, notes: Notes) -> int:
    """The ZeRO stage that the switches come to, with where it was said."""
    section = job.section
    if job.given("use_megatron_fsdp") and is_open(section, SHARDING):
        note = "taken as optim_grads_params"
        notes.add("zero_stage", None, "cli or environment", section.place(SHARDING), note)
        return 3
    if job.given("use_megatron_fsdp"):
        word = section.word(SHARDING, "optim_grads_params") or ""
        if word not in FLAVOURS:
            section.refuse(SHARDING, f"it is one of {', '.join(FLAVOURS)}", "write optim_grads")
        provenance, note = origin(section, SHARDING)
        place = section.place(SHARDING) if SHARDING in section else ""
        notes.add("zero_stage", FLAVOURS[word], provenance, place, f"Megatron-FSDP {word}; {note}")
        return FLAVOURS[word]
    if job.given("use_torch_fsdp2"):
        place = section.place("use_torch_fsdp2")
        notes.add("zero_stage", 3, "literal", place, "fully_shard of torch")
        return 3
    return _optimizer_stage(job, notes)


def _optimizer_stage(job: Job, notes: Notes) -> int:
    section, key = job.section, "use_distributed_optimizer"
    if "zero_stage" in section and job.dialect.deepspeed:
        if is_open(section, "zero_stage"):
            place = section.place("zero_stage")
            notes.add("zero_stage", None, "cli or environment", place, "taken as 0")
            return 0
        stage = section.integer("zero_stage", 0) or 0
        if stage > 3:
            section.refuse("zero_stage", "a stage is 0, 1, 2 or 3", "write 1")
        notes.take("zero_stage", stage, section, "zero_stage", "DeepSpeed")
        return stage
    if job.undecided("zero_stage", notes, key, "use_megatron_fsdp", "use_torch_fsdp2"):
        return 0
    if key in section:
        stage = int(job.given(key))
        notes.take("zero_stage", stage, section, key, "distributed optimizer")
        return stage
    if job.dialect.distributed:
        notes.add("zero_stage", 1, "default", "", job.dialect.distributed)
        return 1
    if job.dialect.partial:
        note = f"{key} comes from the recipe or base file of {job.dialect.name}; taken as off"
        notes.add("zero_stage", None, "unknown", "", note)
        notes.assume("the sharding of states comes from a file that is not read; none is taken")
        return 0
    notes.add("zero_stage", 0, "default", "", "no distributed optimizer")
    return 0


def data_axes(job: Job, stage: int, notes: Notes) -> list[Strategy]:
    """The strategy of the data axis; a part of it is the expert axis."""
    dp = _without_experts(job)
    over = ["dp"] + ["cp"] * (job.cp != 1 and not _all_to_all(job))
    over += ["sp"] * (job.sp != 1 or (job.cp != 1 and _all_to_all(job)))
    shard = {"shard_over": tuple(over)} if stage and len(over) > 1 else {}
    groups = job.whole(INSTANCES) or 1
    if stage and groups > 1 and isinstance(dp, int) and dp % groups == 0:
        notes.take("distopt_instances", groups, job.section, INSTANCES)
        outer = strategies.place(dp_replicate=groups, batch="S(0)")
        return [outer, _ZERO[stage](dp=dp // groups, **shard)]
    if stage and job.experts_apart:
        notes.assume(
            "states of dense layers are sharded over all data-parallel ranks; the composition "
            "shards them over dp without the expert axis, which needs more memory"
        )
    return [_ZERO[stage](dp=dp, **shard)]


def _without_experts(job: Job) -> Dim:
    if isinstance(job.dp, int) and isinstance(job.ep, int) and job.experts_apart:
        return job.dp // job.ep
    return RANKS if not isinstance(job.dp, int) or job.experts_apart else job.dp


def _experts(job: Job, notes: Notes) -> list[Strategy]:
    if job.ep == 1:
        return []
    if job.experts_apart:
        return [strategies.expert(ep=job.ep)]
    notes.assume(
        f"the expert grid etp={job.etp} ep={job.ep} crosses the tensor or context ranks; it is in "
        "the fields and not in the composition, which places experts as other layers"
    )
    return []


def _all_to_all(job: Job) -> bool:
    return job.section.raw("cp_comm_type") == "a2a"


def _context(job: Job) -> list[Strategy]:
    """Ring by default; ``a2a`` is Ulysses' exchange of heads."""
    if job.cp == 1:
        return []
    if _all_to_all(job):
        return [strategies.ulysses(sp=job.cp)]
    gathered = job.section.raw("cp_comm_type") in ("allgather", "all_gather")
    return [strategies.context(cp=job.cp, method="all-gather" if gathered else "ring")]


def _loop(job: Job, batch: Batch, notes: Notes) -> list[Strategy]:
    steps: Dim | None = batch.accumulation
    if steps is None:
        notes.assume(f"the number of micro-batches is not in the file; {MICRO} stands for it")
        steps = MICRO
    if job.pp == 1:
        return [] if steps == 1 else [strategies.accumulate(micro=steps)]
    if job.chunks > 1:
        return [
            strategies.pipeline(
                pp=job.pp, microbatches=steps, schedule="interleaved", chunks=job.chunks
            )
        ]
    return [strategies.pipeline(pp=job.pp, microbatches=steps)]


def granularity(job: Job) -> str:
    """``full``, ``selective`` or ``none``."""
    word = str(job.section.raw("recompute_granularity") or "").lower()
    if word in ("full", "selective"):
        return word
    if job.given("checkpoint_activations") or job.given("deepspeed_activation_checkpointing"):
        return "full"
    return "selective" if job.given("recompute_activations") else "none"


def _recompute(job: Job, notes: Notes) -> tuple[Strategy, ...]:
    word, section = granularity(job), job.section
    keys = ("recompute_granularity", "recompute_activations", "checkpoint_activations")
    key = next((key for key in keys if key in section), keys[0])
    if word != "none" or not job.undecided("recompute", notes, *keys):
        notes.take("recompute", word, section, key)
    for name in ("recompute_method", "recompute_num_layers", "recompute_modules"):
        if name in section:
            notes.take(name, _plain(section, name), section, name)
    modules = section.raw("recompute_modules")
    if word == "selective" and modules and modules not in ("core_attn", ("core_attn",)):
        notes.assume(
            f"recomputed modules are {_plain(section, 'recompute_modules')}; the composition "
            "recomputes the attention core"
        )
    if section.raw("recompute_method") == "block":
        notes.assume("the first layers of a stage are recomputed, the composition's are all")
    return () if word == "none" else (strategies.recompute(word),)


def _plain(section: Section, key: str) -> str:
    value = section.raw(key)
    if isinstance(value, tuple):
        return " ".join(str(v) for v in value if not isinstance(v, Block | tuple))
    return str(value)[:80]


def _offload(job: Job, notes: Notes) -> tuple[Strategy, ...]:
    key, fraction = "optimizer_cpu_offload", "optimizer_offload_fraction"
    on = job.given(key)
    if not job.undecided("offload_optimizer", notes, key):
        notes.take("offload_optimizer", "host" if on else "none", job.section, key)
    if job.given("cpu_offloading") or job.whole("cpu_offloading_num_layers"):
        notes.take("offload_activations", "host", job.section, "cpu_offloading_num_layers")
        notes.assume("activations of some layers are offloaded; the composition keeps them")
    if not on:
        return ()
    if fraction in job.section:
        notes.take(fraction, _plain(job.section, fraction), job.section, fraction)
        if _plain(job.section, fraction) not in ("1", "1.0"):
            notes.assume("a fraction of the optimizer is offloaded; the composition's is whole")
    return (strategies.offload("optimizer"),)


def dtypes_of(job: Job, notes: Notes) -> Dtypes:
    """Number formats: gradients accumulate in fp32 unless the file says otherwise."""
    compute = "bf16" if job.given("bf16") else "fp16" if job.given("fp16") else "fp32"
    if job.undecided("compute_dtype", notes, "bf16", "fp16"):
        return Dtypes()
    if compute == "fp32" and job.dialect.partial:
        return Dtypes()
    named = "bf16" if job.given("bf16") else "fp16"
    notes.take("compute_dtype", compute, job.section, named)
    if "fp8_format" in job.section:
        notes.take("fp8", _plain(job.section, "fp8_format"), job.section, "fp8_format")
    narrow = job.given("grad_reduce_in_bf16")
    main = str(job.section.raw("main_grads_dtype") or ("bf16" if narrow else "fp32"))
    gradients = compute if compute == "fp16" else main
    wide = job.given("accumulate_allreduce_grads_in_fp32")
    return Dtypes(compute, "fp32", "fp32" if wide and not narrow else gradients, gradients)


_SHAPE: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_query_groups", "num_key_value_heads"),
    "ffn": ("ffn_hidden_size",),
    "sequence": ("seq_length", "encoder_seq_length", "max_length"),
    "vocabulary": ("vocab_size", "padded_vocab_size", "pad_vocab_size_to"),
    "experts": ("num_experts", "num_moe_experts"),
    "first_stage_layers": (
        "decoder_first_pipeline_num_layers",
        "num_layers_in_first_pipeline_stage",
    ),
    "last_stage_layers": ("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"),
}


def shape(job: Job, notes: Notes) -> None:
    """Record the model's shape where the file gives it."""
    for name, keys in _SHAPE.items():
        key = next((key for key in keys if key in job.section), None)
        if key is None:
            continue
        number = job.whole(key)
        provenance, note = origin(job.section, key)
        provenance = provenance if number is not None else "cli or environment"
        notes.add(name, number, provenance, job.section.place(key), note)
    _embedding(job, notes)
    if not job.undecided("sequence_parallel", notes, "sequence_parallel"):
        on = job.given("sequence_parallel") and job.tp != 1
        notes.take("sequence_parallel", on, job.section, "sequence_parallel")


def _embedding(job: Job, notes: Notes) -> None:
    """The vocabulary after padding, and whether embedding and head share weights."""
    words, step = job.whole("vocab_size"), job.whole("make_vocab_size_divisible_by") or 128
    if words and isinstance(job.tp, int):
        padded = -(-words // (step * job.tp)) * step * job.tp
        note = f"to a multiple of {step} * tp"
        notes.add("padded_vocabulary", padded, "derived", "", note)
    key = "untie_embeddings_and_output_weights"
    if job.dialect.format == "megatron" and not job.dialect.partial:
        notes.take("tied", not job.given(key), job.section, key)


def number(job: Job, name: str) -> int | None:
    """A number of the shape by its neutral name."""
    return next((n for key in _SHAPE[name] if (n := job.whole(key)) is not None), None)
