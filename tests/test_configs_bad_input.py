"""Hostile and broken input through ``load``: a precise answer or refusal with file, line, key."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_configs_fuzz import imports_or_refuses

from placement_proofs.configs import Imported, load
from placement_proofs.configs.document import MAX_BYTES
from placement_proofs.errors import IllFormed

ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"
TRAIN = "torchrun --nproc_per_node 8 pretrain_gpt.py"
MEGATRON = "--num-layers 8 --hidden-size 64 --num-attention-heads 8"


def _read(folder: Path, name: str, text: str, **options: int) -> Imported:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return load(file, world=options.get("world"))


def _refused(folder: Path, name: str, text: str) -> str:
    with pytest.raises(IllFormed) as caught:
        _read(folder, name, text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _found(imported: Imported, rule: str) -> list[str]:
    return [f.place for f in imported.findings if f.rule == rule]


def test_json_with_comments_and_trailing_commas(tmp_path: Path) -> None:
    text = '{\n// one\n"zero_optimization": {"stage": 2,}, # two\n"train_batch_size": 8,\n}'
    imported = _read(tmp_path, "a.json", text, world=8)
    assert imported.field("zero_stage").place == "a.json:3 zero_optimization.stage"
    assert imported.batch.micro_batch == 1


def test_numbers_that_yaml_reads_as_text(tmp_path: Path) -> None:
    text = f"{ACCELERATE}  deepspeed_config_file: ds.json\n"
    (tmp_path / "ds.json").write_text(
        '{"train_batch_size": "8", "zero_optimization": {"stage": 3, "reduce_bucket_size": "1e9"}}'
    )
    imported = _read(tmp_path, "a.yaml", text)
    assert imported.field("reduce_bucket_size").value == 10**9
    assert imported.field("global_batch").value == 8
    wrong = "parallelism: {dp: 1, tp: 2.5, pp: 1}\ntokens: {micro_batch_size: 1}\n"
    assert _refused(tmp_path, "b.yaml", wrong).startswith("b.yaml:1 parallelism.tp: found 2.5")


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.json", '{"train_batch_size": 8,\n"gradient_accumulation_steps": "${GAS}"}', "a.json:2"),
        ("a.yaml", "distributed_type: FSDP\nnum_processes: ${WORLD}\n", "a.yaml:2 num_processes"),
        ("a.toml", '[parallelism]\ntensor_parallel_degree = "${TP}"\n', "a.toml:2 parallelism.ten"),
    ],
)
def test_variables_that_nobody_filled_in(tmp_path: Path, name: str, text: str, place: str) -> None:
    message = _refused(tmp_path, name, text)
    assert message.startswith(place) and "placeholder" in message


def test_a_variable_of_a_script_is_a_symbol(tmp_path: Path) -> None:
    text = f"{TRAIN} {MEGATRON} --tensor-model-parallel-size ${{TP}}\n"
    field = _read(tmp_path, "a.sh", text).field("tp")
    assert (field.value, field.provenance) == ("N_tp", "cli or environment")
    assert "TP" in field.note


def test_included_files_present_and_absent(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{\n"zero_optimization": {\n"stage": 7}}')
    text = f"{ACCELERATE}  deepspeed_config_file: {{}}\n"
    message = _refused(tmp_path, "a.yaml", text.format("ds.json"))
    assert message.startswith("ds.json:3 zero_optimization.stage: found 7")
    absent = _read(tmp_path, "b.yaml", text.format("no.json"))
    assert _found(absent, "included file") == ["b.yaml:4 deepspeed_config.deepspeed_config_file"]
    assert absent.undecided


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.json", '{"train_batch_size": 8,\n"train_batch_size": 9}', "a.json:2"),
        ("a.toml", "[parallelism]\ntensor_parallel_degree = 2\ntensor_parallel_degree = 4", "a.t"),
    ],
)
def test_keys_given_twice_are_refused(tmp_path: Path, name: str, text: str, place: str) -> None:
    assert _refused(tmp_path, name, text).startswith(place)


def test_keys_given_twice_in_yaml_and_in_a_command_are_told(tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_processes: 4\n"
    assert _found(_read(tmp_path, "a.yaml", text), "key given twice") == ["a.yaml:3 num_processes"]
    flags = "--tensor-model-parallel-size 2 --tensor-model-parallel-size 4"
    imported = _read(tmp_path, "a.sh", f"{TRAIN} {MEGATRON} {flags}\n")
    assert imported.degrees()["tp"] == 4 and len(_found(imported, "flag given twice")) == 1


def test_arrays_and_heredocs_in_a_script(tmp_path: Path) -> None:
    text = f"""cat > ds.json <<EOF
{{"zero_optimization": {{"stage": 1}}}}
EOF
ARGS=({MEGATRON}
  --tensor-model-parallel-size 2 # --tensor-model-parallel-size 4
)
ARGS+=(--deepspeed --deepspeed_config ds.json)
{TRAIN} "${{ARGS[@]}}"
"""
    imported = _read(tmp_path, "a.sh", text)
    assert imported.field("tp").place.startswith("a.sh:5 ")
    assert imported.field("zero_stage").value == 1


def test_a_script_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"touch {mark}\nA=$(touch {mark})\n`touch {mark}`\n{TRAIN} {MEGATRON} $A\n"
    _read(tmp_path, "a.sh", text)
    program = f"open({str(mark)!r}, 'w')\nimport lightning as L\nL.Trainer(devices=2)\n"
    _read(tmp_path, "a.py", program)
    assert not mark.exists()


def test_several_engines_in_one_file(tmp_path: Path) -> None:
    text = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
    imported = _read(tmp_path, "a.yaml", text + "deepspeed_config:\n  zero_stage: 1\n")
    assert _found(imported, "block of another engine") == ["a.yaml:4 deepspeed_config"]
    assert imported.field("zero_stage").value == 3


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16"])
def test_encodings_with_a_mark(tmp_path: Path, coding: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[parallelism]\ntensor_parallel_degree = 2 # zwei, für alle\n", encoding=coding)
    assert load(file).degrees()["tp"] == 2


@pytest.mark.parametrize("name", ["a.json", "a.yaml", "a.toml", "a.sh", "a.py"])
def test_other_encodings_are_refused_with_the_byte(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes("# für\n".encode("latin-1"))
    with pytest.raises(IllFormed, match="byte 0xfc at position 3, which is not utf-8"):
        load(file)


HALF = 2_000_000
LARGE = {
    "a.json": '{"train_batch_size": [' + "1," * HALF + "1]}",
    "a.yaml": "distributed_type: NO\nx: [" + "1," * HALF + "]",
    "a.toml": "[parallelism]\n" + "# c\n" * HALF,
    "a.sh": "A=1\n" * HALF,
    "a.py": "x = 1\n" * (HALF // 2),
}


@pytest.mark.parametrize("name", LARGE)
def test_megabytes_are_refused_by_a_count_and_not_by_patience(tmp_path: Path, name: str) -> None:
    """What may be read is counted before it is built: values, lines or characters."""
    message = _refused(tmp_path, name, LARGE[name])
    assert any(limit in message for limit in ("20,000 values", "200,000", "1,000,000"))


@pytest.mark.parametrize("name", LARGE)
def test_ten_megabytes_are_not_read_to_the_end(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    with file.open("wb") as stream:
        stream.truncate(100 * MAX_BYTES)
    with pytest.raises(IllFormed, match="more than 10 MB"):
        load(file)


def test_alias_bombs(tmp_path: Path) -> None:
    lines = ["distributed_type: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    message = _refused(tmp_path, "a.yaml", "\n".join(lines))
    assert message.startswith("a.yaml:") and "aliases written out" in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"a":' * 50_000),
        ("a.yaml", "{a: " * 50_000),
        ("a.toml", "a = " + "[" * 50_000),
        ("b.toml", "a = " + "{b = " * 5_000),
        ("c.toml", "[" + "a." * 5_000 + "a]\nb = 1"),
        ("a.sh", TRAIN + " " + "$(" * 50_000),
        ("a.py", "ParallelismConfig(" * 20_000),
        ("b.py", "ParallelismConfig(" + "(" * 9_000 + ")" * 9_000 + ")"),
    ],
)
def test_deep_nesting_is_refused(tmp_path: Path, name: str, text: str) -> None:
    assert name in _refused(tmp_path, name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "a = " + "9" * 100_000),
        ("a.sh", "ici_fsdp_parallelism=" + "9" * 100_000),
        ("b.sh", "per_device_batch_size=1 " + "a=b " * 100_000),
        ("c.sh", "A=1\n" * 100_000 + "per_device_batch_size=1"),
    ],
)
def test_long_values_and_long_scripts(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    imports_or_refuses(file, 8)
