"""The only place that knows z3; it is imported when a proof is certified, not before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import z3

EFFORT = 20_000_000
"""z3's resource limit for one block: unlike a time limit, it gives the same answer anywhere."""


@cache
def _context() -> z3.Context:
    """One context for the process: making one takes longer than a typical proof."""
    import z3

    return z3.Context()


def all_unsat(blocks: Sequence[str]) -> str:
    """Empty if z3 refutes every block (SMT-LIB 2 assertions), else what it answered.

    One solver for each block.
    """
    import z3

    for block in blocks:
        solver = z3.SimpleSolver(ctx=_context())
        solver.set("rlimit", EFFORT)
        solver.from_string(block)
        answer = solver.check()
        if answer != z3.unsat:
            return str(answer)
    return ""
