"""EleutherAI's GPT-NeoX: YAML or JSON, words with ``-`` or ``_``, DeepSpeed below.

The batch, ZeRO and offload are DeepSpeed's, counted over the data-parallel ranks: the world over
pipeline times model parallel ranks.
"""

from __future__ import annotations

from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy, compose
from placement_proofs.configs import deepspeed_keys
from placement_proofs.configs.deepspeed import Engine, engine_of
from placement_proofs.configs.document import Block, Item, Section
from placement_proofs.configs.hjson_text import read_hjson
from placement_proofs.configs.mesh_parts import repeated_keys
from placement_proofs.configs.notes import Notes, World, data_ranks
from placement_proofs.configs.record import Imported
from placement_proofs.configs.shape_rules import dims_of
from placement_proofs.configs.yaml_text import read_yaml
from placement_proofs.mesh import Dim
from placement_proofs.model import Model

_MARKS = frozenset({"pipe_parallel_size", "model_parallel_size"})
_SHAPE = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_kv_heads",
    "sequence": "seq_length",
    "ffn": "intermediate_size",
    "experts": "moe_num_experts",
}
_RENAMED = frozenset({"tp", "sp", "dp"})


def read(path: Path) -> Block:
    """Read a file; ``-`` in a key is ``_``, as the framework reads it."""
    json = path.suffix.lower() == ".json"
    return _underscored(read_hjson(path) if json else read_yaml(path))


def _underscored(block: Block) -> Block:
    items = {key.replace("-", "_").strip(): item for key, item in block.items.items()}
    return Block(block.line, items, block.repeated)


def claims(block: Block) -> bool:
    """Whether a file's keys are GPT-NeoX's."""
    return bool(_MARKS & block.items.keys()) and not {"trainer", "model"} & block.items.keys()


def describe(path: Path, block: Block, world: int | None, model: Model | None) -> Imported:
    """Import a file that was read.

    Raises:
        IllFormed: a value without meaning, or degrees that do not divide the world (ranks).
    """
    from placement_proofs.configs.gptneox_rules import Checked, check

    section, notes = Section(path.name, block), Notes("GPT-NeoX")
    repeated_keys(path.name, block, notes, "megatron/neox_arguments (yaml.load)")
    size = World(world, "", "unknown" if world is None else "cli or environment")
    notes.world(size, path.name)
    pp, tp = _degree(section, "pipe_parallel_size", "pp", notes), _tensor(section, notes)
    dp = data_ranks(size, {"pp": pp, "tp": tp}, section.place("model_parallel_size"))
    notes.add("dp", dp, "derived" if isinstance(dp, int) else "unknown", "", "world / (pp * tp)")
    for name, key in _SHAPE.items():
        if key in section:
            notes.take(name, section.integer(key), section, key)
    engine = _engine(section, dp, notes, model)
    check(Checked(section, {"tp": tp, "pp": pp, "dp": dp}, engine, dims_of(model), notes))
    return Imported(
        "gptneox",
        str(path),
        compose(*_parts(section, tp, pp, engine, notes)),
        world,
        tuple(notes.fields),
        tuple(notes.findings),
        engine.batch,
        engine.dtypes,
        tuple(notes.assumptions),
    )


def _degree(section: Section, key: str, axis: str, notes: Notes) -> int:
    size = section.integer(key, 1) or 1
    notes.take(axis, size, section, key)
    return size


def _tensor(section: Section, notes: Notes) -> int:
    tp = _degree(section, "model_parallel_size", "tp", notes)
    on = bool(section.flag("sequence_parallel"))
    notes.take("sequence_parallel", on and tp > 1, section, "sequence_parallel")
    return tp


def _engine(section: Section, dp: Dim, notes: Notes, model: Model | None) -> Engine:
    """DeepSpeed's part of the file, over the data-parallel ranks alone."""
    known = deepspeed_keys.TOP - {"activation_checkpointing", "autotuning", "pipeline"}
    items = {key: item for key, item in section.block.items.items() if key in known}
    items |= _precision(section)
    inner = Notes("GPT-NeoX (DeepSpeed)")
    part = Section(section.file, Block(section.block.line, items))
    world = World(dp if isinstance(dp, int) else None, "", "derived")
    engine = engine_of(part, world, inner, filled=False, model=model)
    notes.fields += [field for field in inner.fields if field.name not in _RENAMED]
    notes.findings += inner.findings
    for text in inner.assumptions:
        notes.assume(text)
    return engine


def _precision(section: Section) -> dict[str, Item]:
    """``precision: bfloat16`` in place of a block."""
    word = section.word("precision")
    if word not in ("fp16", "bfloat16") or "fp16" in section or "bf16" in section:
        return {}
    key, line = ("bf16" if word == "bfloat16" else "fp16"), section.line("precision")
    return {key: Item(Block(line, {"enabled": Item(True, line)}), line, "precision")}


def _parts(
    section: Section, tp: int, pp: int, engine: Engine, notes: Notes
) -> tuple[Strategy, ...]:
    loops = [s for s in engine.strategies if s.name == "accumulate"]
    parts = [s for s in engine.strategies if s.name not in ("accumulate", "offload")]
    offloads = [s for s in engine.strategies if s.name == "offload"]
    if tp > 1:
        parts.append(strategies.tensor(tp=tp, sequence=bool(section.flag("sequence_parallel"))))
    if pp > 1:
        steps = loops[0].placement.micro if loops else 1
        parts.append(strategies.pipeline(pp=pp, microbatches=steps))
    else:
        parts += loops
    again = bool(section.flag("checkpoint_activations"))
    notes.take("recompute", "full" if again else "none", section, "checkpoint_activations")
    if again:
        parts.append(strategies.recompute("full"))
    if section.integer("moe_num_experts", 0) or "moe_expert_parallel_size" in section:
        notes.assume("experts are in the fields and not in the composition")
    return (*parts, *offloads)
