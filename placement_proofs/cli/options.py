"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from placement_proofs.inputs import Subject

F = TypeVar("F", bound=Callable[..., Any])

SUBJECT_HELP = """A SUBJECT is an expression such as "zero3(dp=8) * tensor(tp=4)", a TOML file with
a composition or an element program, a framework's configuration file, or the name of a published
fault (its faulty form)."""


def plan_options(function: F) -> F:
    """--model, --world, --profile and --without."""
    options = [
        click.option(
            "--model", metavar="M", help="dense, llama-7b, ..., a TOML file or config.json."
        ),
        click.option("--world", type=int, metavar="N", help="Number of ranks of a config file."),
        click.option(
            "--profile",
            metavar="P",
            help="Training stack (default paper), such as torch-fsdp2 or megatron+eager-norm.",
        ),
        click.option("--loss", metavar="L", help="mean (default), tokens, or sum."),
        click.option(
            "--without",
            multiple=True,
            metavar="CHANGE",
            help='Deviation of the loop from the derived plan, such as "drop all-reduce gradient '
            'dp". Repeatable.',
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def subject_options(function: F) -> F:
    """The options of plans, and --format for config files."""
    option = click.option("--format", "format_", metavar="F", help="Format of a config file.")
    return plan_options(option(function))


def convention_option(function: F) -> F:
    """--convention: the bytes per parameter."""
    option = click.option(
        "--convention",
        help="Bytes per parameter: zero-paper (default), fp32-gradients, megatron, fp32, "
        "bf16-only, adam-8bit, sgd-momentum, cast, cast-reduce-16; or what an estimator "
        "counts: megatron-report, simumax, simumax-sdp, llm-analysis, mlsysim, blocks-only, "
        "deepspeed-zero2, deepspeed-zero3, primus (docs/peers.md).",
    )
    return option(function)


def topology_option(function: F) -> F:
    """--topology: nodes and links, for times."""
    option = click.option(
        "--topology",
        metavar="T",
        help="Also give the time of the traffic on these nodes and links: dgx-a100, dgx-h100, "
        "dgx-b200, gb200-nvl72, a100-pcie, aws-p4d, aws-p5, or a TOML file.",
    )
    return option(function)


def common_options(function: F) -> F:
    """--json and --traceback."""
    json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    trace = click.option(
        "--traceback", is_flag=True, expose_value=False, help="Show where a fault of ours happened."
    )
    return json_option(trace(function))


def read(
    text: str,
    *,
    model: str | None = None,
    world: int | None = None,
    format_: str | None = None,
    profile: str | None = None,
    loss: str | None = None,
    without: Sequence[str] = (),
    relax: Sequence[str] = (),
) -> Subject:
    """The subject that the options describe; a published fault by its name is its faulty form.

    Raises:
        IllFormed: the text, the file or an option has no meaning.
    """
    from placement_proofs.faults import all_faults
    from placement_proofs.inputs import read_subject

    faults = {path.stem: path for path in all_faults()} if "-" in text and "(" not in text else {}
    return read_subject(
        faults.get(text, text),
        model=model,
        profile=profile,
        loss=loss,
        without=without,
        world=world,
        format=format_,
        relax=relax,
    )


def sizes(texts: Sequence[str], place: str) -> dict[str, int]:
    """``name=number`` pairs; ``7.5e9`` is a whole number too.

    Raises:
        IllFormed: a text is no such pair.
    """
    return dict(_size(text, place) for text in texts)


def _size(text: str, place: str) -> tuple[str, int]:
    from fractions import Fraction

    from placement_proofs.errors import IllFormed

    name, equals, number = text.partition("=")
    try:
        value = Fraction(number) if len(number) < 40 else Fraction(-1)
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if not equals or not name.isidentifier() or value < 1 or value.denominator != 1:
        raise IllFormed(
            place, repr(text[:60]), "a size is a name and a whole number from 1", "write N_dp=64"
        )
    return name, int(value)
