"""``formula``: closed forms of memory and traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from placement_proofs.cli.answers import Asked, answer
from placement_proofs.cli.options import (
    SUBJECT_HELP,
    common_options,
    convention_option,
    plan_options,
    read,
    sizes,
)
from placement_proofs.cli.output import paint, say, say_json, waiting
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.cost.closed_form import ClosedForms
    from placement_proofs.cost.units import Amount

HELP = f"""Print memory and traffic of a rank as formulas, exact (=) and as the axes grow (~).

{SUBJECT_HELP}

Symbols: one for each mesh axis (its own, or N_dp for dp), m micro-batches, b sequences of a rank
and micro-batch, K optimizer bytes per parameter, the sizes of the model (h, L, ...), and for the
abstract model Psi parameters of P bytes in all.

\b
Examples:
  placement-proofs formula "zero3(dp=N)" --model abstract
  placement-proofs formula "zero3(dp=N)" --model abstract --of memory --set N=64
  placement-proofs formula "hsdp(dp_replicate=4, dp_shard=8)" --of communication --terms
  placement-proofs formula "tensor(tp=N)" --format latex
  placement-proofs formula "zero3(dp=N)" --model llama-7b --fits 24GB
  placement-proofs formula "zero3(dp=N)" --claim "traffic <= 3/2 * data(dp=N) traffic"
"""


@click.command(help=HELP)
@click.argument("subject")
@click.option(
    "--of",
    "kind",
    type=click.Choice(["memory", "communication", "all"]),
    default="all",
    show_default=True,
    help="Which formulas.",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "latex", "json", "python", "csv"]),
    default="text",
    show_default=True,
    help="How they are written.",
)
@click.option("--set", "values", multiple=True, metavar="NAME=SIZE", help="A number for a symbol.")
@click.option("--terms", is_flag=True, help="Show the steps that each formula is the sum of.")
@click.option("--uneven", is_flag=True, help="Ceilings instead of quotients: sizes do not divide.")
@click.option("--fits", metavar="BYTES", help="Smallest open size whose peak fits, such as 80GB.")
@click.option("--dominant", is_flag=True, help="Parts of memory and traffic, the largest first.")
@click.option(
    "--crossing", metavar="SUBJECT", help="Sizes at which traffic or memory equals that one's."
)
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="CLAIM",
    help='Prove or refute for all sizes, such as "traffic <= 3/2 * data(dp=N) traffic".',
)
@plan_options
@convention_option
@common_options
def formula(
    subject: str,
    kind: str,
    output: str,
    values: tuple[str, ...],
    terms: bool,
    uneven: bool,
    fits: str | None,
    dominant: bool,
    crossing: str | None,
    claims: tuple[str, ...],
    convention: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    from placement_proofs.render import formula as render

    if fits or dominant or crossing or claims:
        asked = Asked(fits, dominant, crossing, claims, sizes(values, "--set"))
        return answer(
            asked, lambda text: _forms(text, options, convention, uneven), subject, as_json
        )
    given = sizes(values, "--set")
    with waiting("working out formulas"):
        title, forms = _forms(subject, options, convention, uneven)
        numbers = _numbers(forms, given)
        named = render.chosen(forms, ["memory", "communication"] if kind == "all" else [kind])
        if as_json or output == "json":
            say_json(render.formula_json(title, forms, named, numbers))
        elif output == "csv":
            say(render.formula_csv(named, numbers))
        elif output == "latex":
            say(render.formula_latex(named))
        elif output == "python":
            say(render.formula_python(forms, named))
        else:
            say(render.formula_text(title, forms, named, numbers, terms=terms, paint=paint()))
    return 0


def _forms(
    subject: str, options: Mapping[str, Any], convention: str | None, uneven: bool
) -> tuple[str, ClosedForms]:
    from placement_proofs.checking import formulas

    asked = read(subject, **options)
    forms = formulas(asked, convention=convention, divides=not uneven)
    return f"{asked.text} on model {asked.composed()[1].name}", forms


def _numbers(forms: ClosedForms, given: Mapping[str, int]) -> Mapping[str, Amount]:
    """Numbers where every symbol has a value; values that were given must be of use."""
    try:
        return forms.numbers(given)
    except IllFormed:
        if given:
            raise
        return {}
