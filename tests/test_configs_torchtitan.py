"""torchtitan files: the schemas, what each becomes, and every rule once firing and once silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT

from placement_proofs.checking import check
from placement_proofs.configs import Imported, load
from placement_proofs.configs.document import Block
from placement_proofs.configs.toml_text import parse_toml
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.inputs import Subject
from placement_proofs.models import Shape, transformer

MOE = transformer(Shape(layers=16, heads=16, kv_heads=4, hidden=32, experts=8))


def _load(
    tmp_path: Path, text: str, world: int | None = 16, name: str = "t.toml", model: bool = False
) -> Imported:
    file = tmp_path / name
    file.write_text(text)
    return load(file, world=world, model=MOE if model else None)


def _table(
    *, training: str = "local_batch_size = 4\nseq_len = 4096", more: str = "", **degrees: object
) -> str:
    keys = "\n".join(f"{key} = {_toml(value)}" for key, value in degrees.items())
    return f"[job]\n[training]\n{training}\n[parallelism]\n{keys}\n{more}\n"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


NONE = '[activation_checkpoint]\nmode = "none"'


def _plain(**degrees: object) -> str:
    return _table(more=NONE, **degrees)


TP, PP, CP = "tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree"
REP, SHARD = "data_parallel_replicate_degree", "data_parallel_shard_degree"
EP, ETP = "expert_parallel_degree", "expert_tensor_parallel_degree"
SCHEDULE, LAYERS = "pipeline_parallel_schedule", "pipeline_parallel_layers_per_stage"


def _experts(ranks: int) -> str:
    """The shards of the experts over the ranks that have the same ones."""
    modes = "parameters='S*', optimizer='S', gradients='S'"
    return " * ".join(
        f"place(dp={ranks}, group='{group}', {modes})" for group in ("expert_in", "expert_out")
    )


EXPRESSIONS: list[tuple[str, int | None, str]] = [
    (_plain(), 16, "fsdp(dp=16)"),
    (_plain(), None, "fsdp(dp='N')"),
    (_plain(**{TP: 4}), 16, "fsdp(dp=4) * tensor(tp=4, sequence=True)"),
    (_plain(**{TP: 4, "enable_sequence_parallel": False}), 16, "fsdp(dp=4) * tensor(tp=4)"),
    (_plain(**{REP: 2}), 16, "hsdp(dp_replicate=2, dp_shard=8)"),
    (_plain(**{REP: 16}), 16, "data(dp=16)"),
    (_plain(**{SHARD: 8, TP: 2}), None, "fsdp(dp=8) * tensor(tp=2, sequence=True)"),
    (_plain(**{CP: 2}), 16, "fsdp(dp=8, shard_over=('dp', 'cp')) * context(cp=2)"),
    (
        _plain(**{CP: 2, REP: 2}),
        16,
        "place(dp_replicate=2, batch='S(0)') * fsdp(dp=4, shard_over=('dp', 'cp')) * context(cp=2)",
    ),
    (
        _plain(**{CP: 2, "context_parallel_rotate_method": "alltoall"}),
        16,
        "fsdp(dp=8, shard_over=('dp', 'cp')) * context(cp=2, method='ring')",
    ),
    (_plain(**{EP: 4}), 16, f"fsdp(dp=4, shard_over=('dp', 'ep')) * expert(ep=4) * {_experts(4)}"),
    (_plain(fsdp_reshard_after_forward="never"), 16, "fsdp(dp=16, reshard_after_forward=False)"),
    (
        _plain(**{PP: 2}),
        16,
        "fsdp(dp=8, reshard_after_forward=False) * pipeline(pp=2, microbatches=4)",
    ),
    (
        _plain(**{PP: 2, SCHEDULE: "GPipe", "fsdp_reshard_after_forward": "always"}),
        16,
        "fsdp(dp=8) * pipeline(pp=2, microbatches=4, schedule='gpipe')",
    ),
    (
        _plain(**{PP: 2, SCHEDULE: "interleaved1f1b"}),
        16,
        "fsdp(dp=8, reshard_after_forward=False) * "
        "pipeline(pp=2, microbatches=4, schedule='interleaved', chunks=2)",
    ),
    (_table(), 16, "fsdp(dp=16) * recompute('selective')"),
    (
        _table(more='[activation_checkpoint]\nmode = "full"'),
        16,
        "fsdp(dp=16) * recompute('full')",
    ),
    (
        _table(training="enable_cpu_offload = true", more=NONE),
        16,
        "fsdp(dp=16) * offload('parameters', 'gradients', 'optimizer')",
    ),
    (
        _table(training="local_batch_size = 2\nglobal_batch_size = 128", more=NONE),
        16,
        "fsdp(dp=16) * accumulate(micro=4)",
    ),
]


@pytest.mark.parametrize(("text", "world", "expression"), EXPRESSIONS)
def test_expression(tmp_path: Path, text: str, world: int | None, expression: str) -> None:
    imported = _load(tmp_path, text, world)
    assert repr(imported.composition) == expression
    assert parse(expression) == imported.composition


SCHEMAS = [
    ("[training]\ndata_parallel_size = 4\nsequence_parallel_size = 4\n", "February to May 2024"),
    ("[training]\ndata_parallel_degree = 4\ntensor_parallel_degree = 4\n", "May to July 2024"),
    (
        "[training]\ndata_parallel_degree = -1\ntensor_parallel_degree = 4\n"
        "[experimental]\npipeline_parallel_degree = 1\n",
        "July to August 2024",
    ),
    (
        "[training]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 4\n",
        "September 2024 to February 2025",
    ),
    ("[job]\n[parallelism]\ntensor_parallel_degree = 4\n", "March 2025 to February 2026"),
    (
        "[training]\nnum_tokens_per_microbatch_per_dp_rank = 8192\nseq_len = 4096\n"
        "[parallelism]\ntensor_parallel_degree = 4\n",
        "since February 2026",
    ),
]


@pytest.mark.parametrize(("text", "schema"), SCHEMAS)
def test_six_schemas_say_one_placement(tmp_path: Path, text: str, schema: str) -> None:
    imported = _load(tmp_path, text)
    assert imported.field("schema").value == schema
    assert imported.degrees() == {"dp": 4, "tp": 4}


def test_replicas_of_the_first_schema(tmp_path: Path) -> None:
    text = '[training]\ndata_parallel_degree = -1\ndata_parallel_type = "ddp"\n'
    assert _load(tmp_path, text).composition.mesh.sizes() == {"dp": 16}
    assert _load(tmp_path, text).field("zero_stage").value == 0
    assert "data(dp='N')" in repr(_load(tmp_path, text, None).composition)


PYTHON = '''# EXCERPT
        ),
    )
def small() -> Trainer.Config:
    """A (bracket in a text."""
    return Trainer.Config(
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=4 * 4096,  # tokens
            max_context_length=4096,
        ),
        parallelism=ParallelismConfig(
            tensor_parallel_degree=2,
            pipeline_parallel_degree=2, pipeline_parallel_schedule="GPipe",
            num_pp_microbatches=8,
        ),
        activation_checkpoint=FullAC.Config(),
'''


def test_python_registry_is_read_and_never_run(tmp_path: Path) -> None:
    imported = _load(tmp_path, PYTHON, 16, "registry.py")
    assert repr(imported.composition) == (
        "fsdp(dp=4, reshard_after_forward=False) * tensor(tp=2, sequence=True) * "
        "pipeline(pp=2, microbatches=8, schedule='gpipe') * recompute('full')"
    )
    assert imported.batch.micro_batch == 4
    assert imported.field("tp").place == "registry.py:12 parallelism.tensor_parallel_degree"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PYTHON + ")\n" + PYTHON.replace("small", "large"), "2 configurations: small, large"),
        (PYTHON.replace("degree=2,", "degree=size,"), "placeholder"),
        (PYTHON.replace("            num_pp_microbatches=8,\n        ),\n", ""), "does not close"),
    ],
)
def test_python_registry_refusals(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(IllFormed, match=message):
        _load(tmp_path, text, 16, "registry.py")


PRIMUS = """modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    overrides:
      training: {local_batch_size: 4, seq_len: 4096}
      parallelism:
        tensor_parallel_degree: ${PRIMUS_TP:4}
      activation_checkpoint: {mode: full}
"""


def test_primus_experiment_is_read_at_its_defaults(tmp_path: Path) -> None:
    imported = _load(tmp_path, PRIMUS, 16, "p.yaml")
    assert imported.format == "torchtitan"
    assert repr(imported.composition) == (
        "fsdp(dp=4) * tensor(tp=4, sequence=True) * recompute('full')"
    )
    assert any("PRIMUS_TP (line 8, tensor_parallel_degree)" in a for a in imported.assumptions)
    assert any("pre_trainer.yaml" in a or "p.yaml:4" in a for a in imported.assumptions)
    open_ended = PRIMUS.replace("${PRIMUS_TP:4}", "${TP}")
    with pytest.raises(IllFormed, match=r"p.yaml:8 parallelism.tensor_parallel_degree"):
        _load(tmp_path, open_ended, 16, "p.yaml")


REFUSED = [
    (_plain(**{TP: 3}), 16, "16 / 3 = 5.33333"),
    (_plain(**{SHARD: 4, TP: 2}), 16, "their product is 8"),
    (_plain(**{SHARD: 0}), 16, "a degree is -1, or 1 and above"),
    (_plain(**{TP: 0}), 16, "it lies between 1"),
    (_plain(**{TP: "${TP}"}), 16, "placeholder"),
    (_plain(fsdp_reshard_after_forward="maybe"), 16, "default, always or never"),
    ("[parallelism]\ntensor_parallel_degree = 2\ntensor_parallel_degree = 4\n", 16, "t.toml:3"),
    ("[parallelism]\ntensor_parallel_degree = two\n", 16, "t.toml:2"),
    ("[tool]\nname = 1\n", 16, "no known format"),
]


@pytest.mark.parametrize(("text", "world", "message"), REFUSED)
def test_refusal(tmp_path: Path, text: str, world: int, message: str) -> None:
    with pytest.raises(IllFormed) as caught:
        _load(tmp_path, text, world)
    assert message in str(caught.value)
    assert "t.toml" in str(caught.value)


ASYNC = "enable_async_tensor_parallel"
COMPILED = NONE + '\n[compile]\nenable = true\ncomponents = ["model", "loss"]'
LOSS = NONE + '\n[compile]\nenable = true\ncomponents = ["loss"]'
OPTION = '[activation_checkpoint]\nmode = "{}"\nselective_ac_option = "op"'
BUDGET = '[activation_checkpoint]\nmode = "memory_budget"'
CUSTOM = '[job]\ncustom_config_module = "mine"\n'
GLOBAL = "local_batch_size = 4\nglobal_batch_size = {}"

RULES: list[tuple[str, str, str, str]] = [
    (
        "keys of two schemas",
        "rejected",
        _table(training="tensor_parallel_degree = 2", more=NONE, **{TP: 2}),
        _plain(**{TP: 2}),
    ),
    (
        "keys of two schemas",
        "rejected",
        _table(training="tensor_parallel_degree = 2", more=NONE, **{REP: 1}),
        "[training]\ntensor_parallel_degree = 2\n",
    ),
    ("auto needs a filler", "rejected", _plain(**{TP: "auto"}), _plain(**{TP: 2})),
    (
        "tokens over tensor ranks",
        "rejected",
        _table(training="seq_len = 4100", more=NONE, **{TP: 4}),
        _table(training="seq_len = 4096", more=NONE, **{TP: 4}),
    ),
    ("unknown key", "rejected", _plain(tensor_paralel_degree=2), _plain(**{TP: 2})),
    (
        "unknown key",
        "rejected",
        _plain(mine=2),
        CUSTOM + _plain(mine=2).removeprefix("[job]\n"),
    ),
    ("expert tensor degree", "ignored", _plain(**{ETP: 8}), _plain(**{ETP: 1})),
    (
        "expert tensor degree",
        "rejected",
        _plain(**{EP: 4, TP: 4, ETP: 2}),
        _plain(**{EP: 4, TP: 4, ETP: 4}),
    ),
    ("expert groups", "rejected", _plain(**{EP: 3}), _plain(**{EP: 4})),
    (
        "global batch",
        "rejected",
        _table(training=GLOBAL.format(100), more=NONE),
        _table(training=GLOBAL.format(128), more=NONE),
    ),
    (
        "pipeline micro-batches",
        "rejected",
        _plain(**{PP: 2, "pipeline_parallel_microbatch_size": 3}),
        _plain(**{PP: 2, "pipeline_parallel_microbatch_size": 2}),
    ),
    ("micro-batches fill the pipeline", "unlikely", _plain(**{PP: 8}), _plain(**{PP: 4})),
    (
        "accumulation in a pipeline",
        "unlikely",
        _table(training=GLOBAL.format(128), more=NONE, **{PP: 2}),
        _table(training=GLOBAL.format(128), more=NONE),
    ),
    ("schedule name", "rejected", _plain(**{PP: 2, SCHEDULE: "2F2B"}), _plain(**{PP: 2})),
    (
        "schedule without pipeline",
        "ignored",
        _plain(**{SCHEDULE: "Interleaved1F1B"}),
        _plain(**{PP: 2, SCHEDULE: "Interleaved1F1B"}),
    ),
    (
        "stages on a rank",
        "rejected",
        _plain(**{PP: 4, LAYERS: 4, SCHEDULE: "Interleaved1F1B"}),
        _plain(**{PP: 4, LAYERS: 5}),
    ),
    (
        "stages and schedule",
        "rejected",
        _plain(**{PP: 2, LAYERS: 5}),
        _plain(**{PP: 2, LAYERS: 5, SCHEDULE: "Interleaved1F1B"}),
    ),
    (
        "asynchronous tensor parallelism",
        "ignored",
        _table(more=LOSS, **{TP: 2, ASYNC: True}),
        _table(more=COMPILED, **{TP: 2, ASYNC: True}),
    ),
    (
        "recomputation mode",
        "rejected",
        _table(more='[activation_checkpoint]\nmode = "all"'),
        _table(),
    ),
    (
        "selective option",
        "ignored",
        _table(more=OPTION.format("full")),
        _table(more=OPTION.format("selective")),
    ),
    (
        "memory budget",
        "rejected",
        _table(more=BUDGET),
        _table(more=BUDGET + "\n[compile]\nenable = true"),
    ),
    (
        "one axis with DDP",
        "rejected",
        _plain(**{REP: 4, SHARD: 1, TP: 4}),
        _plain(**{REP: 2, SHARD: 2, TP: 4}),
    ),
    (
        "offload without FSDP",
        "ignored",
        _table(training="enable_cpu_offload = true", more=NONE, **{REP: 16}),
        _table(training="enable_cpu_offload = true", more=NONE),
    ),
    ("sharding over one rank", "unlikely", _plain(**{TP: 16}), _plain(**{TP: 8})),
    (
        "heads divide",
        "rejected",
        _plain(**{TP: 16, "data_parallel_shard_degree": 1}).replace("16", "32"),
        _plain(**{TP: 16}),
    ),
    ("key-value heads divide", "rejected", _plain(**{TP: 8}), _plain(**{TP: 4})),
    ("experts divide", "rejected", _plain(**{EP: 16}), _plain(**{EP: 8})),
    (
        "tokens divide",
        "rejected",
        _table(training="seq_len = 4098", more=NONE, **{CP: 4}),
        _plain(**{CP: 4}),
    ),
    ("layers over stages", "unlikely", _plain(**{PP: 16}).replace("16", "12"), _plain(**{PP: 2})),
]


@pytest.mark.parametrize(("rule", "kind", "fires", "silent"), RULES)
def test_rule(tmp_path: Path, rule: str, kind: str, fires: str, silent: str) -> None:
    world = {"heads divide": 32, "layers over stages": 24}.get(rule, 16)
    found = [f for f in _load(tmp_path, fires, world, model=True).findings if f.rule == rule]
    assert [f.kind for f in found] == [kind]
    assert found[0].place.startswith("t.toml")
    assert found[0].source.startswith(
        ("torchtitan: ", "not a rule", "pytorch/pytorch: ", "pytorch/torchtitan: ")
    )
    others = _load(tmp_path, silent, 16 if rule != "layers over stages" else 24, model=True)
    assert rule not in [f.rule for f in others.findings]


def test_example() -> None:
    imported = load(ROOT / "examples/configs/torchtitan_moe.toml", world=64)
    assert repr(imported.composition) == (
        "fsdp(dp=4, shard_over=('dp', 'ep'), reshard_after_forward=False) * expert(ep=8) * "
        f"{_experts(4)} * pipeline(pp=2, microbatches=16, schedule='interleaved', chunks=2) * "
        "recompute('full')"
    )
    assert imported.batch.global_batch == 512
    assert imported.field("dp_shard").value == 32
    assert [f.rule for f in imported.findings] == ["accumulation in a pipeline"]


def test_dense_layers_and_experts_are_both_sharded_over_all_ranks(tmp_path: Path) -> None:
    model = transformer(Shape(hidden=64, heads=8, kv_heads=8, sequence=16, experts=16), folded=True)
    imported = _load(tmp_path, _plain(**{EP: 4}), 8)
    own, whole = (
        check(Subject(repr(c), c, model)).memory for c in (imported.composition, parse("single()"))
    )
    assert own is not None and whole is not None
    for state in ("parameters", "optimizer", "gradients"):
        assert own["device"][state] * 8 == whole["device"][state]


def test_lines_of_toml() -> None:
    text = 'a = 1\n[t]\nb."c d" = 2 # [x]\ns = """\nb = 3\n"""\n[[u]]\nk = 1\n[t.v]\nw = [1,\n2]\n'
    block = parse_toml(text, "x")
    table = block.items["t"].value
    assert isinstance(table, Block)
    lines = {key: item.line for key, item in (block.items | table.items).items()}
    assert lines == {"a": 1, "t": 2, "b": 3, "s": 4, "u": 7, "v": 9}
    inner = table.items["v"].value
    assert isinstance(inner, Block)
    assert inner.items["w"].line == 10
