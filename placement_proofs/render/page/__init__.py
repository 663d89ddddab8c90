"""A report as one self-contained page, with formulas that recompute as sizes change."""

from __future__ import annotations

from placement_proofs.checking import check
from placement_proofs.render.page.document import document
from placement_proofs.render.pictures.drawn import What, subject_of

__all__ = ["document", "page"]


def page(what: What, *, convention: str | None = None) -> str:
    """The page of a subject as HTML; it needs neither network nor server.

    It has the verdict with what it covers, a counterexample and repairs where refuted, formulas
    of memory and traffic with sliders for every symbol, pictures, the plan, and assumptions.
    ``convention`` names the bytes per parameter.

    Raises:
        IllFormed: the subject or the convention has no meaning.
    """
    subject = subject_of(what)
    return document(subject, check(subject, convention=convention), convention)
