"""The adjoint table, for every N, from what layouts mean (semantics page, section 2).

The value of one element is a tuple over the ranks of an axis. All that a linear map that treats
ranks alike can see of a tuple `x` is the part at the element's owner `x_p`, the part at another
rank and the sum over the ranks. A gradient `g` and a value `x` have a pairing:

    I  g*x, counted once       R  sum_i g_i * x        P  g * sum_i x_i
    S  g_p * x_p               V  sum_i g_i * x_i      (every rank has its own element)

A backward B is right for a forward F from layout A to layout T if F(x) is a value of T (the same
on owner and other, where T asks for that), B(g) is a gradient of A, and <g, F(x)> in T =
<B(g), x> in A, for every value x of A and every gradient g of T. These are polynomial identities
in x_p, x_other, sum x, the same of g, and N: one query a row decides them for all N.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from placement_proofs.layout import INVARIANT, PARTIAL, REPLICATED, On, conversion, sharded
from placement_proofs.prove.smt import decide
from placement_proofs.theorems.finding import Finding, Query, Theorem, conclude, reals

COVERS = "every N >= 1, every value and gradient"


@dataclass(frozen=True)
class Row:
    """A forward and its backward between two layouts."""

    source: str
    target: str
    forward: str
    backward: str
    scale: str = "1.0"
    """What the forward multiplies the value by: 1 for all but two."""

    def __str__(self) -> str:
        return f"{self.source}->{self.target} {self.forward}, backward {self.backward}"


ROWS = (
    Row("R", "I", "nothing", "keep at owner"),
    Row("R", "V", "nothing", "nothing"),
    Row("R", "S", "slice", "pad"),
    Row("R", "P", "nothing", "nothing", scale="N"),
    Row("R", "P", "keep at owner", "keep at owner"),
    Row("I", "R", "nothing", "all-reduce"),
    Row("I", "S", "slice", "all-gather"),
    Row("I", "P", "keep at owner", "nothing"),
    Row("S", "R", "all-gather", "reduce-scatter"),
    Row("S", "I", "all-gather", "slice"),
    Row("S", "S", "all-to-all", "all-to-all"),
    Row("V", "P", "nothing", "nothing"),
    Row("S", "P", "pad", "slice"),
    Row("P", "R", "all-reduce", "all-reduce"),
    Row("P", "I", "all-reduce", "nothing"),
    Row("P", "S", "reduce-scatter", "all-gather"),
)
"""The sixteen rows of spmd_types, in its order: DESIGN.md, "Comms by forwards-backwards".

Its V is a shard (S) where a row cuts or joins a tensor, and varying (V) where it does not.
github.com/meta-pytorch/spmd_types, commit 145d126cb030d938d279cb74c9c7ea322ddee65e. Its newer page
docs/local_spmd_types.md (commit 2457b2b804c512e136c3d268b199597ae19beccc) lists twelve of the
rows, and V as the source of reductions.
"""

COMPOSED = (
    Row("I", "V", "nothing", "all-reduce"),
    Row("I", "P", "nothing", "all-reduce", scale="N"),
    Row("V", "R", "all-reduce", "all-reduce"),
    Row("V", "I", "all-reduce", "nothing"),
    Row("V", "S", "reduce-scatter", "all-gather"),
)
"""What its API also has, two of the sixteen in sequence: I->R->V, I->R->P, V->P->R, I and S."""


@dataclass(frozen=True)
class Tuple:
    """A tuple over ranks, as linear maps see it: at the owner, at another rank, and summed."""

    at: str
    other: str
    total: str


def _raw(name: str, on: str, gradient: bool = False) -> Tuple:
    """An arbitrary value (or gradient) of a layout."""
    same = {"I": True, "R": not gradient, "P": gradient, "S": False, "V": False}[on]
    if same:
        return Tuple(name, name, f"(* N {name})")
    return Tuple(name, f"{name}o", f"{name}s")


def _map(kind: str, x: Tuple) -> Tuple:
    match kind:
        case "nothing":
            return x
        case "all-reduce":
            return Tuple(x.total, x.total, f"(* N {x.total})")
        case "all-gather":
            return Tuple(x.at, x.at, f"(* N {x.at})")
        case "reduce-scatter":
            return Tuple(x.total, "0.0", x.total)
        case "slice" | "pad" | "keep at owner" | "all-to-all":
            return Tuple(x.at, "0.0", x.at)
        case "mean":
            return Tuple(f"(/ {x.total} N)", f"(/ {x.total} N)", x.total)
    raise ValueError(kind)


def _pairing(on: str, g: Tuple, x: Tuple, alike: tuple[bool, bool], apart: bool) -> str:
    """<g, x> in a layout; `alike` says of which, gradient or value, all ranks have the same.

    Where neither is the same everywhere, the sum of products is a number of its own: `b` if
    both tuples are arbitrary (`apart`), the owner's product if one is zero elsewhere.
    """
    match on:
        case "I" | "S":
            return f"(* {g.at} {x.at})"
        case "R":
            return f"(* {g.total} {x.at})"
        case "P":
            return f"(* {g.at} {x.total})"
    if any(alike):
        return f"(* {g.at} {x.total})" if alike[0] else f"(* {g.total} {x.at})"
    return "b" if apart else f"(* {g.at} {x.at})"


def _alike(on: str, gradient: bool) -> bool:
    """Whether a layout asks for the same value (or gradient) on every rank."""
    return on == "I" or on == ("P" if gradient else "R")


def _goals(row: Row) -> Iterator[tuple[str, str]]:
    """What a row claims: the layouts of what its two maps give, and that they are adjoint."""
    source, target = row.source, row.target
    x, g = _raw("x", source), _raw("g", target, gradient=True)
    forward, backward = _map(row.forward, x), _map(row.backward, g)
    if _alike(target, gradient=False):
        yield f"the forward gives layout {target}", f"(= {forward.at} {forward.other})"
    if _alike(source, gradient=True):
        yield f"the backward gives a gradient of {source}", f"(= {backward.at} {backward.other})"
    plain = row.forward == "nothing" == row.backward
    left = _pairing(target, g, forward, (g.at == g.other, forward.at == forward.other), plain)
    right = _pairing(source, backward, x, (backward.at == backward.other, x.at == x.other), plain)
    yield "adjoint", f"(= {left} {right})"
    if target != "V":
        means = f"(* {row.scale} {_meaning(source, x)})"
        yield "the forward keeps the value", f"(= {_meaning(target, forward)} {means})"


def _meaning(on: str, x: Tuple) -> str:
    """The value that a tuple stands for: the sum of a partial one, else what the owner has."""
    return x.total if on in ("P", "V") else x.at


ANY = ("(>= N 1.0)",)
TWO = (
    "(= N 2.0)",
    "(= x 3.0)",
    "(= xo 5.0)",
    "(= g 2.0)",
    "(= go 7.0)",
    "(= xs (+ x xo))",
    "(= gs (+ g go))",
    "(= b (+ (* g x) (* go xo)))",
)
"""Two ranks, the owner and another, and numbers for them: enough to refute a row."""


def _row(row: Row, ranks: tuple[str, ...]) -> Query:
    names = reals("N", "x", "xo", "xs", "g", "go", "gs", "b")
    goals = [goal for _, goal in _goals(row)]
    return Query(str(row), "QF_NRA", names, ranks, f"(and true {' '.join(goals)})")


def _queries(rows: tuple[Row, ...], ranks: tuple[str, ...] = ANY) -> Finding:
    return conclude(COVERS, tuple(_row(row, ranks) for row in rows))


def _one(source: str, target: str, forward: str, backward: str) -> Finding:
    """One row at two ranks, and which of its claims fail there."""
    row = Row(source, target, forward, backward)
    found = _queries((row,), TWO)
    names = found.queries[0].declarations
    wrong = [
        what
        for what, goal in _goals(row)
        if decide(Query(what, "QF_NRA", names, TWO, goal).text).result == "sat"
    ]
    return replace(found, evidence=f"{row}: fails at two ranks: {'; '.join(wrong)}")


def _ours() -> tuple[Row, ...]:
    """The rows of the package's own table of conversions."""
    kinds: dict[str, On] = {
        "I": INVARIANT,
        "R": REPLICATED,
        "P": PARTIAL,
        "S": sharded(0),
    }
    rows = []
    for source, left in kinds.items():
        for target, right in kinds.items():
            found = conversion(left, right)
            if found is not None:
                rows.append(Row(source, target, found[0].value, found[1].value))
    return tuple(rows)


def sixteen() -> Finding:
    """The sixteen rows over replicate, invariant, varying (or sharded) and partial."""
    return _queries((*ROWS, *COMPOSED))


def table() -> Finding:
    """The conversions that derivation uses, as they stand in :mod:`placement_proofs.layout`."""
    return _queries(_ours())


WRONG = {
    "the backward of I->R does nothing": ("I", "R", "nothing", "nothing"),
    "the backward of I->R averages": ("I", "R", "nothing", "mean"),
    "the backward of P->I sums again": ("P", "I", "all-reduce", "all-reduce"),
    "the backward of S->R keeps the own slice": ("S", "R", "all-gather", "slice"),
    "the backward of S->I sums and scatters": ("S", "I", "all-gather", "reduce-scatter"),
    "the backward of I->S pads": ("I", "S", "slice", "pad"),
    "the backward of P->R does nothing": ("P", "R", "all-reduce", "nothing"),
    "the backward of R->P does nothing": ("R", "P", "keep at owner", "nothing"),
    "a replicated value counts as pending, for free": ("R", "P", "nothing", "nothing"),
}

ADJOINTS = Theorem(
    "adjoint rows",
    "Each of sixteen forwards over {R, I, V or S, P}, and of five composed of two, and its "
    "backward are adjoint.",
    sixteen,
    {name: partial(_one, *row) for name, row in WRONG.items()},
)

CONVERSIONS = Theorem(
    "adjoint table",
    "Every conversion that derivation inserts, and its backward, are adjoint.",
    table,
    {
        "replicated to invariant, for free": lambda: _one("R", "I", "nothing", "nothing"),
        "partial to replicated, for free": lambda: _one("P", "R", "nothing", "nothing"),
    },
)
