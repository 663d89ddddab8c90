"""Constants of memory and time: few, named, and with a statement of where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.toml_file import read_toml


@dataclass(frozen=True)
class Constants:
    """What a plan does not say about a device and its libraries.

    The defaults are not fitted: counts of a standard implementation, and shares of peak that
    vendors and papers report.

    Attributes:
        logit: bytes per logit that the loss holds at its fullest: logits in bfloat16 and float32,
            log-probabilities, and the gradients of both in float32.
        allocator: bytes that the allocator takes from the device per byte of saved activations.
        reserve: bytes taken by drivers, communicators and libraries.
        matrix: share of the peak FLOP/s that matrix products reach.
        memory: share of the memory bandwidth that element-wise operations reach.
        link: share of the bandwidth of links that collectives reach.
        contention: share of its time by which a reduction between nodes slows with each further
            node of the job; 0 is a network without bottleneck.
        launch: seconds that a kernel takes beside its work.
        fitted: on what they were fitted; empty where they were not.
    """

    logit: float = 18.0
    allocator: float = 1.0
    reserve: float = 2.0 * 2**30
    matrix: float = 0.7
    memory: float = 0.8
    link: float = 0.7
    contention: float = 0.0
    launch: float = 1e-5
    fitted: str = ""

    @property
    def symbols(self) -> dict[str, float]:
        """By the names of the symbols in the forms."""
        return {"y" if n == "logit" else n: getattr(self, n) for n in NAMES}

    def to_toml(self) -> str:
        """A file that ``load_constants`` reads."""
        lines = [f"{name} = {getattr(self, name)!r}" for name in NAMES]
        return "\n".join([f"fitted = {_quoted(self.fitted)}", *lines, ""])

    def to_json(self) -> dict[str, float | str]:
        """All fields by name."""
        return {name: getattr(self, name) for name in (*NAMES, "fitted")}


NAMES = tuple(f.name for f in fields(Constants) if f.name != "fitted")
"""The names of the numbers."""

SHIPPED = "a100-llama"
"""The constants in force where none are asked for."""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', "'") + '"'


def load_constants(text: str = SHIPPED) -> Constants:
    """Constants by name (``unfitted`` or one of ``constants.toml``), or those of a TOML file.

    A file has the fields of :class:`Constants`; what it leaves out is not fitted.

    Raises:
        IllFormed: no such constants, an unknown field, or a value that is no number.
    """
    table = _built_in()
    if text == "unfitted":
        return Constants()
    if text in table:
        return _constants(table[text], f"constants.toml: {text}")
    path = Path(text)
    if path.suffix != ".toml" or not path.is_file():
        raise IllFormed(
            "--constants",
            repr(text),
            f"constants are unfitted, {', '.join(table)} or a TOML file",
            "name one, or write a file with: placement-proofs layouts calibrate RUNS.csv",
        )
    return _constants(read_toml(path), str(path))


@cache
def _built_in() -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("constants.toml"))


def _constants(table: Mapping[str, Any], place: str) -> Constants:
    for name, value in table.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if name not in (*NAMES, "fitted") or number == (name == "fitted"):
            raise IllFormed(
                f"{place}: {name}",
                repr(value)[:60],
                f"constants have numbers {', '.join(NAMES)} from 0, and a text fitted",
                "rename, correct or remove it",
            )
    numbers = {name: float(value) for name, value in table.items() if name != "fitted"}
    return replace(Constants(fitted=str(table.get("fitted", ""))), **numbers)  # type: ignore[arg-type]
