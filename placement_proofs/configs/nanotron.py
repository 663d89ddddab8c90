"""nanotron's YAML as a composition (huggingface/nanotron: ``src/nanotron/config/``).

Data, tensor, pipeline and context ranks multiply to the world; ZeRO is stage 1 over data ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.document import Block, Section
from placement_proofs.configs.mesh_parts import (
    Degrees,
    Pipe,
    Result,
    imported,
    named_product,
    other_parts,
    repeated_keys,
)
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.record import Batch, Dtypes, Imported
from placement_proofs.configs.shape_rules import dims_of, take_shape
from placement_proofs.errors import IllFormed
from placement_proofs.model import Model

CONTEXT = "src/nanotron/parallel/context.py"
_CONFIG = "src/nanotron/config/parallelism_config.py"
_FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "double": "fp64"}
_SHAPE = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
}


@dataclass(frozen=True)
class Job:
    """A nanotron job: its blocks, degrees in ranks, the batch, and the model's sizes."""

    root: Section
    parallel: Section
    degrees: Mapping[str, int]
    stage: int
    sequence_parallel: bool
    batch: Batch
    dims: Mapping[str, int]

    @property
    def tokens(self) -> Section:
        return self.root.section("tokens")

    @property
    def shape(self) -> Section:
        return self.root.section("model").section("model_config")


def claims(block: Block) -> bool:
    """Whether a file has nanotron's blocks for degrees and tokens."""
    inner = _keys(block, "parallelism")
    return {"dp", "tp", "pp"} <= inner or ("parallelism" in block.items and "tokens" in block.items)


def _keys(block: Block, name: str) -> set[str]:
    item = block.items.get(name)
    return set(item.value.items) if item and isinstance(item.value, Block) else set()


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import a nanotron file that was read.

    Raises:
        IllFormed: a degree that is absent, or degrees that do not multiply to the world.
    """
    from placement_proofs.configs.nanotron_rules import check

    notes = Notes("nanotron")
    repeated_keys(path.name, block, notes, "src/nanotron/config/config.py (the YAML loader)")
    job = _job(Section(path.name, block), model, notes)
    size = _world(job, world)
    notes.world(size, path.name)
    _record(job, notes)
    parts = _parts(job, notes)
    check(job, notes)
    return imported("nanotron", path, Result(parts, size, job.batch, _dtypes(job, notes)), notes)


def _job(root: Section, model: Model | None, notes: Notes) -> Job:
    parallel = root.section("parallelism")
    degrees = {name: _required(parallel, name) for name in ("dp", "tp", "pp")}
    for name, key in (("cp", "context_parallel_size"), ("ep", "expert_parallel_size")):
        degrees[name] = parallel.integer(key, 1, least=1) or 1
    optimizer = root.section("optimizer")
    mode = (parallel.word("tp_mode", "ALL_REDUCE") or "ALL_REDUCE").upper()
    if mode not in ("ALL_REDUCE", "REDUCE_SCATTER"):
        parallel.refuse("tp_mode", f"it is ALL_REDUCE or REDUCE_SCATTER ({_CONFIG})", "choose one")
    return Job(
        root,
        parallel,
        degrees,
        optimizer.integer("zero_stage", 0) or 0,
        mode == "REDUCE_SCATTER",
        _batch(root.section("tokens"), degrees["dp"]),
        _dims(root, model, notes),
    )


def _required(parallel: Section, name: str) -> int:
    if parallel.is_auto(name):
        parallel.refuse(name, f"nobody fills auto here ({_CONFIG})", "write the number of ranks")
    size = parallel.integer(name, least=1)
    if size is None:
        rule = f"dp, tp and pp have no default ({_CONFIG})"
        raise IllFormed(parallel.place(name), f"no {name}", rule, f"write {name}: 1")
    return size


def _batch(tokens: Section, dp: int) -> Batch:
    micro = tokens.integer("micro_batch_size", least=1)
    steps = tokens.integer("batch_accumulation_per_replica", least=1)
    return Batch(micro, steps, micro * steps * dp if micro and steps else None)


def _dims(root: Section, model: Model | None, notes: Notes) -> dict[str, int]:
    """Sizes of the model in the file; the model that was given fills what it leaves out."""
    shape = root.section("model").section("model_config")
    dims = dims_of(model, root.section("tokens").integer("sequence_length", least=1))
    experts = shape.integer("moe_num_experts", least=1)
    if isinstance(shape.raw("moe_config"), Block):
        experts = experts or shape.section("moe_config").integer("num_experts", least=1)
    if experts:
        notes.add("experts", experts, "literal", shape.place())
        dims["E"] = experts
    return dims | take_shape(shape, _SHAPE, notes)


def _world(job: Job, world: int | None) -> World:
    """``tp * pp * cp * dp`` (older versions: times the experts' ranks) is the world."""
    sizes = {name: size for name, size in job.degrees.items() if name != "ep"}
    product, experts = math.prod(sizes.values()), job.degrees["ep"]
    if world is None:
        return World(product * experts, job.parallel.place(), "derived")
    if world not in (product, product * experts):
        raise IllFormed(
            job.parallel.place(),
            f"{named_product(dict(job.degrees))} = {product * experts} for a world of {world}",
            f"dp * tp * pp * cp is the world ({CONTEXT})",
            "correct a degree, or the world",
        )
    return World(product * experts, "", "cli or environment")


def _record(job: Job, notes: Notes) -> None:
    keys = {"cp": "context_parallel_size", "ep": "expert_parallel_size"}
    for name, size in job.degrees.items():
        notes.take(name, size, job.parallel, keys.get(name, name))
    notes.take("zero_stage", min(job.stage, 1), job.root.section("optimizer"), "zero_stage")
    notes.take("sequence_parallel", job.sequence_parallel, job.parallel, "tp_mode")
    tokens = job.tokens
    notes.take("micro_batch", job.batch.micro_batch, tokens, "micro_batch_size", "samples")
    notes.take("accumulation", job.batch.accumulation, tokens, "batch_accumulation_per_replica")
    notes.add("global_batch", job.batch.global_batch, "derived", "", "micro * accumulation * dp")
    notes.take("seq_len", job.dims.get("s"), tokens, "sequence_length", "tokens")
    recompute = bool(job.parallel.flag("recompute_layer", False))
    notes.take("recompute", "full" if recompute else "none", job.parallel, "recompute_layer")
    notes.take("offload_param", "none", job.parallel, "")


def _parts(job: Job, notes: Notes) -> list[Strategy]:
    sizes = job.degrees
    degrees = Degrees(
        cp=sizes["cp"],
        ep=sizes["ep"],
        tp=sizes["tp"],
        cp_method="ring",
        sequence=job.sequence_parallel,
    )
    own = strategies.zero1 if job.stage else strategies.data
    parts = [own(dp=sizes["dp"]), *other_parts(degrees)]
    if sizes["ep"] > 1:
        notes.assume(
            "the composition gives the ranks of an expert group samples of their own; where they "
            "share one sample, it counts too many"
        )
    parts += _pipe(job, notes).parts()
    if job.parallel.flag("recompute_layer", False):
        parts.append(strategies.recompute("full"))
    elif job.parallel.flag("moe_layer_recompute", False):
        notes.assume("only the experts' layers are recomputed; the composition recomputes nothing")
    return parts


def _pipe(job: Job, notes: Notes) -> Pipe:
    word = (job.parallel.word("pp_engine", "afab") or "afab").lower()
    if word not in ("afab", "1f1b"):
        job.parallel.refuse("pp_engine", f"it is afab or 1f1b ({_CONFIG})", "write 1f1b")
    if job.degrees["pp"] > 1:
        notes.take("pp_schedule", word, job.parallel, "pp_engine")
    schedule = "gpipe" if word == "afab" else "1f1b"
    return Pipe(job.degrees["pp"], job.batch.accumulation or "M", schedule)


def _dtypes(job: Job, notes: Notes) -> Dtypes:
    model, optimizer = job.root.section("model"), job.root.section("optimizer")
    word = model.word("dtype", "bfloat16") or "bfloat16"
    compute = _FORMATS.get(word, word)
    notes.take("compute_dtype", compute, model, "dtype")
    wide = "fp32" if optimizer.flag("accumulate_grad_in_fp32", False) else compute
    notes.take("gradient_dtype", wide, optimizer, "accumulate_grad_in_fp32")
    return Dtypes(compute, wide, wide, wide)
