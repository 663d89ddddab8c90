"""The adjoint table, for every N, from what layouts mean (semantics page, section 2).

The value of one element is a tuple over the ranks of an axis. All that a linear map that treats
ranks alike can see of a tuple `x` is the part at the element's owner `x_p`, the sum over the
ranks, and, where all are equal, the common value. A gradient `g` and a value `x` have a pairing:

    I  g*x, counted once       R  sum_i g_i * x        P  g * sum_i x_i
    S  g_p * x_p               V  sum_i g_i * x_i      (every rank has its own element)

A backward B is right for a forward F from layout A to layout T if B(g) is a gradient of layout A
and <g, F(x)> in T = <B(g), x> in A for every value x of A and every gradient g of T. These are
polynomial identities in x_p, sum x, g_p, sum g and N: one query a row decides it for all N.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from placement_proofs.layout import INVARIANT, PARTIAL, REPLICATED, On, conversion, sharded
from placement_proofs.theorems.finding import Finding, Query, Theorem, conclude, reals

COVERS = "every N >= 1, every value and gradient"


@dataclass(frozen=True)
class Row:
    """A forward and its backward between two layouts."""

    source: str
    target: str
    forward: str
    backward: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target} {self.forward}, backward {self.backward}"


ROWS = (
    Row("S", "S", "all-to-all", "all-to-all"),
    Row("S", "R", "all-gather", "reduce-scatter"),
    Row("S", "I", "all-gather", "slice"),
    Row("P", "R", "all-reduce", "all-reduce"),
    Row("P", "I", "all-reduce", "nothing"),
    Row("P", "S", "reduce-scatter", "all-gather"),
    Row("I", "R", "nothing", "all-reduce"),
    Row("I", "S", "slice", "all-gather"),
    Row("I", "V", "nothing", "all-reduce"),
    Row("I", "P", "keep at owner", "nothing"),
    Row("R", "I", "nothing", "keep at owner"),
    Row("R", "S", "slice", "pad"),
    Row("R", "V", "nothing", "nothing"),
    Row("R", "P", "keep at owner", "keep at owner"),
    Row("V", "P", "nothing", "nothing"),
    Row("S", "P", "pad", "slice"),
)
"""The sixteen rows: those of PyTorch's spmd_types, whose V is here a shard (S) or varying (V)."""


@dataclass(frozen=True)
class Tuple:
    """A tuple over ranks, as linear maps see it: at the owner, summed, and whether all agree."""

    at: str
    total: str
    equal: bool


def _raw(name: str, on: str, gradient: bool = False) -> Tuple:
    """An arbitrary value (or gradient) of a layout."""
    same = {"I": True, "R": not gradient, "P": gradient, "S": False, "V": False}[on]
    total = f"(* N {name})" if same else f"{name}s"
    return Tuple(name, total, same)


def _map(kind: str, x: Tuple) -> Tuple:
    match kind:
        case "nothing":
            return x
        case "all-reduce":
            return Tuple(x.total, f"(* N {x.total})", True)
        case "all-gather" | "broadcast":
            return Tuple(x.at, f"(* N {x.at})", True)
        case "reduce-scatter":
            return Tuple(x.total, x.total, False)
        case "slice" | "pad" | "keep at owner" | "all-to-all":
            return Tuple(x.at, x.at, False)
        case "mean":
            return Tuple(f"(/ {x.total} N)", x.total, True)
    raise ValueError(kind)


def _pairing(on: str, g: Tuple, x: Tuple, apart: bool) -> str | None:
    """<g, x> in a layout; None if they are no gradient and value of it.

    Where neither is the same everywhere, the sum of products is a number of its own: `b` if
    both tuples are arbitrary (`apart`), the owner's product if one is zero elsewhere.
    """
    match on:
        case "I":
            return f"(* {g.at} {x.at})" if g.equal and x.equal else None
        case "R":
            return f"(* {g.total} {x.at})" if x.equal else None
        case "P":
            return f"(* {g.at} {x.total})" if g.equal else None
        case "S":
            return f"(* {g.at} {x.at})"
    if g.equal or x.equal:
        return f"(* {g.at} {x.total})" if g.equal else f"(* {g.total} {x.at})"
    return "b" if apart else f"(* {g.at} {x.at})"


def _row(row: Row, ranks: str) -> Query | str:
    """The query of a row, or why it has none: a layout is not what the row says."""
    source, target = row.source, row.target
    x, g = _raw("x", source), _raw("g", target, gradient=True)
    forward, backward = _map(row.forward, x), _map(row.backward, g)
    plain = row.forward == "nothing" == row.backward
    left, right = _pairing(target, g, forward, plain), _pairing(source, backward, x, plain)
    if left is None:
        return f"{row}: what the forward gives is not of layout {row.target}"
    if right is None:
        return f"{row}: what the backward gives is no gradient of layout {row.source}"
    names = reals("N", "x", "xs", "g", "gs", "b")
    return Query(str(row), "QF_NRA", names, (ranks,), f"(= {left} {right})")


def _queries(rows: tuple[Row, ...], ranks: str = "(>= N 1.0)") -> Finding:
    found = [_row(row, ranks) for row in rows]
    checks = [(text, False) for text in found if isinstance(text, str)]
    return conclude(COVERS, tuple(q for q in found if isinstance(q, Query)), checks)


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
    return _queries(ROWS)


def table() -> Finding:
    """The conversions that derivation uses, as they stand in :mod:`placement_proofs.layout`."""
    return _queries(_ours())


def _one(source: str, target: str, forward: str, backward: str) -> Finding:
    """One row at two ranks, which is enough to refute it."""
    return _queries((Row(source, target, forward, backward),), "(= N 2.0)")


WRONG = {
    "the backward of I->R does nothing": ("I", "R", "nothing", "nothing"),
    "the backward of I->R averages": ("I", "R", "nothing", "mean"),
    "the backward of P->I sums again": ("P", "I", "all-reduce", "all-reduce"),
    "the backward of S->R keeps the own slice": ("S", "R", "all-gather", "slice"),
    "the backward of S->I sums and scatters": ("S", "I", "all-gather", "reduce-scatter"),
    "the backward of I->S pads": ("I", "S", "slice", "pad"),
    "the backward of P->R does nothing": ("P", "R", "all-reduce", "nothing"),
    "the backward of R->P does nothing": ("R", "P", "keep at owner", "nothing"),
}

ADJOINTS = Theorem(
    "adjoint rows",
    "Each of sixteen forwards over {R, I, V or S, P} and its backward are adjoint.",
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
