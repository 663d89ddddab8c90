"""Degrees against the shape of a model: heads, layers, experts and tokens that must divide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placement_proofs.configs.document import Section
from placement_proofs.configs.notes import Notes
from placement_proofs.model import Model


@dataclass(frozen=True)
class Fit:
    """What is divided by what: sizes of the model, degrees in ranks, and where each was written.

    ``dims`` has ``a`` heads, ``akv`` key-value heads, ``L`` layers, ``E`` experts, ``s`` tokens.
    """

    dims: Mapping[str, int]
    degrees: Mapping[str, int]
    places: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def degree(self, name: str) -> int:
        return self.degrees.get(name, 1)

    def place(self, name: str) -> str:
        return self.places.get(name, "") or next(iter(self.places.values()), "")


def dims_of(model: Model | None, sequence: int | None = None) -> dict[str, int]:
    """The sizes of a model, with the file's own sequence length."""
    dims = {k: v for k, v in (model.dims if model else {}).items() if isinstance(v, int)}
    return dims | ({"s": sequence} if sequence else {})


NEUTRAL: Mapping[str, str] = {
    "layers": "L",
    "hidden": "h",
    "heads": "a",
    "kv_heads": "akv",
    "ffn": "f",
    "vocabulary": "V",
    "experts": "E",
}
"""The words of :attr:`record.Imported.shape`, and the names of the same sizes in a model."""


def take_shape(section: Section, keys: Mapping[str, str], notes: Notes) -> dict[str, int]:
    """Record the sizes that a file gives under ``keys``; returns them by a model's names."""
    dims: dict[str, int] = {}
    for name, key in keys.items():
        size = section.integer(key, least=1)
        if size is not None:
            notes.take(name, size, section, key)
            dims[NEUTRAL[name]] = size
    return dims


_RULES = (
    ("a", "tp", 1, "heads", "attention heads"),
    ("akv", "tp", 1, "key-value heads", "key-value heads"),
    ("a", "sp", 1, "heads", "attention heads"),
    ("E", "ep", 1, "experts", "experts"),
    ("s", "cp", 2, "tokens", "tokens of a sequence"),
    ("s", "sp", 1, "tokens", "tokens of a sequence"),
)


def check_fit(fit: Fit, notes: Notes, skip: tuple[str, ...] = ()) -> None:
    """The divisions that every framework needs; ``skip`` names rules that one does not have.

    Context parallelism deals two pieces of a sequence to a rank, so it divides by ``2 * cp``.
    """
    for dim, axis, times, rule, what in _RULES:
        size, degree = fit.dims.get(dim, 0), fit.degree(axis) * times
        if rule in skip or fit.degree(axis) == 1 or not size or size % degree == 0:
            continue
        shown = f"{times} * {axis} {fit.degree(axis)}" if times > 1 else f"{axis} {degree}"
        notes.find(
            "rejected",
            f"{rule} divide",
            fit.place(axis),
            f"{size} {what} over {shown}: {size} / {degree} = {size / degree:.6g}",
            f"choose {axis} so that it divides {size}",
            fit.sources.get(axis, "the tensor is split in equal parts"),
        )


def check_sequence_split(fit: Fit, notes: Notes) -> None:
    """Sequence parallelism splits the tokens of a context rank over the tensor ranks."""
    tokens, tp, cp = fit.dims.get("s", 0), fit.degree("tp"), fit.degree("cp")
    if tokens and tp > 1 and tokens % (tp * cp):
        notes.find(
            "rejected",
            "tokens over tensor ranks",
            fit.place("tp"),
            f"{tokens} tokens over tp {tp} * cp {cp}: {tokens / (tp * cp):.6g}",
            f"choose a sequence that is a multiple of {tp * cp}",
            fit.sources.get("tp", "the sequence is split in equal parts"),
        )


def check_layers(fit: Fit, chunks: int, notes: Notes, *, even: bool) -> None:
    """Layers over pipeline ranks (times chunks): enough of them, and equal shares."""
    layers, pp = fit.dims.get("L", 0), fit.degree("pp")
    stages = pp * chunks
    if not layers or pp == 1 or layers % stages == 0:
        return
    few = layers < stages
    notes.find(
        "rejected" if few or even else "unlikely",
        "layers over stages",
        fit.place("pp"),
        f"{layers} layers over pp {pp}"
        + (f" * {chunks} chunks" if chunks > 1 else "")
        + f": {layers} / {stages} = {layers / stages:.6g}",
        "choose fewer stages" if few else "choose stages of equal depth",
        fit.sources.get("pp", "a stage without layers cannot be built"),
    )


def check_bubble(pp: int, micro: object, place: str, where: str, notes: Notes) -> None:
    """Fewer micro-batches than pipeline ranks leave ranks idle."""
    if pp > 1 and isinstance(micro, int) and micro < pp:
        notes.find(
            "unlikely",
            "micro-batches fill the pipeline",
            place,
            f"{micro} micro-batches on {pp} pipeline ranks: some ranks never work at once",
            f"use {pp} or more micro-batches",
            where,
        )
