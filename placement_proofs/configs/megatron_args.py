"""Megatron's arguments from a shell script, as a block whose keys are the flags with underscores.

Beside the flags the block has entries that begin with ``@``: what is open, conditional, or set
outside the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from placement_proofs.configs.document import Block, Item, Value, words
from placement_proofs.configs.megatron_world import worlds
from placement_proofs.configs.overrides import overridden
from placement_proofs.configs.shell_expand import Piece, Word, merged, scalar, text_of
from placement_proofs.configs.shell_lex import Mark
from placement_proofs.configs.shell_run import Launch, Shell

MARKS = words(
    "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size num_layers "
    "hidden_size num_attention_heads micro_batch_size global_batch_size seq_length "
    "model_parallel_size expert_model_parallel_size use_distributed_optimizer sequence_parallel"
)
SWITCHES = words(
    "sequence_parallel use_distributed_optimizer bf16 fp16 recompute_activations "
    "checkpoint_activations overlap_grad_reduce overlap_param_gather tp_comm_overlap swiglu "
    "optimizer_cpu_offload use_precision_aware_optimizer untie_embeddings_and_output_weights "
    "group_query_attention use_megatron_fsdp use_torch_fsdp2 deepspeed no_pipeline_parallel "
    "grad_reduce_in_bf16 accumulate_allreduce_grads_in_fp32 decrease_batch_size_if_needed "
    "use_checkpoint_args disable_bias_linear deepspeed_activation_checkpointing sft packing "
    "calculate_per_token_loss distribute_saved_activations cpu_offloading use_tp_pp_dp_mapping"
)
_NUMBERS = (MARKS - SWITCHES) | words(
    "nproc_per_node nnodes num_gpus num_nodes node_rank master_port num_experts num_query_groups "
    "expert_tensor_parallel_size ffn_hidden_size vocab_size actor_num_nodes num_nodes ntasks nodes "
    "ntasks_per_node actor_num_gpus_per_node max_restarts zero_stage ds_sequence_parallel_size"
)
_FLAG = re.compile(r"--([A-Za-z][\w-]*)(?:=(.*))?\Z", re.S)
_LOWEST = 2


def parse_arguments(text: str, file: str) -> Block:
    """Read the text of a script as the arguments of the command that it would start.

    Raises:
        IllFormed: it is not readable as shell.
    """
    shell = Shell(file)
    shell.read(text)
    launch, broken, notes = _chosen(shell)
    items, repeated = _flags(launch)
    items |= {} if MARKS & items.keys() else _exported(shell)
    items["@world"] = Item(worlds(shell, launch, items), launch.line)
    items["@files"] = Item(_files(shell), launch.line)
    items["@environment"] = Item(_environment(shell), launch.line)
    items["@broken"] = Item(broken, launch.line)
    items["@command"] = Item(" ".join(text_of(w)[:60] for w in launch.words[:8]), launch.line)
    items["@notes"] = Item(tuple(notes), launch.line)
    items["@sed"] = Item(
        Block(1, {k: Item(scalar(text_of(w)), w[0].mark.line) for k, w in _edits(shell)}),
        launch.line,
    )
    return Block(launch.line, items, tuple(repeated))


_EXPORTS: Mapping[str, str] = {
    "TENSOR_MODEL_PARALLEL": "tensor_model_parallel_size",
    "PIPELINE_MODEL_PARALLEL": "pipeline_model_parallel_size",
    "CONTEXT_PARALLEL": "context_parallel_size",
    "EXPERT_PARALLEL": "expert_model_parallel_size",
    "INTERLEAVED_PIPELINE": "virtual_pipeline_model_parallel_size",
    "MICRO_BATCH_SIZE": "micro_batch_size",
    "GLOBAL_BATCH_SIZE": "global_batch_size",
    "SEQ_PARALLEL": "sequence_parallel",
    "USE_DIST_OPTIMIZER": "use_distributed_optimizer",
    "MINIBS": "samples_per_replica",
}


def _exported(shell: Shell) -> dict[str, Item]:
    """The degrees in the variables of an MLPerf file, which another script reads."""
    if not {"TENSOR_MODEL_PARALLEL", "PIPELINE_MODEL_PARALLEL"} <= shell.variables.keys():
        return {}
    found: dict[str, Item] = {}
    for name, key in _EXPORTS.items():
        value = shell.variables.get(name)
        if value and value[0]:
            found[key] = Item(scalar(text_of(value[0])), value[0][0].mark.line, name)
    return found


def _edits(shell: Shell) -> Iterable[tuple[str, Word]]:
    return ((name, word) for name, word in shell.substitutions.items() if not word[0].mark.open)


def _score(launch: Launch) -> int:
    flags = sum(_name(text_of(word)) in MARKS for word in launch.words)
    return flags + sum(name in MARKS for name, _, _ in overridden(launch.words))


def _name(text: str) -> str:
    match = _FLAG.match(text.split(None, 1)[0] if text.strip() else "")
    return match[1].replace("-", "_") if match else ""


def _chosen(shell: Shell) -> tuple[Launch, int | None, list[str]]:
    """The command with most of Megatron's flags; else the variables that hold such flags."""
    launches, broken = _rejoined(shell.launches)
    notes = [
        f"{where.rpartition('/')[2] or 'a file'} (line {line}) is read by the script and not here"
        for where, line in shell.sourced
    ]
    best = max(launches, key=_score, default=None)
    if best is None or _score(best) < _LOWEST:
        flags = _loose(shell)
        if any(_name(text_of(word)) in MARKS for word in flags):
            notes.append("the file starts no program; the arguments in its variables are taken")
            return Launch(tuple(flags), flags[0][0].mark.line), None, notes
        best = best or Launch((), 1)
    others = [entry for entry in launches if entry != best and _score(entry) > _LOWEST]
    if others:
        places = ", ".join(str(entry.line) for entry in others[:4])
        notes.append(f"the command on line {best.line} is taken; others are on lines {places}")
    notes += [
        f"{name} is set outside the file; its arguments are not known" for name in _gaps(best)
    ]
    return best, broken.get(best.line), notes


def _gaps(launch: Launch) -> list[str]:
    """Variables that stand for whole arguments."""
    found = [
        word[0].mark.open
        for before, word in pairwise(launch.words)
        if len(word) == 1 and word[0].mark.open and not _takes_value(text_of(before))
    ]
    named = [name for name in dict.fromkeys(found) if name.isidentifier()]
    return named[:8] + ["$@"] * bool({"@", "*"} & set(found))


def _takes_value(text: str) -> bool:
    name = _name(text)
    return bool(name) and "=" not in text and name not in SWITCHES


def _rejoined(launches: Sequence[Launch]) -> tuple[list[Launch], dict[int, int]]:
    """Attach arguments that a missing backslash cut off; their lines are remembered."""
    result: list[Launch] = []
    broken: dict[int, int] = {}
    for launch in launches:
        first = launch.words[0]
        loose = text_of(first).startswith("--") or (
            len(launch.words) > 1 and first and first[0].mark.open and _score(launch) > 0
        )
        if not (loose and result):
            result.append(launch)
            continue
        last = result.pop()
        broken.setdefault(last.line, launch.line)
        result.append(Launch((*last.words, *launch.words), last.line, last.settings, last.when))
    return result, broken


def _loose(shell: Shell) -> list[Word]:
    """Arguments in variables that no command uses."""
    flags: list[Word] = []
    for name, value in shell.variables.items():
        if name in shell.used or not any("--" in text_of(word) for word in value):
            continue
        for word in value:
            flags += _split(word)
    return flags


def _split(word: Word) -> list[Word]:
    """A word cut at blanks, each part with its origin."""
    parts: list[list[Piece]] = [[]]
    for piece in word:
        for number, chunk in enumerate(re.split(r"(\s+)", piece.text)):
            if number % 2:
                parts.append([])
            elif chunk:
                parts[-1].append(Piece(chunk, piece.mark))
    return [tuple(part) for part in parts if part]


def _flags(launch: Launch) -> tuple[dict[str, Item], list[tuple[str, int]]]:
    """The flags of a command; of one that is given twice the last, as in argparse."""
    items: dict[str, Item] = {}
    origins: dict[str, dict[str, Item]] = {"@open": {}, "@default": {}, "@set": {}, "@maybe": {}}
    repeated: list[tuple[str, int]] = []
    for flag, values in _grouped(launch.words):
        match = _FLAG.match(text_of(flag))
        assert match is not None
        name = match[1].replace("-", "_")
        mark = merged(flag, launch.line)
        values = values[:1] if name in _NUMBERS else _before_program(values)
        item = Item(_value(match[2], values), mark.line, f"--{match[1]}")
        marks = [merged(value, mark.line) for value in values] or [mark]
        doubtful = [m for m in marks if m.when and not m.open]
        if mark.when or doubtful or launch.when:
            origins["@maybe"].setdefault(name, item)
            continue
        if name in items and items[name].value != item.value:
            repeated.append((name, items[name].line))
        items[name] = item
        _origin(origins, name, mark, marks)
    for name, item, mark in overridden(launch.words):
        items[name] = item
        items["@overrides"] = Item(True, item.line)
        _origin(origins, name, Mark(item.line), [mark])
    for key, block in origins.items():
        items[key] = Item(Block(launch.line, block), launch.line)
    return items, repeated


def _origin(
    origins: Mapping[str, dict[str, Item]], name: str, mark: Mark, marks: Sequence[Mark]
) -> None:
    """Remember which variable a value came from."""
    for key in ("@open", "@default", "@set"):
        origins[key].pop(name, None)
    opened = next((m.open for m in (*marks, mark) if m.open), "")
    default = next((m.default for m in (*marks, mark) if m.default), "")
    if opened:
        origins["@open"][name] = Item(opened, mark.line)
    elif default:
        origins["@default"][name] = Item(default, mark.line)
    if marks and marks[0].line != mark.line:
        origins["@set"][name] = Item(marks[0].line, mark.line)


def _grouped(all_words: Sequence[Word]) -> Iterable[tuple[Word, list[Word]]]:
    """Each flag with the words that follow it."""
    flag: Word | None = None
    values: list[Word] = []
    for word in (part for whole in all_words for part in _split_flag(whole)):
        if _FLAG.match(text_of(word)):
            if flag is not None:
                yield flag, values
            flag, values = word, []
        elif flag is not None:
            values.append(word)
    if flag is not None:
        yield flag, values


def _split_flag(word: Word) -> list[Word]:
    return _split(word) if text_of(word).lstrip().startswith("--") else [word]


def _before_program(values: list[Word]) -> list[Word]:
    """The words before the path of a program, which ends a launcher's own flags."""
    at = next((n for n, word in enumerate(values) if text_of(word).endswith(".py")), None)
    return values if at is None else values[:at]


def _value(inline: str | None, values: list[Word]) -> Value:
    if inline is not None:
        return scalar(inline)
    while values and merged(values[-1], 0).open and len(values) > 1:
        values.pop()
    texts = [text_of(value) for value in values]
    if not texts:
        return True
    return scalar(texts[0]) if len(texts) == 1 else tuple(scalar(text) for text in texts)


def _environment(shell: Shell) -> Block:
    names = ("CUDA_DEVICE_MAX_CONNECTIONS", "PL_DEEPSPEED_CONFIG_PATH", "CUDA_VISIBLE_DEVICES")
    found = {}
    for name in names:
        value = shell.variables.get(name) or (
            (shell.settings[name],) if name in shell.settings else None
        )
        if value and value[0] and not merged(value[0], 0).open:
            found[name] = Item(scalar(text_of(value[0])), value[0][0].mark.line, name)
    return Block(1, found)


def _files(shell: Shell) -> Block:
    """JSON texts that the script writes, by name."""
    return Block(
        1,
        {
            here.target or f"line {here.line}": Item(text_of(here.pieces), here.line)
            for here in shell.heres
            if "{" in text_of(here.pieces)
        },
    )
