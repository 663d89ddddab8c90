"""What ``layouts`` is asked: jobs, choices, constants, and the processes that work on them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.layouts.constants import Constants
    from placement_proofs.layouts.setting import Job, Kind
    from placement_proofs.layouts.space import Choices

WORKERS_FROM = 24
"""Kinds to work out from which more processes are quicker than one."""

NUMBERS = ("micro_batch", "tensor", "pipeline", "chunks", "data", "context", "expert")


def asked_jobs(options: Mapping[str, Any]) -> list[Job]:
    """The jobs of all combinations of models, devices, ranks, tokens and batches.

    Raises:
        IllFormed: something is missing, or has no meaning.
    """
    from placement_proofs.layouts.jobs import Asked

    for name in ("model", "gpus", "global_batch"):
        if not options[name]:
            place = f"--{name.replace('_', '-')}"
            raise IllFormed(
                "layouts",
                f"no {place}",
                "a plan is of a model on devices, with a global batch",
                "write --model llama-13b --gpus 64 --global-batch 2048 (see layouts -h)",
            )
    rest = {name: options[name] for name in ("cluster", "setup", "convention")}
    devices: list[str | None] = [*words(options["device"])]
    lists = (
        words(options["model"]),
        devices or [None],
        whole("--gpus", options["gpus"]),
        whole("--seq", options["seq"]) or (None,),
        whole("--global-batch", options["global_batch"]),
    )
    return [
        Asked(model, gpus, batch, sequence, device, **rest).job()
        for model, device, gpus, sequence, batch in itertools.product(*lists)
    ]


def words(text: str | None) -> list[str]:
    """The parts of a list with commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def whole(place: str, text: str | None, least: int = 1) -> tuple[int, ...]:
    """A list of whole numbers with commas.

    Raises:
        IllFormed: a part is no whole number from ``least``.
    """
    parts = words(text)
    for part in parts:
        if not part.isdecimal() or not least <= int(part) <= 10**9:
            raise IllFormed(
                place, repr(part), f"whole numbers from {least}, with commas", f"write {place} 1,2"
            )
    return tuple(dict.fromkeys(map(int, parts)))


def asked_choices(options: Mapping[str, Any]) -> Choices:
    """The restrictions; what is not restricted is as by default.

    Raises:
        IllFormed: a value has no meaning.
    """
    from placement_proofs.layouts.kernels import ATTENTION, NORM
    from placement_proofs.layouts.setting import RECOMPUTE
    from placement_proofs.layouts.space import Choices

    given: dict[str, Any] = {
        name: whole(f"--{name.replace('_', '-')}", options[name])
        for name in NUMBERS
        if options.get(name)
    }
    if options.get("zero"):
        given["zero"] = tuple(int(w) for w in _known("--zero", options["zero"], "0123"))
    if options.get("sequence") is not None:
        given["sequence"] = (options["sequence"],)
    known = {"recompute": RECOMPUTE, "attention": tuple(ATTENTION), "norm": tuple(NORM)}
    for name, values in known.items():
        if options.get(name):
            given[name] = _known(f"--{name}", options[name], values)
    return Choices(**given)


def _known(place: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    parts = words(text)
    if parts == ["all"]:
        return tuple(known)
    for part in parts:
        if part not in known:
            raise IllFormed(
                place, repr(part), f"it is one of {', '.join(known)}, or all", "name some of these"
            )
    return tuple(dict.fromkeys(parts))


def asked_constants(options: Mapping[str, Any]) -> Constants:
    """The constants of the model of time and memory: those that are shipped, or of a file.

    Raises:
        IllFormed: the file has no constants.
    """
    from placement_proofs.layouts.constants import SHIPPED, load_constants

    return load_constants(options.get("constants") or SHIPPED)


def read_equations(place: str, text: str) -> dict[str, str]:
    """``name=value`` pairs with commas; hyphens in names are underscores.

    Raises:
        IllFormed: a part is no such pair, or names nothing of a layout.
    """
    names = (*NUMBERS, "zero", "sequence", "recompute", "attention", "norm")
    found = {}
    for part in words(text):
        name, equals, value = part.partition("=")
        key = name.strip().replace("-", "_")
        if not equals or key not in names:
            raise IllFormed(
                place,
                repr(part),
                f"a layout has {', '.join(names)}",
                f"write {place} tensor=3",
            )
        found[key] = value.strip()
    return found


def folder_of(options: Mapping[str, Any]) -> Path | None:
    """Where formulas are kept, unless they are not to be."""
    from placement_proofs.layouts.prepared import cache_folder

    return None if options["no_cache"] else cache_folder()


@contextmanager
def workers(
    kinds: Sequence[Kind], job: Job, options: Mapping[str, Any]
) -> Iterator[Executor | None]:
    """Processes for kinds that are not known yet, where that is quicker."""
    from placement_proofs.layouts.prepared import is_kept

    folder = folder_of(options)
    new = sum(not is_kept(kind, job, folder) for kind in kinds)
    count = options["jobs"] or os.cpu_count() or 1
    if count == 1 or (new < WORKERS_FROM and not options["jobs"]):
        yield None
        return
    with pool(count) as executor:
        yield executor


def pool(count: int) -> Executor:
    """Processes that start afresh: threads of this one do not confuse them."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))
