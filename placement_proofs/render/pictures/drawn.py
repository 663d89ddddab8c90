"""What is drawn: a subject with a number for every size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from placement_proofs.checking import known_sizes, plan_of, without_norm
from placement_proofs.composition import Composition, Strategy
from placement_proofs.cost import sizes_of
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.mesh import Dim, IntSizes
from placement_proofs.model import Model
from placement_proofs.plan import Plan

POSITIONS = 4
"""Positions that stand for a symbolic axis."""
TURNS = 8
"""Micro-batches that stand for a symbolic number of them."""


@dataclass(frozen=True)
class Drawn:
    """A composition on a model, every size an integer.

    ``notes`` say which symbols have which numbers in the picture.
    """

    subject: Subject
    notes: tuple[str, ...]

    @cached_property
    def made(self) -> tuple[Plan, Model]:
        """The plan, with the gradient's norm where the loop deviates; and the model."""
        return plan_of(self.subject, clipping=bool(self.subject.deviations))

    @property
    def plan(self) -> Plan:
        return self.made[0]

    @property
    def bare(self) -> Plan:
        """The plan that is costed: of a loop that does not clip."""
        return without_norm(self.plan)

    @cached_property
    def sizes(self) -> IntSizes:
        """All sizes as integers."""
        return sizes_of(*self.made)

    @property
    def composition(self) -> Composition:
        return self.subject.composed()[0]

    def header(self, picture: str) -> dict[str, Any]:
        """What the data of every picture begins with."""
        return {
            "schema": "placement-proofs/picture/1",
            "picture": picture,
            "composition": self.subject.text,
            "without": list(self.subject.deviations),
            "model": self.subject.composed()[1].name,
            "notes": list(self.notes),
        }


What: TypeAlias = Subject | Composition | Strategy | str | Drawn
"""Anything that ``check`` takes, or what is drawn already: its plan is derived once."""


def subject_of(what: What) -> Subject:
    """A subject as it is, anything else with the defaults of ``read_subject``."""
    match what:
        case Drawn(subject=subject):
            return subject
        case Subject():
            return what
        case _:
            return read_subject(what)


def drawn(what: What) -> Drawn:
    """``what`` with four positions for a symbolic axis, eight turns for symbolic micro-batches.

    Raises:
        IllFormed: the subject has no meaning, or is an element program.
    """
    if isinstance(what, Drawn):
        return what
    subject = subject_of(what)
    composition, _ = subject.composed()
    known = known_sizes(composition)
    axes = {a.name: a.size for a in composition.mesh.axes if a.name not in known}
    sizes: dict[str, Dim] = dict.fromkeys(axes, POSITIONS)
    micro = composition.placement.micro
    if isinstance(micro, str):
        sizes["micro"] = TURNS
        axes["micro-batches"] = micro
    if not sizes:
        return Drawn(subject, ())
    notes = (f"{size} is {sizes.get(name, TURNS)} here" for name, size in axes.items())
    small = replace(subject, composition=composition.resized(sizes))
    return Drawn(small, tuple(notes))
