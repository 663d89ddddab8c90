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


@pytest.fixture
def first_line(run, tmp_path):
    """The first line about a DeepSpeed file on eight ranks."""

    def line(**keys):
        file = tmp_path / "ds.json"
        file.write_text(json.dumps({"train_micro_batch_size_per_gpu": 2} | keys))
        return run("check", str(file), "--world", "8").out.splitlines()[0]

    return line


def test_the_first_line_says_what_the_framework_rejects_and_ignores(checked, first_line):
    told = "; the framework rejects 1 setting and ignores 1 setting"
    assert checked().out.splitlines()[0].endswith(told)
    assert first_line(train_batch_size=20).endswith("; the framework rejects 1 setting")
    assert "framework" not in first_line(train_batch_size=16)


def test_a_summary_says_so_too(run, tmp_path):
    for name, size in (("good", 16), ("bad", 20)):
        batch = {"train_micro_batch_size_per_gpu": 2, "train_batch_size": size}
        (tmp_path / f"{name}.json").write_text(json.dumps(batch))
    files = [str(tmp_path / f"{name}.json") for name in ("good", "bad")]
    lines = run("check", *files, "--world", "8").out.splitlines()
    assert [("rejects" in line) for line in lines[-3:-1]] == [False, True]
