"""A kind made ready: proved as a class, its formulas as one function of arrays; kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from placement_proofs.cost.tape import Tape, tape
from placement_proofs.layouts.forms import forms
from placement_proofs.layouts.proofs import ClassProof, proof_of
from placement_proofs.layouts.setting import Job, Kind
from placement_proofs.layouts.vector import Compiled
from placement_proofs.models import transformer
from placement_proofs.verdict import Verdict

COLUMNS = frozenset("btpcedm")
"""The symbols of a layout; all others are numbers of the job."""


@dataclass(frozen=True)
class Prepared:
    """A kind with its proof and, where it is proved, memory and step time as one function.

    Attributes:
        kind: of the layouts.
        proof: of their class.
        formulas: ``peak`` (bytes of the fullest rank) and ``step`` (seconds).
    """

    kind: Kind
    proof: ClassProof
    formulas: Compiled | None


def prepared(kind: Kind, job: Job, folder: Path | None = None) -> Prepared:
    """A kind made ready for a job; ``folder`` keeps results from one process to the next.

    What is kept depends on the code, on the kind and on the operations of the model, not on sizes:
    it is found again for every model of that architecture.
    """
    plain = _numberless(job)
    if folder is None:
        return _made(kind, plain)
    path = folder / f"{_key(kind, plain)}.json"
    found = _read(path, kind)
    if found is None:
        found = _made(kind, plain)
        _write(path, found)
    return found


def is_kept(kind: Kind, job: Job, folder: Path | None) -> bool:
    """Whether a kind is ready in a folder."""
    return folder is not None and (folder / f"{_key(kind, _numberless(job))}.json").is_file()


def _numberless(job: Job) -> Job:
    """The job without what no form depends on."""
    return replace(job, global_batch=1, gpus=1)


@lru_cache(maxsize=4096)
def _made(kind: Kind, job: Job) -> Prepared:
    proof = proof_of(kind, job)
    if proof.verdict is not Verdict.PROVED:
        return Prepared(kind, proof, None)
    made = forms(kind, job)
    code = tape({"peak": made.peak, "step": made.step}, COLUMNS)
    return Prepared(kind, proof, Compiled(code))


def cache_folder() -> Path:
    """Where a user's programs keep what they can make again (``XDG_CACHE_HOME``)."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "placement-proofs" / "layouts"


@cache
def fingerprint() -> str:
    """A digest of the code of this package: what was kept by other code is not read."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def _structure(job: Job) -> str:
    """The operations of the job's model, and what else the forms are made from."""
    model = replace(transformer(job.shape, name="", folded=True), dims={}, shape=None)
    numbers = ("name", "shape", "machine", "global_batch", "gpus")
    rest = {f.name: getattr(job, f.name) for f in fields(job) if f.name not in numbers}
    return repr((model, sorted(job.shape.dims), rest))


def _key(kind: Kind, job: Job) -> str:
    text = "\n".join((fingerprint(), repr(kind), _structure(job)))
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, made: Prepared) -> None:
    """Written beside and moved into place: a reader never sees half of it."""
    table = {
        "proof": asdict(made.proof) | {"verdict": made.proof.verdict.value},
        "tape": asdict(made.formulas.tape) if made.formulas else None,
    }
    own = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(json.dumps(table), encoding="utf-8")
        os.replace(own, path)
    except OSError:
        with suppress(OSError):
            own.unlink()


def _read(path: Path, kind: Kind) -> Prepared | None:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        proof = table["proof"]
        known = ClassProof(**(proof | {"verdict": Verdict(proof["verdict"])}))
        code = table["tape"]
        return Prepared(kind, known, Compiled(_tape(code)) if code else None)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _tape(code: Mapping[str, Any]) -> Tape:
    return Tape(
        tuple(code["inputs"]),
        tuple(code["constants"]),
        tuple((name, a, b) for name, a, b in code["steps"]),
        code["outputs"],
    )
