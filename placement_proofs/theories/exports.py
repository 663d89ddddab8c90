"""Theories as files for other tools: SMT-LIB scripts, certificates, resource counts.

The files are generated, and the same byte for byte wherever they are made: a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from placement_proofs.prove.core import Outside, certificate_of
from placement_proofs.prove.kernel import Undecided
from placement_proofs.theories.claims import Claim, Theory
from placement_proofs.theories.identities import certificate
from placement_proofs.theories.obligations import Script, answer, finding, programs, scripts
from placement_proofs.verdict import Verdict

SCRIPTS, CERTIFICATES, EFFORT = "smt2", "certificates", "effort.json"


def files(theories: Iterable[Theory]) -> dict[str, str]:
    """Every generated file: its path below the folder of theories, and its text."""
    found: dict[str, str] = {}
    effort: dict[str, int] = {}
    for theory in theories:
        named = [(claim, script) for claim in theory.claims for script in scripts(claim)]
        for logic in sorted({script.logic for _, script in named}):
            text = _smt2(theory, [(c, s) for c, s in named if s.logic == logic])
            found[f"{SCRIPTS}/{theory.name}.{logic.lower()}.smt2"] = text
        effort |= {_label(theory, c, s): answer(s.text).effort for c, s in named}
        certificates = [cert for claim in theory.claims for cert in certificates_of(claim)]
        if certificates:
            found[f"{CERTIFICATES}/{theory.name}.json"] = _json(certificates, indent=None)
    found[EFFORT] = _json(effort, indent=0)
    return found


def certificates_of(claim: Claim) -> list[dict[str, Any]]:
    """The certificates of a proved claim, where its programs are in the polynomial core."""
    if claim.verdict is not Verdict.PROVED or claim.condition:
        return []
    if claim.subject is None:
        made = certificate(claim.name, finding(claim).queries)
        return [made] if made is not None else []
    found = []
    for program in programs(claim.subject):
        with suppress(Outside, Undecided):
            found.append(certificate_of(program, claim.name))
    return found


def _label(theory: Theory, claim: Claim, script: Script) -> str:
    return f"{theory.name}: {claim.name}: {script.name} ({script.logic})"


def _smt2(theory: Theory, named: list[tuple[Claim, Script]]) -> str:
    """One script: every obligation of a theory in one logic, each with its status."""
    lines = [f"; {theory.title}", f"(set-logic {named[0][1].logic})"]
    for claim, script in named:
        lines += [
            f"; {claim.name}: {script.name}",
            "(push 1)",
            f"(set-info :status {answer(script.text).result})",
            script.text.rstrip(),
            "(check-sat)",
            "(pop 1)",
        ]
    return "\n".join(lines) + "\n"


def _json(data: object, indent: int | None) -> str:
    if isinstance(data, list):
        rows = ",\n".join(json.dumps(row, sort_keys=True) for row in data)
        return f"[\n{rows}\n]\n"
    return json.dumps(data, indent=indent, sort_keys=True) + "\n"


def write(folder: Path, generated: Mapping[str, str]) -> None:
    """Write the generated files below a folder; files of theories that are gone are removed."""
    for home in (SCRIPTS, CERTIFICATES):
        for old in (folder / home).glob("*.*"):
            if f"{home}/{old.name}" not in generated:
                old.unlink()
    for name, text in generated.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
