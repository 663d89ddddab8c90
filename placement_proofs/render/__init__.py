"""Reports, plans, bills and theories as text, JSON and pictures.

The texts that one asks for in a notebook are here by name; a module is loaded with its first use.

>>> from placement_proofs import zero1
>>> from placement_proofs.render import placement_text
>>> print(placement_text(zero1(dp=8)).splitlines()[2])
  optimizer    S(0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_proofs.render.bill import communication_text, memory_text
    from placement_proofs.render.explained import explained_text
    from placement_proofs.render.faults import fault_text
    from placement_proofs.render.needed import needed_text
    from placement_proofs.render.placement import placement_text
    from placement_proofs.render.report import report_text, verdict_text
    from placement_proofs.render.simulation import simulation_text
    from placement_proofs.render.table import columns
    from placement_proofs.render.theories import outcomes_text

__all__ = [
    "columns",
    "communication_text",
    "explained_text",
    "fault_text",
    "memory_text",
    "needed_text",
    "outcomes_text",
    "placement_text",
    "report_text",
    "simulation_text",
    "verdict_text",
]

_HOMES = {
    "columns": "table",
    "communication_text": "bill",
    "explained_text": "explained",
    "fault_text": "faults",
    "memory_text": "bill",
    "needed_text": "needed",
    "outcomes_text": "theories",
    "placement_text": "placement",
    "report_text": "report",
    "simulation_text": "simulation",
    "verdict_text": "report",
}
"""The module of each name."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
