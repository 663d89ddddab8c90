"""Real files of public repositories, when they are beside the checkout (never part of it).

An index that was read by eye says what each file means. Its values are remarks at times
(``"4 (default)"``, ``"from CLI"``); those that name a value are compared, the others are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from placement_proofs.configs import Imported, detect, load
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "configs"
INDEX = FOLDER / "index.jsonl"
pytestmark = pytest.mark.skipif(not INDEX.is_file(), reason="the shared data folder is absent")

Entry: TypeAlias = dict[str, Any]

REFUSED: Mapping[str, str] = {
    "accelerate/acc_invalid_keys.yaml": "unknown key 'invalid_key'",
    "accelerate/broken_nd_product.yaml": "the degrees multiply to num_processes",
    "accelerate/megatron_plugin_broken.yaml": "unknown",
    "gptneox/neox_tune_6_7b.json": "a search by the autotuner, not one placement",
}
"""Files broken on purpose or by their authors, or no single placement, that still parse."""

DISAGREEMENTS: Mapping[tuple[str, str], str] = {
    ("accelerate/acc_fsdp2_tp_no_fsdp_config.yaml", "zero_stage"): (
        "the index leaves it unknown; the launcher's defaults are version 1, FULL_SHARD, and the "
        "import says that they are defaults"
    ),
    ("nemo/nemorl_dpo_pp2.yaml", "tp"): (
        "the index has the value of the file in defaults, which is not read: a symbol"
    ),
}
"""Where the import differs from the reading by eye, and why."""

ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("llamafactory/fsdp_qlora.yaml", "zero_stage"): "in an Accelerate file on the command line",
    ("llamafactory/mossvl_full_ds3.yaml", "zero_stage"): "in a DeepSpeed file that is not here",
    ("llamafactory/qwen3_lora_ds3.yaml", "zero_stage"): "in a DeepSpeed file that is not here",
    ("llamafactory/v1_deepspeed.yaml", "zero_stage"): "in a DeepSpeed file that is not here",
}
"""Values that the index knows from another file: the import must say that it does not know."""

FOUND: tuple[tuple[str, str, str], ...] = (
    ("megatron/mlm_rl_qwen3_30b_a3b.sh", "rejected", "experts need sequence parallel"),
    ("megatron/mlm_gptoss_pp_world.sh", "ignored", "sequence needs tp"),
    ("megatron/mlm_llama3_8b_fp8.sh", "ignored", "sequence needs tp"),
    ("megatron/mlm_ft_etp4_dp_last.yaml", "ignored", "expert degree without experts"),
    ("megatron/aws_llama2_70b.sbatch", "unlikely", "shard group of one"),
    ("megatron/bs_104b_16n.slurm", "unlikely", "shard group of one"),
    ("megatron/slime_kimi_k2.sh", "ignored", "command cut off"),
    ("megatron/mlm_mixtral_8x7b.sh", "rejected", "expert grid"),
    ("lightning/fengshen_t5_10b_world_mismatch.sh", "unlikely", "allocated ranks"),
    ("torchtitan/deepseek_v3_671b.toml", "ignored", "schedule without pipeline"),
    ("torchtitan/llama4_17bx16e.toml", "ignored", "expert tensor degree"),
    ("torchtitan/llama4_17bx128e.toml", "ignored", "expert tensor degree"),
    ("nanotron/config_llamoe.yaml", "rejected", "expert ranks and world"),
)
"""What the index or the list of mistakes says is wrong with a file."""

TARGETS = ("dp", "tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "zero_stage")
TARGETS += ("recompute", "offload_param", "offload_optimizer", "sp", "ulysses_sp")
"""Degrees, ZeRO stage, recomputation, offload, the flag of sequence parallelism."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "mbs": ("per_device_batch_size", "micro_batch"),
    "gas": ("accumulation",),
    "gbs": ("global_batch",),
    "gbs_resolved": ("global_batch",),
    "seq": ("sequence", "seq_len"),
    "sp": ("sequence_parallel",),
    "ulysses_sp": ("sp", "ulysses_sp"),
    "num_experts": ("experts",),
    "dp_shard_resolved": ("dp_shard",),
    "zero_hpz_partition_size": ("hpz_group",),
    "mics_shard_size": ("dp_shard",),
    "act_offload": ("offload_activations",),
}
"""The index's words, and the fields of an import."""

OTHER = (
    *("hsdp_like", "order", "nodes", "fsdp_shard_group", "mixed_precision", "offload", "bf16"),
    *("fault_tolerance", "mesh_axes", "cp_mode", "mp_shard", "ici_fsdp", "ici_tensor"),
    *("ici_fsdp_transpose", "dcn_data", "dcn_fsdp"),
)
"""Keys of the index that repeat the file in its own words: no field of an import."""
OPEN = ("inert", "auto-filled", " or ", "-1 ", "must divide")
NUMBERS = ("dp", "tp", "pp", "cp", "ep", "etp", "zero_stage", "ulysses_sp")
RECOMPUTED = {"True": "full", "checkpoint_activations": "full", "fsdp": "full"}
RECOMPUTED |= {"fsdp_activation_checkpointing": "full", "None": "none"}


def _entries() -> list[Entry]:
    lines = INDEX.read_text().splitlines() if INDEX.is_file() else []
    return [json.loads(line) for line in lines]


ENTRIES = _entries()
BROKEN = [
    e for e in ENTRIES if "FAIL" in e["parses"] and e["format"] in ("deepspeed", "accelerate")
]
BROKEN += [e for e in ENTRIES if e["file"] in REFUSED and e not in BROKEN]
READ = [entry for entry in ENTRIES if entry not in BROKEN]


def _id(entry: Entry) -> str:
    return str(entry["file"])


@cache
def _load(file: str, world: int | None) -> Imported:
    return load(FOLDER / file, world=world)


def _entry(file: str) -> Entry:
    found = next((entry for entry in ENTRIES if entry["file"] == file), None)
    return found or pytest.skip("not among the files")


def _value(imported: Imported, key: str) -> object:
    """What the import says under the index's word ``key``."""
    known = {field.name: field.value for field in reversed(imported.fields)}
    name = next((n for n in NAMES.get(key, (key,)) if n in known), key)
    value = known.get(name, imported.degrees().get(name))
    if key in ("act_offload", "async_tp", "sp"):
        return value not in (None, False, "none")
    return {"host": "cpu", "none": None}.get(str(value), value)


def _expected(key: str, value: object) -> object:
    """The index's value; of a remark the part that is a value, ``...`` if there is none."""
    if key == "recompute":
        word = re.split(r"[ (,;]", str(value))[0]
        word = RECOMPUTED.get(word, word)
        return ... if word.startswith("$") else None if word == "none" else word
    if not isinstance(value, str):
        return value
    if value.startswith("flag set"):
        return False
    return ... if any(word in value for word in OPEN) else _remark(key, value)


def _remark(key: str, value: str) -> object:
    number = re.search(r"-> ?(\d+)", value) or re.match(r"(\d+)\b", value)
    number = number or re.search(r"(?:=|default |:-|:)(\d+)\W*\Z", value)
    if number:
        return int(number[1])
    word = value.split()[0]
    if word in ("none", "unknown:"):
        return None
    return ... if key in NUMBERS or word.startswith("$") else word


def _pairs(entry: Entry) -> Iterator[tuple[str, object, object]]:
    """Comparable values: the key, what the import says, what the index says."""
    imported = _load(entry["file"], entry["world_size"])
    for key, value in entry["parallelism"].items():
        expected = _expected(key, value)
        left = expected in (-1, ...) or (expected is None and key in ("mbs", "gas", "gbs"))
        if key not in OTHER and not left and (entry["file"], key) not in ELSEWHERE:
            yield key, _value(imported, key), expected


@pytest.mark.parametrize("entry", READ, ids=_id)
def test_files_import_and_agree_with_the_index(entry: Entry) -> None:
    assert detect(FOLDER / entry["file"]) == entry["format"]
    imported = _load(entry["file"], entry["world_size"])
    assert entry["world_size"] in (None, imported.world)
    differ = {key: (value, expected) for key, value, expected in _pairs(entry) if value != expected}
    known = {key for file, key in DISAGREEMENTS if file == entry["file"]}
    assert differ.keys() == known
    if entry["parallelism"].get("offload") == "none":
        assert "offload" not in repr(imported.composition)
    assert parse(repr(imported.composition)) == imported.composition


@pytest.mark.skipif(not ENTRIES, reason="the shared data folder is absent")
def test_targets() -> None:
    """Of the values that say how a job is placed, 95 of 100 or more equal the index."""
    pairs = [pair for entry in READ for pair in _pairs(entry) if pair[0] in TARGETS]
    same = sum(value == expected for _, value, expected in pairs)
    print(f"{same} of {len(pairs)} values of {len(READ)} files")
    assert len(ENTRIES) >= 100 and len(pairs) > 400
    assert same >= 0.95 * len(pairs)


@pytest.mark.parametrize("entry", BROKEN, ids=_id)
def test_broken_files_are_refused_in_one_line(entry: Entry) -> None:
    with pytest.raises(IllFormed) as caught:
        load(FOLDER / entry["file"], world=entry["world_size"])
    message = str(caught.value)
    assert "\n" not in message
    assert REFUSED.get(entry["file"], "the file is a template") in message


@pytest.mark.parametrize(("file", "kind", "rule"), FOUND)
def test_known_mistakes_are_found(file: str, kind: str, rule: str) -> None:
    world = None if "mixtral" in file else _entry(file)["world_size"]
    found = [(finding.kind, finding.rule) for finding in _load(file, world).findings]
    assert (kind, rule) in found


def test_mixtral_is_right_on_more_machines() -> None:
    file = str(_entry("megatron/mlm_mixtral_8x7b.sh")["file"])
    assert _load(file, None).field("world").provenance == "default"
    assert "expert grid" not in [finding.rule for finding in _load(file, 32).findings]


@pytest.mark.parametrize(("file", "key"), sorted(ELSEWHERE))
def test_what_is_elsewhere_is_unknown(file: str, key: str) -> None:
    assert _load(str(_entry(file)["file"]), None).field(key).provenance == "unknown"


@pytest.mark.parametrize("entry", READ, ids=_id)
def test_a_missing_world_is_never_one(entry: Entry) -> None:
    imported = _load(entry["file"], None)
    unknown = imported.world is None
    assert unknown == (imported.field("world").provenance == "unknown")
    assert not unknown or "'N'" in repr(imported.composition)


@pytest.mark.parametrize("entry", READ, ids=_id)
def test_every_finding_has_a_place_and_a_source(entry: Entry) -> None:
    for finding in _load(entry["file"], None).findings:
        assert finding.remedy and finding.place.startswith(Path(entry["file"]).name)
        assert ": " in finding.source


def test_leftover_ranks_are_derived() -> None:
    for entry in READ:
        if entry["parallelism"].get("dp_shard") == -1:
            found = _load(entry["file"], entry["world_size"]).field("dp_shard").provenance
            assert found == ("derived" if entry["world_size"] else "unknown")
