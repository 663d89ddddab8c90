"""``layouts``: which layouts fit a device, how fast they are, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from placement_proofs.cli.layouts_asked import (
    asked_choices,
    asked_constants,
    asked_jobs,
    folder_of,
    pool,
    read_equations,
    workers,
)
from placement_proofs.cli.layouts_options import choice_options, job_options
from placement_proofs.cli.layouts_runs import (
    RECOMMEND,
    calibrate,
    evaluate,
    recommendation,
    recommended,
)
from placement_proofs.cli.options import common_options
from placement_proofs.cli.output import paint, progress, say, say_json, write
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.layouts.planned import Planned
    from placement_proofs.layouts.setting import Job
    from placement_proofs.layouts.space import Choices
    from placement_proofs.render.svg import Picture

SCHEMA = "placement-proofs/layouts/1"

HELP = """Plan layouts: which fit the devices, how fast they are, and why (after arXiv 2311.05610).

Every valid combination of micro-batch, tensor, pipeline (and interleaved), data, context and expert
degrees, ZeRO stage, sequence parallelism and recomputation is evaluated; what is offered is PROVED,
one proof for each class of layouts, for all sizes. Memory and traffic are the closed forms of the
plan of each class; step times are those of a model with a few named constants.

Without a subcommand it plans, and needs --model, --gpus and --global-batch.

\b
Examples:
  placement-proofs layouts --model llama-13b --gpus 64 --seq 2048 --global-batch 2048
  placement-proofs layouts --model llama3-70b --gpus 256 --global-batch 1024 --device h100 --top 3
  placement-proofs layouts --model llama-13b --gpus 64 --global-batch 2048 --tensor 1,2 --zero 1
  placement-proofs layouts --model llama-13b --gpus 64 --global-batch 2048 --why-not tensor=3
  placement-proofs layouts --model llama-7b --gpus 8 --global-batch 64 --device examples/device.toml
  placement-proofs layouts --model llama-13b --gpus 64 --global-batch 2048 --figures figures
  placement-proofs layouts devices
  placement-proofs layouts sweep --model llama-13b --gpus 64,128 --global-batch 2048 -o out.csv
"""


@click.group(help=HELP, invoke_without_command=True)
@job_options
@choice_options
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="How many.")
@click.option("--pareto", is_flag=True, help="Show the front of memory and time.")
@click.option(
    "--memory",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    metavar="X",
    help="Fraction of a device's memory that may be filled; all of it by default.",
)
@click.option(
    "--csv", "csv_file", type=click.Path(dir_okay=False), help="Write all that fit, fastest first."
)
@click.option(
    "--figures",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write pareto.svg, memory.svg and schedule.svg.",
)
@click.option("--why-not", metavar="X=N,...", help="What is said against tensor=3, for example.")
@common_options
@click.pass_context
def layouts(context: click.Context, /, **options: Any) -> int | None:
    return None if context.invoked_subcommand else _plan(**options)


def _plan(
    *,
    top: int,
    pareto: bool,
    memory: float,
    csv_file: str | None,
    figures: str | None,
    why_not: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    from placement_proofs.layouts.planned import plan_json, remedies, write_csv
    from placement_proofs.render.layouts import plan_text

    job = _one(asked_jobs(options))
    for option, path in (("--csv", csv_file), ("--figures", figures)):
        _check_folder(option, path)
    if why_not:
        return _why_not(why_not, job, memory, as_json, options)
    choices = asked_choices(options)
    plan = _planned(job, choices, memory, options)
    helped = () if len(plan.order) else remedies(plan, choices, folder_of(options))
    if csv_file:
        write_csv(plan, Path(csv_file))
    if figures:
        from placement_proofs.render.plan_figures import plan_figures

        _write_figures(Path(figures), plan_figures(plan))
    if as_json:
        say_json({"schema": SCHEMA, **plan_json(plan, top, helped)})
    else:
        say(plan_text(plan, top=top, front=pareto, remedies=helped, paint=paint()))
    return 0 if len(plan.order) else 1


def _why_not(text: str, job: Job, memory: float, as_json: bool, options: Mapping[str, Any]) -> int:
    """The asked layouts beside all others that the options allow."""
    from placement_proofs.layouts.planned import against, plan_json, remedies
    from placement_proofs.render.layouts import why_not_text

    given = {**options, **read_equations("--why-not", text)}
    given["sequence"] = _flag(given["sequence"])
    choices = asked_choices(given)
    plan = _planned(job, choices, memory, options)
    best = _planned(job, asked_choices(options), memory, options) if len(plan.order) else plan
    found = against(plan, best)
    helped = () if len(plan.order) else remedies(plan, choices, folder_of(options))
    if as_json:
        why = found.to_json() if found else None
        say_json({"schema": SCHEMA, **plan_json(plan, 1, helped), "asked": text, "why_not": why})
    else:
        say(why_not_text(text, plan, best, found, helped, paint()))
    return 0 if len(plan.order) else 1


def _flag(value: object) -> object:
    """``sequence=yes`` of --why-not as the option has it."""
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if not isinstance(value, str):
        return value
    if value.lower() not in known:
        raise IllFormed("--why-not sequence", repr(value), "yes or no", "write sequence=yes")
    return known[value.lower()]


def _check_folder(option: str, path: str | None) -> None:
    """Said before anything is worked out, not after."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise IllFormed(
            f"{option} {path[:80]}",
            "no such folder",
            "what is written goes to a folder that exists",
            "make the folder, or correct the path",
        )


def _one(jobs: list[Job]) -> Job:
    if len(jobs) != 1:
        raise IllFormed(
            "layouts",
            f"{len(jobs)} jobs",
            "a plan is of one job",
            "give one model, device, number of devices, tokens and batch, or use layouts sweep",
        )
    return jobs[0]


def _planned(job: Job, choices: Choices, memory: float, options: Mapping[str, Any]) -> Planned:
    from placement_proofs.layouts.planned import planned
    from placement_proofs.layouts.space import space

    kinds = [block.kind for block in space(job, choices).blocks]
    with workers(kinds, job, options) as executor:
        return planned(
            job,
            asked_constants(options),
            choices,
            fraction=memory,
            executor=executor,
            folder=folder_of(options),
            watch=lambda rows, count: progress(rows, count, "working out layouts"),
        )


def _write_figures(folder: Path, pictures: Mapping[str, Picture]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, picture in pictures.items():
        paths.append(folder / f"{name}.svg")
        write(str(paths[-1]), picture.svg)
    return paths


FIGURES = """Draw measured runs as arXiv 2311.05610 does, as SVG: the best MFU by micro-batch,
recomputation, kernels, tensor and pipeline degrees, and sequence parallelism, sweep by sweep.

RUNS is a CSV file of measured runs (see layouts evaluate -h).

\b
Examples:
  placement-proofs layouts figures runs.csv -o figures
"""


@layouts.command(name="figures", help=FIGURES)
@click.argument("runs", type=click.Path(dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False), help="A folder.")
@click.option("--setup", default="paper", show_default=True, help="What the file leaves unsaid.")
@common_options
def figures(runs: str, output: str, setup: str, as_json: bool) -> int:
    from placement_proofs.layouts.runs import read_runs
    from placement_proofs.layouts.setups import load_setup
    from placement_proofs.render import run_figures as drawing

    found = read_runs(Path(runs), load_setup(setup))
    data = {figure: drawing.runs_data(figure, found) for figure in drawing.FIGURES}
    drawn = {figure.name: drawing.draw_runs(figure, rows) for figure, rows in data.items()}
    paths = _write_figures(Path(output), drawn)
    if as_json:
        rows = {figure.name: row["sweeps"] for figure, row in data.items()}
        say_json({"schema": "placement-proofs/figures/1", "figures": rows})
    else:
        say("\n".join(map(str, paths)))
    return 0


@layouts.command(help="Devices and clusters that are built in, with the source of each figure.")
@common_options
def devices(as_json: bool) -> int:
    from placement_proofs.layouts.devices import machines
    from placement_proofs.render.layouts import devices_text

    every = machines()
    if as_json:
        rows = [machine.to_json() for machine in every]
        say_json({"schema": "placement-proofs/devices/1", "devices": rows})
    else:
        say(devices_text(every))
    return 0


SWEEP = """Evaluate all valid layouts of many jobs into a CSV or Parquet file.

--model, --device, --gpus, --seq and --global-batch take lists with commas; all combinations are
swept. An interrupted sweep goes on where it was when its command is repeated, and the file is the
same. With --scheduler the chunks are computed by the workers of a Dask cluster, which need this
package; a worker that dies loses nothing.

\b
Examples:
  placement-proofs layouts sweep --model llama-13b --gpus 64,128 --global-batch 2048 -o out.csv
  placement-proofs layouts sweep --model llama3-70b --gpus 256 --global-batch 1024 \\
      --device a100-80gb,h100,b200 --seq 4096,8192 --zero 1,3 -o devices.parquet --jobs 8
  placement-proofs layouts sweep --model llama3-70b --gpus 512 --global-batch 2048 -o out.csv \\
      --scheduler tcp://head:8786
"""


layouts.add_command(evaluate)
layouts.add_command(calibrate)


@layouts.command(help=RECOMMEND)
@job_options
@choice_options
@recommendation
@common_options
def recommend(runs: str | None, runs_setup: str, as_json: bool, **options: Any) -> int:
    plan = _planned(_one(asked_jobs(options)), asked_choices(options), 1.0, options)
    return recommended(plan, runs, runs_setup, as_json=as_json)


@layouts.command(help=SWEEP)
@job_options
@choice_options
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help=".csv or .parquet."
)
@click.option("--scheduler", metavar="ADDRESS", help="Of a Dask cluster, such as tcp://head:8786.")
@common_options
def sweep(output: str, scheduler: str | None, as_json: bool, **options: Any) -> int:
    from placement_proofs.layouts.sweep import sweep as run

    jobs = asked_jobs(options)
    _check_folder("-o", output)
    try:
        with _executor(scheduler, options) as executor:
            done = run(
                jobs,
                Path(output),
                asked_constants(options),
                choices=asked_choices(options),
                executor=executor,
                window=64,
                folder=folder_of(options),
                watch=lambda parts, count: progress(parts, count, "sweeping"),
            )
    except BrokenExecutor:
        raise IllFormed(
            f"-o {output}",
            "a process that died in the middle",
            "the chunks that were finished are kept beside the output",
            "repeat the command, which goes on with the rest, or with fewer --jobs",
        ) from None
    if as_json:
        say_json({"schema": "placement-proofs/sweep/1", "output": output, **vars(done)})
    else:
        again = f", {done.found:,} of them found from before" if done.found else ""
        say(f"{output}: {done.rows:,} layouts in {done.chunks:,} chunks{again}")
    return 0


@contextmanager
def _executor(scheduler: str | None, options: Mapping[str, Any]) -> Iterator[Executor | None]:
    if scheduler is None:
        if options["jobs"] in (None, 1):
            yield None
            return
        with pool(options["jobs"]) as executor:
            yield executor
        return
    try:
        from distributed import Client
    except ImportError:
        raise IllFormed(
            "--scheduler",
            "no package distributed",
            "a Dask cluster is reached through it",
            "pip install 'placement-proofs[distributed]'",
        ) from None
    try:
        client: Any = Client(scheduler, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise IllFormed(
            f"--scheduler {scheduler}",
            " ".join(str(error).split())[:100],
            "a Dask scheduler listens at the address",
            "start one with dask scheduler, or correct the address",
        ) from None
    with client:
        yield client.get_executor()
