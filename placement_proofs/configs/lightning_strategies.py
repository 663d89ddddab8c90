"""Lightning's strategies: DDP, FSDP, DeepSpeed and ModelParallel, as objects or as words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.deepspeed import Engine, engine_of
from placement_proofs.configs.document import Block, Item, Section, is_template
from placement_proofs.configs.hjson_text import parse_hjson
from placement_proofs.configs.megatron_compose import strategies_of
from placement_proofs.configs.megatron_job import Dialect, job_of
from placement_proofs.configs.notes import RANKS, Notes, World
from placement_proofs.configs.record import Batch, Dtypes
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim
from placement_proofs.model import Model

_HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
_FSDP: Mapping[str, int] = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0}
_WORD = re.compile(r"deepspeed(?:_stage_([123])(_offload(_nvme)?)?)?\Z")
_SOURCE = "lightning/fabric/strategies"


@dataclass(frozen=True)
class Run:
    """A trainer with its strategy."""

    trainer: Section
    strategy: Section
    world: World
    notes: Notes
    model: Model | None

    @property
    def ranks(self) -> Dim:
        """Data-parallel ranks when nothing else splits the world."""
        return RANKS if self.world.size is None else self.world.size

    def number(self, key: str) -> int | None:
        """A number of the trainer that is written out."""
        value = self.trainer.raw(key)
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return value if whole and isinstance(value, int) else None


def engine_for(run: Run) -> Engine:
    """What a strategy comes to.

    Raises:
        IllFormed: no such strategy, or degrees that do not multiply to the world.
    """
    from placement_proofs.configs.lightning_rules import check

    name = run.strategy.raw("@name")
    word = name if isinstance(name, str) else "auto"
    run.notes.add("strategy", word, "literal" if name else "default", run.strategy.place("@name"))
    engine = _chosen(word)(run)
    check(run, word)
    return _looped(run, engine)


def _chosen(word: str) -> Callable[[Run], Engine]:
    if word in _NAMED:
        return _NAMED[word]
    if _WORD.match(word):
        return lambda run: deepspeed(run, word)
    if word.startswith("ddp"):
        return replicated
    if word.startswith("fsdp"):
        return fsdp
    return unknown


def _looped(run: Run, engine: Engine) -> Engine:
    """Lightning's own accumulation, outside of the strategy."""
    steps = run.number("accumulate_grad_batches") or 1
    run.notes.take("accumulation", steps, run.trainer, "accumulate_grad_batches")
    if any(s.name == "pipeline" for s in engine.strategies):
        return engine
    kept = tuple(s for s in engine.strategies if s.name != "accumulate")
    loop = (strategies.accumulate(micro=steps),) if steps > 1 else ()
    return Engine((*kept, *loop), replace(engine.batch, accumulation=steps), engine.dtypes)


def dtypes(run: Run) -> Dtypes:
    """``precision``: ``bf16-mixed`` keeps fp32 parameters as masters, ``bf16-true`` none."""
    word = run.trainer.raw("precision")
    run.notes.take("precision", str(word or "32-true"), run.trainer, "precision")
    text = str(word or "32")
    if is_template(text):
        return Dtypes()
    compute = "bf16" if text.startswith("bf16") else "fp16" if text.startswith("16") else "fp32"
    master = compute if text.endswith("true") else "fp32"
    return Dtypes(compute, master, compute, compute, copies=False)


def replicated(run: Run) -> Engine:
    """``ddp`` and its variants."""
    run.notes.add("zero_stage", 0, "derived")
    _ranks(run, run.ranks)
    return Engine((strategies.data(dp=run.ranks),), Batch(), dtypes(run))


def _ranks(run: Run, dp: Dim) -> None:
    run.notes.add("dp", dp, "derived" if isinstance(dp, int) else "unknown")


def alone(run: Run) -> Engine:
    """``auto``: DDP on several ranks, nothing on one."""
    if run.world.size == 1:
        run.notes.add("zero_stage", 0, "derived")
        return Engine((strategies.single(),), Batch(), dtypes(run))
    return replicated(run)


def unknown(run: Run) -> Engine:
    """A strategy that source alone does not tell."""
    word = str(run.strategy.raw("@name"))
    if not is_template(word):
        rule = "strategies are ddp, fsdp, deepspeed and model parallel, as words or objects"
        raise IllFormed(run.strategy.place("@name"), repr(word)[:60], rule, 'write "fsdp"')
    run.notes.assume("the strategy is computed by the program; data parallel ranks are taken")
    run.notes.add("zero_stage", None, "unknown", run.strategy.place("@name"))
    return Engine((strategies.data(dp=run.ranks),), Batch(), dtypes(run))


def fsdp(run: Run) -> Engine:
    """``FSDPStrategy``: FSDP1, by default FULL_SHARD."""
    section, notes = run.strategy, run.notes
    word = str(section.raw("sharding_strategy") or "FULL_SHARD").rpartition(".")[2].rstrip("}")
    if word not in (*_FSDP, *_HYBRID):
        rule = f"it is one of {', '.join((*_FSDP, *_HYBRID))}"
        section.refuse("sharding_strategy", rule, "write FULL_SHARD")
    notes.take("sharding_strategy", word, section, "sharding_strategy")
    stage = _FSDP.get(word, 3 if word == _HYBRID[0] else 2)
    notes.add("zero_stage", stage, "derived", "", word)
    parts = [_hybrid(run, word)] if word in _HYBRID else [_sharded(run, stage)]
    offload = section.raw("cpu_offload") is True or section.raw("@name") == "fsdp_cpu_offload"
    notes.take("offload_param", "host" if offload else "none", section, "cpu_offload")
    policy = "activation_checkpointing_policy"
    again = policy in section or "activation_checkpointing" in section
    notes.take("recompute", "full" if again else "none", section, policy)
    parts += [strategies.recompute("full")] if again else []
    if offload:
        parts.append(strategies.offload("parameters", "gradients", "optimizer"))
    return Engine(tuple(parts), Batch(), dtypes(run))


def _sharded(run: Run, stage: int) -> Strategy:
    _ranks(run, run.ranks)
    if stage == 0:
        return strategies.data(dp=run.ranks)
    return strategies.fsdp(dp=run.ranks, reshard_after_forward=stage == 3)


def _hybrid(run: Run, word: str) -> Strategy:
    """Shards inside a machine, replicas across, unless a mesh of two sizes is given."""
    mesh = run.strategy.raw("device_mesh")
    groups: Dim | None = run.number("num_nodes")
    shard: Dim | None = run.number("devices")
    if isinstance(mesh, tuple) and len(mesh) == 2:
        groups, shard = (n if isinstance(n, int) and n > 0 else None for n in mesh)
    elif "num_nodes" not in run.trainer and shard is not None:
        groups = 1
    if isinstance(shard, int) and run.world.size and run.world.size % shard == 0:
        groups = run.world.size // shard
    sizes = (groups or RANKS, shard or "N_dp_shard")
    for name, size in zip(("dp_replicate", "dp_shard"), sizes, strict=True):
        run.notes.add(name, size, "derived" if isinstance(size, int) else "unknown")
    return strategies.hsdp(
        dp_replicate=sizes[0], dp_shard=sizes[1], reshard_after_forward=word == _HYBRID[0]
    )


def model_parallel(run: Run) -> Engine:
    """``ModelParallelStrategy``: a mesh; what is sharded on it is the program's code."""
    section, notes = run.strategy, run.notes
    shard, tp = _mesh(run)
    run.notes.assume("ModelParallelStrategy gives the mesh; the program's code shards on it")
    coded = section.raw("@fully_shard") is True
    note = "fully_shard is called" if coded else "parallelize_fn decides; taken as fully_shard"
    notes.add("zero_stage", 3, "literal" if coded else "unknown", "", note)
    parts: list[Strategy] = [strategies.fsdp(dp=shard)]
    if tp != 1:
        parts.append(strategies.tensor(tp=tp, vocabulary=False))
    return Engine(tuple(parts), Batch(), dtypes(run))


def _mesh(run: Run) -> tuple[Dim, Dim]:
    """``auto``: data over machines, tensor inside a machine."""
    section = run.strategy
    sizes: list[Dim] = []
    for name, key, auto, symbol in (
        ("dp_shard", "data_parallel_size", "num_nodes", RANKS),
        ("tp", "tensor_parallel_size", "devices", "N_tp"),
    ):
        value = section.raw(key)
        if value in (None, "auto"):
            size: Dim = run.number(auto) or (1 if auto == "num_nodes" else symbol)
            run.notes.add(name, size, "default", "", f"auto: {auto} of the trainer")
        elif isinstance(value, str) and is_template(value):
            size = symbol
            run.notes.add(name, size, "cli or environment", section.place(key))
        else:
            size = section.integer(key, 1, least=1) or 1
            run.notes.take(name, size, section, key)
        sizes.append(size)
    return _multiplied(run, sizes[0], sizes[1])


def _multiplied(run: Run, dp: Dim, tp: Dim) -> tuple[Dim, Dim]:
    world = run.world.size
    if world is None or not isinstance(dp, int) or not isinstance(tp, int) or dp * tp == world:
        return dp, tp
    raise IllFormed(
        run.strategy.place("data_parallel_size"),
        f"dp={dp} * tp={tp} = {dp * tp} on a world of {world}",
        f"the two sizes multiply to the number of ranks ({_SOURCE}/model_parallel.py)",
        f"use {dp * tp} ranks, or sizes that multiply to {world}",
    )


def megatron(run: Run) -> Engine:
    """NeMo 2's ``MegatronStrategy``, whose arguments have Megatron's names."""
    job = job_of(run.strategy, Dialect("nemo", "NeMo"), run.world, run.notes)
    run.notes.add("zero_stage", None, "unknown", "", "ddp=DistributedDataParallelConfig decides")
    run.notes.assume("states are taken as replicated; the strategy's ddp argument decides")
    batch = Batch()
    return Engine(strategies_of(job, 0, batch, run.notes), batch, dtypes(run))


def deepspeed(run: Run, word: str = "") -> Engine:
    """``DeepSpeedStrategy`` or ``deepspeed_stage_N``; a configuration takes their place."""
    match = _WORD.match(word)
    section = _configuration(run) or _preset(run, match)
    micro = section.block.items.get("train_micro_batch_size_per_gpu")
    items = dict(section.block.items)
    if micro is None:
        items["train_micro_batch_size_per_gpu"] = Item("auto", section.block.line, given=False)
    items.setdefault(
        "gradient_accumulation_steps", Item(run.number("accumulate_grad_batches") or 1, 1)
    )
    inner = Notes("DeepSpeed")
    engine = engine_of(
        Section(section.file, Block(section.block.line, items)),
        run.world,
        inner,
        filled=True,
        model=run.model,
    )
    run.notes.fields += [f for f in inner.fields if f.name not in ("accumulation",)]
    run.notes.findings += inner.findings
    for text in inner.assumptions:
        run.notes.assume(text)
    return engine


def _configuration(run: Run) -> Section | None:
    """A configuration as a literal, or in the text that a script writes beside it."""
    value = run.strategy.raw("config")
    if isinstance(value, Block):
        return Section(run.strategy.file, value, ("config",))
    files = run.trainer.raw("@files")
    if isinstance(files, Block) and len(files.items) == 1:
        (item,) = files.items.values()
        text = "\n" * max(0, item.line - 1) + str(item.value)
        return Section(run.trainer.file, parse_hjson(text, run.trainer.file))
    if isinstance(value, str):
        run.notes.assume(f"{run.strategy.place('config')}: {value[:60]} is not read")
    return None


def _preset(run: Run, match: re.Match[str] | None) -> Section:
    """The block that the arguments or the word stand for."""
    section = run.strategy
    stage = int(match[1] or 2) if match else section.integer("stage", 2) or 0
    line = section.block.line
    zero: dict[str, Item] = {"stage": Item(stage, section.line("stage"), "stage")}
    device = "nvme" if match and match[3] else str(section.raw("remote_device") or "cpu")
    for key, target in _OFFLOADED:
        on = section.raw(key) is True or bool(match and match[2] and (stage == 3 or "opt" in key))
        if on:
            block = Block(line, {"device": Item(device, section.line(key), key)})
            zero[target] = Item(block, section.line(key), key)
    return Section(section.file, Block(line, {"zero_optimization": Item(Block(line, zero), line)}))


_OFFLOADED = (
    ("offload_optimizer", "offload_optimizer"),
    ("offload_parameters", "offload_param"),
)
_NAMED: Mapping[str, Callable[[Run], Engine]] = {
    "auto": alone,
    "DDPStrategy": replicated,
    "FSDPStrategy": fsdp,
    "DeepSpeedStrategy": deepspeed,
    "ModelParallelStrategy": model_parallel,
    "MegatronStrategy": megatron,
}
