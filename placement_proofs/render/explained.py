"""The plan of a subject with the bytes of its transfers, as plain data or as text."""

from __future__ import annotations

from collections.abc import Iterator

from placement_proofs.checking import int_sizes, known_sizes, plan_of
from placement_proofs.composition import Composition, Strategy
from placement_proofs.cost import communication
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.convention import convention as convention_named
from placement_proofs.cost.terms import plain
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.mesh import IntSizes
from placement_proofs.plan import Plan, Transfer
from placement_proofs.render.plan import Row, plan_json, plan_text


def explained(subject: Subject, *, clipping: bool = False, convention: str | None = None) -> Row:
    """The plan of a subject, step by step; bytes where all sizes are known.

    Raises:
        IllFormed: the subject has no plan, or no convention has that name.
    """
    widths = convention_named(convention)
    plan, model = plan_of(subject, clipping=clipping)
    sizes = int_sizes(plan, model, known_sizes(subject.composed()[0]))
    known = dict(_bytes(plan, sizes, widths)) if sizes is not None else {}
    return plan_json(plan, subject.text, known)


def explained_text(
    what: Subject | Composition | Strategy | str, *, model: str | None = None, every: bool = False
) -> str:
    """The text of :func:`explained`, of a subject or of what is read on ``model``."""
    subject = what if isinstance(what, Subject) else read_subject(what, model=model)
    return plan_text(explained(subject), every=every)


def _bytes(plan: Plan, sizes: IntSizes, widths: Convention) -> Iterator[tuple[int, object]]:
    """The bytes of every transfer, by the identity of the step."""
    for position in plan.positions:
        stages = [plan.stages[number] for number, _ in position.stages]
        steps = [s for stage in stages for _, s in stage.steps() if isinstance(s, Transfer)]
        bill = communication(plan, sizes, widths, position.name)
        for step, term in zip(steps, bill.terms, strict=True):
            yield id(step), plain(term.bytes)
