"""``prove``: run theories, claim by claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from placement_proofs.cli.options import common_options
from placement_proofs.cli.output import paint, say, say_json, waiting
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.theories import Theory

HELP = """Run theories: claims that must be proved, and wrong ones that must be refuted.

THEORY is a name (see --list) or a TOML file. Beside its verdict, each claim has its obligations
decided by z3 and again by cvc5 (if installed; "by proof" where its proofs are complete), its
programs and identities of polynomials checked by the kernel (it says what is outside), and a mutant
that must give the opposite verdict. Exit code 0 if all this is as stated, 1 if not.

\b
Examples:
  placement-proofs prove --list
  placement-proofs prove data zero
  placement-proofs prove --all --json
"""


@click.command(help=HELP)
@click.argument("theories", nargs=-1, metavar="[THEORY]...")
@click.option("--all", "every", is_flag=True, help="Run every theory that comes with the package.")
@click.option("--list", "listing", is_flag=True, help="List the theories.")
@click.option("--brief", is_flag=True, help="Verdicts only, without solvers, kernel and mutants.")
@click.option(
    "--export",
    metavar="FOLDER",
    help="Write SMT-LIB scripts, certificates and resource counts to a folder instead.",
)
@common_options
def prove(
    theories: tuple[str, ...],
    every: bool,
    listing: bool,
    brief: bool,
    export: str | None,
    as_json: bool,
) -> int:
    found = _chosen(theories, every or listing)
    if listing:
        return _list(found, as_json)
    if export:
        return _export(found, export)
    return _run(found, brief, as_json)


def _chosen(names: Sequence[str], every: bool) -> list[Theory]:
    from placement_proofs.theories import all_theories, find_theory, read_theory

    paths = list(all_theories()) if every else [find_theory(name) for name in names]
    if not paths:
        raise IllFormed(
            "command line",
            "no theory",
            "prove runs the theories that are named, or all",
            "write prove --all, or see prove --list",
        )
    return [read_theory(path) for path in paths]


def _list(found: list[Theory], as_json: bool) -> int:
    from placement_proofs.render.table import columns
    from placement_proofs.theories import SCHEMA

    if as_json:
        rows = [{"name": t.name, "title": t.title, "claims": len(t.claims)} for t in found]
        say_json({"schema": SCHEMA, "theories": rows})
    else:
        say(columns([(t.name, f"{len(t.claims)} claims", t.title) for t in found], indent=0))
    return 0


def _export(found: list[Theory], folder: str) -> int:
    from pathlib import Path

    from placement_proofs.theories.exports import files, write

    with waiting("exporting"):
        generated = files(found)
    write(Path(folder), generated)
    say(f"{len(generated)} files in {folder}")
    return 0


def _run(found: list[Theory], brief: bool, as_json: bool) -> int:
    from placement_proofs.render.theories import outcomes_text
    from placement_proofs.theories import SCHEMA, run_claims

    with waiting("proving"):
        outcomes = list(run_claims(found, brief=brief))
    right = all(o.as_expected for o in outcomes)
    if as_json:
        claims = [o.to_json() for o in outcomes]
        left = [
            {"theory": t.name, "claim": o.name, "reason": o.reason} for t in found for o in t.open
        ]
        say_json({"schema": SCHEMA, "as_expected": right, "claims": claims, "open": left})
    else:
        say(outcomes_text(outcomes, found, paint()))
    return 0 if right else 1
