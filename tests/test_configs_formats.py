"""Number formats of configuration files choose the bytes per element that costs are in."""

from __future__ import annotations

import pytest
from conftest import ROOT

from placement_proofs.configs import Dtypes, load
from placement_proofs.cost.convention import convention

FORMATS = [
    (Dtypes(), "zero-paper"),
    (Dtypes("fp32", "fp32", "fp32", "fp32"), "fp32"),
    (Dtypes("bf16", "fp32", "bf16", "bf16"), "zero-paper"),
    (Dtypes("bf16", "fp32", "fp32", "fp32"), "fp32-gradients"),
    (Dtypes("bf16", "fp32", "fp32", "fp32", copies=False), "cast"),
    (Dtypes("bf16", "fp32", "fp32", "bf16", copies=False), "cast-reduce-16"),
    (Dtypes("bf16", "bf16", "bf16", "bf16", copies=False), "zero-paper"),
]


@pytest.mark.parametrize(("formats", "name"), FORMATS)
def test_number_formats_choose_the_bytes(formats: Dtypes, name: str) -> None:
    assert formats.convention == name
    assert convention(name).name == name


STORED = {
    "accelerate_fsdp2.yaml": "cast-reduce-16",
    "torchtitan_moe.toml": "cast",
    "megatron_moe.sbatch": "fp32-gradients",
    "deepspeed_zero3.json": "zero-paper",
}


@pytest.mark.parametrize("name", STORED)
def test_examples_are_costed_as_their_stack_stores_them(name: str) -> None:
    found = load(ROOT / "examples" / "configs" / name)
    assert found.dtypes.convention == STORED[name]
