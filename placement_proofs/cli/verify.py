"""``verify-certificate``: the kernel on certificates, without any solver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from placement_proofs.cli.options import common_options
from placement_proofs.cli.output import say, say_json
from placement_proofs.errors import IllFormed

HELP = """Check certificates with the kernel: a small program in plain Python that uses no solver.

FILE is a JSON file of one certificate or a list of them, such as those in theories/certificates.
Exit code 0 if every one is accepted, 1 if one is rejected.

\b
Examples:
  placement-proofs verify-certificate theories/certificates/zero.json
"""

SCHEMA = "placement-proofs/verification/1"


@click.command(name="verify-certificate", help=HELP)
@click.argument("file", type=click.Path(dir_okay=False))
@common_options
def verify(file: str, as_json: bool) -> int:
    rows = [_verified(cert) for cert in _read(file)]
    right = all(row["accepted"] for row in rows)
    if as_json:
        say_json({"schema": SCHEMA, "accepted": right, "certificates": rows})
    else:
        say("\n".join(_text(row) for row in rows))
    return 0 if right else 1


def _read(file: str) -> list[Any]:
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise IllFormed(file, str(error)[:80], "a certificate is JSON", "correct it") from None
    certs = found if isinstance(found, list) else [found]
    if not certs or not all(isinstance(c, dict) for c in certs):
        raise IllFormed(
            file, "no certificate", "a certificate is a JSON object", "write prove --export FOLDER"
        )
    return certs


def _verified(cert: dict[str, Any]) -> dict[str, Any]:
    from placement_proofs.prove.kernel import Rejected, check

    claim = str(cert.get("claim", ""))
    try:
        return {"claim": claim, "accepted": True, **check(cert)}
    except Rejected as reason:
        return {"claim": claim, "accepted": False, "reason": str(reason)}


def _text(row: dict[str, Any]) -> str:
    from placement_proofs.render.units import plural

    if not row["accepted"]:
        return f"rejected  {row['claim']}: {row['reason']}"
    degrees = ", ".join(f"{name} {top}" for name, top in row["degrees"].items() if top)
    points = plural(row["points"], "point")
    return f"accepted  {row['claim']}: {points}, degrees {degrees or 'all 0'}"
