"""``picture``: a subject as an SVG picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from placement_proofs.cli.options import (
    SUBJECT_HELP,
    common_options,
    convention_option,
    read,
    subject_options,
)
from placement_proofs.cli.output import say, say_json, waiting, write
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.inputs import Subject
    from placement_proofs.render.svg import Picture

HELP = f"""Draw a subject as an SVG picture, with a text alternative, legible in black and white.

{SUBJECT_HELP}

\b
  mesh            modes of each state on each axis, and what every rank holds
  plan            the steps of a stage as a timeline, with collectives by axis
  memory          a waterfall of what a rank holds, up to the peak of a step
  traffic         bytes that a rank sends in a step, by collective and phase
  schedule        which pipeline position runs which micro-batch when, and bubbles
  counterexample  who holds what before and after the step to blame

Symbols are drawn as small numbers. --json gives the data that the picture shows.

\b
Examples:
  placement-proofs picture "zero3(dp=4) * tensor(tp=2)" -o mesh.svg
  placement-proofs picture "pipeline(pp=4, microbatches=8)" --what schedule -o schedule.svg
  placement-proofs picture examples/programs/micro_batch_overwrite.toml --what counterexample
  placement-proofs picture "zero3(dp=8)" --what memory --json
"""

OF_KIND: Mapping[str, tuple[str, ...]] = {
    "mesh": ("tensors",),
    "plan": ("stage", "convention"),
    "memory": ("position", "convention"),
    "traffic": ("position", "convention"),
    "schedule": (),
    "counterexample": (),
}
"""Kinds of pictures, with the options that each has."""


@click.command(help=HELP)
@click.argument("subject")
@click.option(
    "--what",
    "kind",
    type=click.Choice(list(OF_KIND)),
    help="What to draw: mesh by default, of an element program the counterexample.",
)
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to; - is standard output.")
@click.option("--tensor", "tensors", multiple=True, metavar="T", help="Of mesh: a parameter.")
@click.option("--stage", metavar="S", help="Of plan: a pipeline stage; the default is the first.")
@click.option("--position", metavar="P", help="Of memory and traffic: first, middle or last.")
@subject_options
@convention_option
@common_options
def picture(
    subject: str,
    kind: str | None,
    output: str,
    tensors: tuple[str, ...],
    stage: str | None,
    position: str | None,
    convention: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    asked = {"tensors": tensors, "stage": stage, "position": position, "convention": convention}
    given = {name: value for name, value in asked.items() if value}
    with waiting("drawing"):
        found = read(subject, **options)
        kind = kind or ("mesh" if found.program is None else "counterexample")
        _refuse_others(kind, given)
        drawn = draw(kind, found, given)
    if as_json:
        say_json(drawn.data)
    if output != "-" or not as_json:
        write(output, drawn.svg)
    if output != "-" and not as_json:
        say(f"{output}: {drawn.title}")
    return 0


def _refuse_others(kind: str, given: Mapping[str, object]) -> None:
    for name in given:
        if name not in OF_KIND[kind]:
            kinds = ", ".join(k for k, names in OF_KIND.items() if name in names)
            flag = f"--{name.removesuffix('s') if name == 'tensors' else name}"
            raise IllFormed(
                flag, f"beside --what {kind}", f"it is an option of {kinds}", "leave it out"
            )


def draw(kind: str, subject: Subject, options: Mapping[str, Any]) -> Picture:
    """The picture of that kind."""
    from placement_proofs.render import pictures

    functions: Mapping[str, Callable[..., Picture]] = {
        "mesh": pictures.picture_mesh,
        "plan": pictures.picture_plan,
        "memory": pictures.picture_memory,
        "traffic": pictures.picture_traffic,
        "schedule": pictures.picture_schedule,
        "counterexample": pictures.picture_counterexample,
    }
    return functions[kind](subject, **options)
