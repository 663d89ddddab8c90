"""The state of an abstract run in one size class, and the specification next to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from placement_proofs.errors import IllFormed
from placement_proofs.program import Buffer, Expr, Guard, Held, Program
from placement_proofs.program.draws import draws, flag_families
from placement_proofs.program.expr import folded, parse_expr
from placement_proofs.program.rules import sources
from placement_proofs.prove.algebra import (
    ONE,
    ROW,
    ZERO,
    Atoms,
    Count,
    Opaque,
    Poly,
    Size,
    number,
)
from placement_proofs.prove.compare import Comparer
from placement_proofs.prove.forms import (
    Algebra,
    Form,
    Layout,
    Positions,
    Symbol,
    Symbols,
    freeze,
    minus,
    plus,
)

Path: TypeAlias = tuple[int, ...]
Cell: TypeAlias = tuple[Form, Layout]


@dataclass(frozen=True)
class SizeClass:
    """What is known about sizes in one run.

    `sizes` are fixed sizes and lengths, `ones` the axes and loops of size one, `many` those
    of at least two, `bounded` the loops that are unrolled to an exact length.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    ones: frozenset[str] = frozenset()
    many: frozenset[str] = frozenset()
    bounded: Mapping[str, int] = field(default_factory=dict)
    distinct: frozenset[tuple[str, str, str]] = frozenset()
    alias: tuple[tuple[tuple[str, str], str], ...] = ()

    def fixed(self) -> dict[str, int]:
        """All sizes and lengths with a known number."""
        return {**self.sizes, **self.bounded, **dict.fromkeys(self.ones, 1)}


@dataclass(frozen=True)
class Obligation:
    """One comparison of a run: what the ranks have and what they should have."""

    condition: str
    step: Path
    subject: str
    got: Form
    want: Form
    layout: Layout
    holds: bool
    note: str = ""
    dependent: bool = False


class State:
    """Buffers, specification and obligations of one run."""

    def __init__(self, program: Program, symbols: Symbols, size: SizeClass) -> None:
        self.program = program
        self.symbols = symbols
        self.atoms: Atoms = symbols.atoms
        self.size = size
        positions = Positions(size.ones, size.distinct, size.alias)
        self.positions = positions
        self.algebra = Algebra(symbols, positions)
        self.fixed = size.fixed()
        self.compare = Comparer(symbols, positions, self.fixed, frozenset(program.loops))
        self.env: dict[str, Cell] = {}
        self.current: dict[str, Form] = {}
        self.writes: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], Form | None]] = {}
        self.tick = 0
        self.turns: dict[str, str] = {}
        self.ends: dict[str, tuple[bool, bool]] = {}
        self.path: Path = ()
        self.obligations: list[Obligation] = []
        self.counts = {s.family: s.over for s in sources(program.steps) if s.count}
        self.flags = flag_families(program)
        self.drawn = draws(program)
        self.streams = frozenset(drawn.family for drawn in self.drawn.values())
        self.copies = {b.name: b for b in program.buffers}
        self.params = {p.name: p for p in program.params}
        self.order = {axis: i for i, axis in enumerate(program.axes)}
        self.targets: dict[tuple[str, int], Form] = {}
        for param in program.params:
            self.current[param.name] = self.version(param.name, 0)
        for buffer in program.buffers:
            self.env[buffer.name] = self._initial(buffer)

    # --- layouts and values ------------------------------------------------------------

    def layout(self, held: Held) -> Layout:
        """The layout of a declaration, without axes of size one."""
        pairs = sorted(held, key=lambda pair: self.order[pair[0]])
        ones = self.size.ones
        return {a: self.positions.name(a, o) for a, o in pairs if a not in ones}

    def version(self, name: str, tick: int) -> Form:
        """The value of a parameter after that many steps of the specification."""
        return {(self.symbols.id(Symbol("version", name, tick, ())), ()): ONE}

    def _initial(self, buffer: Buffer) -> Cell:
        layout = self.layout(buffer.held)
        if not buffer.of:
            return {}, layout
        true = self.version(buffer.of, 0)
        vary = [axis for axis in buffer.vary if axis not in self.size.ones]
        if not vary:
            return true, layout
        own = self.algebra.opaque("initial", buffer.name, -1, vary)
        gap = minus(true, own)
        for axis in vary:
            gap = self.algebra.at(gap, axis, "first")
        return self.algebra.settle(plus(own, gap), layout), layout

    def cell(self, name: str) -> Cell:
        """Value and layout of a buffer."""
        found = self.env.get(name)
        if found is None:
            raise self.error(
                f"buffer {name!r}, which is not written on this path",
                "a buffer is read only after it was written",
                "write it under the same guards, or declare it",
            )
        return found

    def error(self, found: str, rule: str, remedy: str) -> IllFormed:
        """An `IllFormed` at the current step."""
        place = ".".join(str(i + 1) for i in self.path)
        return IllFormed(f"step {place}", found, rule, remedy)

    def other(self, kind: str, form: Form, axis: str) -> Form:
        """What other elements add when different shards meet; nothing if there is one shard."""
        if not form:
            return {}
        axes = self.algebra.varying(form) - {axis}
        return self.algebra.opaque("other", (kind, axis, freeze(form)), -1, axes)

    def relayout(self, cell: Cell, layout: Layout) -> Form:
        """The same memory, read with other owners of the same axes."""
        form, old = cell
        for axis, owner in layout.items():
            if axis in old and not self._same_owner(axis, old[axis], owner):
                form = plus(form, self.other(f"owner {old[axis]}>{owner}", form, axis))
        return form

    def _same_owner(self, axis: str, left: str, right: str) -> bool:
        return left == right

    def same_layout(self, name: str, old: Layout, new: Layout, rule: str) -> None:
        """Raise `IllFormed` unless two layouts are the same."""
        if old != new:
            raise self.error(
                f"buffer {name!r} of layout {layout_text(old)}"
                f" and a value of layout {layout_text(new)}",
                rule,
                "slice or gather first",
            )

    # --- guards ------------------------------------------------------------------------

    def runs(self, guard: Guard) -> bool:
        """Whether a step runs at all in this size class and turn."""
        for axis, one in guard.sizes:
            if (axis in self.size.ones) != one:
                return False
        for loop, test in guard.turns:
            first, last = self.ends[loop]
            hit = first if test.lstrip("!") == "first" else last
            if hit == test.startswith("!"):
                return False
        return True

    def where(self, guard: Guard, layout: Layout) -> list[tuple[str, str, bool]] | None:
        """The position conditions left for a buffer of that layout; None if none of its
        holders runs the step."""
        left: list[tuple[str, str, bool]] = []
        for axis, text in guard.at:
            negated = text.startswith("!")
            position = self.positions.name(axis, text.removeprefix("!"))
            if axis in self.size.ones or axis in layout:
                holder = layout.get(axis, position)
                if self.positions.same(axis, holder, position) == negated:
                    return None
            else:
                left.append((axis, position, negated))
        return left

    def mask(self, form: Form, where: list[tuple[str, str, bool]]) -> Form:
        """The value on the ranks of the conditions, zero elsewhere."""
        for axis, position, negated in where:
            there = self.algebra.at(form, axis, position)
            form = minus(form, there) if negated else there
        return form

    def seen(self, form: Form, where: list[tuple[str, str, bool]]) -> Form:
        """The value as the ranks of the conditions see it."""
        for axis, position, negated in where:
            if not negated:
                form = self.algebra.take(form, axis, position)
        return form

    def write(self, name: str, form: Form, layout: Layout, guard: Guard) -> None:
        """Store a value on the ranks where the guard holds; the others keep theirs."""
        if not guard.at:
            self.env[name] = (form, layout)
            return
        where = self.where(guard, layout)
        old, old_layout = self.env.get(name, ({}, layout))
        self.same_layout(name, old_layout, layout, "a guarded write keeps the layout")
        if where is None:
            self.env[name] = (old, layout)
        elif not where:
            self.env[name] = (form, layout)
        else:
            kept = minus(old, self.mask(old, where))
            self.env[name] = (plus(self.mask(form, where), kept), layout)

    # --- expressions -------------------------------------------------------------------

    def length(self, name: str) -> Poly:
        """The size of an axis or the length of a loop."""
        if name in self.fixed:
            return number(self.fixed[name])
        return self.atoms.poly(Size(name))

    def expr(self, text: Expr, *, local: bool) -> Poly:
        """The value of an expression, on each rank (`local`) or in the specification."""
        return folded(
            parse_expr(text), number, lambda name: self._named(name, local), self._divided
        )

    def _divided(self, a: Poly, b: Poly) -> Poly:
        if not self.atoms.cleared(b) or self.atoms.bits(b):
            raise self.error(
                "a division by zero or by a flag",
                "a divisor is never zero",
                "divide by a size or a count (of flags: summed over all their ranks)",
            )
        return a * self.atoms.inverse(b)

    def _named(self, name: str, local: bool) -> Poly:
        if name in self.order or name in self.program.loops:
            return self.length(name)
        if local:
            return self.scalar(self.cell(name)[0])
        over = self.counts[name]
        loops = tuple(sorted((a, "*") for a in over if a not in self.order))
        return self.count(name, self.tick, loops, ())

    def count(
        self,
        family: str,
        tick: int,
        turns: tuple[tuple[str, str], ...],
        marks: tuple[tuple[str, str], ...],
    ) -> Poly:
        """A count as a coefficient; summed over bounded loops turn by turn."""
        for loop, turn in turns:
            if turn == "*" and loop in self.size.bounded:
                total = ZERO
                for one in range(self.size.bounded[loop]):
                    rest = tuple((a, f"#{one}" if a == loop else t) for a, t in turns)
                    total = total + self.count(family, tick, rest, marks)
                return total
        if family in self.program.equal:
            return self._equal_count(family, turns, marks)
        return self.atoms.poly(
            Count(family, tick, turns, marks, self._single(family, turns, marks))
        )

    def _single(
        self,
        family: str,
        turns: tuple[tuple[str, str], ...],
        marks: tuple[tuple[str, str], ...],
    ) -> bool:
        """Whether a count is one flag, no sum of several."""
        if family not in self.flags or any(turn == "*" for _, turn in turns):
            return False
        axes = {a for a in self.counts[family] if a in self.order} - self.size.ones
        return axes <= {axis for axis, _ in marks}

    def _equal_count(
        self,
        family: str,
        turns: tuple[tuple[str, str], ...],
        marks: tuple[tuple[str, str], ...],
    ) -> Poly:
        poly = self.atoms.poly(Opaque("value", ("equal", family), ()))
        summed = [a for a in self.counts[family] if a in self.order and a not in dict(marks)]
        for axis in summed + [loop for loop, turn in turns if turn == "*"]:
            poly = poly * self.length(axis)
        return poly

    def scalar(self, form: Form) -> Poly:
        """A scalar value as a coefficient."""
        total = ZERO
        for (symbol, tags), poly in form.items():
            part = self._scalar_term(self.symbols.symbols[symbol], tags)
            if part is None:
                marks = tuple(sorted((axis, ROW) for axis in self.algebra.varying(form)))
                return self.atoms.poly(Opaque("value", freeze(form), marks))
            total = total + part * poly
        return total

    def _scalar_term(self, symbol: Symbol, tags: tuple[tuple[str, str, str], ...]) -> Poly | None:
        if symbol.kind != "count":
            return None
        conditions = {axis: (row, column) for axis, row, column in tags}
        marks: list[tuple[str, str]] = []
        turns: list[tuple[str, str]] = []
        for axis, (row, _) in conditions.items():
            if axis not in symbol.dims or (row and row != "="):
                return None
        for axis in symbol.dims:
            row, column = conditions.get(axis, ("", ""))
            if axis not in self.order:
                turns.append((axis, column or "*"))
            elif row or column:
                marks.append((axis, ROW if row else f"@{column}"))
        marks = [(a, m) for a, m in marks if a not in self.size.ones]
        family = symbol.data
        assert isinstance(family, str)
        return self.count(family, symbol.tick, tuple(sorted(turns)), tuple(sorted(marks)))


def layout_text(layout: Layout) -> str:
    """A layout as people read it."""
    return ", ".join(f"{axis}:{owner}" for axis, owner in layout.items()) or "full"
