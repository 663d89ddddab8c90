"""Real torchtitan, nanotron, axolotl, LLaMA-Factory and MaxText files, when they are beside us."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from placement_proofs.composition import parse
from placement_proofs.configs import Imported, detect, load

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "configs"
INDEX = FOLDER / "index.jsonl"
pytestmark = pytest.mark.skipif(not INDEX.is_file(), reason="the shared data folder is absent")

FORMATS = ("torchtitan", "nanotron", "axolotl", "llamafactory", "maxtext")

DISAGREEMENTS: Mapping[tuple[str, str], str] = {}
"""Where the import differs from the reading by eye, and why."""

ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("llamafactory/fsdp_qlora.yaml", "zero_stage"): "in an Accelerate file on the command line",
    ("llamafactory/mossvl_full_ds3.yaml", "zero_stage"): "in a DeepSpeed file that is not here",
    ("llamafactory/qwen3_lora_ds3.yaml", "zero_stage"): "in a DeepSpeed file that is not here",
    ("llamafactory/v1_deepspeed.yaml", "zero_stage"): "in a DeepSpeed file that is not here",
}
"""Values that the index knows from another file: the import must say that it does not know."""

NAMES = {
    "mbs": "micro_batch",
    "gas": "accumulation",
    "gbs": "global_batch",
    "gbs_resolved": "global_batch",
    "dp_shard_resolved": "dp_shard",
    "seq": "seq_len",
    "act_offload": "offload_activations",
    "tokens_per_microbatch_per_dp_rank": "tokens_per_microbatch_per_dp_rank",
}
WORDS = (
    "bf16",
    "fault_tolerance",
    "mesh_axes",
    "cp_mode",
    "mp_shard",
    "ici_fsdp",
    "ici_tensor",
    "ici_fsdp_transpose",
    "dcn_data",
    "dcn_fsdp",
)
"""Keys of the index that repeat the file in its own words: no field of the import."""


def _entries() -> list[dict[str, Any]]:
    if not INDEX.is_file():
        return []
    lines = [json.loads(line) for line in INDEX.read_text().splitlines()]
    return [line for line in lines if line["format"] in FORMATS]


ENTRIES = _entries()


def _id(entry: dict[str, Any]) -> str:
    return str(entry["file"])


def _value(imported: Imported, key: str) -> object:
    known = {field.name: field.value for field in imported.fields}
    if key == "sp":
        return known.get("sequence_parallel", False)
    if key == "mbs" and imported.format == "maxtext":
        return known["per_device_batch_size"]
    value = known.get(NAMES.get(key, key))
    value = {"host": "cpu", "none": None}.get(str(value), value)
    return bool(value) if key in ("act_offload", "async_tp") else value


def _expected(key: str, value: object) -> object:
    """The index's value: the number that a remark ends in or begins with, the first word else."""
    if key == "recompute":
        return _recompute(value)
    if not isinstance(value, str) or key == "offload_param":
        return value
    resolved = re.search(r"-> (\d+)", value)
    return int(resolved.group(1)) if resolved else _leading(value)


def _leading(value: str) -> object:
    number = re.match(r"-?\d+", value)
    return int(number.group()) if number else value.split()[0]


def _recompute(value: object) -> str:
    word = re.split(r"[ (,;]", str(value))[0]
    return {"True": "full", "fsdp": "full", "fsdp_activation_checkpointing": "full"}.get(word, word)


def _pairs(entry: dict[str, Any], imported: Imported) -> Iterator[tuple[str, object, object]]:
    """Comparable values: the key, what the import says, what the index says."""
    for key, value in entry["parallelism"].items():
        inert = isinstance(value, str) and ("inert" in value or "default" in value)
        filled = isinstance(value, str) and "auto-filled" in value
        if key in WORDS or inert or filled or (entry["file"], key) in ELSEWHERE:
            continue
        expected = _expected(key, value)
        if expected == -1:
            continue
        yield key, _value(imported, key), expected


@pytest.mark.parametrize("entry", ENTRIES, ids=_id)
def test_files_import_and_agree_with_the_index(entry: dict[str, Any]) -> None:
    path = FOLDER / entry["file"]
    assert detect(path) == entry["format"]
    imported = load(path, world=entry["world_size"])
    assert imported.world == entry["world_size"] or entry["world_size"] is None
    for key, value, expected in _pairs(entry, imported):
        if (entry["file"], key) not in DISAGREEMENTS:
            assert value == expected, key
    assert parse(repr(imported.composition)) == imported.composition


def test_leftovers_are_the_ranks_that_are_left() -> None:
    for entry in ENTRIES:
        imported = load(FOLDER / entry["file"], world=entry["world_size"])
        if entry["parallelism"].get("dp_shard") == -1 and entry["world_size"]:
            assert imported.field("dp_shard").provenance == "derived"
        elif entry["parallelism"].get("dp_shard") == -1:
            assert imported.field("dp_shard").provenance == "unknown"


def test_remarks_of_the_index() -> None:
    """What the index says in words."""
    ones = load(FOLDER / "axolotl/falcon_e_all_ones.yaml", world=4)
    assert ones.degrees() == {"dp": 4}
    inert = load(FOLDER / "torchtitan/deepseek_v3_671b.toml")
    assert "schedule without pipeline" in [f.rule for f in inert.findings]
    for name in ("llama4_17bx16e", "llama4_17bx128e"):
        found = load(FOLDER / f"torchtitan/{name}.toml").findings
        assert "expert tensor degree" in [f.rule for f in found]
    broken = load(FOLDER / "nanotron/config_llamoe.yaml", world=4)
    assert "expert ranks and world" in [f.rule for f in broken.findings]


@pytest.mark.parametrize(("file", "key"), sorted(ELSEWHERE))
def test_what_is_elsewhere_is_unknown(file: str, key: str) -> None:
    if not INDEX.is_file():
        pytest.skip("not among the files")
    assert load(FOLDER / file).field(key).provenance == "unknown"


@pytest.mark.parametrize("entry", ENTRIES, ids=_id)
def test_every_file_imports_without_a_world_too(entry: dict[str, Any]) -> None:
    imported = load(FOLDER / entry["file"])
    unknown = imported.world is None
    assert unknown == ("'N'" in repr(imported.composition))
    assert unknown == (imported.field("world").provenance == "unknown")


def test_most_values_agree() -> None:
    """At least 95 of 100 values of files whose world is known equal the index."""
    known = [entry for entry in ENTRIES if entry["world_size"]]
    pairs = [
        (value, expected)
        for entry in known
        for _, value, expected in _pairs(
            entry, load(FOLDER / entry["file"], world=entry["world_size"])
        )
    ]
    same = sum(value == expected for value, expected in pairs)
    print(f"{same} of {len(pairs)} values")
    assert same >= 0.95 * len(pairs) > 100
