"""``faults``: published faults, each refuted in its faulty form and proved in its fixed one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from placement_proofs.cli.options import common_options
from placement_proofs.cli.output import paint, say, say_json, waiting

if TYPE_CHECKING:
    from placement_proofs.faults import Outcome

HELP = """Run published faults: the faulty form must be refuted, the fixed form proved.

FAULT is a name or a TOML file; without one, all that come with the package are run. Prints what was
expected and found, got over expected, the smallest mesh that shows it, and how the fault is said:
by its mechanism, with a stand-in, or only by its effect. One named fault is explained in full.

Exit code 0 only if every verdict, mesh and factor is as expected, else 1.

\b
Examples:
  placement-proofs faults
  placement-proofs faults titan-ep-2x
  placement-proofs faults --json
"""


@click.command(help=HELP)
@click.argument("faults", nargs=-1, metavar="[FAULT]...")
@click.option("--repair", is_flag=True, help="Also search for repairs, prove and cost them.")
@common_options
def faults(faults: tuple[str, ...], repair: bool, as_json: bool) -> int:
    from placement_proofs.faults import all_faults, find_fault, rate, run_faults

    paths = [find_fault(name) for name in faults] or all_faults()
    with waiting("proving"):
        outcomes = list(run_faults(paths))
        fixes = [_repairs(outcome, repair) for outcome in outcomes]
    counted = rate(outcomes)
    if as_json:
        _say_json(outcomes, fixes)
    else:
        from placement_proofs.render.faults import faults_text

        say(faults_text(outcomes, fixes, counted, paint(), full=bool(faults)))
    return 1 if counted.wrong or not outcomes else 0


def _repairs(outcome: Outcome, wanted: bool) -> tuple[tuple[str, str], ...]:
    from placement_proofs.faults import repairs_of

    return repairs_of(outcome) if wanted else ()


def _say_json(outcomes: list[Outcome], fixes: list[tuple[tuple[str, str], ...]]) -> None:
    from placement_proofs.faults import SCHEMA, rate

    rows = [
        outcome.to_json() | {"repairs": [{"change": c, "cost": t} for c, t in found]}
        for outcome, found in zip(outcomes, fixes, strict=True)
    ]
    say_json({"schema": SCHEMA, "rate": rate(outcomes).to_json(), "faults": rows})
