"""Pictures of compositions, plans, bills, schedules and counterexamples, as SVG.

Every function takes what ``check`` takes (an expression, a composition, a path or a subject) and
returns a :class:`~placement_proofs.render.svg.Picture`: its ``svg`` is a file, its ``data`` what
was drawn, and a notebook shows it. Symbols are drawn as small numbers, and the picture says so.

>>> from placement_proofs.render.pictures import picture_mesh
>>> picture = picture_mesh("zero1(dp=2)")
>>> picture.data["table"][0]["states"]["optimizer"]
{'dp': 'S'}
"""

from __future__ import annotations

from collections.abc import Sequence

from placement_proofs.checking import check, convention_of
from placement_proofs.render.pictures.bill import (
    draw_memory,
    draw_traffic,
    memory_data,
    traffic_data,
)
from placement_proofs.render.pictures.counterexample import (
    counterexample_data,
    draw_counterexample,
)
from placement_proofs.render.pictures.drawn import What, drawn, subject_of
from placement_proofs.render.pictures.mesh import draw_mesh
from placement_proofs.render.pictures.schedule import draw_schedule, schedule_data
from placement_proofs.render.pictures.shards import mesh_data
from placement_proofs.render.pictures.timeline import draw_plan, plan_data
from placement_proofs.render.svg import Picture
from placement_proofs.report import Report

__all__ = [
    "Picture",
    "picture_counterexample",
    "picture_memory",
    "picture_mesh",
    "picture_plan",
    "picture_schedule",
    "picture_traffic",
]


def picture_mesh(what: What, *, tensors: Sequence[str] = ()) -> Picture:
    """The mesh: modes of each state on each axis, and the slices that every rank holds.

    ``tensors`` are names of parameters; without them, a large matrix of each of at most two classes
    of parameters that are placed alike. Of more than 16 ranks some are drawn.

    Raises:
        IllFormed: the subject has no meaning, or no tensor has that name.
    """
    return draw_mesh(mesh_data(drawn(what), tensors))


def picture_plan(what: What, *, stage: str | None = None, convention: str | None = None) -> Picture:
    """The plan of one pipeline stage (the first without ``stage``) as a timeline with collectives.

    Raises:
        IllFormed: the subject has no meaning, or no stage or convention has that name.
    """
    made = drawn(what)
    return draw_plan(plan_data(made, convention_of(made.subject, convention), stage))


def picture_memory(
    what: What, *, position: str | None = None, convention: str | None = None
) -> Picture:
    """Memory of a rank as a waterfall (bytes): between steps, and up to the peak of a step.

    Without ``position``: the pipeline position with the largest peak.

    Raises:
        IllFormed: the subject has no meaning, or no position or convention has that name.
    """
    made = drawn(what)
    return draw_memory(memory_data(made, convention_of(made.subject, convention), position))


def picture_traffic(
    what: What, *, position: str | None = None, convention: str | None = None
) -> Picture:
    """Bytes that a rank sends in a step, by collective, axes and phase.

    Without ``position``: the pipeline position with the largest memory.

    Raises:
        IllFormed: the subject has no meaning, or no position or convention has that name.
    """
    made = drawn(what)
    return draw_traffic(traffic_data(made, convention_of(made.subject, convention), position))


def picture_schedule(what: What) -> Picture:
    """The schedule of a pipeline: which position runs which micro-batch when, and its bubbles.

    Raises:
        IllFormed: the subject has no meaning or no pipeline, or too many micro-batches.
    """
    return draw_schedule(schedule_data(drawn(what)))


def picture_counterexample(what: What | Report) -> Picture:
    """A counterexample: who holds what before and after the step to blame, expected and got.

    Raises:
        IllFormed: the subject has no meaning, or is not refuted.
    """
    report = what if isinstance(what, Report) else check(subject_of(what))
    return draw_counterexample(counterexample_data(report))
