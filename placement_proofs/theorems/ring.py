"""The summary lemma of a ring: blocks that pass by, one a turn, give the gathered attention.

In turn k rank i has the block of rank i - k (mod N). It keeps a maximum m, a weight L and an output
O, and merges what a block adds. Write E = e^m (the exponential only enters as this positive
number), S for the sum of e^score and T for that of e^score * value over the blocks seen. The
invariant is L*E = S and O*E = T; merging two states that have it gives one that has it, for any
new maximum; so after N turns, which see every block once, O/L = T/S: attention over all keys.
"""

from __future__ import annotations

from functools import partial

from placement_proofs.theorems.finding import (
    Finding,
    Query,
    Theorem,
    conclude,
    integers,
    reals,
)

COVERS = "every N >= 1, every score and value; exact arithmetic"

TURNS = ("(>= N 1)", "(<= 0 i)", "(< i N)", "(<= 0 k)", "(< k N)", "(<= 0 l)", "(< l N)")


def _block(turn: str) -> str:
    """The block that rank i has in a turn: i - turn, modulo N."""
    return f"(ite (>= i {turn}) (- i {turn}) (+ (- i {turn}) N))"


def _visit(name: str, premises: tuple[str, ...], goal: str) -> Query:
    return Query(name, "QF_LIA", integers("N", "i", "k", "l"), premises, goal)


VISITS = (
    _visit("a turn has a block", TURNS, f"(and (<= 0 {_block('k')}) (< {_block('k')} N))"),
    _visit("no block comes twice", (*TURNS, f"(= {_block('k')} {_block('l')})"), "(= k l)"),
    _visit("every block comes: that of l in turn i - l", TURNS, f"(= {_block(_block('l'))} l)"),
)

_NAMES = reals("E1", "E2", "E", "L1", "L2", "L", "O1", "O2", "O", "S1", "S2", "T1", "T2")
_POSITIVE = ("(> E1 0.0)", "(> E2 0.0)", "(> E 0.0)", "(> S1 0.0)", "(> S2 0.0)")
_INVARIANT = ("(= (* L1 E1) S1)", "(= (* L2 E2) S2)", "(= (* O1 E1) T1)", "(= (* O2 E2) T2)")
_MERGED = ("(= (* L E) (+ (* L1 E1) (* L2 E2)))", "(= (* O E) (+ (* O1 E1) (* O2 E2)))")
_KEPT = "(and (= (* L E) (+ S1 S2)) (= (* O E) (+ T1 T2)))"


def _merge(name: str, merged: tuple[str, ...], *more: str) -> Query:
    premises = (*_POSITIVE, *_INVARIANT, *merged, *more)
    return Query(name, "QF_NRA", _NAMES, premises, _KEPT)


RESULT = Query(
    "the invariant gives the quotient of the sums",
    "QF_NRA",
    reals("E", "L", "q"),
    ("(> E 0.0)", "(> L 0.0)"),
    "(= (* q (* L E)) (* (* q L) E))",
)
"""With S = L*E and T = O*E, and q = O/L, so O = q*L: q*S = T."""


def right() -> Finding:
    """Every block once, and merging keeps the invariant."""
    return conclude(COVERS, (*VISITS, _merge("merging keeps the invariant", _MERGED), RESULT))


def _short() -> Finding:
    """With one turn, the first, two ranks see only their own block."""
    turns = (*TURNS, "(= N 2)", f"(= {_block('k')} l)")
    return conclude(
        COVERS, (_visit("the turn of block l is not the last", turns, "(< k (- N 1))"),)
    )


_WITNESS = ("(= E1 1.0)", "(= E2 2.0)", "(= E 2.0)", "(= L1 1.0)", "(= L2 1.0)", "(= O1 1.0)")


def _wrong_merge(weight: str, output: str) -> Finding:
    merged = (f"(= L {weight})", f"(= O {output})")
    return conclude(COVERS, (_merge("merging", merged, *_WITNESS, "(= O2 1.0)"),))


RING = Theorem(
    "ring",
    "A ring of blocks with a running maximum gives the gathered attention.",
    right,
    {
        "states merge by adding, whatever their maxima": partial(
            _wrong_merge, "(+ L1 L2)", "(+ O1 O2)"
        ),
        "outputs of blocks merge by averaging": partial(
            _wrong_merge, "(+ L1 L2)", "(/ (+ O1 O2) 2.0)"
        ),
        "one turn less than ranks sees every block": _short,
    },
)
