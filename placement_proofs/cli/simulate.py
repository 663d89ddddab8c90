"""``simulate``: run the plan on virtual ranks and compare with one device."""

from __future__ import annotations

from typing import Any

import click

from placement_proofs.cli.options import (
    SUBJECT_HELP,
    common_options,
    read,
    sizes,
)
from placement_proofs.cli.output import paint, say, say_json, waiting

SCHEMA = "placement-proofs/simulate/1"

HELP = f"""Run the plan on virtual ranks, forward and backward, and compare with one device.

{SUBJECT_HELP}

A small model and two positions of every axis stand for the large ones, unless --size asks for
others. Exit code 0 if every copy of every parameter equals one device after every step, 1 if not.

\b
Examples:
  placement-proofs simulate "zero3(dp=64) * tensor(tp=8, sequence=True)"
  placement-proofs simulate "data(dp=8)" --size dp=3 --optimizer adam --steps 3
  placement-proofs simulate "data(dp=8)" --without "drop all-reduce gradient dp" --json
"""


@click.command(help=HELP)
@click.argument("subject")
@click.option("--size", "given", multiple=True, metavar="AXIS=N", help="Positions of an axis.")
@click.option("--steps", type=click.IntRange(1, 100), default=2, show_default=True)
@click.option(
    "--field",
    type=click.Choice(["modular", "float", "fraction"]),
    default="modular",
    show_default=True,
    help="Arithmetic: modulo two primes, floating point, or exact fractions.",
)
@click.option(
    "--optimizer",
    type=click.Choice(["sgd", "momentum", "adam"]),
    default="sgd",
    show_default=True,
)
@click.option(
    "--model",
    type=click.Choice(["transformer", "moe", "latent", "perceptron"]),
    help="The small model; by default the one like the subject's, for fractions the perceptron.",
)
@click.option("--world", type=int, metavar="N", help="Number of ranks of a config file.")
@click.option("--format", "format_", metavar="F", help="Format of a config file.")
@click.option("--profile", metavar="P", help="Training stack; the default is paper.")
@click.option("--loss", metavar="L", help="mean (default), tokens, or sum.")
@click.option("--without", multiple=True, metavar="CHANGE", help="Deviation from the derived plan.")
@common_options
def simulate(
    subject: str,
    given: tuple[str, ...],
    steps: int,
    field: str,
    optimizer: str,
    model: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    from placement_proofs.render.simulation import simulation_text
    from placement_proofs.small import simulate_small

    with waiting("simulating"):
        model = model or ("perceptron" if field == "fraction" else None)
        asked, few = read(subject, **options), sizes(given, "--size")
        twin, found = simulate_small(
            asked, few, model=model, field=field, steps=steps, optimizer=optimizer
        )
    if as_json:
        text = {"composition": twin.subject.text, "notes": list(twin.notes)}
        say_json({"schema": SCHEMA, **text, **found.to_json()})
    else:
        say(simulation_text(twin, found, paint()))
    return 0 if found.equal else 1
