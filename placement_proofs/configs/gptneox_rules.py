"""What GPT-NeoX or the DeepSpeed below it rejects or ignores."""

from __future__ import annotations

from placement_proofs.configs.deepspeed import Engine
from placement_proofs.configs.document import Section
from placement_proofs.configs.notes import Notes

_WHERE = "megatron/neox_arguments/arguments.py"
_EXPERTS = "moe_expert_parallel_size"


def check(section: Section, tp: int, pp: int, engine: Engine, notes: Notes) -> None:
    """Apply every rule."""
    _stage(section, pp, notes)
    _shape(section, tp, pp, notes)
    _sequence(section, tp, notes)
    _micro_batches(section, pp, engine, notes)
    _experts(section, notes)
    _shards(section, notes)


def _stage(section: Section, pp: int, notes: Notes) -> None:
    zero = section.section("zero_optimization")
    stage = zero.integer("stage", 0) or 0
    if stage >= 2 and pp > 1:
        message, remedy = f"the pipeline engine refuses ZeRO stage {stage}", "use stage 0 or 1"
        where = "DeepSpeed: runtime/pipe/engine.py"
        notes.find("rejected", "pipeline stage", zero.place("stage"), message, remedy, where)


def _shape(section: Section, tp: int, pp: int, notes: Notes) -> None:
    heads, length = section.integer("num_attention_heads"), section.integer("seq_length")
    layers = section.integer("num_layers")
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


def _experts(section: Section, notes: Notes) -> None:
    experts, ranks = section.integer("moe_num_experts", 1) or 1, section.integer(_EXPERTS, 1) or 1
    if experts % ranks:
        message = f"{experts} experts on {ranks} ranks: {experts / ranks:.6g} on each"
        place = section.place(_EXPERTS)
        notes.find("rejected", "experts on ranks", place, message, "use a divisor", _WHERE)


def _shards(section: Section, notes: Notes) -> None:
    for key in ("partition_activations", "checkpoint_num_layers"):
        if key in section and section.raw(key) and not section.flag("checkpoint_activations"):
            message = f"{key} acts with checkpoint_activations only"
            remedy = "set checkpoint_activations, or remove it"
            notes.find("ignored", "checkpointing off", section.place(key), message, remedy, _WHERE)
