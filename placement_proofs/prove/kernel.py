"""A small checker of the polynomial core, from a certificate alone: standard library only.

A certificate (plain data) has the steps that make a gradient, its target (which is the normal form
that the steps must reach) and degree bounds. For each grid point the kernel runs the steps on
every rank in fractions and compares gradient and target. It derives for each axis how high the
degrees of numerators and denominators can be: as many sizes as that bound asks for make agreement
on the grid agreement at all sizes (cut-off theorem). Loops are run for 1 to 3 turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

SCHEMA = "placement-proofs/certificate/1"
TURNS = (1, 2, 3)
OPS = ("source", "move", "scale", "reduce", "slice", "take", "update", "tick")

Rank: TypeAlias = tuple[int, ...]
Row: TypeAlias = dict[tuple[Any, ...], Fraction]
Degrees: TypeAlias = dict[str, tuple[int, int]]
Sizes: TypeAlias = Mapping[str, int]


class Rejected(Exception):
    """A certificate does not show what it claims; the message says where."""


def value(tree: Any, sizes: Sizes) -> Fraction:
    """An expression: a number, the name of a size, or [operator, left, right]."""
    if isinstance(tree, list):
        left, right = value(tree[1], sizes), value(tree[2], sizes)
        ops = {"+": left + right, "-": left - right, "*": left * right}
        return left / right if tree[0] == "/" else ops[tree[0]]
    return Fraction(sizes[tree]) if isinstance(tree, str) and tree in sizes else Fraction(tree)


def degree(tree: Any, axis: str) -> tuple[int, int]:
    """Bounds on the degrees of numerator and denominator in the size of an axis."""
    if not isinstance(tree, list):
        return (1 if tree == axis else 0), 0
    (a, b), (c, d) = degree(tree[1], axis), degree(tree[2], axis)
    return {"*": (a + c, b + d), "/": (a + d, b + c)}.get(tree[0], (max(a + d, b + c), b + d))


class Machine:
    """All ranks of one mesh, at one placement of the named positions, and the degree bounds."""

    def __init__(self, cert: Mapping[str, Any], sizes: Sizes, at: Mapping[str, int]) -> None:
        self.axes, self.sizes, self.at = list(cert["axes"]), dict(sizes), at
        self.ranks = list(itertools.product(*(range(sizes[a]) for a in self.axes)))
        self.turn: dict[str, int] = {}
        self.ticks = self.mixed = 0
        self.rows: dict[str, dict[Rank, Row]] = {}
        self.degrees: dict[str, Degrees] = {}
        self.bound = dict.fromkeys(self.axes, 0)
        self.checked = 0

    def run(self, steps: list[dict[str, Any]]) -> None:
        """Run steps in order."""
        for step in steps:
            if step["op"] == "loop":
                for turn in range(self.sizes[step["axis"]]):
                    self.turn[step["axis"]] = turn
                    self.run(step["body"])
                del self.turn[step["axis"]]
            elif step["op"] not in OPS:
                raise Rejected(f"there is no step {step['op']}")
            elif self._runs(step):
                getattr(self, f"_{step['op']}")(step)

    def _runs(self, step: dict[str, Any]) -> bool:
        last = {loop: self.sizes[loop] - 1 for loop in self.turn}
        turns = all(
            (self.turn[loop] == (0 if "first" in test else last[loop])) != test.startswith("!")
            for loop, test in step.get("turns", [])
        )
        return turns and all((self.sizes[a] == 1) == one for a, one in step.get("sizes", []))

    def _owner(self, axis: str, name: str) -> int:
        ends = {"first": 0, "last": self.sizes[axis] - 1}
        return ends.get(name, self.at.get(f"{axis}:{name}", 0))

    def _holds(self, rank: Rank, held: Mapping[str, str]) -> bool:
        return all(rank[self.axes.index(a)] == self._owner(a, o) for a, o in held.items())

    def _columns(self, over: list[str]) -> Iterator[Rank]:
        """One index of the family for each way in which it meets the named positions."""
        for axis in over:
            if axis not in self.axes and axis not in self.turn:
                raise Rejected(f"{axis} is no axis and no running loop")
        choices = []
        for axis in (a for a in over if a in self.axes):
            named = {p for key, p in self.at.items() if key.partition(":")[0] == axis}
            named |= {0, self.sizes[axis] - 1}
            rest = [i for i in range(self.sizes[axis]) if i not in named][:1]
            choices.append([*sorted(named), *rest])
        yield from itertools.product(*choices)

    def _source(self, s: dict[str, Any]) -> None:
        mesh = [a for a in s["over"] if a in self.axes]
        turns = (self.ticks, *((a, t) for a, t in sorted(self.turn.items()) if a in s["over"]))
        new: dict[Rank, Row] = {}
        for rank in (r for r in self.ranks if self._holds(r, s["held"])):
            new[rank] = {
                (s["family"], turns, column): value(s["factor"], self.sizes)
                for column in self._columns(s["over"])
                if all(
                    a in s["summed"] or a in s["held"] or rank[self.axes.index(a)] == i
                    for a, i in zip(mesh, column, strict=True)
                )
                and all(
                    a in s["summed"] or a not in s["held"] or i == self._owner(a, s["held"][a])
                    for a, i in zip(mesh, column, strict=True)
                )
            }
        self._store(s, new, {a: degree(s["factor"], a) for a in self.axes})

    def _move(self, s: dict[str, Any]) -> None:
        if s["coef"] == 0:
            if not s["add"]:
                rows = self.rows.get(s["dst"], self.ranks)
                self._put(s["dst"], {rank: {} for rank in rows}, {})
            return
        by = value(s["coef"], self.sizes)
        new = {r: {k: v * by for k, v in row.items()} for r, row in self.rows[s["src"]].items()}
        self._store(s, new, self._scaled(s["src"], s["coef"]))

    def _scale(self, s: dict[str, Any]) -> None:
        self._move({"dst": s["buf"], "src": s["buf"], "coef": s["by"], "add": False})

    def _scaled(self, buf: str, tree: Any) -> Degrees:
        old = self.degrees[buf]
        pairs = {a: (old.get(a, (0, 0)), degree(tree, a)) for a in self.axes}
        return {a: (m + p, n + q) for a, ((m, n), (p, q)) in pairs.items()}

    def _store(self, s: dict[str, Any], new: dict[Rank, Row], degrees: Degrees) -> None:
        old = self.rows.get(s["dst"])
        if s["add"] and old is not None:
            if set(old) != set(new):
                raise Rejected(f"{s['dst']}: shards and whole tensors do not mix")
            was = self.degrees[s["dst"]]
            pairs = {a: (was.get(a, (0, 0)), degrees.get(a, (0, 0))) for a in self.axes}
            degrees = {a: (max(m + q, p + n), n + q) for a, ((m, n), (p, q)) in pairs.items()}
            new = {r: _plus(old[r], row) for r, row in new.items()}
        self._put(s["dst"], new, degrees)

    def _put(self, buf: str, rows: dict[Rank, Row], degrees: Degrees) -> None:
        self.rows[buf], self.degrees[buf] = rows, degrees

    def _reduce(self, s: dict[str, Any]) -> None:
        for axis in s["axes"]:
            k, n = self.axes.index(axis), self.sizes[axis]
            groups: dict[Rank, list[Row]] = {}
            for rank, row in self.rows[s["buf"]].items():
                groups.setdefault((*rank[:k], *rank[k + 1 :]), []).append(row)
            if any(len(group) != n for group in groups.values()):
                self.mixed += 1
                groups = {g: [{("mixed", self.mixed): Fraction(1)}] for g in groups}
            by = Fraction(1, n) if s["mean"] else Fraction(1)
            sums = {g: _plus(*group, by=by) for g, group in groups.items()}
            old = self.degrees[s["buf"]]
            m, d = old.get(axis, (0, 0))
            new = {(*g[:k], i, *g[k:]): row for g, row in sums.items() for i in range(n)}
            self._put(s["buf"], new, {**old, axis: (m + 1, d + int(s["mean"]))})
            if s["to"] is not None:
                self._slice({"buf": s["buf"], "axis": axis, "owner": s["to"]})

    def _slice(self, s: dict[str, Any]) -> None:
        rows = self.rows[s["buf"]]
        held = {s["axis"]: s["owner"]}
        self.rows[s["buf"]] = {r: row for r, row in rows.items() if self._holds(r, held)}

    def _take(self, s: dict[str, Any]) -> None:
        self._slice({"buf": s["buf"], "axis": s["axis"], "owner": s["pos"]})
        k, n = self.axes.index(s["axis"]), self.sizes[s["axis"]]
        kept = self.rows[s["buf"]].items()
        self.rows[s["buf"]] = {(*r[:k], i, *r[k + 1 :]): row for r, row in kept for i in range(n)}

    def _update(self, s: dict[str, Any]) -> None:
        """Compare a gradient with its target on every rank that holds the parameter."""
        want: Row = {}
        for term in s["target"]:
            for key in self._wanted(term):
                want[key] = want.get(key, Fraction(0)) + value(term["coef"], self.sizes)
        rows = {r: v for r, v in self.rows[s["grad"]].items() if self._holds(r, s["held"])}
        if not rows:
            raise Rejected(f"{s['param']} at {self.sizes}: no rank has gradient and parameter")
        for rank, row in rows.items():
            if {k: v for k, v in row.items() if v} != {k: v for k, v in want.items() if v}:
                raise Rejected(f"{s['param']} at {self.sizes}, rank {rank}")
            self.checked += 1
        self._raise_bound(s)

    def _wanted(self, term: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        loops = sorted(a for a in term["over"] if a not in self.axes)
        for turns in itertools.product(*(range(self.sizes[a]) for a in loops)):
            here = (self.ticks, *zip(loops, turns, strict=True))
            mesh = [a for a in term["over"] if a in self.axes]
            yield from ((term["family"], here, column) for column in self._columns(mesh))

    def _tick(self, _: dict[str, Any]) -> None:
        self.ticks += 1

    def _raise_bound(self, s: dict[str, Any]) -> None:
        for axis in self.axes:
            n, d = self.degrees[s["grad"]].get(axis, (0, 0))
            for term in s["target"]:
                p, q = degree(term["coef"], axis)
                self.bound[axis] = max(self.bound[axis], n + q, p + d)


def _plus(*rows: Row, by: Fraction = Fraction(1)) -> Row:
    total: Row = {}
    for row in rows:
        for key, number in row.items():
            total[key] = total.get(key, Fraction(0)) + number * by
    return total


def _grid(cert: Mapping[str, Any], bounds: Mapping[str, int]) -> Iterator[tuple[Sizes, Sizes]]:
    """All sizes up to the bounds, all turns, and the placements of the named positions."""
    names = [*cert["axes"], *cert["loops"]]
    tops = [range(1, bounds[a] + 1) for a in cert["axes"]] + [TURNS] * len(cert["loops"])
    for choice in itertools.product(*tops):
        sizes = dict(zip(names, choice, strict=True))
        named = [(a, o) for a, owners in cert["owners"].items() for o in owners]
        keys = [(f"{a}:{o}", a) for a, o in named if o not in ("first", "last")]
        spots = [sorted({0, min(1, sizes[a] - 1), sizes[a] - 1}) for _, a in keys]
        for spot in itertools.product(*spots):
            yield sizes, dict(zip((k for k, _ in keys), spot, strict=True))


def check(cert: Mapping[str, Any]) -> dict[str, Any]:
    """Check one certificate: its degree bounds, and agreement at every point of the grid.

    Raises:
        Rejected: a coefficient differs, or the certificate has no meaning.
    """
    if cert.get("schema") != SCHEMA:
        raise Rejected(f"the schema is not {SCHEMA}")
    try:
        return _check(cert)
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError) as e:
        raise Rejected(f"the certificate has no meaning: {type(e).__name__} {e}") from None


def _check(cert: Mapping[str, Any]) -> dict[str, Any]:
    start = {**dict.fromkeys(cert["axes"], 2), **dict.fromkeys(cert["loops"], TURNS[-1])}
    first = Machine(cert, start, {})
    first.run(cert["steps"])
    blocks = {a: 2 + len(cert["owners"].get(a, [])) for a in cert["axes"]}
    bounds = {a: first.bound[a] + blocks[a] for a in cert["axes"]}
    if cert["degrees"] != first.bound:
        raise Rejected(f"the degree bounds are {first.bound}, not {cert['degrees']}")
    points = compared = 0
    for sizes, at in _grid(cert, bounds):
        machine = Machine(cert, sizes, at)
        machine.run(cert["steps"])
        if not machine.checked:
            raise Rejected(f"nothing is compared at {sizes}")
        points, compared = points + 1, compared + machine.checked
    return {"points": points, "compared": compared, "sizes": bounds, "turns": list(TURNS)}
