"""Verify and cost compositions of parallelism strategies for training large models.

>>> from placement_proofs import check, tensor, zero3
>>> composition = zero3(dp=8) * tensor(tp=4, sequence=True)
>>> print(check(composition).verdict)
proved

Every public name is loaded when it is first used: importing the package loads neither sympy nor z3
nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_proofs.checking import check, formulas
    from placement_proofs.composition import Composition
    from placement_proofs.cost.compare import compare
    from placement_proofs.errors import IllFormed
    from placement_proofs.expression import parse
    from placement_proofs.inputs import Subject, read_subject
    from placement_proofs.model import Model
    from placement_proofs.program.text import parse_program
    from placement_proofs.report import Report
    from placement_proofs.small import simulate_small
    from placement_proofs.strategies import (
        accumulate,
        context,
        data,
        expert,
        fsdp,
        hsdp,
        offload,
        pipeline,
        place,
        recompute,
        single,
        tensor,
        ulysses,
        zero1,
        zero2,
        zero3,
    )
    from placement_proofs.verdict import Verdict
    from placement_proofs.zoo import load_model

__all__ = [
    "Composition",
    "IllFormed",
    "Model",
    "Report",
    "Subject",
    "Verdict",
    "accumulate",
    "check",
    "compare",
    "context",
    "data",
    "expert",
    "formulas",
    "fsdp",
    "hsdp",
    "load_model",
    "offload",
    "parse",
    "parse_program",
    "pipeline",
    "place",
    "read_subject",
    "recompute",
    "simulate_small",
    "single",
    "tensor",
    "ulysses",
    "zero1",
    "zero2",
    "zero3",
]

_HOMES = {
    "Composition": "composition",
    "IllFormed": "errors",
    "Model": "model",
    "Report": "report",
    "Subject": "inputs",
    "Verdict": "verdict",
    "check": "checking",
    "compare": "cost.compare",
    "formulas": "checking",
    "load_model": "zoo",
    "parse": "expression",
    "parse_program": "program.text",
    "read_subject": "inputs",
    "simulate_small": "small",
}
"""The module of each public name; the others are strategies."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"{__name__}.{_HOMES.get(name, 'strategies')}")
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
