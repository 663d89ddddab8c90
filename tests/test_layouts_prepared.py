"""Kinds that are kept on disk: found again where nothing changed, made again otherwise."""

from dataclasses import replace

import pytest

from placement_proofs.layouts import prepared as module
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.prepared import is_kept, prepared
from placement_proofs.layouts.proofs import ClassProof
from placement_proofs.layouts.setting import Job, Kind
from placement_proofs.verdict import Verdict
from placement_proofs.zoo import PRESETS

JOB = Job("llama-13b", PRESETS["llama-13b"], 512, 32, load_machine("a100-80gb"))
KIND = Kind(tensor=True)


def files(folder):
    return sorted(folder.glob("*"))


@pytest.fixture
def made(monkeypatch):
    """How often a kind is worked out; nothing is remembered in memory."""
    count = []
    real = module._made.__wrapped__

    def counted(kind, job):
        count.append(kind)
        return real(kind, job)

    monkeypatch.setattr(module, "_made", counted)
    return count


def test_what_is_kept_is_what_was_made(tmp_path, made):
    first = prepared(KIND, JOB, tmp_path)
    assert is_kept(KIND, JOB, tmp_path) and len(made) == 1
    assert prepared(KIND, JOB, tmp_path) == first and len(made) == 1
    assert first.proof.verdict is Verdict.PROVED and first.formulas is not None


def test_another_size_finds_it_and_another_architecture_or_kind_does_not(tmp_path, made):
    prepared(KIND, JOB, tmp_path)
    other = replace(JOB, shape=PRESETS["llama-65b"], gpus=64, machine=load_machine("h100"))
    assert prepared(KIND, other, tmp_path) == prepared(KIND, JOB, tmp_path)
    assert len(made) == 1
    experts = replace(JOB, shape=PRESETS["mixtral-8x7b"])
    assert prepared(KIND, experts, tmp_path) != prepared(KIND, JOB, tmp_path)
    prepared(KIND, replace(JOB, repeats=True), tmp_path)
    prepared(replace(KIND, zero=3), JOB, tmp_path)
    assert len(made) == 4


def test_other_code_does_not_find_it(tmp_path, made, monkeypatch):
    prepared(KIND, JOB, tmp_path)
    monkeypatch.setattr(module, "fingerprint", lambda: "other code")
    prepared(KIND, JOB, tmp_path)
    assert len(made) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"proof": {}}', '{"proof": {"verdict": "no"}}'])
def test_a_broken_file_is_made_again(tmp_path, made, text):
    first = prepared(KIND, JOB, tmp_path)
    (path,) = files(tmp_path)
    path.write_text(text)
    assert prepared(KIND, JOB, tmp_path) == first and len(made) == 2
    assert prepared(KIND, JOB, tmp_path) == first and len(made) == 2


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert prepared(KIND, JOB, blocked / "folder").formulas is not None


def test_what_is_not_proved_is_kept_without_formulas(tmp_path, monkeypatch, made):
    unknown = ClassProof("data(dp='d')", Verdict.UNKNOWN, reason="as a test wants")
    monkeypatch.setattr(module, "proof_of", lambda kind, job: unknown)
    assert prepared(KIND, JOB, tmp_path).formulas is None
    again = prepared(KIND, JOB, tmp_path)
    assert again.formulas is None and again.proof == unknown and len(made) == 1
