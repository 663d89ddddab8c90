"""Real files of public repositories, when they are beside the checkout (never part of it)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from placement_proofs.configs import Imported, detect, load
from placement_proofs.errors import IllFormed

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "configs"
INDEX = FOLDER / "index.jsonl"
pytestmark = pytest.mark.skipif(not INDEX.is_file(), reason="the shared data folder is absent")

REFUSED: Mapping[str, str] = {
    "accelerate/acc_invalid_keys.yaml": "unknown key 'invalid_key'",
    "accelerate/broken_nd_product.yaml": "the degrees multiply to num_processes",
    "accelerate/megatron_plugin_broken.yaml": "unknown",
}
"""Files broken on purpose, or by their authors, that still parse."""

DISAGREEMENTS: Mapping[tuple[str, str], str] = {
    ("accelerate/acc_fsdp2_tp_no_fsdp_config.yaml", "zero_stage"): (
        "the index leaves it unknown; the launcher's defaults are version 1, FULL_SHARD, and the "
        "import says that they are defaults"
    ),
}
"""Where the import differs from the reading by eye, and why."""

ELSEWHERE = ("in included", "in script", "from ", "placeholder", "CLI")


def _entries() -> list[dict[str, Any]]:
    if not INDEX.is_file():
        return []
    lines = [json.loads(line) for line in INDEX.read_text().splitlines()]
    return [line for line in lines if line["format"] in ("deepspeed", "accelerate")]


ENTRIES = _entries()


def _id(entry: dict[str, Any]) -> str:
    return str(entry["file"])


def _refused(entry: dict[str, Any]) -> bool:
    return "FAIL" in entry["parses"] or entry["file"] in REFUSED


def _value(imported: Imported, key: str) -> object:
    """What the import says under the index's word ``key``."""
    names = {"mbs": "micro_batch", "gas": "accumulation", "gbs": "global_batch"}
    names |= {"ulysses_sp": "sp", "zero_hpz_partition_size": "hpz_group"}
    names |= {"mics_shard_size": "dp_shard"}
    known = {field.name: field.value for field in imported.fields}
    if key in imported.degrees():
        return imported.degrees()[key]
    value = known.get(names.get(key, key))
    return {"host": "cpu", "none": None}.get(str(value), value)


def _expected(key: str, value: object) -> object:
    return None if key.startswith("offload") and value == "none" else value


def _comparable(key: str, value: object) -> bool:
    words = ("hsdp_like", "fsdp_shard_group", "mixed_precision", "recompute", "offload")
    absent = value is None and key in ("mbs", "gas", "gbs")
    elsewhere = isinstance(value, str) and any(word in value for word in ELSEWHERE)
    return key not in words and not absent and not elsewhere


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not _refused(e)], ids=_id)
def test_parsable_files_import_and_agree_with_the_index(entry: dict[str, Any]) -> None:
    path = FOLDER / entry["file"]
    assert detect(path) == entry["format"]
    imported = load(path, world=entry["world_size"])
    expected_world = entry["world_size"]
    assert expected_world is None or imported.world == expected_world
    for key, value in entry["parallelism"].items():
        if _comparable(key, value) and (entry["file"], key) not in DISAGREEMENTS:
            assert _value(imported, key) == _expected(key, value), key
    if entry["parallelism"].get("offload") == "none":
        assert "offload" not in repr(imported.composition)
    recompute = "recompute" in entry["parallelism"]
    assert recompute == ("recompute" in repr(imported.composition))


@pytest.mark.parametrize(("file", "key"), sorted(DISAGREEMENTS))
def test_every_listed_disagreement_is_one(file: str, key: str) -> None:
    entry = next((entry for entry in ENTRIES if entry["file"] == file), None)
    if entry is None:
        pytest.skip("not among the files")
    value = _value(load(FOLDER / file, world=entry["world_size"]), key)
    assert value != _expected(key, entry["parallelism"][key])


@pytest.mark.parametrize("entry", [e for e in ENTRIES if _refused(e)], ids=_id)
def test_broken_files_are_refused_in_one_line(entry: dict[str, Any]) -> None:
    with pytest.raises(IllFormed) as caught:
        load(FOLDER / entry["file"], world=entry["world_size"])
    message = str(caught.value)
    assert "\n" not in message
    assert REFUSED.get(entry["file"], "the file is a template") in message


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not _refused(e)], ids=_id)
def test_every_file_imports_without_a_world_too(entry: dict[str, Any]) -> None:
    imported = load(FOLDER / entry["file"])
    unknown = imported.world is None
    assert unknown == ("'N'" in repr(imported.composition))
    assert unknown == (imported.field("world").provenance == "unknown")
