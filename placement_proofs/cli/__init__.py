"""The command line: ``placement-proofs``, also ``python -m placement_proofs``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from placement_proofs.errors import IllFormed

INTERRUPTED = 130
BROKEN_PIPE = 141
FAULT = 70
"""Exit code of a fault of ours: no verdict was reached."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Codes of ``check``: 0 proved, 1 refuted, 2 ill-formed input or usage, 3 unknown.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _run(given: list[str]) -> int:
    from placement_proofs.cli.app import app
    from placement_proofs.cli.output import refuse

    try:
        with app.make_context("placement-proofs", given) as context:
            result = app.invoke(context)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except IllFormed as error:
        return refuse(error, as_json="--json" in given)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return refuse(_usage(error), as_json="--json" in given)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        return refuse(_unreadable(error), as_json="--json" in given)
    except Exception as error:
        return _fault(error, given)


def _usage(error: click.ClickException) -> IllFormed:
    """A wrong command line as an ill-formed input."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "placement-proofs"
    usage = context.get_usage() if context else "Usage: placement-proofs COMMAND ..."
    what = error.format_message().rstrip(".")
    return IllFormed("command line", what, usage.replace("Usage", "usage", 1), f"see {command} -h")


def _unreadable(error: OSError) -> IllFormed:
    """A path that the system refuses."""
    place = str(error.filename or "file")[:80]
    reason = (error.strerror or str(error)).lower()
    return IllFormed(place, reason, "files to read must be readable", "correct the path")


def _fault(error: Exception, given: list[str]) -> int:
    """Our own error: said in one line, without a verdict."""
    if "--traceback" in given:
        import traceback

        traceback.print_exc()
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    click.echo(
        f"fault of placement-proofs, not of your input: {what}; nothing was decided; please report "
        "it with the command line (--traceback shows where it happened)",
        err=True,
    )
    return FAULT
