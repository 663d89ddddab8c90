"""The only place that knows z3 and cvc5; they are imported when something is decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import z3

EFFORT = 20_000_000
"""z3's resource limit for one block: unlike a time limit, it gives the same answer anywhere."""

CVC5_LIMIT = 2_000_000
"""The same for cvc5."""


@dataclass(frozen=True)
class Answer:
    """What a solver says of a block: unsat, sat or unknown; z3's resource count for it."""

    result: str
    effort: int = 0


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


def decide(block: str, seed: int = 0) -> Answer:
    """z3's answer to one block, in a context of its own: the count does not depend on the past."""
    import z3

    context = z3.Context()
    solver = z3.SimpleSolver(ctx=context)
    solver.set("rlimit", EFFORT)
    solver.set("random_seed", seed)
    solver.from_string(block)
    found = str(solver.check())
    statistics = solver.statistics()
    counted = "rlimit count" in statistics.keys()  # noqa: SIM118
    return Answer(found, int(statistics.get_key_value("rlimit count")) if counted else 0)


def witness(
    block: str, logic: str, names: Sequence[str], effort: int = EFFORT
) -> tuple[str, dict[str, int]]:
    """z3's answer to a block over numbers; where it is sat, whole values of ``names``.

    Values that are not whole (over the reals) are left out. The limit counts z3's work, so that
    the answer is the same on any machine.
    """
    import z3

    context = z3.Context()
    solver = z3.SolverFor(logic, ctx=context)
    solver.set("rlimit", effort)
    solver.from_string(block)
    found = str(solver.check())
    if found != "sat":
        return found, {}
    model = solver.model()
    values = {d.name(): model[d] for d in model.decls() if d.name() in names}
    return found, {k: v.as_long() for k, v in values.items() if z3.is_int_value(v)}


@dataclass(frozen=True)
class Core:
    """Labels from which a block follows to be unsatisfiable; whether each of them is needed."""

    labels: frozenset[str]
    minimal: bool


def core(block: str, labels: Sequence[str]) -> Core | None:
    """An unsat core of a block whose assertions hold under labels; None if it is none.

    It is tried without each of its labels: minimal if every such deletion is satisfiable.
    """
    import z3

    solver = z3.SimpleSolver(ctx=_context())
    solver.set("rlimit", EFFORT)
    solver.from_string(block)
    flags = {label: z3.Bool(label, _context()) for label in labels}
    if solver.check(*flags.values()) != z3.unsat:
        return None
    kept = [str(flag) for flag in solver.unsat_core()]
    minimal = True
    for label in tuple(kept):
        rest = [other for other in kept if other != label]
        answer = solver.check(*(flags[other] for other in rest))
        kept = rest if answer == z3.unsat else kept
        minimal = minimal and answer in (z3.sat, z3.unsat)
    return Core(frozenset(kept), minimal)


def has_cvc5() -> bool:
    """Whether the second solver is installed (extra ``certify``)."""
    return find_spec("cvc5") is not None


PROVING = ("QF_UF", "QF_LRA")
"""The logics for which cvc5's proofs are complete."""


def decide_again(block: str, logic: str) -> str:
    """cvc5's answer to one block; where its proofs are complete, it checks its own."""
    import cvc5  # type: ignore[import-not-found, unused-ignore]

    manager = cvc5.TermManager()
    solver = cvc5.Solver(manager)
    solver.setOption("rlimit-per", str(CVC5_LIMIT))
    if logic.endswith("NIA"):
        solver.setOption("nl-ext-tplanes", "true")
    if logic in PROVING:
        for option in ("produce-proofs", "check-proofs"):
            solver.setOption(option, "true")
    names = cvc5.SymbolManager(manager)
    parser = cvc5.InputParser(solver, names)
    text = f"(set-logic {logic})\n{block}(check-sat)\n"
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said += str(command.invoke(solver, names))
    if logic in PROVING and said.strip() == "unsat" and not solver.getProof():
        return "unknown"
    return said.strip()
