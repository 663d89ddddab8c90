"""``compare``: ratios of memory and traffic of compositions."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from placement_proofs.cli.options import (
    SUBJECT_HELP,
    common_options,
    convention_option,
    read,
    sizes,
    subject_options,
    topology_option,
)
from placement_proofs.cli.output import say, say_json, waiting
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.cost.compare import Comparison
    from placement_proofs.cost.stacks import Stacks

SCHEMA = "placement-proofs/compare/1"

HELP = f"""Compare compositions with the first: memory and traffic as ratios, limits, and the sizes
at which the memory ratio is a wanted one.

{SUBJECT_HELP} All are placed on the first one's model.

\b
Examples:
  placement-proofs compare "data(dp=N)" "zero3(dp=N)" --model abstract
  placement-proofs compare "zero1(dp=N)" "zero2(dp=N)" "zero3(dp=N)" --model abstract --wanted 4
  placement-proofs compare "zero3(dp=64)" "zero1(dp=8) * tensor(tp=8)" --topology dgx-a100
  placement-proofs compare "fsdp(dp=N)" --profile torch-fsdp2 --against paper --model tiny
"""


@click.command(help=HELP)
@click.argument("subjects", nargs=-1, required=True, metavar="SUBJECT SUBJECT...")
@click.option(
    "--wanted",
    default="8",
    show_default=True,
    metavar="RATIO",
    help="Memory ratio whose sizes are asked for.",
)
@click.option(
    "--against",
    metavar="PROFILE",
    help="Compare the --profile with this one on one subject: what differs, and which facts do it.",
)
@subject_options
@convention_option
@topology_option
@common_options
def compare(
    subjects: tuple[str, ...],
    wanted: str,
    against: str | None,
    convention: str | None,
    topology: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    from placement_proofs.render.table import sections
    from placement_proofs.render.time import times_text

    ratio = Fraction(sizes([f"wanted={wanted}"], "--wanted")["wanted"])
    with waiting("comparing"):
        found: Comparison | Stacks
        if against is None:
            found = _compared(subjects, ratio, convention, options)
        else:
            found = _stacks(subjects, against, convention, options)
        times = _times(subjects, topology, convention, options) if topology else {}
        if as_json:
            say_json({"schema": SCHEMA, **found.to_json()} | ({"times": times} if times else {}))
        else:
            say(sections([found.text(), times_text(times)]))
    return 0


def _times(
    subjects: tuple[str, ...], topology: str, convention: str | None, options: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """The time of the traffic of each subject, whose sizes must be numbers."""
    from placement_proofs.checking import fitting_sizes, known_sizes, plan_of
    from placement_proofs.cost.convention import convention as convention_named
    from placement_proofs.topologies import topology as named

    ways, widths = named(topology), convention_named(convention)
    found: dict[str, dict[str, Any]] = {}
    for text in subjects:
        asked = read(text, **options)
        plan, model = plan_of(asked)
        sizes = fitting_sizes(plan, model, known_sizes(asked.composed()[0]))
        if sizes is None:
            raise IllFormed(
                "--topology", f"a symbol in {text}", "a time needs numbers", "write zero3(dp=64)"
            )
        found[text] = ways.timed(plan, sizes, widths)
    return found


def _compared(
    subjects: tuple[str, ...], wanted: Fraction, convention: str | None, options: dict[str, Any]
) -> Comparison:
    from placement_proofs.cost.compare import compare as compare_forms
    from placement_proofs.cost.convention import convention as convention_named

    widths = convention_named(convention)
    asked = [read(text, **options) for text in subjects]
    _, model = asked[0].composed()
    compositions = [subject.composed()[0] for subject in asked]
    return compare_forms(compositions, model, widths, profile=asked[0].profile, wanted=wanted)


def _stacks(
    subjects: tuple[str, ...], against: str, convention: str | None, options: dict[str, Any]
) -> Stacks:
    from placement_proofs.cost.convention import convention as convention_named
    from placement_proofs.cost.stacks import compare_stacks
    from placement_proofs.profile import profile

    if len(subjects) != 1:
        raise IllFormed(
            "--against",
            f"{against!r} with {len(subjects)} subjects",
            "one subject under two profiles",
            'write compare "fsdp(dp=N)" --profile torch-fsdp2 --against paper',
        )
    first = profile(against, "--against")
    asked = read(subjects[0], **options)
    composition, model = asked.composed()
    widths = convention_named(convention)
    return compare_stacks(composition, model, asked.profile, first, widths)
