"""What Megatron rejects or ignores: optimizer, recomputation, offload, precision, the script."""

from __future__ import annotations

from collections.abc import Callable

from placement_proofs.configs.document import Block
from placement_proofs.configs.megatron_compose import SHARDING, granularity
from placement_proofs.configs.megatron_job import PP, is_open
from placement_proofs.configs.megatron_rules import ARGUMENTS, Checked

_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_TRANSFORMER = "core/transformer/transformer_config.py"


def _shard_group(c: Checked) -> None:
    if not c.stage or c.job.data_group != 1:
        return
    keys = ("use_distributed_optimizer", "use_megatron_fsdp", "use_torch_fsdp2", "zero_stage")
    key = next((key for key in keys if c.has(key)), PP)
    message = "states are sharded over data and context ranks, of which there is one"
    remedy = "it saves no memory at this world"
    c.say(
        "unlikely",
        "shard group of one",
        key,
        message,
        remedy,
        "core/optimizer/distrib_optimizer.py",
    )


def _two_shardings(c: Checked) -> None:
    job, torch, own = c.job, "use_torch_fsdp2", "use_megatron_fsdp"
    if job.given(torch) and job.given(own):
        c.say("rejected", "one sharding", torch, "torch FSDP2 and Megatron-FSDP", "keep one")
    if job.given(torch):
        wrong = [
            name
            for name, on in (
                ("the distributed optimizer", job.given("use_distributed_optimizer")),
                (f"pp {job.pp}", job.pp != 1),
                (f"ep {job.ep}", job.ep != 1),
                ("fp16", job.given("fp16")),
            )
            if on
        ]
        if wrong:
            message = f"torch FSDP2 with {', '.join(wrong)}"
            c.say("rejected", "torch FSDP2 alone", torch, message, "remove one of the two")
        if job.dialect.format == "megatron" and _tied(c):
            message = "torch FSDP2 with one weight for embedding and head"
            remedy = "add --untie-embeddings-and-output-weights"
            c.say("rejected", "torch FSDP2 and tied weights", torch, message, remedy)
    if job.given(own):
        _megatron_fsdp(c, own)
    elif c.has(SHARDING) and job.dialect.format == "megatron":
        message = f"{SHARDING} acts with Megatron-FSDP only"
        c.say("ignored", "sharding without FSDP", SHARDING, message, "add --use-megatron-fsdp")


def _tied(c: Checked) -> bool:
    """Whether embedding and head share weights, which is Megatron's default."""
    key = "untie_embeddings_and_output_weights"
    return not c.job.given(key) and not c.job.dialect.partial and key not in _undecided(c)


def _megatron_fsdp(c: Checked, key: str) -> None:
    version = c.job.whole("megatron_fsdp_version") or 1
    on = c.job.given("use_distributed_optimizer")
    if version >= 2 and on:
        message = "version 2 of Megatron-FSDP with the distributed optimizer"
        c.say("rejected", "FSDP with distributed optimizer", key, message, "remove the latter")
    elif version == 1 and not on and not c.job.dialect.partial:
        message = "Megatron-FSDP switches the distributed optimizer on"
        remedy = "add --use-distributed-optimizer to say so"
        c.say("unlikely", "FSDP with distributed optimizer", key, message, remedy)
    if version >= 2 and any(size != 1 for size in (c.job.tp, c.job.pp, c.job.cp, c.job.ep)):
        message = "version 2 of Megatron-FSDP shards over data only"
        c.say("rejected", "FSDP version 2 alone", key, message, "set the other degrees to 1")


def _overlap(c: Checked) -> None:
    key = "overlap_param_gather"
    if not c.job.given(key) or c.job.dialect.partial or c.job.dialect.deepspeed:
        return
    maybe = c.job.section.raw("@maybe")
    undecided = isinstance(maybe, Block) and "use_distributed_optimizer" in maybe.items
    if not c.stage and not undecided and c.job.dialect.format == "megatron":
        message = "parameters are gathered by the distributed optimizer, which is off"
        c.say("rejected", "gather needs sharding", key, message, "add --use-distributed-optimizer")
    if not c.job.given("overlap_grad_reduce"):
        message = f"{key} without overlap_grad_reduce"
        c.say("rejected", "gather needs reduce", key, message, "add --overlap-grad-reduce")


def _precision(c: Checked) -> None:
    if c.job.given("bf16") and c.job.given("fp16"):
        message = "fp16 and bf16 are both on"
        c.say("rejected", "one 16-bit format", "fp16", message, "keep one of them")
    narrow, wide = "grad_reduce_in_bf16", "accumulate_allreduce_grads_in_fp32"
    if c.job.given(narrow) and c.job.given(wide):
        message = f"{narrow} replaces {wide}: gradients accumulate in bf16"
        c.say("ignored", "gradient format", wide, message, "keep one of them")


def _recompute(c: Checked) -> None:
    """Full recomputation has a method and a number of layers; selective has neither."""
    word = granularity(c.job)
    key, method, layers = "recompute_granularity", "recompute_method", "recompute_num_layers"
    given = [name for name in (method, layers) if c.has(name)]
    if not c.has(key):
        if given and word == "none" and not c.job.dialect.partial and key not in _undecided(c):
            message = f"{given[0]} without a granularity: nothing is recomputed"
            c.say("ignored", "recompute method alone", given[0], message, f"give {key}")
        return
    swift = c.job.dialect.name == "ms-swift"
    missing = [n for n in (method, layers) if n not in given]
    if word == "full" and missing and not swift and not c.job.dialect.partial:
        message = f"full recomputation without {' and '.join(missing)}"
        c.say("rejected", "full recomputation", key, message, "give both", _TRANSFORMER)
    if word == "selective" and given:
        nemo = c.job.dialect.format == "nemo"
        message = f"selective recomputation with {' and '.join(given)}"
        rule = "selective recomputation"
        c.say("ignored" if nemo else "rejected", rule, given[0], message, "remove it")


def _undecided(c: Checked) -> frozenset[str]:
    block = c.job.section.raw("@maybe")
    return frozenset(block.items) if isinstance(block, Block) else frozenset()


def _saved(c: Checked) -> None:
    key = "distribute_saved_activations"
    if not c.job.given(key):
        return
    wrong = [
        text
        for text, bad in (
            ("tp 1", c.job.tp == 1),
            (f"{granularity(c.job)} recomputation", granularity(c.job) != "full"),
            ("sequence parallelism", c.job.given("sequence_parallel")),
        )
        if bad
    ]
    if wrong:
        message = f"saved activations are split over tp, with {', '.join(wrong)}"
        c.say("rejected", "saved activations", key, message, "remove it")


def _offload(c: Checked) -> None:
    key, fraction = "optimizer_cpu_offload", "optimizer_offload_fraction"
    aware = "use_precision_aware_optimizer"
    if c.job.given(key) and not c.job.given(aware) and not c.job.dialect.partial:
        c.say("rejected", "offload needs aware optimizer", key, f"{key} without {aware}", "add it")
    if c.has(fraction) and not c.job.given(key) and not c.job.dialect.partial:
        message = f"{fraction} without {key}"
        c.say("ignored", "offload fraction alone", fraction, message, f"add {key}")
    layers = "cpu_offloading_num_layers"
    if c.job.whole(layers) and (c.job.pp != 1 or granularity(c.job) != "none"):
        message = "activations are offloaded with a pipeline or with recomputation"
        c.say("rejected", "offloaded activations", layers, message, "remove one", _TRANSFORMER)


def _connections(c: Checked) -> None:
    """One hardware queue orders communication after the kernels that feed it."""
    block = c.job.section.raw("@environment")
    item = block.items.get(_CONNECTIONS) if isinstance(block, Block) else None
    if item is None:
        return
    place = f"{c.job.section.file}:{item.line} {_CONNECTIONS}"
    sharded = c.job.given("use_megatron_fsdp") or c.job.given("use_torch_fsdp2")
    one = str(item.value) == "1"
    if one and sharded:
        message, remedy = f"FSDP refuses {_CONNECTIONS}=1", "unset it"
        c.notes.find("rejected", "hardware queues", place, message, remedy, ARGUMENTS)
    elif not one and not sharded and (c.job.tp != 1 or c.job.cp != 1):
        message = f"{_CONNECTIONS} is {str(item.value)[:20]}; before Blackwell tp or cp needs 1"
        c.notes.find("rejected", "hardware queues", place, message, "set it to 1", ARGUMENTS)


def _token_loss(c: Checked) -> None:
    """Masked tokens are spread unevenly over context ranks: a mean of means is another loss."""
    tuned = next((k for k in ("sft", "packing", "finetune_sft") if c.job.given(k)), None)
    per_token = "calculate_per_token_loss"
    if c.job.cp == 1 or tuned is None or c.job.given(per_token) or c.has(per_token):
        return
    if c.job.dialect.name == "ms-swift":
        return
    message = f"masked tokens with cp {c.job.cp}: the loss is a mean of means over context ranks"
    source = "NVIDIA-NeMo/Megatron-Bridge: training/config.py (validate)"
    c.say("mathematics", "loss over context ranks", tuned, message, f"set {per_token}", source)


def _deepspeed(c: Checked) -> None:
    if not c.job.dialect.deepspeed:
        return
    flat = c.job.given("no_pipeline_parallel")
    if c.stage >= 2 and c.job.pp != 1 and not flat:
        message = f"the pipeline engine refuses ZeRO stage {c.stage}"
        where = "DeepSpeed: runtime/pipe/engine.py"
        c.say("rejected", "pipeline stage", "zero_stage", message, "use stage 0 or 1", where)
    if c.stage == 0 and c.job.given("bf16"):
        c.notes.assume(
            "bf16 with ZeRO stage 0: older DeepSpeed shards the optimizer as stage 1 does "
            "(BF16_Optimizer); the composition replicates it"
        )


def _old_flags(c: Checked) -> None:
    for key, new in _REMOVED.items():
        if c.has(key):
            message = f"--{key.replace('_', '-')} was removed"
            c.say("rejected", "removed flag", key, message, f"use --{new}")
    old = c.job.given("checkpoint_activations") and c.job.dialect.format == "megatron"
    if old and not c.job.dialect.deepspeed:
        message = "--checkpoint-activations was removed"
        remedy = "use --recompute-activations or --recompute-granularity"
        c.say("rejected", "removed flag", "checkpoint_activations", message, remedy)
    if c.job.given("use_checkpoint_args"):
        message = "a checkpoint's arguments replace those given here"
        remedy = "check that they are the same"
        c.say("unlikely", "arguments of a checkpoint", "use_checkpoint_args", message, remedy)


_REMOVED = {
    "batch_size": "micro-batch-size",
    "model_parallel_size": "tensor-model-parallel-size",
    "warmup": "lr-warmup-fraction",
}


def _script(c: Checked) -> None:
    """Flags given twice, and flags that a missing backslash cuts off."""
    section = c.job.section
    for key, line in section.block.repeated:
        message = f"{key} is given again; the value {_short(section.raw(key))} is taken"
        place = f"{section.file}:{line} --{key.replace('_', '-')}"
        remedy = "keep one of the two"
        c.notes.find("ignored", "flag given twice", place, message, remedy, "argparse: last wins")
    broken = section.raw("@broken")
    if isinstance(broken, int) and not isinstance(broken, bool):
        c.notes.find(
            "ignored",
            "command cut off",
            f"{section.file}:{broken}",
            "the line before ends the command: the arguments from here on never reach it",
            "end the line before with a backslash",
            "not a rule of the framework: the shell ends a command at the end of its line",
        )


def _short(value: object) -> str:
    return "of several words" if isinstance(value, tuple | Block) else repr(value)[:40]


def _step_schedule(c: Checked) -> None:
    key = "step_batch_size_schedule"
    if not c.has(key):
        return
    other = next(
        (k for k in ("global_batch_size", "decrease_batch_size_if_needed") if c.has(k)), ""
    )
    if other and not is_open(c.job.section, key):
        c.say("rejected", "batch schedule", key, f"{key} with {other}", "keep one of the two")


SWITCH_RULES: tuple[Callable[[Checked], None], ...] = (
    _shard_group,
    _two_shardings,
    _overlap,
    _precision,
    _recompute,
    _saved,
    _offload,
    _connections,
    _token_loss,
    _deepspeed,
    _old_flags,
    _script,
    _step_schedule,
)
