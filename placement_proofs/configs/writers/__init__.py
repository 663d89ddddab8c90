"""Compositions as configuration files of training frameworks: one writer a format.

:func:`convert` writes a file, reads it back with the format's own importer, and tells everything
that the file does not say.
"""

from __future__ import annotations

from placement_proofs.configs.writers.conversion import FORMATS, Conversion, convert
from placement_proofs.configs.writers.draft import Chosen, Loss

__all__ = ["FORMATS", "Chosen", "Conversion", "Loss", "convert"]
