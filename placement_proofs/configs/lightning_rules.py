"""What Lightning rejects, and what trains otherwise than a program suggests."""

from __future__ import annotations

from placement_proofs.configs.document import Block
from placement_proofs.configs.lightning_strategies import Run

_STRATEGIES = "fabric/strategies"


def check(run: Run, word: str) -> None:
    """Apply every rule."""
    if word == "FSDPStrategy" or word.startswith("fsdp"):
        _wrap(run)
        _hybrid(run)
        _groups(run)
    if "eepspeed" in word.lower():
        _batch_keys(run)
    _sampler(run)
    _alone(run, word)
    if run.strategy.raw("@several") is True:
        place = run.strategy.place()
        run.notes.assume(f"{place}: the program chooses among strategies; the first is taken")


def _word(run: Run) -> str:
    return str(run.strategy.raw("sharding_strategy") or "FULL_SHARD")


def _wrap(run: Run) -> None:
    if "HYBRID" in _word(run):
        keys = ("auto_wrap_policy", "process_group", "device_mesh")
        if not any(key in run.strategy for key in keys):
            message = "hybrid sharding without a wrap policy, process group or device mesh"
            place, where = run.strategy.place("sharding_strategy"), f"{_STRATEGIES}/fsdp.py"
            remedy = "give auto_wrap_policy"
            run.notes.find("rejected", "hybrid needs units", place, message, remedy, where)
    elif "auto_wrap_policy" not in run.strategy and _word(run) != "NO_SHARD":
        message = "no wrap policy: the whole model may be one unit, gathered at once"
        place, where = run.strategy.place(), f"{_STRATEGIES}/fsdp.py"
        remedy = "give auto_wrap_policy, or wrap layers in configure_model"
        run.notes.find("unlikely", "FSDP units", place, message, remedy, where)


def _hybrid(run: Run) -> None:
    """Groups of one: no replicas, or shards that nobody synchronises."""
    if "HYBRID" not in _word(run):
        return
    known = {field.name: field.value for field in run.notes.fields}
    place = run.strategy.place("sharding_strategy")
    if known.get("dp_shard") == 1 and known.get("dp_replicate") != 1:
        run.notes.find(
            "mathematics",
            "hybrid shard group of one",
            place,
            "the shard group has one rank: FSDP1 then reduces over it alone and replicas diverge",
            "use NO_SHARD or DDP, or more ranks in a shard group",
            "pytorch/pytorch: issue 154888",
        )
    elif known.get("dp_replicate") == 1:
        message = "one replica: hybrid sharding is full sharding here"
        where = f"{_STRATEGIES}/fsdp.py"
        remedy = "use FULL_SHARD, or more machines"
        run.notes.find("unlikely", "hybrid with one replica", place, message, remedy, where)


def _groups(run: Run) -> None:
    if "process_group" in run.strategy and "device_mesh" in run.strategy:
        message, place = "process_group and device_mesh", run.strategy.place("device_mesh")
        where = f"{_STRATEGIES}/fsdp.py"
        run.notes.find("rejected", "one kind of group", place, message, "keep one", where)


def _batch_keys(run: Run) -> None:
    config = run.strategy.raw("config")
    key = "gradient_accumulation_steps"
    if isinstance(config, Block) and key in config.items:
        place = f"{run.strategy.file}:{config.items[key].line} config.{key}"
        message, remedy = f"{key} in the configuration", "use accumulate_grad_batches"
        where = f"{_STRATEGIES}/deepspeed.py"
        run.notes.find("rejected", "accumulation in Lightning", place, message, remedy, where)


def _sampler(run: Run) -> None:
    """Without Lightning's sampler every rank sees the same samples, unless the program splits."""
    for key in ("use_distributed_sampler", "replace_sampler_ddp"):
        if run.trainer.raw(key) is False and run.world.size != 1:
            message = f"{key} is off: ranks see the same samples unless the program splits them"
            remedy = "check that the data loader splits the samples over the ranks"
            where = "pytorch/trainer/connectors/data_connector.py"
            place = run.trainer.place(key)
            run.notes.find("unlikely", "samples not split", place, message, remedy, where)


def _alone(run: Run, word: str) -> None:
    if run.world.size == 1 and word not in ("auto", "ddp", "DDPStrategy"):
        message = f"{word} on one rank shards nothing"
        place = run.strategy.place("@name")
        where = f"{_STRATEGIES} (any)"
        remedy = "use more devices, or no strategy"
        run.notes.find("unlikely", "shard group of one", place, message, remedy, where)
