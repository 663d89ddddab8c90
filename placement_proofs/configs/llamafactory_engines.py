"""LLaMA-Factory's engines: Hugging Face's Trainer, Megatron-Core, and the second version's own."""

from __future__ import annotations

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.document import Section
from placement_proofs.configs.llamafactory_parts import Job
from placement_proofs.configs.mesh_parts import (
    Degrees,
    Pipe,
    Result,
    add_degree,
    sharded_parts,
    stage_parts,
)
from placement_proofs.configs.notes import RANKS, World, data_ranks
from placement_proofs.configs.record import Batch
from placement_proofs.configs.trainer_deepspeed import Trainer, included_engine
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim

_INTERFACE = "src/llamafactory/v1/accelerator/interface.py"


def result(job: Job) -> Result:
    """What the file's backend makes of it."""
    job.notes.world(job.world, job.root.file)
    match job.backend:
        case "v1":
            return _second(job)
        case "megatron":
            return _megatron(job)
    return _trainer(job)


def _trainer(job: Job) -> Result:
    ranks: Dim = job.world.size or RANKS
    batch = job.batch(ranks)
    job.take_common()
    recompute = _trainer_recompute(job)
    if "deepspeed" in job.root:
        engine = included_engine(
            _filler(job, "deepspeed", job.root, batch), job.world, job.notes, job.model
        )
        if engine is not None:
            parts = [*engine.strategies, *recompute]
            return Result(parts, job.world, engine.batch, engine.dtypes)
    add_degree("dp", ranks, "", job.notes)
    job.take_batch(batch)
    parts = [*_trainer_data(job, ranks), *Pipe(1, batch.accumulation or 1).parts(), *recompute]
    return Result(parts, job.world, batch, job.dtypes())


def _filler(job: Job, key: str, section: Section, batch: Batch) -> Trainer:
    root = job.root
    return Trainer(
        job.directory,
        section,
        key,
        batch.micro_batch,
        batch.accumulation,
        root.flag("bf16", False),
        root.flag("fp16", False),
    )


def _trainer_recompute(job: Job) -> list[Strategy]:
    """LLaMA-Factory checkpoints activations unless it is told not to."""
    off = bool(job.root.flag("disable_gradient_checkpointing", False))
    key = "disable_gradient_checkpointing" if off else "gradient_checkpointing"
    job.notes.take(
        "recompute",
        "none" if off else "full",
        job.root,
        key,
        "on unless disable_gradient_checkpointing",
    )
    return [] if off else [strategies.recompute("full")]


_FSDP = {"full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2, "hybrid_shard_zero2": 2}


def _trainer_data(job: Job, ranks: Dim) -> list[Strategy]:
    root, notes = job.root, job.notes
    if "deepspeed" in root:
        return [strategies.data(dp=ranks)]
    raw = root.raw("fsdp")
    words = raw if isinstance(raw, tuple) else str(raw or "").split()
    names = [str(word).lower() for word in words]
    kind = next((name for name in names if name in _FSDP), "")
    if kind:
        return _fsdp(job, kind, "offload" in names, ranks)
    note = "an Accelerate file on the command line may set FSDP or DeepSpeed"
    notes.add("zero_stage", None, "unknown", "", note)
    notes.assume(f"no engine is named here ({note}); every state is taken as replicated")
    return [strategies.data(dp=ranks)]


def _fsdp(job: Job, kind: str, offload: bool, ranks: Dim) -> list[Strategy]:
    """The Trainer's own FSDP, of the first version unless ``fsdp_config`` says otherwise."""
    notes, place, keep = job.notes, job.root.place("fsdp"), _FSDP[kind] == 2
    notes.add("zero_stage", _FSDP[kind], "literal", place)
    notes.add("offload_param", "host" if offload else "none", "literal", place)
    if kind.startswith("hybrid"):
        notes.assume("hybrid groups: sharded inside a machine, whose number of ranks is unknown")
        own = strategies.hsdp(
            dp_replicate="machines", dp_shard=RANKS, reshard_after_forward=not keep
        )
    else:
        own = strategies.fsdp(dp=ranks, reshard_after_forward=not keep)
    away = [strategies.offload("parameters", "gradients", "optimizer")] if offload else []
    return [own, *away]


def _megatron(job: Job) -> Result:
    root, notes = job.root, job.notes
    tp, pp = job.degree("tensor_model_parallel_size"), job.degree("pipeline_model_parallel_size")
    cp, ep = job.degree("context_parallel_size"), job.degree("expert_model_parallel_size")
    ranks = data_ranks(
        job.world, {"tp": tp, "pp": pp, "cp": cp}, root.place("tensor_model_parallel_size")
    )
    sequence = bool(root.flag("sequence_parallel", False)) and tp > 1
    notes.take("tp", tp, root, "tensor_model_parallel_size")
    notes.take("pp", pp, root, "pipeline_model_parallel_size")
    notes.take("cp", cp, root, "context_parallel_size")
    notes.take("ep", ep, root, "expert_model_parallel_size", "borrowed from the data ranks")
    notes.take(
        "sequence_parallel", root.flag("sequence_parallel", False), root, "sequence_parallel"
    )
    add_degree("dp", ranks, "", notes, "world / (tp * pp * cp)")
    stage = 1 if root.flag("use_distributed_optimizer", False) else 0
    notes.take("zero_stage", stage, root, "use_distributed_optimizer")
    job.take_common()
    batch = job.batch(ranks)
    job.take_batch(batch)
    degrees = Degrees(
        shard=ranks, cp=cp, ep=ep, tp=tp, sequence=sequence, borrowed=True, cp_method="ring"
    )
    chunks = job.degree("virtual_pipeline_model_parallel_size") if pp > 1 else 1
    notes.take("chunks", chunks, root, "virtual_pipeline_model_parallel_size", "chunks of a rank")
    parts = stage_parts(stage, degrees, notes)
    parts += Pipe(pp, batch.accumulation or 1, "1f1b", chunks).parts()
    return Result([*parts, *_megatron_recompute(job)], job.world, batch, job.dtypes())


def _megatron_recompute(job: Job) -> list[Strategy]:
    word = (job.root.word("recompute_granularity", "none") or "none").lower()
    if word not in ("none", "full", "selective"):
        rule = "it is full or selective (Megatron-Core transformer_config.py)"
        job.root.refuse("recompute_granularity", rule, "write selective")
    job.notes.take("recompute", word, job.root, "recompute_granularity")
    return [] if word == "none" else [strategies.recompute(word)]


def _second(job: Job) -> Result:
    """The second version: one view of the ranks for the model, another for the data."""
    dist = job.root.section("dist_config")
    name = (dist.word("name", "none") or "none").lower()
    job.notes.take("dist_config", name, dist, "name")
    cp = job.degree("cp_size")
    ranks = data_ranks(job.world, {"cp": cp}, job.root.place("cp_size"))
    batch = _second_batch(job, ranks)
    job.take_common()
    ulysses = (job.root.word("cp_mode", "ulysses") or "ulysses").lower() == "ulysses"
    job.notes.take("cp", cp, job.root, "cp_size", "ulysses" if ulysses else "ring")
    note = "checkpointing of activations is the model's own setting"
    job.notes.add("recompute", None, "unknown", "", note)
    if name == "deepspeed" and "config_file" in dist:
        found = _second_deepspeed(job, dist, batch, ranks, cp)
        if found is not None:
            return found
    parts = _second_parts(job, dist, name, ranks, cp if ulysses else -cp)
    parts += Pipe(1, batch.accumulation or "M").parts()
    return Result(parts, job.world, batch, job.dtypes(sharded=True))


def _second_batch(job: Job, ranks: Dim) -> Batch:
    root, notes = job.root, job.notes
    micro = root.integer("micro_batch_size", 1, least=1) or 1
    total = root.integer("global_batch_size", least=1)
    steps: int | None = 1
    if total and isinstance(ranks, int):
        steps = max(total // (micro * ranks), 1)
    elif total:
        steps = None
    elif isinstance(ranks, int):
        total = micro * ranks
    notes.take("micro_batch", micro, root, "micro_batch_size")
    notes.add("accumulation", steps, "derived" if steps else "unknown")
    if "global_batch_size" in root:
        notes.take("global_batch", total, root, "global_batch_size")
    else:
        notes.add("global_batch", total, "derived" if total else "unknown")
    return Batch(micro, steps, total)


def _second_deepspeed(job: Job, dist: Section, batch: Batch, ranks: Dim, cp: int) -> Result | None:
    size = job.world.size
    inner = World(size // cp if size else None, job.world.place, job.world.provenance)
    engine = included_engine(_filler(job, "config_file", dist, batch), inner, job.notes, job.model)
    if engine is None:
        return None
    parts = [*engine.strategies, *([strategies.ulysses(sp=cp)] if cp > 1 else [])]
    return Result(parts, job.world, engine.batch, engine.dtypes)


def _second_parts(job: Job, dist: Section, name: str, ranks: Dim, context: int) -> list[Strategy]:
    """Shards over the ranks of the model's view; a negative ``context`` is a ring."""
    notes, cp = job.notes, abs(context)
    if name not in ("fsdp2", "fsdpturbo"):
        if name != "deepspeed":
            notes.add("zero_stage", 0, "derived", dist.place("name"))
        degrees = Degrees(shard=ranks, sp=max(context, 1), cp=cp if context < 0 else 1)
        return stage_parts(0, degrees, notes)
    notes.add("zero_stage", 3, "derived", dist.place("name"))
    ep = dist.integer("ep_size", 1, least=1) or 1
    notes.take("ep", ep, dist, "ep_size", "borrowed from the ranks")
    replicate, shard = _model_view(job, dist, ranks, cp)
    notes.take("dp_replicate", replicate, dist, "mp_replicate_size")
    add_degree("dp_shard", shard, dist.place("mp_shard_size"), notes, "ranks with own samples")
    degrees = Degrees(
        replicate=replicate,
        shard=shard,
        sp=context if context > 1 else 1,
        cp=cp if context < -1 else 1,
        ep=ep,
        borrowed=True,
    )
    return sharded_parts(degrees, notes)


def _model_view(job: Job, dist: Section, ranks: Dim, cp: int) -> tuple[int, Dim]:
    """Replicas, and the data ranks of one replica (context ranks are left out)."""
    replicate = dist.integer("mp_replicate_size", 1, least=1) or 1
    shard, size = dist.integer("mp_shard_size", least=1), job.world.size
    if size is None:
        return replicate, RANKS
    if size % replicate or (shard is not None and shard * replicate != size):
        raise IllFormed(
            dist.place("mp_shard_size" if shard else "mp_replicate_size"),
            f"mp_replicate_size {replicate} * mp_shard_size {shard or '(the ranks left)'} for a "
            f"world of {size}",
            f"their product is the number of ranks ({_INTERFACE})",
            "correct one of the two, or the world",
        )
    inside = size // replicate
    if inside % cp:
        job.notes.assume(
            f"context groups of {cp} reach beyond {inside} sharding ranks; the "
            "composition shards over all ranks"
        )
        return 1, ranks
    return replicate, inside // cp
