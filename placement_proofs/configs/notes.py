"""What an importer collects on its way: fields, findings, assumptions, and the world size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from placement_proofs.configs.document import Section
from placement_proofs.configs.record import Field, Finding, Kind, Plain, Provenance
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim

RANKS = "N"
"""The symbol for data-parallel ranks when the world size is not known."""

MICRO = "M"
"""The symbol for micro-batches when the accumulation is not known."""


@dataclass(frozen=True)
class World:
    """The number of ranks; ``None`` when nobody said it. ``place`` says where it was found."""

    size: int | None
    place: str = ""
    provenance: Provenance = "unknown"


@dataclass
class Notes:
    """Collects during one import."""

    source: str
    fields: list[Field] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    def add(
        self,
        name: str,
        value: Plain,
        provenance: Provenance,
        place: str = "",
        note: str = "",
    ) -> None:
        """Record a value."""
        self.fields.append(Field(name, value, provenance, place, note))

    def take(
        self, name: str, value: Plain, section: Section, key: str, note: str = "", unit: str = ""
    ) -> None:
        """Record a value that was read from ``key``, or is the default in its absence."""
        present = key in section
        provenance: Provenance = "literal" if present else "default"
        if section.is_auto(key):
            provenance, value = "cli or environment", None
        place = section.place(key) if present else ""
        self.add(name, value, provenance, place, "; ".join(filter(None, (unit, note))))

    def find(
        self,
        kind: Kind,
        rule: str,
        place: str,
        message: str,
        remedy: str,
        where: str,
        deviation: str = "",
    ) -> None:
        """Record a finding; ``where`` is the framework's file, or a fuller source.

        ``deviation`` is what a finding about mathematics does to the derived plan.
        """
        source = where if ": " in where else f"{self.source}: {where}"
        self.findings.append(Finding(kind, rule, place, message, remedy, source, deviation))

    def assume(self, text: str) -> None:
        """Record what the composition does not say exactly."""
        if text not in self.assumptions:
            self.assumptions.append(text)

    def world(self, world: World, file: str) -> None:
        """Record the world size, and say so when it is missing."""
        if world.size is not None:
            self.add("world", world.size, world.provenance, world.place)
            return
        self.add("world", None, "unknown", world.place, "given to the launcher")
        self.find(
            "unlikely",
            "world size",
            world.place or file,
            f"the file does not say on how many ranks it runs; {RANKS} stands for the "
            "data-parallel ranks",
            "pass --world with the number of ranks",
            "not a rule of the framework: the launcher gives the number of ranks",
        )


def data_ranks(world: World, divisors: Mapping[str, int], place: str) -> Dim:
    """The data-parallel ranks: the world divided by the other degrees, or a symbol.

    Raises:
        IllFormed: the degrees do not divide the world; the arithmetic is shown.
    """
    if world.size is None:
        return RANKS
    product = math.prod(divisors.values())
    if world.size % product == 0:
        return world.size // product
    named = " * ".join(f"{name}={size}" for name, size in divisors.items() if size != 1)
    quotient = f"{world.size} / {product} = {world.size / product:.6g}"
    raise IllFormed(
        place,
        f"{named} on a world of {world.size}: {quotient} data-parallel ranks",
        "the degrees divide the number of ranks",
        f"use a world that is a multiple of {product}, or other degrees",
    )


def nearest_multiple(size: int, step: int) -> int:
    """The multiple of ``step`` closest to ``size``, at least ``step``."""
    return max(step, round(size / step) * step)
