"""The plan of a subject with the bytes of its transfers, as plain data or as text."""

from __future__ import annotations

from placement_proofs.checking import int_sizes, known_sizes, plan_of
from placement_proofs.composition import Composition, Strategy
from placement_proofs.cost import bytes_of_steps
from placement_proofs.cost.convention import convention as convention_named
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.render.plan import Row, plan_json, plan_text


def explained(subject: Subject, *, clipping: bool = False, convention: str | None = None) -> Row:
    """The plan of a subject, step by step; bytes where all sizes are known.

    Raises:
        IllFormed: the subject has no plan, or no convention has that name.
    """
    widths = convention_named(convention)
    plan, model = plan_of(subject, clipping=clipping)
    sizes = int_sizes(plan, model, known_sizes(subject.composed()[0]))
    known = bytes_of_steps(plan, sizes, widths) if sizes is not None else {}
    return plan_json(plan, subject.text, known)


def explained_text(
    what: Subject | Composition | Strategy | str, *, model: str | None = None, every: bool = False
) -> str:
    """The text of :func:`explained`, of a subject or of what is read on ``model``."""
    subject = what if isinstance(what, Subject) else read_subject(what, model=model)
    return plan_text(explained(subject), every=every)
