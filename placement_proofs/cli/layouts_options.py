"""Options of ``layouts`` that its commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def job_options(function: F) -> F:
    """Of a job: model, ranks, tokens, batch, device."""
    options = [
        click.option("--model", metavar="M", help="llama-13b, ..., a TOML file or config.json."),
        click.option("--gpus", metavar="N", help="Devices."),
        click.option(
            "--seq", metavar="S", help="Tokens of a sequence; the default is the model's."
        ),
        click.option("--global-batch", metavar="B", help="Sequences of a training step."),
        click.option(
            "--device", metavar="D", help="a100-80gb (default), h100, ..., or a TOML file."
        ),
        click.option(
            "--cluster", metavar="T", help="Another topology than the device's usual one."
        ),
        click.option("--setup", metavar="S", help="Facts of a training stack, such as paper."),
        click.option("--convention", metavar="C", help="Bytes per parameter, such as megatron."),
        click.option(
            "--constants", metavar="FILE", help="Constants: unfitted, or a file of calibrate."
        ),
    ]
    return _with(function, options)


def choice_options(function: F) -> F:
    """Restrictions: lists with commas."""
    numbers = {
        "micro-batch": "Sequences of a micro-batch.",
        "tensor": "Tensor-parallel ranks.",
        "pipeline": "Pipeline stages.",
        "chunks": "Chunks of layers on a stage; above 1: interleaved. Default 1,2,4.",
        "data": "Data-parallel ranks.",
        "context": "Context-parallel ranks.",
        "expert": "Expert-parallel ranks.",
        "zero": "ZeRO stages, 0 to 3; 3 is FSDP.",
    }
    options = [click.option(f"--{n}", metavar="N,...", help=text) for n, text in numbers.items()]
    options += [
        click.option("--sequence/--no-sequence", default=None, help="Sequence parallelism."),
        click.option("--recompute", metavar="W,...", help="none, selective, full."),
        click.option(
            "--attention",
            metavar="K,...",
            help="Kernels: flash-2 (default), flash-1, fused-softmax, eager, or all.",
        ),
        click.option("--norm", metavar="K,...", help="Kernels: fused (default), eager, or all."),
        click.option("--no-cache", is_flag=True, help="Keep no formulas for the next time."),
        click.option("--jobs", type=click.IntRange(1), metavar="N", help="Processes."),
    ]
    return _with(function, options)


def _with(function: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        function = option(function)
    return function
