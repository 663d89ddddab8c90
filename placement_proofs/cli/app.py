"""The commands of ``placement-proofs``."""

from __future__ import annotations

import click

from placement_proofs.cli.check import check
from placement_proofs.cli.compare import compare
from placement_proofs.cli.convert import convert
from placement_proofs.cli.explain import explain
from placement_proofs.cli.faults import faults
from placement_proofs.cli.formula import formula
from placement_proofs.cli.layouts import layouts
from placement_proofs.cli.picture import picture
from placement_proofs.cli.prove import prove
from placement_proofs.cli.report import report
from placement_proofs.cli.simulate import simulate
from placement_proofs.cli.verify import verify


def _version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        click.echo(f"placement-proofs {version('placement-proofs')}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version.",
)
def app() -> None:
    """Verify and cost compositions of parallelism strategies for training large models.

    \b
    Examples:
      placement-proofs check "zero3(dp=8) * tensor(tp=4)"
      placement-proofs check examples/configs/deepspeed_zero3.json --world 64
      placement-proofs formula "zero3(dp=N)"
      placement-proofs compare "data(dp=N)" "zero3(dp=N)" --model abstract
      placement-proofs layouts --model llama-13b --gpus 64 --seq 2048 --global-batch 2048
    """


for _command in (
    check,
    formula,
    compare,
    convert,
    simulate,
    explain,
    layouts,
    picture,
    report,
    prove,
    verify,
    faults,
):
    _command.short_help = " ".join((_command.help or "").partition("\n\n")[0].split())
    app.add_command(_command)
