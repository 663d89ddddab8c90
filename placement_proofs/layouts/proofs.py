"""Proofs by class: one symbolic composition stands for all layouts of a class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from placement_proofs.checking import check
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject
from placement_proofs.layouts.setting import Job, Kind
from placement_proofs.models import Shape, transformer
from placement_proofs.verdict import Verdict


@dataclass(frozen=True)
class ClassProof:
    """The verdict on a class of layouts.

    Attributes:
        composition: its expression, with symbols for sizes.
        verdict: proved, or what else.
        covers: the sizes for which it holds.
        reason: why it is not proved.
    """

    composition: str
    verdict: Verdict
    covers: str = ""
    reason: str = ""


def proof_of(kind: Kind, job: Job) -> ClassProof:
    """The proof of a kind on a job's model, for all sizes of its axes.

    Kernels change what is kept for the backward pass and no contribution: kinds that differ only
    in kernels share a proof.
    """
    plain = replace(kind, attention=Kind.attention, norm=Kind.norm)
    return _proof(plain, job.shape, job.name, job.vocabulary)


@lru_cache(maxsize=4096)
def _proof(kind: Kind, shape: Shape, name: str, vocabulary: bool) -> ClassProof:
    composition = kind.composition(vocabulary=vocabulary, stages="p")
    text = repr(composition)
    model = transformer(shape, name=name, folded=True)
    try:
        report = check(Subject(text, composition, model))
    except IllFormed as error:
        return ClassProof(text, Verdict.ILL_FORMED, reason=str(error))
    conditions = report.conditions.values()
    reasons = [c.reason for c in conditions if c.reason]
    covers = next((c.covers for c in conditions if c.covers), "")
    reason = "; ".join(dict.fromkeys(reasons))
    return ClassProof(text, report.verdict, covers, reason or report.verdict.value)
