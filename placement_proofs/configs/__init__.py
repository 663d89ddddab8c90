"""Configuration files of training frameworks as compositions.

:func:`load` reads a file; :func:`detect` names its format. One importer is one module and one line
of ``IMPORTERS``. Nothing is executed, fetched or guessed: a value that the file leaves open is a
symbol or ``None`` with its provenance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from placement_proofs.configs import (
    accelerate,
    axolotl,
    deepspeed,
    gptneox,
    lightning,
    llamafactory,
    maxtext,
    megatron,
    nanotron,
    nemo,
    torchtitan,
)
from placement_proofs.configs.document import Block
from placement_proofs.configs.hjson_text import read_hjson
from placement_proofs.configs.record import Batch, Dtypes, Field, Finding, Imported
from placement_proofs.configs.yaml_text import read_yaml
from placement_proofs.errors import IllFormed
from placement_proofs.model import Model

__all__ = ["Batch", "Dtypes", "Field", "Finding", "Imported", "detect", "load"]

MAX_WORLD = 10**9


@dataclass(frozen=True)
class Importer:
    """A format: the endings of its files, how they are read, and whose keys they have."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path], Block]
    claims: Callable[[Block], bool]
    describe: Callable[[Path, Block, int | None, Model | None], Imported]


IMPORTERS = (
    Importer("gptneox", (".yml", ".yaml", ".json"), gptneox.read, gptneox.claims, gptneox.describe),
    Importer("deepspeed", (".json", ".hjson"), read_hjson, deepspeed.claims, deepspeed.describe),
    Importer(
        "torchtitan",
        (".toml", ".yaml", ".yml", ".py"),
        torchtitan.read,
        torchtitan.claims,
        torchtitan.describe,
    ),
    Importer("axolotl", (".yaml", ".yml"), read_yaml, axolotl.claims, axolotl.describe),
    Importer(
        "llamafactory", (".yaml", ".yml"), read_yaml, llamafactory.claims, llamafactory.describe
    ),
    Importer(
        "maxtext",
        (".yml", ".yaml", ".sh"),
        maxtext.read,
        maxtext.claims,
        maxtext.describe,
    ),
    Importer("nanotron", (".yaml", ".yml"), read_yaml, nanotron.claims, nanotron.describe),
    Importer(
        "accelerate", (".yaml", ".yml", ".json"), read_yaml, accelerate.claims, accelerate.describe
    ),
    Importer("nemo", (".yaml", ".yml"), read_yaml, nemo.claims, nemo.describe),
    Importer(
        "megatron",
        (".sh", ".sbatch", ".slurm", ".bash", ".txt", ".args", ".yaml", ".yml"),
        megatron.read,
        megatron.claims,
        megatron.describe,
    ),
    Importer(
        "lightning",
        (".py", ".sh", ".sbatch", ".slurm", ".yaml", ".yml"),
        lightning.read,
        lightning.claims,
        lightning.describe,
    ),
)


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
        format: ``"deepspeed"`` or ``"accelerate"``; found from the file's keys if absent.
        model: gives ``auto`` bucket sizes, which follow the hidden size.

    Raises:
        IllFormed: an unreadable file, a value without meaning, degrees that do not fit the world.
    """
    _check_world(world)
    file = Path(path)
    importer, block = _opened(file) if format is None else _chosen(file, format)
    return importer.describe(file, block, world, model)


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
        if importer.claims(block):
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
