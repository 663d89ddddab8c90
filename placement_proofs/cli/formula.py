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
    topology_option,
)
from placement_proofs.cli.output import paint, say, say_json, waiting
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.cost.closed_form import ClosedForms, Form
    from placement_proofs.cost.units import Amount, Seconds
    from placement_proofs.model import Model
    from placement_proofs.plan import Plan

HELP = f"""Print memory and traffic of a rank as formulas, exact (=) and as the axes grow (~).

{SUBJECT_HELP}

Symbols: one for each mesh axis (its own, or N_dp for dp), m micro-batches, b sequences of a rank
and micro-batch, K optimizer bytes per parameter, the sizes of the model (h, L, ...), and for the
abstract model Psi parameters of P bytes in all. Times have for each collective's axes the latency
alpha_dp of a step (seconds) and the bandwidth beta_dp of a rank (bytes a second).

\b
Examples:
  placement-proofs formula "zero3(dp=N)" --model abstract
  placement-proofs formula "zero3(dp=N)" --model abstract --of memory --set N=64
  placement-proofs formula "hsdp(dp_replicate=4, dp_shard=8)" --of communication --terms
  placement-proofs formula "tensor(tp=N)" --format latex
  placement-proofs formula "zero3(dp=N)" --of time
  placement-proofs formula "zero3(dp=64) * tensor(tp=8)" --of time --topology dgx-a100
  placement-proofs formula "zero3(dp=N) * tensor(tp=4)" --model llama3-70b --known
  placement-proofs formula "zero3(dp=N)" --model llama-7b --fits 24GB
  placement-proofs formula "zero3(dp=N)" --claim "traffic <= 3/2 * data(dp=N) traffic"
"""


@click.command(help=HELP)
@click.argument("subject")
@click.option(
    "--of",
    "kind",
    type=click.Choice(["memory", "communication", "time", "all"]),
    default="all",
    show_default=True,
    help="Which formulas; all are those of memory and communication.",
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
@click.option(
    "--known", is_flag=True, help="Put in every value that is known: open sizes stay symbols."
)
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
@topology_option
@common_options
def formula(
    subject: str,
    kind: str,
    output: str,
    values: tuple[str, ...],
    known: bool,
    terms: bool,
    uneven: bool,
    fits: str | None,
    dominant: bool,
    crossing: str | None,
    claims: tuple[str, ...],
    convention: str | None,
    topology: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    from placement_proofs.render import formula as render
    from placement_proofs.render.table import sections
    from placement_proofs.render.time import links_text

    if fits or dominant or crossing or claims:
        _no_topology(topology)
        asked = Asked(fits, dominant, crossing, claims, sizes(values, "--set"))
        return answer(
            asked, lambda text: _forms(text, options, convention, uneven), subject, as_json
        )
    given = sizes(values, "--set")
    with waiting("working out formulas"):
        title, planned, forms = _planned(subject, options, convention, uneven)
        numbers: dict[str, Amount | Seconds] = dict(_numbers(forms, given))
        named = render.chosen(forms, ["memory", "communication"] if kind == "all" else [kind])
        extra: dict[str, Any] = {}
        if topology or kind == "time":
            timed, extra = _timed(planned, forms, topology, given, numbers)
            named += timed
        if known:
            named = [(name, form.put(forms.values(given))) for name, form in named]
        if as_json or output == "json":
            say_json(render.formula_json(title, forms, named, numbers) | extra)
        elif output == "csv":
            say(render.formula_csv(named, numbers))
        elif output == "latex":
            say(render.formula_latex(named))
        elif output == "python":
            say(render.formula_python(forms, named))
        else:
            text = render.formula_text(
                title, forms, named, numbers, values=given, terms=terms, paint=paint()
            )
            say(sections([text, links_text(extra, paint())]))
    return 0


def _no_topology(topology: str | None) -> None:
    if topology is not None:
        raise IllFormed(
            "--topology",
            topology,
            "questions to formulas are about bytes",
            "ask for the time by itself, with --of time",
        )


def _forms(
    subject: str, options: Mapping[str, Any], convention: str | None, uneven: bool
) -> tuple[str, ClosedForms]:
    title, _, forms = _planned(subject, options, convention, uneven)
    return title, forms


def _planned(
    subject: str, options: Mapping[str, Any], convention: str | None, uneven: bool
) -> tuple[str, tuple[Plan, Model], ClosedForms]:
    from placement_proofs.checking import plan_of
    from placement_proofs.cost.closed_form import closed_forms
    from placement_proofs.cost.convention import convention as convention_named

    asked = read(subject, **options)
    plan, model = plan_of(asked)
    forms = closed_forms(plan, model, convention_named(convention), divides=not uneven)
    return f"{asked.text} on model {model.name}", (plan, model), forms


def _timed(
    planned: tuple[Plan, Model],
    forms: ClosedForms,
    topology: str | None,
    given: Mapping[str, int],
    numbers: dict[str, Amount | Seconds],
) -> tuple[list[tuple[str, Form]], dict[str, Any]]:
    """The formulas of time, and with a topology the numbers of its links."""
    from placement_proofs.cost.time_forms import sizes_at, time_forms
    from placement_proofs.topologies import topology as described

    plan, model = planned
    found = time_forms(plan, model, forms.convention, forms.position, divides=forms.divides)
    if topology is None:
        return list(found.forms()), {}
    ways, values = described(topology), forms.values(given)
    names = plan.mesh.names
    extra: dict[str, Any] = {"topology": ways.to_json()}
    extra["topology"]["order"] = list(ways.topology.ordered(names))
    try:
        links = found.links(ways.topology, sizes_at(plan, model, values), names)
    except IllFormed as error:
        why = f"{error.place} is {error.found}: {error.rule}; give it with --set"
        return list(found.forms()), extra | {"no_links": why}
    numbers.update(found.numbers({**values, **links}))
    return list(found.forms()), extra | {"links": links}


def _numbers(forms: ClosedForms, given: Mapping[str, int]) -> Mapping[str, Amount]:
    """Numbers where every symbol has a value.

    Raises:
        IllFormed: a value was given for what is no symbol.
    """
    forms.values(given)
    try:
        return forms.numbers(given)
    except IllFormed:
        return {}
