"""The project's own TOML files are read, and refused, in one way."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placement_proofs.errors import IllFormed
from placement_proofs.inputs import read_subject
from placement_proofs.layouts.constants import load_constants
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.setups import load_setup
from placement_proofs.theories import read_theory
from placement_proofs.toml_file import read_toml
from placement_proofs.topologies import topology
from placement_proofs.zoo import load_model

READERS: dict[str, Callable[[str], object]] = {
    "composition": read_subject,
    "constants": load_constants,
    "device": load_machine,
    "model": load_model,
    "setup": load_setup,
    "theory": lambda path: read_theory(Path(path)),
    "topology": topology,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", [b"a = ", b"\xff", b"a = " + b"[" * 5000], ids=repr)
def test_what_is_no_toml_is_refused(reader: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    with pytest.raises(IllFormed, match="the file is TOML in UTF-8; correct it") as refused:
        READERS[reader](str(path))
    assert refused.value.place == str(path)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_toml(path) == {"a": 1}
