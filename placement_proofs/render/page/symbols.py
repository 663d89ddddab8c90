"""The symbols of formulas: what each means, and the stops of its slider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from placement_proofs.cost.closed_form import ClosedForms
from placement_proofs.plan import Plan

MEANINGS: Mapping[str, tuple[str, str]] = {
    "K": ("states", "optimizer bytes per parameter"),
    "Psi": ("model", "parameters"),
    "A": ("model", "activation elements kept per sequence"),
    "b": ("batch", "sequences of a rank in a micro-batch"),
    "m": ("batch", "micro-batches in a step"),
    "h": ("model", "hidden size"),
    "f": ("model", "width of the feed-forward network"),
    "V": ("model", "vocabulary"),
    "s": ("model", "sequence length"),
    "L": ("model", "layers"),
    "a": ("model", "attention heads"),
    "akv": ("model", "key and value heads"),
    "hkv": ("model", "width of keys, and of values"),
    "ha": ("model", "width of all query heads"),
    "E": ("model", "experts"),
    "k": ("model", "experts for each token"),
    "fs": ("model", "width of the shared expert"),
    "T": ("model", "rows of the table of positions"),
}
"""Group and meaning of the symbols that every formula may have."""

GROUPS = {
    "mesh": "Mesh axes",
    "states": "Bytes",
    "batch": "Batch",
    "model": "Model",
}
MOST = 10**15
"""The largest number that may be typed."""


@dataclass(frozen=True)
class Knob:
    """A symbol that can be set: its value at first, the least value, the stops of its slider."""

    name: str
    group: str
    meaning: str
    value: int
    least: int
    stops: tuple[int, ...]


def knobs(
    plan: Plan, forms: ClosedForms, values: Mapping[str, int], used: Iterable[str]
) -> list[Knob]:
    """The symbols that the formulas use, axes first; ``values`` are those to begin with."""
    axes = {
        axis.size if isinstance(axis.size, str) else f"N_{axis.name}": axis.name
        for axis in plan.mesh.axes
    }
    loop = plan.micro if isinstance(plan.micro, str) else "m"
    found = []
    for name in [*axes, *sorted(set(used) - set(axes))]:
        if name not in used:
            continue
        group, meaning = _said(name, axes, loop, forms)
        staged = plan.schedule != "none" and axes.get(name) == plan.pipeline
        least = 2 if staged else 1
        found.append(
            Knob(
                name, group, meaning, values[name], least, _stops(name, group, values[name], least)
            )
        )
    return found


def _said(name: str, axes: Mapping[str, str], loop: str, forms: ClosedForms) -> tuple[str, str]:
    if name in axes:
        return "mesh", f"positions of axis {axes[name]}"
    if name == loop:
        return MEANINGS["m"]
    group, meaning = MEANINGS.get(name, ("model", f"size {name} of the model"))
    return group, meaning


def _stops(name: str, group: str, value: int, least: int) -> tuple[int, ...]:
    """Round numbers around the value, and the value itself."""
    if name == "K":
        found = {*range(1, 25)}
    elif name == "Psi":
        found = {digit * 10**power for power in range(6, 13) for digit in (1, 2, 5)}
    elif group == "model":
        found = {value * 2**k for k in range(5)} | {value // 2**k for k in range(5)}
    else:
        found = {2**k for k in range(11)}
    return tuple(sorted(n for n in found | {value} if n >= least))
