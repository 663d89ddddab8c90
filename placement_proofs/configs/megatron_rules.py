"""What Megatron rejects, ignores, or trains otherwise than a file suggests: the degrees."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from placement_proofs.configs.document import Block
from placement_proofs.configs.megatron_args import MARKS, SWITCHES
from placement_proofs.configs.megatron_compose import INSTANCES, number
from placement_proofs.configs.megatron_job import (
    CHUNKS,
    CP,
    EP,
    ETP,
    LAYERS_PER_CHUNK,
    PP,
    TP,
    ULYSSES,
    Job,
    is_open,
)
from placement_proofs.configs.notes import Notes
from placement_proofs.configs.record import Batch, Kind
from placement_proofs.mesh import Dim

ARGUMENTS = "training/arguments.py (validate_args)"
_STATE = "core/parallel_state.py (initialize_model_parallel)"
_TRANSFORMER = "core/transformer/transformer_config.py"
_DIMS = {"heads": "a", "kv_heads": "akv", "layers": "L", "sequence": "s", "experts": "E"}
FIRST, LAST = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"


@dataclass(frozen=True)
class Checked:
    """A job that is being checked; ``dims`` are those of the model given beside the file."""

    job: Job
    stage: int
    batch: Batch
    notes: Notes
    dims: Mapping[str, int] = field(default_factory=dict)

    def size(self, name: str) -> int | None:
        """A number of the shape: the file's, else that of the model that was given."""
        return number(self.job, name) or self.dims.get(_DIMS[name])

    def say(
        self, kind: Kind, rule: str, key: str, message: str, remedy: str, where: str = ARGUMENTS
    ) -> None:
        """Record a finding at ``key``."""
        self.notes.find(kind, rule, self.job.section.place(key), message, remedy, where)

    def has(self, key: str) -> bool:
        """Whether the file gives ``key``."""
        return key in self.job.section


def check(checked: Checked) -> None:
    """Apply every rule."""
    from placement_proofs.configs.megatron_switches import SWITCH_RULES

    for rule in (*RULES, *SWITCH_RULES):
        rule(checked)


def _known(*sizes: Dim) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _expert_grid(c: Checked) -> None:
    job = c.job
    world = job.world.size
    if (job.ep == 1 and job.etp == job.tp) or world is None or not _known(job.etp, job.ep, job.pp):
        return
    grid = math.prod(int(size) for size in (job.etp, job.ep, job.pp))
    if world % grid == 0:
        return
    default = "" if c.has(ETP) or job.dialect.expert_tp else " (the tensor degree by default)"
    c.say(
        "rejected",
        "expert grid",
        EP if c.has(EP) else ETP,
        f"etp {job.etp}{default} * ep {job.ep} * pp {job.pp} = {grid} does not divide the world "
        f"of {world}: {world} / {grid} = {world / grid:.6g}",
        f"use a multiple of {math.lcm(grid, 1)} ranks, or a smaller expert grid",
        _STATE,
    )


def _experts(c: Checked) -> None:
    job, experts = c.job, c.size("experts")
    named = c.has("num_experts") or c.has("num_moe_experts") or "num_experts" in _maybe(job)
    key = EP if c.has(EP) else "moe_expert_parallel_size"
    if isinstance(job.ep, int) and job.ep > 1 and experts and experts % job.ep:
        message = f"{experts} experts on ep {job.ep}: {experts / job.ep:.6g} on a rank"
        c.say("rejected", "experts on ranks", key, message, "use a divisor of the experts")
    sourced = bool(c.job.section.raw("@notes"))
    if job.ep != 1 and not named and not job.dialect.partial and not sourced:
        c.say(
            "rejected",
            "experts needed",
            key,
            "expert parallelism without experts",
            "give num_experts, or remove it",
        )
    if c.has(ETP) and not named and job.ep == 1 and not job.dialect.partial and not sourced:
        message = "a dense model has no experts that this degree splits"
        c.say("ignored", "expert degree without experts", ETP, message, "remove it", _STATE)


def _expert_sequence(c: Checked) -> None:
    job = c.job
    experts = job.ep != 1 or number(job, "experts")
    if not experts or job.tp == 1 or job.dialect.partial or job.dialect.deepspeed:
        return
    if not job.given("sequence_parallel") and "sequence_parallel" not in _maybe(job):
        c.say(
            "rejected",
            "experts need sequence parallel",
            TP,
            f"experts with tp {job.tp} and no sequence parallelism: training raises",
            "add --sequence-parallel",
            "core/transformer/moe/moe_layer.py",
        )


def _maybe(job: Job) -> frozenset[str]:
    block = job.section.raw("@maybe")
    return frozenset(block.items) if isinstance(block, Block) else frozenset()


def _expert_mixture(c: Checked) -> None:
    job = c.job
    if job.ep == 1 and number(job, "experts") and _known(job.etp, job.tp) and job.etp != job.tp:
        c.say(
            "mathematics",
            "expert gradients across grids",
            ETP if c.has(ETP) else TP,
            f"ep 1 with etp {job.etp} and tp {job.tp}: older versions mix or partly reduce the "
            "experts' gradients and ranks diverge",
            f"set etp {job.tp}, or use a version with the fix",
            "NVIDIA/Megatron-LM: pull request 5916",
        )


def _instances(c: Checked) -> None:
    count, group = c.job.whole(INSTANCES) or 1, c.job.data_group
    if count == 1 or group is None:
        return
    if group % count:
        message = f"{count} instances on dp * cp = {group}: {group / count:.6g} ranks in each"
        c.say("rejected", "optimizer instances", INSTANCES, message, "use a divisor", _STATE)
    elif group == count and c.stage:
        message = f"{count} instances on dp * cp = {group}: each shards over one rank"
        c.say("unlikely", "shard group of one", INSTANCES, message, "use fewer instances", _STATE)


def _sequence(c: Checked) -> None:
    if c.job.given("sequence_parallel") and c.job.tp == 1:
        message = "sequence parallelism with tp 1 is switched off"
        remedy = "set a tensor degree above 1, or remove it"
        c.say("ignored", "sequence needs tp", "sequence_parallel", message, remedy)
    if c.job.given("tp_comm_overlap") and not c.job.given("sequence_parallel"):
        if c.job.dialect.partial or "sequence_parallel" in _maybe(c.job):
            return
        message = "tp_comm_overlap without sequence parallelism"
        c.say("rejected", "overlap needs sequence", "tp_comm_overlap", message, "add it")


def _heads(c: Checked) -> None:
    job, heads, groups = c.job, c.size("heads"), c.size("kv_heads")
    for axis, size in (("tp", job.tp), ("sequence-parallel ranks", job.sp)):
        if heads and isinstance(size, int) and heads % size:
            message = f"{heads} attention heads on {axis} {size}: {heads / size:.6g} on a rank"
            key = "num_attention_heads"
            c.say("rejected", "heads on ranks", key, message, "use a divisor", _TRANSFORMER)
    if groups and isinstance(job.tp, int) and groups % job.tp and job.tp % groups:
        message = f"{groups} key-value groups on tp {job.tp}: neither divides the other"
        key = "num_query_groups" if c.has("num_query_groups") else "num_key_value_heads"
        c.say("rejected", "groups on ranks", key, message, "use a divisor", _TRANSFORMER)


def _tokens(c: Checked) -> None:
    job, length = c.job, c.size("sequence")
    key = next((k for k in ("seq_length", "encoder_seq_length", "max_length") if c.has(k)), CP)
    rules: tuple[tuple[Dim, int, str], ...] = (
        (job.cp, 2, "2 * cp"),
        (job.tp if job.sequence else 1, 1, "tp under sequence parallelism"),
        (job.sp, 1, "the sequence-parallel ranks"),
    )
    for size, factor, name in rules:
        if length and isinstance(size, int) and size > 1 and length % (size * factor):
            step = size * factor
            message = f"a sequence of {length} is not a multiple of {name} = {step}"
            remedy = f"use {max(1, round(length / step)) * step} tokens"
            c.say("rejected", "sequence on ranks", key, message, remedy)


def _vocabulary(c: Checked) -> None:
    """A vocabulary that is padded by hand is split over the tensor ranks too."""
    key = next((k for k in ("pad_vocab_size_to", "padded_vocab_size") if c.has(k)), "")
    padded = c.job.whole(key) if key else None
    if padded and isinstance(c.job.tp, int) and padded % c.job.tp:
        message = f"a vocabulary of {padded} on tp {c.job.tp}: {padded / c.job.tp:.6g} on a rank"
        remedy = f"pad to {-(-padded // c.job.tp) * c.job.tp}"
        c.say("rejected", "vocabulary on ranks", key, message, remedy)


def _ulysses(c: Checked) -> None:
    if isinstance(c.job.sp, int) and c.job.sp > 1 and c.job.tp != 1:
        message = f"Ulysses on {c.job.sp} ranks with tp {c.job.tp}"
        remedy = "set the tensor degree to 1"
        where = "Megatron-DeepSpeed: megatron/arguments.py"
        c.say("rejected", "Ulysses without tp", ULYSSES, message, remedy, where)


def _hierarchy(c: Checked) -> None:
    kind, sizes = c.job.section.raw("cp_comm_type"), "hierarchical_context_parallel_sizes"
    if c.job.cp == 1 or kind != "a2a+p2p":
        return
    given = c.job.section.raw(sizes)
    values = given if isinstance(given, tuple) else (given,)
    product = math.prod(v for v in values if isinstance(v, int)) if given is not None else None
    if given is not None and (not isinstance(c.job.cp, int) or product == c.job.cp):
        return
    silent = c.job.dialect.format == "nemo"
    c.say(
        "mathematics" if silent else "rejected",
        "hierarchical context parallel",
        "cp_comm_type",
        f"a2a+p2p with sizes {given if given is None else values}, whose product is not cp "
        f"{c.job.cp}" + ("; older versions then attend to the local part only" if silent else ""),
        f"give {sizes} with product {c.job.cp}",
        "NVIDIA-NeMo/Megatron-Bridge: issue 2667" if silent else ARGUMENTS,
    )


def _layers(c: Checked) -> None:
    """Layers a stage: whole, with the first and last as given."""
    job, layers = c.job, c.size("layers")
    if not layers or not isinstance(job.pp, int) or c.has("pipeline_model_parallel_layout"):
        return
    first, last = job.whole(FIRST), job.whole(LAST)
    ends = sum(n for n in (first, last) if n)
    if job.pp == 1:
        _single_stage(c, layers, ends)
        return
    if c.has("pp_partition_method") or is_open(job.section, FIRST):
        return
    extra = job.given("account_for_embedding_in_pipeline_split") + job.given(
        "account_for_loss_in_pipeline_split"
    )
    stages = job.pp - sum(n is not None for n in (first, last))
    middle = layers + extra - ends
    if (stages == 0 and middle) or (stages and (middle < stages or middle % stages)):
        share = f"{middle / stages:.6g}" if stages else "no stage is left"
        message = f"{middle} layers on {stages} stages: {share}"
        remedy = "use a divisor of the layers, or give the first and last stage's layers"
        c.say("rejected", "layers on stages", PP, message, remedy)
    elif not ends and not extra:
        _chunk(c, layers // job.pp)


def _single_stage(c: Checked, layers: int, ends: int) -> None:
    if not ends or ends == layers:
        return
    key = LAST if c.has(LAST) else FIRST
    message = f"pp 1 with {ends} layers in the end stage: {ends} layers are built, not {layers}"
    source = "NVIDIA/Megatron-LM: issue 1778"
    c.say("mathematics", "layers dropped", key, message, "remove it", source)


def _chunk(c: Checked, share: int) -> None:
    """Layers of a rank into chunks: by layers a chunk, or by chunks."""
    per, key = c.job.whole(LAYERS_PER_CHUNK), LAYERS_PER_CHUNK
    if not per:
        key = next((key for key in CHUNKS if c.job.whole(key)), "")
        count = c.job.whole(key) if key else None
        if count and share % count:
            message = f"{share} layers on a rank in {count} chunks: {share / count:.6g} in each"
            c.say("rejected", "layers on chunks", key, message, "use a divisor")
        return
    if share % per:
        message = f"{share} layers on a rank in chunks of {per} layers: {share / per:.6g} chunks"
        c.say("rejected", "layers on chunks", key, message, "use a divisor (it counts layers)")
    elif share == per:
        message = f"chunks of {per} layers are the {share} layers of a rank: no interleaving"
        c.say("ignored", "one chunk", key, message, "it counts layers, not chunks; use fewer")


def _interleaving(c: Checked) -> None:
    job = c.job
    ways = [k for k in (LAYERS_PER_CHUNK, *CHUNKS) if c.has(k) and job.whole(k)]
    if len(ways) > 1:
        message = f"{' and '.join(ways)} are both given"
        c.say("rejected", "one way to interleave", ways[1], message, "keep one")
    steps = c.batch.accumulation
    if ways and job.pp == 1 and (job.chunks > 1 or ways[0] == LAYERS_PER_CHUNK):
        message = "interleaving with pp 1"
        c.say("rejected", "interleaving needs pp", ways[0], message, "set a pipeline degree")
    elif steps and isinstance(job.pp, int) and job.pp > 1:
        _micro_batches(c, steps, job.pp, ways[0] if ways and job.chunks > 1 else "")


def _micro_batches(c: Checked, steps: int, pp: int, key: str) -> None:
    group = c.job.whole("microbatch_group_size_per_virtual_pipeline_stage") or pp
    where = "core/pipeline_parallel/schedules.py"
    rest = steps % group
    if key and (steps < group or (rest and rest < pp)):
        message = f"{steps} micro-batches in groups of {group} on pp {pp}: {rest} are left over"
        remedy = f"use a multiple of {group} micro-batches"
        c.say("rejected", "interleaved micro-batches", key, message, remedy, where)
    elif not key and steps < pp:
        message = f"{steps} micro-batches on {pp} stages: most ranks wait"
        remedy = f"use at least {pp} micro-batches (a larger global or smaller micro batch)"
        c.say("unlikely", "micro-batches fill stages", PP, message, remedy, where)


def _misspelt(c: Checked) -> None:
    """Flags that are close to one that places something; Megatron takes no abbreviations."""
    known = MARKS | SWITCHES | _DEGREES
    for key in c.job.section:
        if key.startswith("@") or key in known:
            continue
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.9)
        if cut := f"{key}_size" in known:
            close = [f"{key}_size"]
        if close and (cut or not _variant(key, close[0])):
            message = f"{key[:60]} is no flag of Megatron; unknown flags are refused"
            c.say("rejected", "unknown flag", key, message, f"did you mean {close[0]}?")


def _variant(key: str, close: str) -> bool:
    """A flag of its own that happens to resemble another one."""
    own = (
        "no_",
        "decoder_",
        "encoder_",
        "inference_",
        "max_",
        "fp",
        "overlap",
        "num_layers",
        "num_",
    )
    return key.startswith(own) or close.endswith(key) or key.endswith(close)


_DEGREES = frozenset(
    {CP, EP, ETP, ULYSSES, LAYERS_PER_CHUNK, *CHUNKS, INSTANCES, FIRST, LAST, "num_experts"}
    | {"moe_expert_parallel_size", "recompute_granularity", "recompute_method", "ffn_hidden_size"}
)

RULES: tuple[Callable[[Checked], None], ...] = (
    _expert_grid,
    _experts,
    _expert_sequence,
    _expert_mixture,
    _instances,
    _sequence,
    _heads,
    _tokens,
    _vocabulary,
    _ulysses,
    _hierarchy,
    _layers,
    _interleaving,
    _misspelt,
)
