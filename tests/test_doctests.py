"""Examples in docstrings give what they show."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import placement_proofs

MODULES = [
    "placement_proofs",
    *(m.name for m in pkgutil.walk_packages(placement_proofs.__path__, "placement_proofs.")),
]


@pytest.mark.parametrize("name", [m for m in MODULES if not m.endswith("__main__")])
def test_examples(name):
    assert doctest.testmod(import_module(name)).failed == 0
