"""Configuration files of training frameworks as compositions.

:func:`load` reads a file; :func:`detect` names its format. One importer is one module and one line
of ``IMPORTERS``. Nothing is executed, fetched or guessed: a value that the file leaves open is a
symbol or ``None`` with its provenance.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from placement_proofs.configs.document import Block
from placement_proofs.configs.record import Batch, Dtypes, Field, Finding, Imported
from placement_proofs.errors import IllFormed
from placement_proofs.model import Model

__all__ = ["Batch", "Dtypes", "Field", "Finding", "Imported", "detect", "load"]

MAX_WORLD = 10**9


class Format(Protocol):
    """What the module of a format has."""

    def read(self, path: Path, /) -> Block:
        """Read a file. Without it, the format is YAML."""
        ...

    def claims(self, block: Block, /) -> bool:
        """Whether a file has this format's keys."""
        ...

    def describe(
        self, path: Path, block: Block, world: int | None, model: Model | None, /
    ) -> Imported:
        """The file as a composition."""
        ...


@dataclass(frozen=True)
class Importer:
    """A format: its module in this package, loaded when needed, and the endings of its files."""

    name: str
    suffixes: tuple[str, ...]

    @property
    def format(self) -> Format:
        module: Any = import_module(f"{__name__}.{self.name}")
        return cast(Format, module)

    def read(self, path: Path) -> Block:
        """The file's content, with the lines of its keys."""
        from placement_proofs.configs.yaml_text import read_yaml

        return getattr(self.format, "read", read_yaml)(path)


YAML = (".yaml", ".yml")
SHELL = (".sh", ".sbatch", ".slurm", ".bash")

IMPORTERS = (
    Importer("gptneox", (*YAML, ".json")),
    Importer("deepspeed", (".json", ".hjson")),
    Importer("torchtitan", (".toml", *YAML, ".py")),
    Importer("axolotl", YAML),
    Importer("llamafactory", YAML),
    Importer("maxtext", (*YAML, ".sh")),
    Importer("nanotron", YAML),
    Importer("accelerate", (*YAML, ".json")),
    Importer("nemo", YAML),
    Importer("megatron", (*SHELL, ".txt", ".args", *YAML)),
    Importer("lightning", (".py", ".sh", ".sbatch", ".slurm", *YAML)),
)
"""In the order in which they are asked whether a file is theirs."""


def load(
    path: str | Path,
    *,
    world: int | None = None,
    format: str | None = None,
    model: Model | None = None,
) -> Imported:
    """Import a configuration file.

    Args:
        path: the file.
        world: the number of ranks; overrides what the file says. Missing, it becomes a symbol.
        format: the name of a format, such as ``"deepspeed"``; found from the file if absent.
        model: gives ``auto`` bucket sizes, which follow the hidden size.

    Raises:
        IllFormed: an unreadable file, a value without meaning, degrees that do not fit the world.
    """
    _check_world(world)
    file = Path(path)
    importer, block = _opened(file) if format is None else _chosen(file, format)
    return importer.format.describe(file, block, world, model)


def detect(path: str | Path) -> str:
    """The format of a file, by its ending and its top-level keys.

    Raises:
        IllFormed: unreadable, or of no known format.
    """
    return _opened(Path(path))[0].name


def _check_world(world: object) -> None:
    whole = isinstance(world, int) and not isinstance(world, bool)
    if world is None or (whole and isinstance(world, int) and 1 <= world <= MAX_WORLD):
        return
    raise IllFormed(
        "world",
        repr(world)[:40],
        f"a world is a whole number of ranks from 1 to {MAX_WORLD:,}",
        "pass --world 64",
    )


def _chosen(file: Path, format: str) -> tuple[Importer, Block]:
    found = next((importer for importer in IMPORTERS if importer.name == format), None)
    if found is None:
        names = ", ".join(importer.name for importer in IMPORTERS)
        raise IllFormed("format", repr(format)[:40], f"the formats are {names}", "name one of them")
    return found, found.read(file)


def _opened(file: Path) -> tuple[Importer, Block]:
    """The importer that claims a file; the first reader's error if none can read it."""
    suffix = file.suffix.lower()
    candidates = [i for i in IMPORTERS if suffix in i.suffixes] or list(IMPORTERS)
    errors: list[IllFormed] = []
    for importer in candidates:
        try:
            block = importer.read(file)
        except IllFormed as error:
            errors.append(error)
            continue
        if importer.format.claims(block):
            return importer, block
    if errors:
        raise errors[0]
    names = ", ".join(importer.name for importer in IMPORTERS)
    raise IllFormed(
        str(file),
        "top-level keys of no known format",
        f"the formats are {names}, told by their keys",
        "pass --format if it is one of these",
    )
