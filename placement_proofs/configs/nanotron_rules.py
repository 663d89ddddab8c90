"""What nanotron rejects, ignores, or does otherwise than a file suggests; one rule a function."""

from __future__ import annotations

from collections.abc import Callable

from placement_proofs.configs.document import words
from placement_proofs.configs.mesh_parts import (
    auto_values,
    misspelt_keys,
    one_rank,
    unknown_keys,
)
from placement_proofs.configs.nanotron import CONTEXT, Job
from placement_proofs.configs.notes import Notes
from placement_proofs.configs.shape_rules import (
    Fit,
    check_bubble,
    check_fit,
    check_layers,
    check_sequence_split,
)

_PARALLEL = words(
    "dp pp tp pp_engine tp_mode tp_linear_async_communication recompute_layer "
    "moe_layer_recompute tp_recompute_allgather expert_parallel_size context_parallel_size "
    "expert_tensor_parallel_size expert_data_parallel_size enabled_moe"
)
_TOKENS = words(
    "sequence_length train_steps micro_batch_size batch_accumulation_per_replica "
    "val_check_interval limit_val_batches limit_test_batches"
)
_TOP = words(
    "general parallelism model tokenizer checkpoints logging tokens optimizer data_stages "
    "profiler lighteval s3_upload metrics_logging data doremi experimental eval slurm"
)
_STRICT = "src/nanotron/config/config.py (dacite, strict)"
_ENGINE = "src/nanotron/parallel/pipeline_parallel/engine.py"


def check(job: Job, notes: Notes) -> None:
    """Apply every rule."""
    for rule in RULES:
        rule(job, notes)


def _keys(job: Job, notes: Notes) -> None:
    unknown_keys(job.parallel, _PARALLEL, "rejected", "nanotron", _STRICT, notes)
    unknown_keys(job.tokens, _TOKENS, "rejected", "nanotron", _STRICT, notes)
    for section in (job.parallel, job.tokens):
        auto_values(section, None, "nanotron", _STRICT, notes)
    misspelt_keys(job.root, _TOP, "rejected", "nanotron", _STRICT, notes)


def _experts(job: Job, notes: Notes) -> None:
    if job.degrees["ep"] > 1:
        notes.find(
            "rejected",
            "expert ranks and world",
            job.parallel.place("expert_parallel_size"),
            f"expert_parallel_size {job.degrees['ep']}: the world must be tp * pp * cp * dp, yet "
            "the rank grid is shaped with the experts' ranks too",
            "write expert_parallel_size: 1, or use a version whose world counts expert ranks",
            CONTEXT,
        )


def _stage(job: Job, notes: Notes) -> None:
    optimizer = job.root.section("optimizer")
    if "zero_stage" not in optimizer:
        notes.find(
            "rejected",
            "zero_stage is required",
            optimizer.place("zero_stage"),
            "the optimizer has no zero_stage",
            "write zero_stage: 0 or 1",
            "src/nanotron/config/config.py (OptimizerArgs)",
        )
    if job.stage > 1:
        notes.find(
            "ignored",
            "ZeRO above stage 1",
            optimizer.place("zero_stage"),
            f"zero_stage {job.stage} acts as stage 1: gradients and parameters are not sharded",
            "write zero_stage: 1",
            "src/nanotron/helpers.py (init_optimizer_and_grad_accumulator)",
        )
    if job.stage:
        one_rank(job.degrees["dp"], optimizer.place("zero_stage"), notes)


def _micro_batches(job: Job, notes: Notes) -> None:
    pp, steps = job.degrees["pp"], job.batch.accumulation
    engine = (job.parallel.word("pp_engine", "afab") or "afab").lower()
    place = job.tokens.place("batch_accumulation_per_replica")
    if engine == "1f1b" and steps is not None and steps < pp - 1:
        notes.find(
            "rejected",
            "micro-batches of 1F1B",
            place,
            f"{steps} micro-batches on {pp} pipeline ranks: 1F1B needs {pp - 1} or more",
            f"write batch_accumulation_per_replica: {pp}",
            _ENGINE,
        )
    else:
        check_bubble(pp, steps, place, _ENGINE, notes)


def _sequence(job: Job, notes: Notes) -> None:
    if job.sequence_parallel and job.degrees["tp"] == 1:
        notes.find(
            "ignored",
            "sequence parallelism at one tensor rank",
            job.parallel.place("tp_mode"),
            "REDUCE_SCATTER (sequence parallelism) has no effect with tp 1",
            "raise tp, or leave tp_mode out",
            "src/nanotron/parallel/tensor_parallel/nn.py",
        )


def _shape(job: Job, notes: Notes) -> None:
    parallel, shape = job.parallel, job.shape
    places = {
        "tp": parallel.place("tp"),
        "pp": parallel.place("pp"),
        "cp": parallel.place("context_parallel_size"),
        "ep": parallel.place("expert_parallel_size"),
    }
    sources = {
        "tp": "src/nanotron/models/llama.py (CausalSelfAttention)",
        "cp": "src/nanotron/trainer.py",
        "pp": "src/nanotron/trainer.py (_get_balanced_block_placement)",
        "ep": "src/nanotron/nn/moe.py",
    }
    fit = Fit(job.dims, job.degrees, places, sources)
    check_fit(fit, notes)
    check_layers(fit, 1, notes, even=False)
    if job.sequence_parallel:
        check_sequence_split(fit, notes)
    longest = shape.integer("max_position_embeddings", least=1)
    if longest and job.dims.get("s", 0) > longest:
        notes.find(
            "unlikely",
            "sequence within positions",
            job.tokens.place("sequence_length"),
            f"sequence_length {job.dims['s']} with max_position_embeddings {longest}",
            "raise max_position_embeddings, or shorten the sequence",
            "not a rule of every model: rotary positions are extrapolated",
        )


def _formats(job: Job, notes: Notes) -> None:
    model, optimizer = job.root.section("model"), job.root.section("optimizer")
    half = (model.word("dtype", "bfloat16") or "") in ("bfloat16", "float16")
    if half and not optimizer.flag("accumulate_grad_in_fp32", False):
        notes.find(
            "unlikely",
            "16-bit master weights",
            optimizer.place("accumulate_grad_in_fp32"),
            "accumulate_grad_in_fp32 is off: gradients add up and weights are updated in 16 bits",
            "write accumulate_grad_in_fp32: true",
            "src/nanotron/helpers.py (init_optimizer_and_grad_accumulator)",
        )


RULES: tuple[Callable[[Job, Notes], None], ...] = (
    _keys,
    _experts,
    _stage,
    _micro_batches,
    _sequence,
    _shape,
    _formats,
)
