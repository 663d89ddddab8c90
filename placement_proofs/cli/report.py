"""``report``: a subject as one page to read, print and play with."""

from __future__ import annotations

from typing import Any

import click

from placement_proofs.cli.options import (
    SUBJECT_HELP,
    common_options,
    convention_option,
    read,
    subject_options,
)
from placement_proofs.cli.output import say, say_json, waiting, write

HELP = f"""Write a report as one HTML page: verdict, formulas, pictures, plan, assumptions.

{SUBJECT_HELP}

The page needs no network. Its sliders set every symbol of the formulas, and memory and traffic
are computed again, exactly. A refuted subject comes with its counterexample and repairs.

\b
Exit codes are those of check: 0 proved, 1 refuted, 2 ill-formed input or usage, 3 unknown.
--json also prints what check --json prints.

\b
Examples:
  placement-proofs report "zero3(dp=8) * tensor(tp=4)" -o report.html
  placement-proofs report "zero3(dp=N)" --model abstract -o zero3.html
  placement-proofs report examples/configs/deepspeed_zero3.json --world 64 -o deepspeed.html
  placement-proofs report "data(dp=8)" --without "drop all-reduce gradient dp" -o fault.html
"""


@click.command(help=HELP)
@click.argument("subject")
@click.option(
    "-o", "--output", metavar="FILE", required=True, help="Where to; - is standard output."
)
@subject_options
@convention_option
@common_options
def report(subject: str, output: str, convention: str | None, as_json: bool, **options: Any) -> int:
    from placement_proofs.checking import check
    from placement_proofs.render.page import document

    with waiting("writing a report"):
        asked = read(subject, **options)
        found = check(asked, convention=convention)
        text = document(asked, found, convention)
    write(output, text)
    if as_json:
        say_json(found.to_json())
    elif output != "-":
        changes = "".join(f' with the deviation "{text}"' for text in found.deviations)
        say(f"{output}: {found.verdict.value}, {found.subject}{changes}")
    return found.verdict.exit_code
