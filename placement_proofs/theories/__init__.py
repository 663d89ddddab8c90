"""Theories: claims with the verdict that each must give, and the evidence for it."""

from placement_proofs.theories.claims import (
    HOMES,
    SCHEMA,
    Claim,
    Open,
    Theory,
    all_theories,
    find_theory,
    read_theory,
)
from placement_proofs.theories.evidence import Evidence
from placement_proofs.theories.outcomes import Outcome, run_claims

__all__ = [
    "HOMES",
    "SCHEMA",
    "Claim",
    "Evidence",
    "Open",
    "Outcome",
    "Theory",
    "all_theories",
    "find_theory",
    "read_theory",
    "run_claims",
]
