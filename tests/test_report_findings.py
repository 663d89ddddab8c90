"""The text of a check shows findings by kind, with place, remedy, rule and source."""

from __future__ import annotations

import json

import pytest

FILE = """{
  "train_batch_size": 7,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "gradient_allreduce_op": "sum",
  "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
  "activation_checkpointing": {"partition_activations": true}
}
"""
HEADINGS = {
    "wrong mathematics": ["sum of gradients"],
    "the framework rejects or ignores this": ["batch triple", "offload_param needs stage 3"],
    "probably not what you meant": ["checkpointing in code"],
}


@pytest.fixture
def checked(run, tmp_path):
    """Checks the file on eight ranks."""
    file = tmp_path / "ds.json"
    file.write_text(FILE)
    return lambda *options: run("check", str(file), "--world", "8", *options)


def test_findings_stand_under_their_kind(checked):
    ran = checked()
    assert ran.code == 1
    parts = {part.splitlines()[0]: part for part in ran.out.split("\n\n")}
    assert [title for title in parts if title in HEADINGS] == list(HEADINGS)
    for title, rules in HEADINGS.items():
        part = parts[title]
        assert part.count("  - ds.json:") == part.count("    remedy: ") == len(rules)
        assert [rule for rule in rules if f"{rule} (DeepSpeed: " in part] == rules
    assert "  - ds.json:2 train_batch_size: train_batch_size 7 is not" in ran.out
    assert "    rejected: batch triple" in ran.out and "    ignored: offload_param" in ran.out


def test_no_finding_is_listed_again_as_a_warning(checked):
    assert "\nwarnings\n" not in checked().out


def test_json_keeps_findings_and_warnings(checked):
    found = json.loads(checked("--json").out)
    assert len(found["source"]["findings"]) == 4 <= len(found["warnings"])
    assert {"kind", "rule", "place", "message", "remedy", "source"} <= set(
        found["source"]["findings"][0]
    )
