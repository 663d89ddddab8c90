"""The only place that knows z3; it is imported when a proof is certified, not before."""

from __future__ import annotations

from collections.abc import Sequence

EFFORT = 20_000_000
"""z3's resource limit for one block: unlike a time limit, it gives the same answer anywhere."""


def all_unsat(blocks: Sequence[str]) -> str:
    """Empty if z3 refutes every block (SMT-LIB 2 assertions), else what it answered.

    One context for all blocks, one solver for each.
    """
    import z3

    context = z3.Context()
    for block in blocks:
        solver = z3.SimpleSolver(ctx=context)
        solver.set("rlimit", EFFORT)
        solver.from_string(block)
        answer = solver.check()
        if answer != z3.unsat:
            return str(answer)
    return ""
