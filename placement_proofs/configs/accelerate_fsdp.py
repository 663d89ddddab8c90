"""FSDP in Accelerate: versions 1 and 2 (``utils/dataclasses.py``)."""

from __future__ import annotations

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.accelerate_launch import Launch
from placement_proofs.configs.deepspeed import Engine
from placement_proofs.configs.document import Section, words
from placement_proofs.configs.notes import RANKS, Notes, data_ranks
from placement_proofs.configs.record import Batch, Provenance
from placement_proofs.mesh import Dim

_CODES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_STAGES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3}
_KNOWN = words(
    "version sharding_strategy reshard_after_forward auto_wrap_policy backward_prefetch "
    "transformer_layer_cls_to_wrap min_num_params offload_params activation_checkpointing "
    "cpu_ram_efficient_loading sync_module_states use_orig_params state_dict_type "
    "forward_prefetch ignored_modules limit_all_gathers"
)
_V1_ONLY = ("backward_prefetch", "use_orig_params", "sync_module_states", "sharding_strategy")
_PLUGIN = "utils/dataclasses.py (FullyShardedDataParallelPlugin)"


def fsdp_engine(launch: Launch) -> Engine:
    """The composition of ``fsdp_config`` on the mesh of the launch."""
    block = launch.section.section("fsdp_config")
    version = _version(block)
    launch.notes.take("fsdp_version", version, block, _key(block, "version"))
    _rules(block, version, launch.notes)
    strategy = _strategy(block, version, launch.notes)
    parts = _placed(strategy, launch, version)
    parts += _extras(block, launch.notes)
    return Engine(tuple(parts), Batch(), launch.dtypes(sharded=True))


def _key(block: Section, name: str) -> str:
    """The launcher adds the prefix ``fsdp_`` where it is missing."""
    return f"fsdp_{name}" if f"fsdp_{name}" in block or name not in block else name


def _version(block: Section) -> int:
    key = _key(block, "version")
    version = block.integer(key, 1) or 1
    if version not in (1, 2):
        block.refuse(key, f"fsdp_version is 1 or 2 ({_PLUGIN})", "write fsdp_version: 2")
    return version


def _strategy(block: Section, version: int, notes: Notes) -> str:
    """The sharding as one of FSDP1's five names; FSDP2 has the first two."""
    if version == 2:
        return _reshard(block, notes)
    key = _key(block, "sharding_strategy")
    if key not in block:
        key = _key(block, "reshard_after_forward")
        if isinstance(block.raw(key), bool):
            _wrong_type(block, key, "a strategy's name", "FULL_SHARD", 1, notes)
            return "FULL_SHARD"
    word = (block.word(key, "FULL_SHARD") or "FULL_SHARD").upper().rpartition(".")[2]
    if word.isdigit() and 1 <= int(word[:9]) <= len(_CODES):
        word = _CODES[int(word) - 1]
    word = {"_HYBRID_SHARD_ZERO2": "HYBRID_SHARD_ZERO2"}.get(word, word)
    if word not in _CODES:
        rule = f"a sharding strategy is one of {', '.join(_CODES)}, or 1 to 5"
        block.refuse(key, rule, "write FULL_SHARD")
    notes.take("sharding_strategy", word, block, key)
    stage = _STAGES.get(word, 2)
    notes.add("zero_stage", stage, "derived", block.place(key) if key in block else "")
    return word


def _reshard(block: Section, notes: Notes) -> str:
    key = _key(block, "reshard_after_forward")
    value = block.raw(key)
    keep = False
    if isinstance(value, bool) or str(value).lower() in ("none", "true", "false", "1", "0"):
        keep = block.flag(key, True) is False
    else:
        _wrong_type(block, key, "true or false", "true", 2, notes)
    notes.take("reshard_after_forward", not keep, block, key)
    notes.add("zero_stage", 2 if keep else 3, "derived", block.place(key) if key in block else "")
    return "SHARD_GRAD_OP" if keep else "FULL_SHARD"


def _wrong_type(
    block: Section, key: str, wanted: str, example: str, version: int, notes: Notes
) -> None:
    notes.find(
        "rejected",
        "reshard_after_forward",
        block.place(key),
        f"fsdp_version {version} wants {wanted} in {key}, not {str(block.raw(key))[:40]}",
        f"write {key}: {example}",
        _PLUGIN,
    )


def _placed(strategy: str, launch: Launch, version: int) -> list[Strategy]:
    if launch.mesh.product > 1:
        return _on_mesh(strategy, launch)
    ranks = data_ranks(launch.world, {}, launch.section.place("num_processes"))
    if strategy.startswith("HYBRID"):
        return [_hybrid(strategy, launch)]
    provenance: Provenance = "unknown" if ranks == RANKS else "derived"
    launch.notes.add("dp_shard" if strategy != "NO_SHARD" else "dp", ranks, provenance)
    if strategy == "NO_SHARD":
        return [strategies.data(dp=ranks)]
    _one_rank(strategy, ranks, launch, version)
    return [strategies.fsdp(dp=ranks, reshard_after_forward=strategy == "FULL_SHARD")]


def _one_rank(strategy: str, ranks: Dim, launch: Launch, version: int) -> None:
    if ranks == 1:
        launch.notes.find(
            "unlikely",
            "sharding over one rank",
            launch.section.place("num_processes"),
            f"{strategy} on one rank shards nothing" + (": it becomes NO_SHARD" * (version == 1)),
            "use more ranks, or offload",
            "pytorch/pytorch: torch/distributed/fsdp/_init_utils.py",
        )


def _hybrid(strategy: str, launch: Launch) -> Strategy:
    """Sharded inside a machine, replicated across machines (torch's default groups)."""
    place, machines = launch.section.place("num_machines"), launch.machines
    inside = data_ranks(launch.world, {"machines": machines}, place)
    launch.notes.add("dp_replicate", machines, "derived", place)
    launch.notes.add("dp_shard", inside, "unknown" if inside == RANKS else "derived", place)
    launch.notes.assume("hybrid groups: sharded inside a machine, replicated across machines")
    if inside == 1 and machines > 1:
        launch.notes.find(
            "mathematics",
            "hybrid shard of one rank",
            place,
            f"{strategy} with one rank on each of {machines} machines never synchronises gradients",
            "use NO_SHARD or FULL_SHARD",
            "pytorch/pytorch: issue 154888",
            "drop all-reduce gradient dp_replicate",
        )
    elif machines == 1:
        launch.notes.find(
            "unlikely",
            "hybrid shard on one machine",
            place,
            f"{strategy} on one machine has nothing to replicate across",
            "use FULL_SHARD, or set num_machines",
            "pytorch/pytorch: issue 140183",
        )
    keep = strategy == "HYBRID_SHARD_ZERO2"
    return strategies.hsdp(dp_replicate=machines, dp_shard=inside, reshard_after_forward=not keep)


def _on_mesh(strategy: str, launch: Launch) -> list[Strategy]:
    """FSDP on ``parallelism_config``: sharded over dp_shard x cp, replicated over dp_replicate."""
    mesh = launch.mesh
    reshard = strategy != "SHARD_GRAD_OP"
    copies, shard, cp, tp, sp = (mesh[n] for n in ("dp_replicate", "dp_shard", "cp", "tp", "sp"))
    if shard * cp == 1:
        _no_shard_axis(launch)
    parts: list[Strategy] = []
    if cp > 1 and copies > 1:
        parts.append(strategies.place(batch="S(0)", dp_replicate=copies))
    parts.append(_shards(copies, shard, cp, reshard))
    if cp > 1:
        parts.append(strategies.context(cp=cp, method=mesh.cp_method))
    if sp > 1:
        parts.append(strategies.ulysses(sp=sp))
    if tp > 1:
        parts.append(strategies.tensor(tp=tp, vocabulary=False))
        launch.notes.assume("the model's tensor-parallel plan shards its blocks' linear layers")
    return parts


def _shards(copies: int, shard: int, cp: int, reshard: bool) -> Strategy:
    if cp > 1:
        return strategies.fsdp(dp=shard, reshard_after_forward=reshard, shard_over=("dp", "cp"))
    if copies > 1 and shard > 1:
        return strategies.hsdp(dp_replicate=copies, dp_shard=shard, reshard_after_forward=reshard)
    if copies > 1:
        return strategies.data(dp=copies)
    return strategies.fsdp(dp=shard, reshard_after_forward=reshard)


def _no_shard_axis(launch: Launch) -> None:
    launch.notes.find(
        "rejected",
        "FSDP needs a shard axis",
        launch.mesh.section.place(),
        "dp_shard * cp = 1: FSDP has no axis to shard over and fails on a missing mesh dimension",
        "set dp_shard or cp above 1",
        "huggingface/accelerate: issues 3798, 3804",
    )


def _extras(block: Section, notes: Notes) -> list[Strategy]:
    parts: list[Strategy] = []
    offload = bool(block.flag(_key(block, "offload_params"), False))
    notes.take("offload_param", "host" if offload else "none", block, _key(block, "offload_params"))
    if offload:
        parts.append(strategies.offload("parameters", "gradients", "optimizer"))
    key = _key(block, "activation_checkpointing")
    recompute = bool(block.flag(key, False))
    notes.take("recompute", "full" if recompute else "none", block, key)
    if recompute:
        parts.append(strategies.recompute("full"))
    return parts


def _rules(block: Section, version: int, notes: Notes) -> None:
    _unknown(block, notes)
    _wrap(block, notes)
    _loading(block, notes)
    if version == 2:
        _version_two(block, notes)


def _unknown(block: Section, notes: Notes) -> None:
    for key in block:
        if key.removeprefix("fsdp_") not in _KNOWN:
            message = f"fsdp_config has no key {key[:60]!r}"
            remedy = "remove it, or correct its name"
            where = "commands/launch.py"
            notes.find("ignored", "unknown key", block.place(key), message, remedy, where)


def _wrap(block: Section, notes: Notes) -> None:
    key = _key(block, "auto_wrap_policy")
    policy = block.word(key, "NO_WRAP") or "NO_WRAP"
    notes.take("wrap_policy", policy, block, key)
    if policy.upper() == "NO_WRAP":
        notes.find(
            "unlikely",
            "no wrapping",
            block.place(key),
            "NO_WRAP is one unit: the whole model is gathered at once, memory as without sharding",
            "write fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            "huggingface/accelerate: issue 570",
        )


def _loading(block: Section, notes: Notes) -> None:
    loading = block.flag(_key(block, "cpu_ram_efficient_loading"), False)
    key = _key(block, "sync_module_states")
    if loading and block.flag(key, True) is False:
        notes.find(
            "rejected",
            "efficient loading needs sync",
            block.place(key),
            "cpu_ram_efficient_loading with sync_module_states false leaves ranks without weights",
            "write fsdp_sync_module_states: true",
            "utils/launch.py",
        )


def _version_two(block: Section, notes: Notes) -> None:
    for name in _V1_ONLY:
        key = _key(block, name)
        if key in block:
            message = f"{key} belongs to fsdp_version 1"
            notes.find("ignored", "version 1 key", block.place(key), message, "remove it", _PLUGIN)
    key = _key(block, "forward_prefetch")
    if block.flag(key, False):
        message = f"{key} is set with fsdp_version 2"
        notes.find("rejected", "forward prefetch", block.place(key), message, "remove it", _PLUGIN)
