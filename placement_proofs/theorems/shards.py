"""Shards cover exactly once: for every number of elements n and of ranks N, dividing or not.

Ceil chunks: width w = ceil(n/N), rank i has [i*w, (i+1)*w) below n. Balanced: n = q*N + r, the
first r ranks have q + 1 elements, rank i starts at i*q + min(i, r). Padded: N*w elements, the
last N*w - n of them filler. Element e is divided with remainder, e = i*w + t with 0 <= t < w,
which names its rank; that i < N, and that no other rank has it, are the queries. Products of two
unknowns are ordered by one lemma, u <= v and 0 <= w imply u*w <= v*w, proved first and then used
(for i < N it is all that is used of the products N*w and i*w, which are unknowns there).
"""

from __future__ import annotations

from placement_proofs.theorems.finding import Finding, Query, Theorem, conclude, integers

COVERS = "every n >= 1 and N >= 1, also where N does not divide n"
LOGIC = "QF_NIA"

CHUNKS = ("(>= N 1)", "(>= n 1)", "(>= w 1)", "(>= (* N w) n)", "(< (* N (- w 1)) n)")
"""w is n/N rounded up."""
ELEMENT = ("(<= 0 e)", "(< e n)", "(<= 0 t)", "(< t w)", "(= e (+ (* i w) t))")
WITNESS = ("(= n 5)", "(= N 4)")
"""Where the wrong forms fail."""
BALANCED = ("(>= N 1)", "(>= q 0)", "(<= 0 r)", "(< r N)", "(= n (+ (* q N) r))")


def _monotone(u: str, v: str, w: str) -> str:
    """The lemma on products, for these terms."""
    return f"(=> (and (<= {u} {v}) (>= {w} 0)) (<= (* {u} {w}) (* {v} {w})))"


def _query(name: str, names: str, premises: tuple[str, ...], goal: str) -> Query:
    return Query(name, LOGIC, integers(*names.split()), premises, goal)


def _lemma() -> Query:
    """u*w <= v*w, as a product of two numbers that are not negative."""
    premises = ("(>= d 0)", "(>= w 0)", "(= v (+ u d))")
    return _query("products are monotone", "u v w d", premises, "(<= (* u w) (* v w))")


def _ceil() -> tuple[Query, ...]:
    names = "n N w e i t k s"
    products = ("(>= Nw n)", "(< e n)", "(<= 0 t)", "(= e (+ iw t))", "(>= w 0)")
    below = (*products, "(=> (and (<= N i) (>= w 0)) (<= Nw iw))")
    above = (*CHUNKS, *ELEMENT, _monotone("i", "(- 1)", "w"))
    other = ("(<= 0 s)", "(< s w)", "(= e (+ (* k w) s))")
    twice = (
        *CHUNKS,
        *ELEMENT,
        *other,
        _monotone("(+ i 1)", "k", "w"),
        _monotone("(+ k 1)", "i", "w"),
    )
    return (
        _query("ceil chunks: the element's rank is below N", f"{names} Nw iw", below, "(< i N)"),
        _query("ceil chunks: the element's rank is not negative", names, above, "(<= 0 i)"),
        _query("ceil chunks: no second rank has it", names, twice, "(= i k)"),
    )


def _start(i: str) -> str:
    return f"(+ (* {i} q) (ite (< {i} r) {i} r))"


def _balanced() -> tuple[Query, ...]:
    names = "n N q r e i j t k"
    low = ("(<= 0 t)", "(<= t q)", "(= e (+ (* i (+ q 1)) t))", "(<= 0 e)", "(< e (* r (+ q 1)))")
    low_lemmas = (_monotone("r", "i", "(+ q 1)"), _monotone("i", "(- 1)", "(+ q 1)"))
    high = (
        "(<= 0 t)",
        "(< t q)",
        "(= i (+ r j))",
        "(<= (* r (+ q 1)) e)",
        "(< e n)",
        "(= e (+ (* r (+ q 1)) (* j q) t))",
    )
    high_lemmas = (_monotone("(- N r)", "j", "q"), _monotone("j", "(- 1)", "q"))
    inside = f"(and (<= 0 i) (< i N) (<= {_start('i')} e) (< e {_start('(+ i 1)')}))"
    order = ("(< i k)", "(<= 0 i)", _monotone("(+ i 1)", "k", "q"))
    return (
        _query(
            "balanced: an element of the long shards", names, (*BALANCED, *low, *low_lemmas), inside
        ),
        _query(
            "balanced: an element of the short shards",
            names,
            (*BALANCED, *high, *high_lemmas),
            inside,
        ),
        _query(
            "balanced: shards do not overlap",
            names,
            (*BALANCED, *order),
            f"(<= {_start('(+ i 1)')} {_start('k')})",
        ),
    )


def _padded() -> tuple[Query, ...]:
    names = "n N w e i t"
    filled = ("(<= 0 i)", "(< i N)", "(<= 0 t)", "(< t w)", "(= e (+ (* i w) t))")
    inside = (*CHUNKS, *filled, _monotone("(+ i 1)", "N", "w"), _monotone("0", "i", "w"))
    return (
        _query("padded: every slot is in it", names, inside, "(and (<= 0 e) (< e (* N w)))"),
        _query("padded: less than N fillers", names, CHUNKS, "(< (- (* N w) n) N)"),
    )


def right() -> Finding:
    """Every element has exactly one rank in each of the three splits."""
    return conclude(COVERS, (_lemma(), *_ceil(), *_balanced(), *_padded()))


def _floor() -> Finding:
    floor = ("(= n 3)", "(= N 2)", "(>= w 1)", "(<= (* N w) n)", "(< n (* N (+ w 1)))")
    goal = "(< i N)"
    return conclude(COVERS, (_query("floor chunks", "n N w e i t", (*floor, *ELEMENT), goal),))


def _everyone() -> Finding:
    premises = (*CHUNKS, *WITNESS, "(<= 0 i)", "(< i N)")
    query = _query("the last rank has an element", "n N w i", premises, "(< (* i w) n)")
    return conclude(COVERS, (query,))


def _same_starts() -> Finding:
    premises = (*CHUNKS, *BALANCED, *WITNESS, "(= i 3)")
    goal = f"(= {_start('i')} (* i w))"
    return conclude(COVERS, (_query("same starts", "n N w q r i", premises, goal),))


SHARDS = Theorem(
    "shards",
    "Ceil chunks, balanced and padded splits hold every element exactly once.",
    right,
    {
        "chunks of n/N rounded down hold every element": _floor,
        "with at least N elements every rank has some of the ceil chunks": _everyone,
        "a loader of ceil chunks reads what a balanced saver wrote": _same_starts,
    },
)
