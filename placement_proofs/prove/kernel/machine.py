"""All ranks at one point: control flow, the induction over turns, comparisons, degree bounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from placement_proofs.prove.kernel.numbers import (
    Degrees,
    Num,
    Rank,
    Rejected,
    Row,
    Undecided,
    add_degrees,
    each,
    max_degrees,
)

Cert: TypeAlias = Mapping[str, Any]


class Machine:
    """All ranks at one point: sizes, positions of owners, values of counts."""

    def __init__(
        self, cert: Cert, sizes: Mapping[str, int], at: Mapping[str, int], counts: Degrees = ()
    ) -> None:
        self.cert, self.sizes, self.at, self.counts = cert, sizes, at, counts
        self.axes: list[str] = list(cert["axes"])
        self.variables = [*self.axes, *cert["loops"], "counts"]
        self.ranks: list[Rank] = list(itertools.product(*(range(sizes[a]) for a in self.axes)))
        self.rows: dict[str, dict[Rank, Row]] = {}
        self.held: dict[str, dict[str, str]] = {}
        self.turn: dict[str, int] = {}
        self.ticks = self.compared = 0
        self.probing = False
        self.bound = self.inside = self.none = self.degree()
        self.atoms: dict[Hashable, int] = {}
        self.reached: set[str] = set()
        self.values: set[str] = set()
        self.agreed: dict[tuple[int, int], tuple[Row, Row]] = {}

    def degree(self, *names: str) -> Degrees:
        """One for each time that a variable is named."""
        return tuple(names.count(variable) for variable in self.variables)

    def number(self, value: int | Fraction, *names: str) -> Num:
        """A number of that degree."""
        return Num(Fraction(value), self.degree(*names))

    def run(self, steps: list[Any], do: Callable[[Machine, Any], None]) -> None:
        """Run steps in order, those whose guards hold."""
        for step in steps:
            if not self.runs(step):
                continue
            if step["op"] == "loop":
                self._loop(step, do)
            else:
                do(self, step)

    def runs(self, step: Any) -> bool:
        """Whether the guards on sizes and turns hold."""
        turns = (
            (self.turn[loop] == (0 if test.endswith("first") else self.sizes[loop] - 1))
            != test.startswith("!")
            for loop, test in step.get("turns", ())
        )
        return all(turns) and all((self.sizes[a] == 1) == one for a, one in step.get("sizes", ()))

    def _loop(self, step: Any, do: Callable[[Machine, Any], None]) -> None:
        loop = step["loop"]
        for turn in range(self.sizes[loop]):
            self.turn[loop] = turn
            self.run(step["body"], do)
            if turn == 1 and self.sizes[loop] > 3 and not self.probing:
                self._repeats(step, do)
        del self.turn[loop]
        more = self.degree(loop)

        def added(row: Row) -> Row:
            """What no turn has its own part of may have grown by the same in every turn."""
            return {k: n if _mentions(k, "turn", loop) else n.more(more) for k, n in row.items()}

        self.rows = {buf: each(rows, added) for buf, rows in self.rows.items()}

    def _repeats(self, step: Any, do: Callable[[Machine, Any], None]) -> None:
        """The linear part of a middle turn, done twice, is the same as once.

        It is looked at after the first two turns: then every buffer that turns write is there.
        """
        before = (self.rows, self.held, self.ticks)
        self.probing, self.turn[step["loop"]] = True, 2
        one = self.number(1)
        self.rows = {
            buf: {rank: {("unit", buf, rank): one} for rank in rows}
            for buf, rows in self.rows.items()
        }
        found = []
        for _ in range(2):
            self.held = {buf: dict(held) for buf, held in before[1].items()}
            self.run(step["body"], do)
            found.append({buf: _units(rows) for buf, rows in self.rows.items()})
        try:
            for buf, rows in found[1].items():
                for rank, row in rows.items():
                    self.agree(row, found[0].get(buf, {}).get(rank, {}), buf)
        except Rejected:
            raise Undecided(f"the turns of {step['loop']} do not repeat") from None
        (self.rows, self.held, self.ticks), self.probing = before, False

    def agree(self, got: Row, want: Row, what: str) -> None:
        """Two linear forms are equal, key by key; the bounds on their differences are kept."""
        zero = self.number(0)
        for key in got.keys() | want.keys():
            left, right = got.get(key, zero), want.get(key, zero)
            if left.at != right.at:
                raise Rejected(f"{what} at {dict(self.sizes)}")
            both = left + right
            self.bound = max_degrees(self.bound, both.top, *(d for _, d in both.under))

    def compare(self, got: Row, want: Row, what: str) -> None:
        """An obligation: what a rank has is the normal form."""
        if self.probing:
            return
        self.compared += 1
        if (id(got), id(want)) not in self.agreed:
            self.agree(got, want, what)
            self.agreed[id(got), id(want)] = (got, want)
            self.values |= {str(number.at) for number in want.values()}

    def frozen(self, row: Row) -> Hashable:
        """A linear form as an argument of an unknown function: equal at a point, equal there."""
        for number in row.values():
            degrees = max_degrees(number.top, add_degrees(self.none, *(d for _, d in number.under)))
            self.inside = max_degrees(self.inside, degrees)
        return frozenset((key, number.at) for key, number in row.items() if number.at)

    def count(self, atom: Hashable) -> int:
        """The value of a count: 1, and what the point adds."""
        index = self.atoms.setdefault(atom, len(self.atoms))
        return 1 + (self.counts[index] if index < len(self.counts) else 0)

    def degrees(self) -> dict[str, int]:
        """Bounds on the degrees of all differences that were looked at, inner ones too."""
        bound = max_degrees(self.bound, add_degrees(self.inside, self.inside))
        return dict(zip(self.variables, bound, strict=True))


def _mentions(key: object, kind: str, name: object = None) -> bool:
    """Whether the name of an unknown has a part `(kind, name, ...)`; any name, if none is given."""
    if isinstance(key, tuple) and len(key) > 1 and key[0] == kind and isinstance(key[1], str):
        return name in (None, key[1])
    inner = key if isinstance(key, tuple | frozenset) else ()
    return any(_mentions(part, kind, name) for part in inner)


def _units(rows: dict[Rank, Row]) -> dict[Rank, Row]:
    """The part of linear forms that is made of what was there."""
    return {r: {k: n for k, n in row.items() if _mentions(k, "unit")} for r, row in rows.items()}
