"""What GPT-NeoX or the DeepSpeed below it rejects or ignores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement_proofs.configs.deepspeed import Engine
from placement_proofs.configs.deepspeed_keys import TOP
from placement_proofs.configs.document import Section, words
from placement_proofs.configs.mesh_parts import misspelt_keys
from placement_proofs.configs.notes import Notes
from placement_proofs.mesh import Dim

_WHERE = "megatron/neox_arguments/arguments.py"
_EXPERTS = "moe_expert_parallel_size"
_PLACING = words(
    "pipe_parallel_size model_parallel_size num_layers hidden_size num_attention_heads "
    "num_kv_heads seq_length intermediate_size moe_num_experts moe_expert_parallel_size "
    "sequence_parallel checkpoint_activations checkpoint_num_layers partition_activations "
    "precision batch_size zero_allow_untested_optimizer eval_batch_size"
)


@dataclass(frozen=True)
class Checked:
    """A file that is being checked: degrees in ranks, and sizes of the model given beside it."""

    section: Section
    degrees: Mapping[str, Dim]
    engine: Engine
    dims: Mapping[str, int]
    notes: Notes

    def degree(self, name: str) -> int:
        """A degree that the file gives, or its default."""
        size = self.degrees[name]
        return size if isinstance(size, int) else 1

    def size(self, key: str, dim: str) -> int | None:
        """A number of the shape: the file's, else that of the model."""
        return self.section.integer(key) or self.dims.get(dim)


def check(c: Checked) -> None:
    """Apply every rule."""
    section, notes, tp, pp = c.section, c.notes, c.degree("tp"), c.degree("pp")
    known = TOP | _PLACING
    misspelt_keys(section, known, "rejected", "GPT-NeoX", f"{_WHERE} (NeoXArgs)", notes)
    _stage(section, pp, notes)
    _shape(c, tp, pp)
    _sequence(section, tp, notes)
    _micro_batches(section, pp, c.engine, notes)
    _experts(c)
    _shards(section, notes)


def _stage(section: Section, pp: int, notes: Notes) -> None:
    zero = section.section("zero_optimization")
    stage = zero.integer("stage", 0) or 0
    if stage >= 2 and pp > 1:
        message, remedy = f"the pipeline engine refuses ZeRO stage {stage}", "use stage 0 or 1"
        where = "DeepSpeed: runtime/pipe/engine.py"
        notes.find("rejected", "pipeline stage", zero.place("stage"), message, remedy, where)


def _shape(c: Checked, tp: int, pp: int) -> None:
    section, notes = c.section, c.notes
    heads, length = c.size("num_attention_heads", "a"), c.size("seq_length", "s")
    layers = c.size("num_layers", "L")
    if heads and heads % tp:
        message = f"{heads} attention heads on {tp} model-parallel ranks: {heads / tp:.6g} on each"
        place = section.place("num_attention_heads")
        notes.find("rejected", "heads on ranks", place, message, "use a divisor", _WHERE)
    if length and section.flag("sequence_parallel") and length % tp:
        message = f"a sequence of {length} is not a multiple of the {tp} ranks that split it"
        place = section.place("seq_length")
        notes.find("rejected", "sequence on ranks", place, message, "use a multiple", _WHERE)
    if layers and pp > 1 and layers % pp:
        message = f"{layers} layers on {pp} stages: stages differ in length"
        place, where = section.place("pipe_parallel_size"), "DeepSpeed: runtime/pipe/module.py"
        notes.find("unlikely", "layers on stages", place, message, "use a divisor", where)


def _sequence(section: Section, tp: int, notes: Notes) -> None:
    if section.flag("sequence_parallel") and tp == 1:
        message = "sequence parallelism with one model-parallel rank does nothing"
        place, remedy = section.place("sequence_parallel"), "set model_parallel_size, or remove it"
        notes.find("ignored", "sequence needs tp", place, message, remedy, _WHERE)


def _micro_batches(section: Section, pp: int, engine: Engine, notes: Notes) -> None:
    steps = engine.batch.accumulation
    if steps and pp > 1 and steps < pp:
        message = f"{steps} micro-batches on {pp} stages: most ranks wait"
        place = section.place("pipe_parallel_size")
        remedy = f"set gradient_accumulation_steps to {pp} or more"
        where = "DeepSpeed: runtime/pipe/schedule.py"
        notes.find("unlikely", "micro-batches fill stages", place, message, remedy, where)


def _experts(c: Checked) -> None:
    """Ranks share the experts of a layer, and groups of such ranks are data-parallel ranks."""
    section, notes = c.section, c.notes
    experts, ranks = c.size("moe_num_experts", "E") or 1, section.integer(_EXPERTS, 1) or 1
    data, place = c.degrees["dp"], section.place(_EXPERTS)
    if experts % ranks:
        message = f"{experts} experts on {ranks} ranks: {experts / ranks:.6g} on each"
        notes.find("rejected", "experts on ranks", place, message, "use a divisor", _WHERE)
    if isinstance(data, int) and data % ranks:
        message = f"groups of {ranks} experts' ranks on {data} data ranks: {data / ranks:.6g}"
        where = "DeepSpeed: deepspeed/utils/groups.py"
        notes.find("rejected", "expert groups", place, message, "use a divisor", where)


def _shards(section: Section, notes: Notes) -> None:
    for key in ("partition_activations", "checkpoint_num_layers"):
        if key in section and section.raw(key) and not section.flag("checkpoint_activations"):
            message = f"{key} acts with checkpoint_activations only"
            remedy = "set checkpoint_activations, or remove it"
            notes.find("ignored", "checkpointing off", section.place(key), message, remedy, _WHERE)
