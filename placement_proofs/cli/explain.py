"""``explain``: the plan of a composition, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from placement_proofs.cli.options import (
    SUBJECT_HELP,
    common_options,
    convention_option,
    read,
    subject_options,
)
from placement_proofs.cli.output import paint, say, say_json

if TYPE_CHECKING:
    from placement_proofs.cost import Convention
    from placement_proofs.mesh import IntSizes
    from placement_proofs.plan import Plan

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
    from placement_proofs.checking import int_sizes, known_sizes, plan_of
    from placement_proofs.cost.convention import convention as convention_named
    from placement_proofs.render.plan import plan_json, plan_text

    widths = convention_named(convention)
    asked = read(subject, **options)
    plan, model = plan_of(asked, clipping=clip)
    sizes = int_sizes(plan, model, known_sizes(asked.composed()[0]))
    known = dict(_bytes(plan, sizes, widths)) if sizes is not None else {}
    data = plan_json(plan, asked.text, known)
    if as_json:
        say_json(data)
    else:
        say(plan_text(data, every=every, paint=paint()))
    return 0


def _bytes(plan: Plan, sizes: IntSizes, widths: Convention) -> Iterator[tuple[int, object]]:
    """The bytes of every transfer, by the identity of the step."""
    from placement_proofs.cost import communication
    from placement_proofs.cost.terms import plain
    from placement_proofs.plan import Transfer

    for position in plan.positions:
        stages = [plan.stages[number] for number, _ in position.stages]
        steps = [s for stage in stages for _, s in stage.steps() if isinstance(s, Transfer)]
        bill = communication(plan, sizes, widths, position.name)
        for step, term in zip(steps, bill.terms, strict=True):
            yield id(step), plain(term.bytes)
