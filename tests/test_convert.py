"""Files written for another framework: read back the same, or the losses say why."""

import json
from dataclasses import replace

import pytest
from conftest import ROOT
from drawn import compositions
from hypothesis import given
from hypothesis import strategies as st

from placement_proofs import strategies
from placement_proofs.composition import compose
from placement_proofs.configs import load
from placement_proofs.configs.degrees import Reading, differences, read_degrees
from placement_proofs.configs.writers import FORMATS, convert
from placement_proofs.configs.writers.draft import AXES
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.strategies import offload, pipeline

EXAMPLES = sorted((ROOT / "examples" / "configs").iterdir())
STATES = [
    ("optimizer",),
    ("optimizer", "parameters"),
    ("parameters", "gradients", "optimizer"),
    ("activations",),
]


def _wider(part, names):
    """The same ZeRO stage over the context, sequence and expert ranks too."""
    over = ("dp", *(n for n in ("cp", "sp", "ep") if n in names))
    return getattr(strategies, part.name)(dp=part.axes[0].size, shard_over=over)


@st.composite
def placements(draw):
    """Compositions of :mod:`drawn`, with offload, wider sharding and interleaving."""
    parts = list(draw(compositions(experts=True)).strategies)
    names = [axis.name for part in parts for axis in part.axes]
    for i, part in enumerate(parts):
        if part.name in ("zero1", "zero2", "zero3", "fsdp") and draw(st.booleans()):
            parts[i] = _wider(part, names)
        if part.name == "pipeline" and draw(st.booleans()):
            parts[i] = pipeline(
                pp=part.axes[0].size,
                microbatches=draw(st.sampled_from([2, 4])),
                schedule="interleaved",
                chunks=draw(st.sampled_from([2, 3])),
            )
    if draw(st.booleans()):
        parts.append(offload(*draw(st.sampled_from(STATES)), to=draw(st.sampled_from(WHERE))))
    return compose(*parts)


WHERE = ["host", "nvme"]


def written(composition, to, **options):
    """The conversion, or ``None`` where the placement is refused as it should be."""
    try:
        return convert(composition, to, **options)
    except IllFormed as error:
        assert error.place == f"--to {to}" and "\n" not in str(error)
        assert error.found and error.rule and error.remedy
        return None


@pytest.mark.parametrize("to", FORMATS)
@given(composition=placements())
def test_a_file_reads_back_as_it_was_or_the_writer_said_what_is_lost(to, composition):
    made = written(composition, to)
    if made is None:
        return
    assert not [loss for loss in made.losses if "reads back" in loss.reason], made.losses
    lost = {loss.role for loss in made.losses}
    for role, one, two in differences(
        read_degrees(composition), read_degrees(parse(made.read_back))
    ):
        excused = {"replicate", "shard"} if "stage" in lost or lost & {"pp", "ep"} else set()
        assert role in lost | excused, (role, one, two)


@pytest.mark.parametrize("to", FORMATS)
@given(composition=placements())
def test_what_is_written_is_accepted_by_the_frameworks_rules(to, composition, tmp_path_factory):
    made = written(composition, to)
    if made is None:
        return
    path = tmp_path_factory.mktemp("written") / f"file{FORMATS[to].suffix}"
    path.write_text(made.text)
    back = load(path)
    assert back.format == to, "told by its keys"
    assert not [f for f in back.findings if f.kind in ("rejected", "mathematics")]


@pytest.mark.parametrize("to", FORMATS)
@given(composition=placements())
def test_axes_are_carried_or_nothing_is_written(to, composition):
    """A lost degree would be a file for other ranks; only degrees of the program may be."""
    made = written(composition, to)
    if made is None:
        return
    lost = {loss.role for loss in made.losses} & set(AXES)
    assert lost <= {"deepspeed": {"pp", "ep"}, "accelerate": {"ep"}, "gptneox": {"ep"}}.get(
        to, set()
    )


def test_nothing_is_lost_where_the_framework_has_everything():
    full = "zero1(dp=4, shard_over=('dp', 'cp')) * tensor(tp=2, sequence=True) * "
    full += "context(cp=2, method='ring') * pipeline(pp=2, microbatches=8, "
    full += "schedule='interleaved', chunks=2) * recompute('selective')"
    for to in ("megatron", "nemo", "llamafactory"):
        made = convert(parse(full), to)
        assert made.losses == ()
        assert read_degrees(parse(made.read_back)) == read_degrees(parse(full))


@pytest.mark.parametrize(
    ("text", "to", "losses"),
    [
        ("hsdp(dp_replicate=2, dp_shard=4)", "deepspeed", []),
        ("zero3(dp=4, shard_over=('dp', 'sp')) * ulysses(sp=2)", "deepspeed", []),
        ("zero3(dp=8) * offload('optimizer', 'parameters', to='nvme')", "deepspeed", []),
        ("zero3(dp=8) * recompute('full')", "deepspeed", ["recompute"]),
        ("zero1(dp=8) * pipeline(pp=2, microbatches=4)", "deepspeed", ["pp"]),
        ("fsdp(dp=8, reshard_after_forward=False)", "accelerate", []),
        ("zero2(dp=8) * accumulate(micro=4)", "accelerate", []),
        ("hsdp(dp_replicate=2, dp_shard=4) * accumulate(micro=4)", "accelerate", ["micro"]),
        ("fsdp(dp=8) * recompute('selective')", "accelerate", ["recompute"]),
        ("fsdp(dp=4) * tensor(tp=2, sequence=True)", "torchtitan", []),
        ("fsdp(dp=4) * tensor(tp=2)", "torchtitan", ["sequence"]),
        ("fsdp(dp=4) * context(cp=2)", "torchtitan", ["over"]),
        ("data(dp=4) * tensor(tp=2) * pipeline(pp=2, microbatches=4)", "nanotron", []),
        ("data(dp=4) * context(cp=2)", "nanotron", ["method"]),
        ("fsdp(dp=8) * recompute('full') * accumulate(micro=2)", "axolotl", []),
        ("fsdp(dp=4) * tensor(tp=2)", "axolotl", ["vocabulary"]),
        ("fsdp(dp=8) * recompute('full')", "llamafactory", []),
        ("zero3(dp=4, shard_over=('dp', 'ep')) * expert(ep=2)", "llamafactory", ["experts_over"]),
        ("zero3(dp=8) * offload('optimizer') * recompute('full')", "maxtext", []),
        ("zero1(dp=8) * recompute('full')", "maxtext", []),
        ("zero1(dp=8)", "maxtext", ["recompute"]),
        ("zero1(dp=8) * offload('optimizer')", "nemo", ["offload"]),
        ("zero1(dp=8) * tensor(tp=2, sequence=True) * recompute('full')", "gptneox", []),
    ],
)
def test_what_is_lost(text, to, losses):
    made = convert(parse(text), to)
    assert [loss.role for loss in made.losses] == losses


@pytest.mark.parametrize(
    ("text", "to", "telling"),
    [
        ("zero3(dp=8) * context(cp=2)", "deepspeed", "no expression of context parallelism"),
        (
            "zero2(dp=8) * pipeline(pp=2, microbatches=4)",
            "deepspeed",
            "refuses ZeRO stages 2 and 3",
        ),
        ("zero1(dp=8)", "torchtitan", "no expression of ZeRO stage 1"),
        ("fsdp(dp=8)", "nanotron", "no expression of ZeRO stage 3"),
        ("fsdp(dp=8) * pipeline(pp=2, microbatches=4)", "axolotl", "no expression of a pipeline"),
        ("fsdp(dp=8) * ulysses(sp=2)", "axolotl", "no expression of Ulysses"),
        ("zero2(dp=8)", "llamafactory", "convert --to deepspeed"),
        ("fsdp(dp=8) * tensor(tp=2)", "llamafactory", "tensor parallelism with ZeRO stage 3"),
        ("zero2(dp=8)", "maxtext", "no expression of ZeRO stage 2"),
        ("zero3(dp=8) * pipeline(pp=2, microbatches=4)", "nemo", "not run with a pipeline"),
        ("data(dp=8) * context(cp=2)", "gptneox", "no expression of context parallelism"),
        ("data(dp=N)", "megatron", "--world"),
        ("data(dp=N)", "nanotron", "dp=N"),
        ("place(x=2, parameters='S*', batch='S(0)')", "deepspeed", "written cell by cell"),
        ("expert(ep=2) * tensor(tp=2)", "megatron", "sequence parallelism"),
    ],
)
def test_what_has_no_expression_is_refused(run, text, to, telling):
    ran = run("convert", text, "--to", to)
    assert ran.code == 2 and ran.out == "" and telling in ran.err
    assert ran.err.startswith(f"error: --to {to}: found ") and ran.err.count("\n") == 1


def test_a_pipeline_of_the_program_leaves_the_data_ranks():
    made = convert(
        parse("zero1(dp=8) * tensor(tp=2, vocabulary=False) * pipeline(pp=2)"), "deepspeed"
    )
    assert [loss.role for loss in made.losses] == ["pp"]
    assert made.read_back == "zero1(dp=8) * tensor(tp=2, vocabulary=False)"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("to", FORMATS)
def test_examples_become_other_files(path, to):
    imported = load(path, world=None)
    made = written(imported.composition, to, imported=imported)
    if imported.format == to and made is not None:
        assert [x for x in made.losses if x.role in Reading.__dataclass_fields__] == []


def test_batch_and_formats_of_a_file_are_carried(tmp_path):
    source = tmp_path / "ds.json"
    table = {
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
    }
    source.write_text(json.dumps(table))
    imported = load(source, world=16)
    for to in ("deepspeed", "megatron", "gptneox", "nemo", "nanotron"):
        made = convert(imported.composition, to, imported=imported)
        path = tmp_path / f"out{FORMATS[to].suffix}"
        path.write_text(made.text)
        back = load(path, world=16)
        assert back.batch == imported.batch, to
        assert back.dtypes.parameters == "bf16"
        assert not [loss for loss in made.losses if loss.role == "micro_batch"]


def test_a_number_format_that_is_not_carried_is_told():
    imported = load(ROOT / "examples" / "configs" / "accelerate_fsdp2.yaml")
    made = convert(imported.composition, "torchtitan", imported=imported)
    (loss,) = [loss for loss in made.losses if loss.role == "reduction format"]
    assert loss.value == "bf16" and "fp32" in loss.reason


def test_what_the_source_leaves_open_is_told(tmp_path):
    path = tmp_path / "launch.yaml"
    path.write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\n"
        "deepspeed_config:\n  deepspeed_config_file: absent.json\n"
    )
    imported = load(path)
    made = convert(imported.composition, "deepspeed", imported=imported)
    assert any("zero_stage" in choice.reason for choice in made.chosen)


def test_the_command_writes_text_losses_and_json(run, tmp_path):
    text = "fsdp(dp=N) * recompute('selective')"
    ran = run("convert", text, "--to", "accelerate", "--world", "16")
    assert ran.code == 0 and "num_processes: 16" in ran.out
    assert "not carried: recompute selective: " in ran.err and "chosen: num_machines" in ran.err
    out = tmp_path / "made.yaml"
    told = run("convert", text, "--to", "accelerate", "--world", "16", "-o", str(out))
    assert told.code == 0 and told.out == f"wrote {out}\n"
    assert out.read_text() == ran.out
    found = json.loads(run("convert", text, "--to", "accelerate", "--world", "16", "--json").out)
    assert found["schema"] == "placement-proofs/convert/1" and found["text"] == ran.out
    assert found["losses"][0]["role"] == "recompute" and found["losses"][0]["reason"]
    assert found["read_back"] == "fsdp(dp=16)"


def test_a_file_is_converted_on_a_world(run):
    path = "examples/configs/deepspeed_zero3.json"
    ran = run("convert", path, "--to", "accelerate", "--world", "64")
    assert ran.code == 0 and "num_processes: 64" in ran.out and "zero_stage: 3" in ran.out


@pytest.mark.parametrize("world", ["6", "0", "7"])
def test_a_world_that_does_not_fit_is_refused(run, world):
    ran = run(
        "convert",
        "fsdp(dp=N) * tensor(tp=4, sequence=True)",
        "--to",
        "torchtitan",
        "--world",
        world,
    )
    assert ran.code == 2 and "--world" in ran.err


def test_an_element_program_has_no_configuration(run):
    ran = run("convert", "examples/programs/loop.toml", "--to", "deepspeed")
    assert ran.code == 2 and ran.err.startswith("error: ")


def test_an_unknown_format_is_usage(run):
    ran = run("convert", "data(dp=2)", "--to", "horovod")
    assert ran.code == 2 and "deepspeed" in ran.err
    with pytest.raises(IllFormed, match="--to"):
        convert(parse("data(dp=2)"), "horovod")


def test_neox_is_gptneox(run):
    assert run("convert", "data(dp=2)", "--to", "neox") == run(
        "convert", "data(dp=2)", "--to", "gptneox"
    )


def test_readings_ignore_spelling_and_axes_of_one_rank():
    same = ["zero3(dp=8)", "fsdp(dp=8)", "hsdp(dp_replicate=1, dp_shard=8)"]
    same += [
        "fsdp(dp=8) * tensor(tp=1, sequence=True) * pipeline(pp=1)",
        "fsdp(dp=8) * context(cp=1)",
    ]
    readings = {read_degrees(parse(text)) for text in same}
    assert readings == {Reading(shard=8, stage=3)}
    copies = "place(dp_replicate=2, batch='S(0)')"
    assert read_degrees(parse(f"{copies} * zero3(dp=4)")) == replace(
        Reading(shard=4, stage=3), replicate=2
    )
    assert read_degrees(parse(f"{copies} * data(dp=4)")) == Reading(shard=8)
    assert read_degrees(parse("zero3(dp=1)")) == Reading()


def test_an_open_number_of_micro_batches_stays_open_or_is_told():
    open_steps = parse("zero3(dp=8) * accumulate(micro=M)")
    made = convert(open_steps, "deepspeed")
    assert made.losses == () and '"auto"' in made.text
    assert any(choice.key == "gradient_accumulation_steps" for choice in made.chosen)
    for to in ("axolotl", "gptneox", "torchtitan"):
        assert "micro" in [loss.role for loss in convert(open_steps, to).losses], to


@pytest.mark.parametrize("to", FORMATS)
def test_writing_again_what_was_written_changes_nothing(to, tmp_path):
    """A file becomes itself once the framework's defaults are written out: nothing drifts."""
    path = tmp_path / f"first{FORMATS[to].suffix}"
    text, texts = convert(parse(OWN[to]), to).text, []
    for _ in range(2):
        path.write_text(text)
        imported = load(path)
        text = convert(imported.composition, to, imported=imported).text
        texts.append([line for line in text.splitlines() if not line.startswith("#")])
    assert texts[0] == texts[1]


OWN = {
    "deepspeed": "zero2(dp=4) * offload('optimizer') * accumulate(micro=2)",
    "accelerate": "hsdp(dp_replicate=2, dp_shard=4) * recompute('full')",
    "torchtitan": "fsdp(dp=4) * tensor(tp=2, sequence=True) * recompute('full')",
    "megatron": "zero1(dp=4) * tensor(tp=2, sequence=True) * pipeline(pp=2, microbatches=4)",
    "nanotron": "zero1(dp=4) * tensor(tp=2) * pipeline(pp=2, microbatches=4, schedule='gpipe')",
    "axolotl": "fsdp(dp=8) * recompute('full') * accumulate(micro=2)",
    "llamafactory": "fsdp(dp=8, reshard_after_forward=False) * accumulate(micro=2)",
    "maxtext": "zero3(dp=4) * tensor(tp=2) * recompute('full')",
    "nemo": "zero1(dp=4) * tensor(tp=2, sequence=True) * recompute('selective')",
    "gptneox": "zero1(dp=4) * tensor(tp=2) * pipeline(pp=2, microbatches=4)",
}
