"""TOML files of the project's own forms."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from placement_proofs.errors import IllFormed


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file in UTF-8, with or without a byte-order mark.

    Raises:
        IllFormed: the file is not TOML.
        OSError: the file cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IllFormed(str(path), str(error), "the file is TOML in UTF-8", "correct it") from None
