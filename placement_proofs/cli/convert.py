"""``convert``: the same placement as another framework's configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from placement_proofs.cli.options import SUBJECT_HELP, common_options, read
from placement_proofs.cli.output import say, say_json
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.composition import Composition
    from placement_proofs.configs.writers import Conversion
    from placement_proofs.inputs import Subject

TARGETS = (
    *("deepspeed", "accelerate", "torchtitan", "megatron", "nanotron", "axolotl"),
    *("llamafactory", "maxtext", "nemo", "neox", "gptneox"),
)
ALIASES = {"neox": "gptneox"}

HELP = f"""Write another framework's configuration file for the same placement.

{SUBJECT_HELP}

The file goes to standard output, what it does not carry to standard error: each role that is lost,
and each value that was chosen because the source leaves it open. It is read back before it is
shown.

\b
Exit codes: 0 written, 2 ill-formed input, or a placement that the framework cannot express.

\b
Examples:
  placement-proofs convert "fsdp(dp=8) * tensor(tp=4, sequence=True)" --to torchtitan
  placement-proofs convert examples/configs/deepspeed_zero3.json --to accelerate --world 64
"""


@click.command(help=HELP)
@click.argument("subject", metavar="SUBJECT")
@click.option("--to", required=True, type=click.Choice(TARGETS), help="Format to write.")
@click.option("-o", "--output", metavar="FILE", help="Write the file here.")
@click.option("--world", type=int, metavar="N", help="Number of ranks.")
@click.option("--format", "format_", metavar="F", help="Format of a config file that is read.")
@common_options
def convert(
    subject: str, to: str, output: str | None, world: int | None, format_: str | None, as_json: bool
) -> int:
    from placement_proofs.configs.writers import convert as written

    found = _subject(subject, world, format_)
    composition, _ = found.composed()
    if found.imported is None:
        composition = _filled(composition, world)
    conversion = written(composition, ALIASES.get(to, to), imported=found.imported)
    _deliver(conversion, output, as_json)
    return 0


def _subject(text: str, world: int | None, format_: str | None) -> Subject:
    """A configuration file needs the world to be read; a symbol elsewhere is filled later."""
    from placement_proofs.inputs import read_subject

    try:
        return read(text, world=world, format_=format_)
    except IllFormed as error:
        if error.place != "--world" or format_ is not None:
            raise
        return read_subject(text)


def _filled(composition: Composition, world: int | None) -> Composition:
    """The one size that is a symbol, from the number of ranks.

    Raises:
        IllFormed: the other sizes do not divide it, or more than one is open.
    """
    import math

    axes = composition.mesh.axes
    known = math.prod(axis.size for axis in axes if isinstance(axis.size, int))
    symbols = [axis.name for axis in axes if not isinstance(axis.size, int)]
    if world is None or (not symbols and known == world):
        return composition
    if len(symbols) != 1 or world < 1 or world % known:
        names = ", ".join(symbols) or "none"
        rule = f"one size is open and the others divide the ranks; the known ones give {known}"
        raise IllFormed("--world", f"{world}, with open sizes {names}", rule, "write the sizes")
    return composition.resized({symbols[0]: world // known})


def _deliver(conversion: Conversion, output: str | None, as_json: bool) -> None:
    if output is not None:
        Path(output).write_text(conversion.text, encoding="utf-8")
    if as_json:
        value: dict[str, Any] = {**conversion.to_json(), "file": output}
        say_json(value)
    elif output is None:
        click.echo(conversion.text, nl=False)
    else:
        say(f"wrote {output}")
    for loss in conversion.losses:
        click.echo(f"not carried: {loss}", err=True)
    for choice in conversion.chosen:
        click.echo(f"chosen: {choice}", err=True)
