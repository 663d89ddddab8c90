"""Real Megatron, NeMo, Lightning and GPT-NeoX files, when they are beside the checkout."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from placement_proofs.configs import Imported, detect, load
from placement_proofs.errors import IllFormed

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "configs"
INDEX = FOLDER / "index.jsonl"
FORMATS = ("megatron", "nemo", "lightning", "gptneox")
pytestmark = pytest.mark.skipif(not INDEX.is_file(), reason="the shared data folder is absent")

REFUSED: Mapping[str, str] = {
    "gptneox/neox_tune_6_7b.json": "a search by the autotuner, not one placement",
}
"""Files that are no single placement."""

DISAGREEMENTS: Mapping[tuple[str, str], str] = {
    ("nemo/nemorl_dpo_pp2.yaml", "tp"): (
        "the index has the value of the file in defaults, which is not read: a symbol"
    ),
}
"""Where the import differs from the reading by eye, and why."""

FOUND: Mapping[str, tuple[str, str]] = {
    "megatron/mlm_rl_qwen3_30b_a3b.sh": ("rejected", "experts need sequence parallel"),
    "megatron/mlm_gptoss_pp_world.sh": ("ignored", "sequence needs tp"),
    "megatron/mlm_llama3_8b_fp8.sh": ("ignored", "sequence needs tp"),
    "megatron/mlm_ft_etp4_dp_last.yaml": ("ignored", "expert degree without experts"),
    "megatron/aws_llama2_70b.sbatch": ("unlikely", "shard group of one"),
    "megatron/bs_104b_16n.slurm": ("unlikely", "shard group of one"),
    "megatron/slime_kimi_k2.sh": ("ignored", "command cut off"),
    "lightning/fengshen_t5_10b_world_mismatch.sh": ("unlikely", "allocated ranks"),
}
"""What the index or the list of mistakes says is wrong with a file."""

NAMES = {
    "mbs": "micro_batch",
    "gas": "accumulation",
    "gbs": "global_batch",
    "seq": "sequence",
    "sp": "sequence_parallel",
    "num_experts": "experts",
}
SKIPPED = ("hsdp_like", "order", "nodes")


def _entries() -> list[dict[str, Any]]:
    if not INDEX.is_file():
        return []
    lines = [json.loads(line) for line in INDEX.read_text().splitlines()]
    return [line for line in lines if line["format"] in FORMATS]


ENTRIES = _entries()
READ = [entry for entry in ENTRIES if entry["file"] not in REFUSED]


def _id(entry: dict[str, Any]) -> str:
    return str(entry["file"])


def _value(imported: Imported, key: str) -> object:
    """What the import says under the index's word ``key``."""
    known = {field.name: field.value for field in reversed(imported.fields)}
    value = known.get(NAMES.get(key, key), imported.degrees().get(key))
    return {"host": "cpu"}.get(str(value), value)


def _expected(key: str, value: object) -> object:
    """The index's value, of a sentence the part that is a value; ``...`` if there is none."""
    if key == "recompute":
        word = str(value).split()[0] if value else "none"
        if word.startswith("$"):
            return ...
        return {"True": "full", "checkpoint_activations": "full"}.get(word, word)
    if not isinstance(value, str) or key == "offload_optimizer":
        return value.split()[0] if isinstance(value, str) else value
    if value.startswith("flag set"):
        return False
    ramp = re.match(r"\d+->(\d+)", value)
    number = ramp or re.match(r"(\d+)\b(?! or)", value)
    number = number or re.search(r"(?:=|default |:-|:)(\d+)\W*\Z", value)
    return int(number[1]) if number else ...


def _pairs(entry: dict[str, Any]) -> list[tuple[str, object]]:
    named = ((key, _expected(key, value)) for key, value in entry["parallelism"].items())
    return [(k, v) for k, v in named if v is not ... and k not in SKIPPED]


@pytest.mark.parametrize("entry", READ, ids=_id)
def test_files_import_and_agree_with_the_index(entry: dict[str, Any]) -> None:
    path = FOLDER / entry["file"]
    assert detect(path) == entry["format"]
    imported = load(path, world=entry["world_size"])
    assert entry["world_size"] is None or imported.world == entry["world_size"]
    for key, expected in _pairs(entry):
        if (entry["file"], key) not in DISAGREEMENTS:
            assert _value(imported, key) == expected, key


@pytest.mark.parametrize(("file", "key"), sorted(DISAGREEMENTS))
def test_every_listed_disagreement_is_one(file: str, key: str) -> None:
    entry = next((entry for entry in ENTRIES if entry["file"] == file), None)
    if entry is None:
        pytest.skip("not among the files")
    value = _value(load(FOLDER / file, world=entry["world_size"]), key)
    assert value != _expected(key, entry["parallelism"][key])


def test_almost_every_value_agrees() -> None:
    same = total = 0
    for entry in READ:
        imported = load(FOLDER / entry["file"], world=entry["world_size"])
        for key, expected in _pairs(entry):
            total += 1
            same += _value(imported, key) == expected
    assert not READ or same >= 0.95 * total


@pytest.mark.parametrize("file", sorted(REFUSED))
def test_files_without_one_placement_are_refused(file: str) -> None:
    if not (FOLDER / file).is_file():
        pytest.skip("not among the files")
    with pytest.raises(IllFormed) as caught:
        load(FOLDER / file)
    assert REFUSED[file] in str(caught.value)


@pytest.mark.parametrize("file", sorted(FOUND))
def test_known_mistakes_are_found(file: str) -> None:
    entry = next((entry for entry in ENTRIES if entry["file"] == file), None)
    if entry is None:
        pytest.skip("not among the files")
    findings = load(FOLDER / file, world=entry["world_size"]).findings
    assert FOUND[file] in [(finding.kind, finding.rule) for finding in findings]


def test_mixtral_is_broken_on_one_machine() -> None:
    path = FOLDER / "megatron" / "mlm_mixtral_8x7b.sh"
    if not path.is_file():
        pytest.skip("not among the files")
    imported = load(path)
    assert imported.field("world").provenance == "default"
    assert "expert grid" in [finding.rule for finding in imported.findings]
    assert "expert grid" not in [f.rule for f in load(path, world=32).findings]


@pytest.mark.parametrize("entry", READ, ids=_id)
def test_a_missing_world_is_never_one(entry: dict[str, Any]) -> None:
    imported = load(FOLDER / entry["file"])
    unknown = imported.world is None
    assert unknown == (imported.field("world").provenance == "unknown")
    assert not unknown or "'N'" in repr(imported.composition)


@pytest.mark.parametrize("entry", READ, ids=_id)
def test_every_finding_has_a_place_and_a_source(entry: dict[str, Any]) -> None:
    for finding in load(FOLDER / entry["file"]).findings:
        assert finding.place.startswith(Path(entry["file"]).name)
        assert finding.remedy and ": " in finding.source
