"""What each rank's own value of an expression is to the whole: alike, or a part of a sum.

One mesh axis cuts some labels: a rank runs the same expression over its block of them.

    ALIKE      what a rank has, at the indices it has, is the value of the whole
    PENDING    the sum over the ranks is the value of the whole, and no open label is cut
    HIGHEST    the same with the maximum

A step of an expression gives one of these from those of its parts, by one rule each; where no
rule applies nothing is claimed. Each rule is an induction over the ranks (or over the indices of
a dim that is not cut): the start is an empty sum, and the step is one query, for every N, every
extent and every cut into blocks. That blocks cover a dim once is the theory of shards.
"""

from __future__ import annotations

from collections.abc import Set
from enum import Enum

from placement_proofs.theorems.finding import Query, reals
from placement_proofs.theorems.indexed import (
    Add,
    Const,
    Expr,
    Fn,
    Is,
    Label,
    Leaf,
    Mul,
    Place,
    Reduced,
    Sum,
    Top,
    free,
    plain,
)


class Judgement(Enum):
    """What the values of the ranks are to the value of the whole."""

    ALIKE = "alike"
    PENDING = "pending"
    HIGHEST = "highest"


ALIKE, PENDING, HIGHEST = Judgement
Cut = Set[Label]


def is_cut(label: Label, cut: Cut) -> bool:
    """Whether the dim of a label is cut."""
    return plain(label) in cut


def open_cut(expr: Expr, cut: Cut) -> frozenset[Label]:
    """The labels of an expression that are open and cut."""
    return frozenset(plain(label) for label in free(expr) if is_cut(label, cut))


def judge(expr: Expr, cut: Cut, pending: Set[str] = frozenset()) -> Judgement | None:
    """The judgement that the rules give; `pending` names the tensors that are sums of parts."""
    match expr:
        case Leaf(name):
            return PENDING if name in pending else ALIKE
        case Place() | Const():
            return ALIKE
        case Is(of):
            return ALIKE if judge(of, cut, pending) is ALIKE else None
        case Fn(_, args):
            return ALIKE if all(judge(a, cut, pending) is ALIKE for a in args) else None
        case Mul(parts):
            return _product(parts, cut, pending)
        case Add(parts):
            found = {judge(part, cut, pending) for part in parts}
            return found.pop() if found in ({ALIKE}, {PENDING}) else None
        case Sum(label, body) | Top(label, body):
            return _over(isinstance(expr, Sum), label, body, cut, pending)
        case Reduced(body, top):
            return ALIKE if judge(body, cut, pending) is (HIGHEST if top else PENDING) else None


def _product(parts: tuple[Expr, ...], cut: Cut, pending: Set[str]) -> Judgement | None:
    found = [judge(part, cut, pending) for part in parts]
    if all(j is ALIKE for j in found):
        return ALIKE
    once = found.count(PENDING) == 1 and found.count(ALIKE) == len(found) - 1
    return PENDING if once and not open_cut(Mul(parts), cut) else None


def _over(adds: bool, label: Label, body: Expr, cut: Cut, pending: Set[str]) -> Judgement | None:
    found = judge(body, cut, pending)
    if not is_cut(label, cut):
        return found if found is ALIKE or (found is PENDING and adds) else None
    others = free(body) - {label}
    if found is not ALIKE or any(is_cut(other, cut) for other in others):
        return None
    return PENDING if adds else HIGHEST


# --- soundness ---------------------------------------------------------------------------

_VALUES = "(declare-sort V 0)\n" + "".join(f"(declare-const {n} V)\n" for n in ["a", "b", "x", "y"])
_SUMS = reals("S", "S2", "T", "T2", "U", "U2", "c", "p", "q", "block")
_PLACES = "(declare-sort Place 0)\n(declare-fun F (Place) Real)\n" + "".join(
    f"(declare-const {name} Place)\n" for name in ("start", "end", "next")
)


def _step(name: str, logic: str, premises: tuple[str, ...], goal: str, more: str = "") -> Query:
    return Query(name, logic, more + _SUMS, premises, goal)


ADDED = ("(= T2 (+ T p))",)
"""One more rank: its part is added."""

RULES: tuple[Query, ...] = (
    Query(
        "alike: equal arguments give equal values",
        "QF_UF",
        f"{_VALUES}(declare-fun f (V V) V)\n",
        ("(= a x)", "(= b y)"),
        "(= (f a b) (f x y))",
    ),
    _step(
        "pending: what all ranks have times parts of a sum",
        "QF_NRA",
        (),
        "(= (+ (* c T) (* c p)) (* c (+ T p)))",
    ),
    _step(
        "pending: parts of two sums, added",
        "QF_LRA",
        (*ADDED, "(= U2 (+ U q))", "(= S2 (+ S (+ p q)))", "(= S (+ T U))"),
        "(= S2 (+ T2 U2))",
    ),
    _step(
        "pending: parts summed over a dim that is not cut, one index more",
        "QF_LRA",
        (*ADDED, "(= S2 (+ S p))", "(= S T)"),
        "(= S2 T2)",
    ),
    _step(
        "pending: the sum over a block of a dim that is cut",
        "QF_UFLRA",
        (
            "(= block (- (F end) (F start)))",
            "(= T2 (+ T block))",
            "(= T (F start))",
            "(= next end)",
        ),
        "(= T2 (F next))",
        _PLACES,
    ),
    _step(
        "pending: an own part, and zero for what others have",
        "QF_LIRA",
        (
            "(<= 0 k)",
            "(<= 0 o)",
            "(= T (ite (< o k) c 0.0))",
            "(= T2 (+ T (ite (= o k) c 0.0)))",
        ),
        "(= T2 (ite (< o (+ k 1)) c 0.0))",
        "(declare-const k Int)\n(declare-const o Int)\n",
    ),
    _step(
        "highest: the maximum of a block of a dim that is cut",
        "QF_LRA",
        ("(= T S)", "(= S2 (ite (> block S) block S))", "(= T2 (ite (> block T) block T))"),
        "(= T2 S2)",
    ),
)
"""One query a rule: the step from k ranks (sums S, T, U) to one more (S2, T2, U2).

`F` is the sum over the indices before a place: a block's sum is a difference of two. `o` is the
rank that has the element, `k` the number of ranks seen.
"""

_SHIFT = reals("w", "E", "S", "T", "m", "product")

SHIFTED: tuple[Query, ...] = (
    Query(
        "shifted exponentials: one more word in the sum",
        "QF_NRA",
        _SHIFT,
        ("(> E 0.0)",),
        "(= (* (+ S w) E) (+ (* S E) (* w E)))",
    ),
    Query(
        "shifted exponentials: the share of a word",
        "QF_NRA",
        _SHIFT,
        ("(> E 0.0)",),
        "(= (* w (* S E)) (* (* w E) S))",
    ),
    Query(
        "shifted exponentials: the logarithm",
        "QF_UFNRA",
        f"(declare-fun log (Real) Real)\n{_SHIFT}",
        ("(= product (* S E))", "(= product T)", "(= (log product) (+ (log S) m))"),
        "(= (log T) (+ (log S) m))",
    ),
)
"""With E = exp(m) and w = exp(x - m), so that exp(x) = w E: if the shifted sum S times E is the sum
of exponentials, it is so with one word more; then the shares w/S and w E/(S E) are the same, and,
as log(a E) = log(a) + m, so are the logarithms: the form that ranks compute together is
cross-entropy, and its gradient too; for any m, so that no gradient goes through m."""
