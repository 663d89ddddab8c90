"""``layouts`` and measured runs: evaluate, calibrate, and the recommendations of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from placement_proofs.cli.layouts_asked import asked_constants
from placement_proofs.cli.options import common_options
from placement_proofs.cli.output import paint, progress, say, say_json, waiting
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.layouts.calibrate import Table
    from placement_proofs.layouts.planned import Planned

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = """
\b
RUNS is a CSV file with a line for each run and these columns, in any order:
  sweep               a name: the runs among which one chooses
  model               a name of the setup
  seq_len             tokens of a sequence
  world_size          devices
  micro_batch         sequences
  tensor, pipeline    degrees
  checkpointing       disabled, selective or every_layer
  kernel              a word of the setup
  sequence_parallel   True or False
  outcome             ran, oom, kernel-unavailable or error
  step_time_s         seconds of a training step; empty where it did not run
and, if wanted: trial, mfu, global_batch, chunks, context, expert, zero.
What they leave unsaid (shapes, machine, batch, words for kernels) is in the setup: `paper` of
arXiv 2311.05610, or a TOML file of the form of placement_proofs/layouts/setups.toml.
"""

EVALUATE = f"""Compare predicted memory and step times with measured runs.

Out-of-memory outcomes (with fitted constants and with none), step times, rank correlation, what
choosing by the prediction leads to in each sweep (launches until a run works, regret against the
best), the same for the rules of the paper, and how often measured pairs agree with these rules.
It says which sweeps the constants were fitted on.
{COLUMNS}
\b
Examples:
  placement-proofs layouts evaluate runs.csv
  placement-proofs layouts evaluate runs.csv --held-out
  placement-proofs layouts evaluate runs.csv --constants mine.toml --setup mine-setup.toml --json
"""

CALIBRATE = f"""Fit the constants of memory and time to measured runs.

Prints the constants, their error on the runs of the fit, and the error on each model when the
others are fitted. -o writes a file for --constants.
{COLUMNS}
\b
Examples:
  placement-proofs layouts calibrate runs.csv
  placement-proofs layouts calibrate runs.csv -o mine.toml
"""

RECOMMEND = """The recommendations of arXiv 2311.05610 for a model and a cluster, as inequalities.

Each recommendation is the sign of a gain: seconds that a step is shorter with it, here at the
fastest layout that fits and differs from a valid one in nothing else. With --runs, also how often
measured pairs agree.

\b
Examples:
  placement-proofs layouts recommend --model llama-13b --gpus 64 --global-batch 2048
  placement-proofs layouts recommend --model llama3-70b --gpus 256 --global-batch 1024 --device h100
  placement-proofs layouts recommend --model llama-13b --gpus 64 --global-batch 2048 --runs runs.csv
"""


EVALUATION = "placement-proofs/evaluation/1"

LOOKED_AT = 200
"""Layouts, fastest first, among which each recommendation finds one that it is about."""


def runs_options(function: F) -> F:
    """Of commands that read runs."""
    options: list[Callable[[F], F]] = [
        click.argument("runs", type=click.Path(dir_okay=False)),
        click.option("--setup", default="paper", show_default=True, metavar="S", help="Or a file."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command(help=EVALUATE)
@runs_options
@click.option("--constants", metavar="C", help="Shipped ones by default; unfitted, or a file.")
@click.option("--held-out", is_flag=True, help="Also fit without each model, and judge it so.")
@common_options
def evaluate(runs: str, setup: str, held_out: bool, as_json: bool, **options: Any) -> int:
    from placement_proofs.layouts.constants import Constants
    from placement_proofs.layouts.evaluate import evaluate as against
    from placement_proofs.layouts.evaluate import evaluated_json, held_out_evaluation, published
    from placement_proofs.layouts.evidence import evidence
    from placement_proofs.render.layouts_runs import evaluation_text

    constants = asked_constants(options)
    given = _table(runs, setup)
    with waiting("comparing"):
        found = {"given": against(given, constants), "unfitted": against(given, Constants())}
        if held_out:
            found["held out"] = held_out_evaluation(given)
        mfu, rules = published(given.runs), evidence(given.runs, constants)
    if as_json:
        say_json(_finite({"schema": EVALUATION, **evaluated_json(found, mfu, rules)}))
    else:
        say(evaluation_text(found, mfu, rules, paint()))
    return 0


@click.command(help=CALIBRATE)
@runs_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A TOML file to write.")
@common_options
def calibrate(runs: str, setup: str, output: str | None, as_json: bool) -> int:
    from placement_proofs.layouts.calibrate import calibrate as fitted
    from placement_proofs.render.layouts_runs import calibration_text

    given = _table(runs, setup)
    with waiting("fitting"):
        found = fitted(given)
    if output:
        _write(Path(output), found.constants.to_toml())
    if as_json:
        say_json(_finite({"schema": "placement-proofs/calibration/1", **found.to_json()}))
    else:
        say(calibration_text(found, output, paint()))
    return 0


def _finite(value: Any) -> Any:
    """Plain data in which a number that is none, such as a median of nothing, is null."""
    if isinstance(value, dict):
        return {key: _finite(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(runs: str, setup: str) -> Table:
    from placement_proofs.layouts.calibrate import table
    from placement_proofs.layouts.runs import read_runs
    from placement_proofs.layouts.setups import load_setup

    found = read_runs(Path(runs), load_setup(setup))
    return table(found, lambda items, count: progress(items, count, "working out formulas"))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise IllFormed(
            f"--output {path}", str(error.strerror), "a file that can be written", "correct it"
        ) from None


def recommendation(function: F) -> F:
    """The options of ``recommend`` beside those of a job."""
    return click.option("--runs", type=click.Path(dir_okay=False), help="Measured runs (CSV).")(
        click.option("--runs-setup", default="paper", show_default=True, help="Of these runs.")(
            function
        )
    )


def recommended(plan: Planned, runs: str | None, runs_setup: str, *, as_json: bool) -> int:
    """What ``layouts recommend`` says of planned layouts."""
    from placement_proofs.layouts.evidence import advised, evidence
    from placement_proofs.render.layouts_runs import advice_text

    constants, best = plan.constants, plan.top(1)
    fastest = [plan.table.at(int(row))[0] for row in plan.order[:LOOKED_AT]]
    advice = advised(plan.job, fastest, constants)
    measured = evidence(_table(runs, runs_setup).runs, constants) if runs else ()
    if as_json:
        found = {
            "schema": "placement-proofs/recommendations/1",
            "model": plan.job.name,
            "gpus": plan.job.gpus,
            "layout": best[0].to_json() if best else None,
            "constants": constants.to_json(),
            "rules": [one.to_json() for one in advice],
            "measured": [one.to_json() for one in measured],
        }
        say_json(_finite(found))
    else:
        say(advice_text(plan.job, best, constants, advice, measured, paint()))
    return 0 if best else 1
