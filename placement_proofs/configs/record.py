"""What an importer gives: a composition, where every value came from, and what looks wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from placement_proofs.composition import Composition

Provenance: TypeAlias = Literal["literal", "default", "derived", "cli or environment", "unknown"]
"""Written in the file; the framework's default; computed; given outside the file; not known."""

Kind: TypeAlias = Literal["mathematics", "rejected", "ignored", "unlikely"]
"""Trains wrongly; the framework refuses; it silently ignores; probably not what was meant."""

Plain: TypeAlias = bool | int | float | str | None

SCHEMA = 1
"""The version of :meth:`Imported.to_json`."""


@dataclass(frozen=True)
class Field:
    """One value that the import rests on.

    ``name`` is a neutral word (``zero_stage``, ``dp``, ``micro_batch``); sizes are in ranks, batch
    sizes in samples, bucket sizes in elements. ``place`` is ``file:line key`` or empty.
    """

    name: str
    value: Plain
    provenance: Provenance
    place: str = ""
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """Something wrong or doubtful in a file, with the rule's name and its source.

    ``deviation`` says how a file with wrong mathematics differs from the derived plan, in the
    words of :func:`placement_proofs.deviate.parse_deviation`: the check refutes it by replay.
    """

    kind: Kind
    rule: str
    place: str
    message: str
    remedy: str
    source: str
    deviation: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}; {self.remedy} [{self.kind}: {self.rule}]"


@dataclass(frozen=True)
class Batch:
    """Samples per rank and micro-batch, micro-batches per step, samples per step.

    ``None`` means that the file does not say it. Their product rule is
    ``global_batch = micro_batch * accumulation * data-parallel ranks``.
    """

    micro_batch: int | None = None
    accumulation: int | None = None
    global_batch: int | None = None


@dataclass(frozen=True)
class Dtypes:
    """Number formats, such as ``"bf16"``; ``None`` when the file does not decide it.

    ``parameters`` computes, ``master`` is what the optimizer updates, ``gradients`` accumulates,
    ``reduction`` travels. With ``copies`` the parameters that compute rest beside the master;
    without, they are cast from it when they are used (autocast, torch's FSDP). That is a fact of
    the stack, no request of the file.
    """

    parameters: str | None = None
    master: str | None = None
    gradients: str | None = None
    reduction: str | None = None
    copies: bool = field(default=True, compare=False)

    @property
    def convention(self) -> str:
        """The name of the bytes per element that these formats come to (``cost/convention.py``)."""
        if self.parameters == "fp32":
            return "fp32"
        if self.parameters not in ("bf16", "fp16"):
            return "zero-paper"
        if self.master == "fp32" and not self.copies:
            return "cast" if self.reduction == "fp32" else "cast-reduce-16"
        return "fp32-gradients" if self.gradients == "fp32" else "zero-paper"


SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "experts")
SHARDING = ("zero_stage", "fsdp_version", "sharding_strategy")
"""Fields without which the placement is not known."""


@dataclass(frozen=True)
class Imported:
    """A configuration file as a composition.

    ``repr(imported.composition)`` is the expression that can be edited. A size that the file leaves
    open is a symbol in it (``N`` for data-parallel ranks, ``M`` for micro-batches). ``world`` is
    the number of ranks, or ``None``. ``assumptions`` are what the composition does not say exactly.
    """

    format: str
    file: str
    composition: Composition
    world: int | None
    fields: tuple[Field, ...]
    findings: tuple[Finding, ...]
    batch: Batch
    dtypes: Dtypes
    assumptions: tuple[str, ...] = ()

    def field(self, name: str) -> Field:
        """The field called ``name``.

        Raises:
            KeyError: there is none.
        """
        found = next((field for field in self.fields if field.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    @property
    def deviations(self) -> tuple[str, ...]:
        """How the file's training loop differs from the plan derived from its composition."""
        return tuple(f.deviation for f in self.findings if f.deviation)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Why nothing is proved of a file: its sharding is open, or a fault is not in the plan."""
        open_fields = tuple(
            f"{f.name} is not in {f.place or self.file}: {f.note or 'unknown'}"
            for f in self.fields
            if f.name in SHARDING and f.provenance == "unknown"
        )
        untold = tuple(
            f"{f.place}: {f.message}, which the plan does not say"
            for f in self.findings
            if f.kind == "mathematics" and not f.deviation
        )
        return open_fields + untold

    @property
    def shape(self) -> Mapping[str, int]:
        """The model's shape as far as the file gives it, by the names of ``models.Shape``.

        The feed-forward size defaults to four times the hidden size and key-value heads to heads,
        as in the frameworks whose files give a shape. A shape needs layers, hidden size and heads;
        without them only the sequence length is used.
        """
        known = {f.name: f.value for f in self.fields if isinstance(f.value, int)}
        found = {name: known[name] for name in SHAPE if name in known}
        sequence = known.get("sequence", known.get("seq_len"))
        if not {"layers", "hidden", "heads"} <= set(found):
            found = {}
        else:
            found = {"ffn": 4 * found["hidden"], "kv_heads": found["heads"]} | found
        return found | ({"sequence": sequence} if sequence else {})

    def degrees(self) -> Mapping[str, int | str]:
        """Sizes of the mesh axes, integers or symbols."""
        return self.composition.mesh.sizes()

    def to_json(self) -> dict[str, Any]:
        """Plain data with the keys of this class, ``schema`` and the expression as text."""
        return {
            "schema": SCHEMA,
            "format": self.format,
            "file": self.file,
            "composition": repr(self.composition),
            "world": self.world,
            "degrees": dict(self.degrees()),
            "batch": asdict(self.batch),
            "dtypes": asdict(self.dtypes),
            "fields": [asdict(field) for field in self.fields],
            "findings": [asdict(finding) for finding in self.findings],
            "assumptions": list(self.assumptions),
        }
