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
)
from placement_proofs.cli.output import say, say_json, waiting

if TYPE_CHECKING:
    from placement_proofs.cost.compare import Comparison

SCHEMA = "placement-proofs/compare/1"

HELP = f"""Compare compositions with the first: memory and traffic as ratios, limits, and the sizes
at which the memory ratio is a wanted one.

{SUBJECT_HELP} All are placed on the first one's model.

\b
Examples:
  placement-proofs compare "data(dp=N)" "zero3(dp=N)" --model abstract
  placement-proofs compare "zero1(dp=N)" "zero2(dp=N)" "zero3(dp=N)" --model abstract --wanted 4
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
@subject_options
@convention_option
@common_options
def compare(
    subjects: tuple[str, ...], wanted: str, convention: str | None, as_json: bool, **options: Any
) -> int:
    ratio = Fraction(sizes([f"wanted={wanted}"], "--wanted")["wanted"])
    with waiting("comparing"):
        found = _compared(subjects, ratio, convention, options)
        if as_json:
            say_json({"schema": SCHEMA, **found.to_json()})
        else:
            say(found.text())
    return 0


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
