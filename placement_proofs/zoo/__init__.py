"""Models by name or from a file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from placement_proofs.errors import IllFormed
from placement_proofs.model import Model
from placement_proofs.models import Shape, abstract, perceptron, transformer
from placement_proofs.toml_file import read_toml
from placement_proofs.zoo.checks import check_shape
from placement_proofs.zoo.counts import active, elements
from placement_proofs.zoo.huggingface import load_shape
from placement_proofs.zoo.presets import DENSE, MOE, PRESETS, TINY

NAMES = PRESETS
"""Shapes by name; ``abstract`` and ``perceptron`` are models without one."""


def named(name: str) -> Model | None:
    """A built-in model, or ``None``."""
    if name == "abstract":
        return abstract()
    if name == "perceptron":
        return perceptron()
    shape = NAMES.get(name)
    return transformer(shape, name=name, folded=True) if shape else None


def load_model(text: str) -> Model:
    """A built-in model by name, a Hugging Face ``config.json``, or a TOML file.

    The keys of a TOML file are the fields of :class:`Shape`. A file may build on a name:
    ``base = "dense"``. ``parameters = 7.5e9`` alone is the abstract model of that many elements.

    Raises:
        IllFormed: no such model, an unknown key, or a value that is not a positive integer.
    """
    model = named(text)
    if model is not None:
        return model
    path = Path(text)
    if path.suffix == ".json" and path.is_file():
        return _from_json(path)
    if path.suffix != ".toml" or not path.is_file():
        raise IllFormed(
            "--model",
            repr(text),
            "a model is dense, moe, tiny, abstract, perceptron, a published one such as gpt2 or "
            "llama-7b, a TOML file or a config.json",
            _nearest(text),
        )
    table = read_toml(path)
    own = table.get("model", table)
    if not isinstance(own, dict):
        raise IllFormed(
            f"{path}: model",
            repr(own)[:60],
            "the model of a model file is a table with layers, hidden, heads, ...",
            f"name it: --model {own}" if own in NAMES else "write [model] and its keys",
        )
    return model_from(own, str(path))


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), NAMES, n=3, cutoff=0.6)
    if close:
        return f"did you mean {', '.join(close)}?"
    return "name one of them or give the path of a file with layers, hidden, heads, ..."


def _from_json(path: Path) -> Model:
    """A model called as the folder of its ``config.json``, or as the file."""
    shape = load_shape(path)
    check_shape(str(path), shape)
    name = path.parent.name if path.stem == "config" else path.stem
    return transformer(shape, name=name or path.stem, folded=True)


def model_from(table: Mapping[str, object], place: str, name: str = "") -> Model:
    """A model from a table of shape fields, called ``name`` or as its file."""
    values = dict(table)
    psi = values.pop("parameters", None)
    if psi is not None:
        if not isinstance(psi, int | float) or not psi >= 1 or values:
            raise IllFormed(
                place,
                f"parameters = {psi!r}",
                "the abstract model has a positive number of parameters and no shape",
                "write parameters = 7.5e9, or the shape instead",
            )
        return abstract(int(psi))
    shape = shape_from(values, place)
    return transformer(shape, name=name or Path(place).stem, folded=True)


def shape_from(table: Mapping[str, object], place: str) -> Shape:
    """A shape from a table of its fields, on top of the preset that ``base`` names.

    Raises:
        IllFormed: an unknown key, or a value that is not a positive integer.
    """
    values = dict(table)
    base = NAMES.get(str(values.pop("base", "tiny")), TINY)
    known = {f.name: f.type for f in fields(Shape)}
    for key, value in values.items():
        _check_field(place, key, value, known)
    shape = replace(base, **values)  # type: ignore[arg-type]
    check_shape(place, shape)
    return shape


def _check_field(place: str, key: str, value: object, known: Mapping[str, object]) -> None:
    if key not in known:
        raise IllFormed(
            f"{place}: {key}", repr(value), f"a shape has {', '.join(known)}", "rename or remove it"
        )
    flag = known[key] == "bool"
    if isinstance(value, bool) != flag or (
        not flag and not (isinstance(value, int) and 0 <= value <= 10**9)
    ):
        raise IllFormed(
            f"{place}: {key}",
            repr(value),
            "true or false" if flag else "a whole number",
            f"write {key} = {'true' if flag else 8}",
        )


__all__ = [
    "DENSE",
    "MOE",
    "NAMES",
    "PRESETS",
    "TINY",
    "active",
    "elements",
    "load_model",
    "model_from",
    "named",
    "shape_from",
]
