"""Costs that are often quoted: when is ZeRO-3 "8 times less memory at 1.5 times the traffic"?

With 2 bytes for each parameter and gradient and K for the optimizer, data parallel holds 4 + K
bytes for each parameter, ZeRO-3 (4 + K)/N: the ratio is N, whatever K is. ZeRO-2 keeps the
parameters whole: 2 + (2 + K)/N. Traffic, in units of P (N-1)/N: 2 for data parallel (reduce
and gather) and ZeRO-1 and 2, 3 for ZeRO-3.
"""

from __future__ import annotations

from placement_proofs.theorems.finding import Finding, Query, Theorem, conclude, reals

COVERS = "every N >= 1 and K >= 0, model states only"


def _query(name: str, goal: str, *premises: str) -> Query:
    return Query(name, "QF_NRA", reals("N", "K"), ("(>= N 1.0)", "(>= K 0.0)", *premises), goal)


WHOLE = "(+ 4.0 K)"
RIGHT = (
    _query("ZeRO-3 holds 1/N", f"(= (* N (/ {WHOLE} N)) {WHOLE})"),
    _query("8 times less only at N = 8", f"(=> (= {WHOLE} (* 8.0 (/ {WHOLE} N))) (= N 8.0))"),
    _query("8 times less at N = 8", f"(= {WHOLE} (* 8.0 (/ {WHOLE} N)))", "(= N 8.0)"),
    _query("traffic is 3/2", "(= (* 3.0 (/ (- N 1.0) N)) (* 1.5 (* 2.0 (/ (- N 1.0) N))))"),
    _query(
        "ZeRO-2 stays below 8 times less, for K = 12",
        f"(< {WHOLE} (* 8.0 (+ 2.0 (/ (+ 2.0 K) N))))",
        "(= K 12.0)",
    ),
)


def _wrong(goal: str, *premises: str) -> Finding:
    return conclude(COVERS, (_query("as claimed", goal, *premises),))


HEADLINE = Theorem(
    "headline",
    "ZeRO-3 takes 1/N of the memory at 3/2 of the traffic: 8 times less exactly at N = 8.",
    lambda: conclude(COVERS, RIGHT),
    {
        "8 times less memory, also at N = 4": lambda: _wrong(
            f"(= {WHOLE} (* 8.0 (/ {WHOLE} N)))", "(= N 4.0)", "(= K 12.0)"
        ),
        "ZeRO-2 reaches 8 times less at N = 64, for K = 12": lambda: _wrong(
            f"(not (< {WHOLE} (* 8.0 (+ 2.0 (/ (+ 2.0 K) N)))))", "(= K 12.0)", "(= N 64.0)"
        ),
        "8 times less is ZeRO-2's bound for every K": lambda: _wrong(
            f"(< {WHOLE} (* 8.0 (+ 2.0 (/ (+ 2.0 K) N))))", "(= K 16.0)", "(= N 100.0)"
        ),
    },
)
