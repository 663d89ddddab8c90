"""The formulas of a subject: derived, then read by ``cost``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_proofs.checking import plan_of
from placement_proofs.composition import Composition, Strategy
from placement_proofs.inputs import Subject, read_subject

if TYPE_CHECKING:
    from placement_proofs.cost.closed_form import ClosedForms


def formulas(
    what: Subject | Composition | Strategy | str,
    *,
    convention: str | None = None,
    divides: bool = True,
) -> ClosedForms:
    """Memory and traffic of a rank as formulas (bytes), exact and as the axes grow.

    Anything but a subject is read with the defaults of :func:`read_subject`; give that function a
    model, a profile or deviations. ``convention`` names the bytes per parameter; without it, that
    of the ZeRO paper. With ``divides`` quotients stand for parts, without it ceilings do.

    >>> from placement_proofs import formulas, read_subject, zero3
    >>> forms = formulas(read_subject(zero3(dp="N"), model="abstract"))
    >>> forms.persistent.exact, forms.traffic.asymptotic
    (Psi*(K + 4)/N, 3*P)

    Raises:
        IllFormed: the subject has no plan on its model, or no convention has that name.
    """
    from placement_proofs.cost.closed_form import closed_forms
    from placement_proofs.cost.convention import convention as named

    subject = what if isinstance(what, Subject) else read_subject(what)
    plan, model = plan_of(subject)
    return closed_forms(plan, model, named(convention), divides=divides)
