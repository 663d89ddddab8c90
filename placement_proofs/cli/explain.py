"""``explain``: the plan of a composition, step by step."""

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
from placement_proofs.cli.output import paint, say, say_json

HELP = f"""Show the plan step by step: by stage and phase, with collectives, layouts and reasons.

{SUBJECT_HELP}

A layout names, per axis, I (invariant), R (replicated), P (partial) or S(dim) (sharded). Bytes are
what a rank sends in a training step, where all sizes are known.

\b
Examples:
  placement-proofs explain "zero3(dp=8)" --model abstract
  placement-proofs explain "tensor(tp=4, sequence=True) * pipeline(pp=2, microbatches=8)"
  placement-proofs explain "zero1(dp=N)" --all --json
"""


@click.command(help=HELP)
@click.argument("subject")
@click.option("--all", "every", is_flag=True, help="Show bookkeeping steps and each operation.")
@click.option("--clip", is_flag=True, help="Include the global gradient norm.")
@subject_options
@convention_option
@common_options
def explain(
    subject: str, every: bool, clip: bool, convention: str | None, as_json: bool, **options: Any
) -> int:
    from placement_proofs.render.explained import explained
    from placement_proofs.render.plan import plan_text

    data = explained(read(subject, **options), clipping=clip, convention=convention)
    if as_json:
        say_json(data)
    else:
        say(plan_text(data, every=every, paint=paint()))
    return 0
