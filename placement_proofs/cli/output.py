"""What every command prints with: text, JSON, colour on terminals, a spinner, refusals."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from placement_proofs.errors import IllFormed
from placement_proofs.verdict import Verdict

if TYPE_CHECKING:
    from placement_proofs.render.paint import Paint

PATIENCE = 2.0
"""Seconds before a spinner shows."""


def paint() -> Paint:
    """Colour on a terminal, unless NO_COLOR is set."""
    from placement_proofs.render.paint import Paint

    return Paint(_on_terminal() and not os.environ.get("NO_COLOR"))


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def say(text: str) -> None:
    """Print to standard output."""
    click.echo(text)


def say_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object, indented."""
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def refusal(error: IllFormed) -> dict[str, Any]:
    """An ill-formed input as JSON."""
    return {
        "schema": "placement-proofs/error/1",
        "verdict": Verdict.ILL_FORMED.value,
        "error": {
            "place": error.place,
            "found": error.found,
            "rule": error.rule,
            "remedy": error.remedy,
        },
    }


def one_line(error: IllFormed) -> str:
    """The message as one line without control characters."""
    text = " ".join(str(error).split())
    return "error: " + "".join(c if c.isprintable() else "?" for c in text)


def refuse(error: IllFormed, *, as_json: bool) -> int:
    """Say what is ill-formed on standard error (and as JSON), and return the exit code 2."""
    if as_json:
        say_json(refusal(error))
    click.echo(one_line(error), err=True)
    return Verdict.ILL_FORMED.exit_code


def write(path: str, text: str) -> None:
    """Write a file, or standard output for ``-``.

    Raises:
        IllFormed: the file cannot be written.
    """
    if path == "-":
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise IllFormed(
            f"-o {path[:80]}",
            reason,
            "the output file must be writable",
            "name a file in a folder that exists",
        ) from None


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes long, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    spinner = threading.Thread(target=_spin, args=(what, done), daemon=True)
    spinner.start()
    try:
        yield
    finally:
        done.set()
        spinner.join()


T = TypeVar("T")


def progress(items: Iterator[T], count: int, what: str) -> Iterator[T]:
    """The items as they pass; if they take long, with a bar on standard error on a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    bar = click.progressbar(length=count, label=what, file=sys.stderr)
    begun, passed, shown = time.monotonic(), 0, False
    try:
        for item in items:
            passed += 1
            if not shown and time.monotonic() - begun > PATIENCE:
                bar.__enter__()
                bar.update(passed - 1)
                shown = True
            if shown:
                bar.update(1)
            yield item
    finally:
        if shown:
            bar.__exit__(None, None, None)


def _spin(what: str, done: threading.Event) -> None:
    seconds = PATIENCE
    if done.wait(seconds):
        return
    while True:
        sys.stderr.write(f"\r{what} ... {seconds:.0f} s ")
        sys.stderr.flush()
        if done.wait(1.0):
            break
        seconds += 1
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
