"""Setups: what a file of measured runs leaves unsaid: models, machine, batch, words for kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.layouts.devices import Machine, load_machine
from placement_proofs.layouts.kernels import ATTENTION, NORM
from placement_proofs.layouts.setting import Job
from placement_proofs.models import Shape
from placement_proofs.toml_file import read_toml
from placement_proofs.zoo import PRESETS, shape_from

SCHEMA = "see setups.toml of placement_proofs.layouts"


@dataclass(frozen=True)
class Setup:
    """How the runs of a file were made.

    Attributes:
        name, title, source: what it is called, what it is, and where it is described.
        machine: device and cluster.
        zero: the ZeRO stage of every run that does not say its own.
        vocabulary, whole_logits, repeats: facts of the training stack (:class:`Job`).
        batch: sequences of a training step by tokens of a sequence.
        models: shapes by name.
        kernels: (attention, norm) by the word of the runs.
    """

    name: str
    title: str
    source: str
    machine: Machine
    zero: int
    vocabulary: bool
    whole_logits: bool
    repeats: bool
    batch: Mapping[int, int]
    models: Mapping[str, Shape]
    kernels: Mapping[str, tuple[str, str]]

    def job(self, model: str, sequence: int, gpus: int, batch: int) -> Job:
        """The job of a run.

        Raises:
            KeyError: no model has that name.
        """
        shape = replace(self.models[model], sequence=sequence)
        return Job(
            model,
            shape,
            batch,
            gpus,
            self.machine,
            vocabulary=self.vocabulary,
            whole_logits=self.whole_logits,
            repeats=self.repeats,
        )


def load_setup(text: str = "paper") -> Setup:
    """A setup by name, or the one of a TOML file of the form of ``setups.toml``.

    Raises:
        IllFormed: no such setup, or a key of the file is missing or wrong.
    """
    table = _built_in()
    if text in table:
        return _setup(text, table[text], "setups.toml")
    path = Path(text)
    if path.suffix != ".toml" or not path.is_file():
        raise IllFormed(
            "--setup", repr(text), f"setups are {', '.join(table)} or a TOML file", SCHEMA
        )
    own = read_toml(path)
    if len(own) != 1:
        raise IllFormed(str(path), f"{len(own)} tables", "a file has one setup", SCHEMA)
    ((name, one),) = own.items()
    return _setup(name, one, str(path))


@cache
def _built_in() -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("setups.toml"))


def _setup(name: str, table: Mapping[str, Any], place: str) -> Setup:
    if not isinstance(table, dict):
        raise IllFormed(f"{place}: {name}", repr(table)[:60], "a setup is a table", SCHEMA)
    get = _Getter(table, f"{place}: {name}")
    return Setup(
        name,
        get("title", str, ""),
        get("source", str, ""),
        load_machine(get("machine", str)),
        get("zero", int, 1),
        get("vocabulary", bool, True),
        get("whole_logits", bool, False),
        get("repeats", bool, False),
        {_whole(k, get.place): _whole(v, get.place) for k, v in get("batch", dict, {}).items()},
        {n: shape_from(t, f"{place}: models.{n}") for n, t in get("models", dict, {}).items()}
        or dict(PRESETS),
        {n: _kernels(t, f"{place}: kernels.{n}") for n, t in get("kernels", dict, {}).items()},
    )


@dataclass(frozen=True)
class _Getter:
    """Values of a table with their types checked."""

    table: Mapping[str, Any]
    place: str

    def __call__(self, key: str, kind: type, default: Any = None) -> Any:
        found = self.table.get(key, default)
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise IllFormed(
                f"{self.place}.{key}",
                "nothing" if found is None else repr(found)[:60],
                f"a setup has {key}, a {kind.__name__}",
                SCHEMA,
            )
        return found


def _whole(value: object, place: str) -> int:
    text = str(value)
    if not text.isdigit() or int(text) < 1:
        raise IllFormed(
            f"{place}.batch", text[:60], "whole numbers of tokens and sequences", SCHEMA
        )
    return int(text)


def _kernels(table: object, place: str) -> tuple[str, str]:
    get = _Getter(table if isinstance(table, dict) else {}, place)
    found = get("attention", str), get("norm", str)
    for name, known in zip(found, (ATTENTION, NORM), strict=True):
        if name not in known:
            raise IllFormed(place, repr(name), f"kernels are {', '.join(known)}", SCHEMA)
    return found
