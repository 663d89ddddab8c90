"""The state of an abstract run in one size class, and the specification next to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from placement_proofs.errors import IllFormed
from placement_proofs.program import Buffer, Expr, Guard, Held, Param, Program, Term
from placement_proofs.program_check import sources
from placement_proofs.program_expr import Bin, Name, Num, Tree, parse_expr
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
    times,
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
        self.copies = {b.name: b for b in program.buffers}
        self.params = {p.name: p for p in program.params}
        self.order = {axis: i for i, axis in enumerate(program.axes)}
        self._targets: dict[tuple[str, int], Form] = {}
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
        return self._eval(parse_expr(text), local)

    def _eval(self, tree: Tree, local: bool) -> Poly:
        match tree:
            case Num(value):
                return number(value)
            case Name(name):
                return self._named(name, local)
            case Bin(op, left, right):
                a, b = self._eval(left, local), self._eval(right, local)
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
        if not self.atoms.cleared(b):
            raise self.error(
                "a division by zero", "a divisor is never zero", "divide by a size or a count"
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
            if turn == "*" and loop in self.fixed:
                total = ZERO
                for one in range(min(self.fixed[loop], MAX_TURNS)):
                    rest = tuple((a, f"#{one}" if a == loop else t) for a, t in turns)
                    total = total + self.count(family, tick, rest, marks)
                if self.fixed[loop] <= MAX_TURNS:
                    return total
        if family in self.program.equal:
            return self._equal_count(family, turns, marks)
        return self.atoms.poly(Count(family, tick, turns, marks))

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

    # --- specification -----------------------------------------------------------------

    def family(self, family: str, over: tuple[str, ...]) -> int:
        """The symbol of a family of contributions (or counts) of this step."""
        kind = "count" if family in self.counts else "contribution"
        return self.symbols.id(Symbol(kind, family, self.tick, tuple(sorted(over))))

    def term(self, term: Term) -> Form:
        """A term of a target or contract."""
        over = tuple(axis.lstrip("@") for axis in term.over)
        tags: list[tuple[str, str, str]] = []
        for name in term.over:
            axis = name.lstrip("@")
            if axis == name or axis in self.size.ones:
                continue
            if axis in self.order:
                tags.append((axis, "=", "="))
            else:
                tags.append((axis, "", self.turns[axis]))
        key = (self.family(term.family, over), tuple(sorted(tags)))
        form: Form = times({key: ONE}, self.expr(term.coef, local=False))
        return self.function(term.fn, (form,), {}, False) if term.fn else form

    def plain_target(self, param: Param) -> Form:
        """The gradient of the current step on one device, before clipping."""
        key = (param.name, self.tick)
        if key not in self._targets:
            total: Form = {}
            for term in param.target:
                total = plus(total, self.term(term))
            self._targets[key] = total
        return self._targets[key]

    def target(self, param: Param) -> Form:
        """The gradient of the current step on one device."""
        plain = self.plain_target(param)
        if param.clip is None:
            return plain
        norm: Form = {}
        for member in self.program.params:
            if member.clip == param.clip:
                norm = plus(norm, self.square(self.plain_target(member), {}))
        return times(plain, self.clip_factor(norm))

    def clip_factor(self, norm: Form) -> Poly:
        """The factor that clipping derives from a squared norm."""
        marks = tuple(sorted((axis, ROW) for axis in self.algebra.varying(norm)))
        return self.atoms.poly(Opaque("clip", freeze(norm), marks))

    # --- functions ---------------------------------------------------------------------

    def function(self, fn: str, args: tuple[Form, ...], layout: Layout, whole: bool) -> Form:
        """An uninterpreted function of values of one layout."""
        frames = tuple(self.algebra.own_frame(arg, layout) for arg in args)
        if fn == "square" and (inner := self._rooted(frames)) is not None:
            return self.algebra.settle(inner, layout)
        axes: set[str] = set()
        for frame in frames:
            axes |= self.algebra.varying(frame)
        cut = tuple((a, o) for a, o in layout.items() if not o.startswith("tensor"))
        data = (fn, cut if whole else (), tuple(freeze(frame) for frame in frames))
        return self.algebra.settle(self.algebra.opaque("function", data, -1, axes), layout)

    def _rooted(self, frames: tuple[Form, ...]) -> Form | None:
        """The argument of a square root, if the one frame is just that."""
        if len(frames) != 1 or len(frames[0]) != 1:
            return None
        (((symbol, tags), poly),) = frames[0].items()
        data = self.symbols.symbols[symbol].data
        own = tuple((axis, "=", "=") for axis in self.symbols.symbols[symbol].dims)
        if poly != ONE or tags != own or not isinstance(data, tuple) or data[0] != "sqrt":
            return None
        return dict(data[2][0])

    def square(self, form: Form, layout: Layout) -> Form:
        """The sum of squares of all elements that a rank stores."""
        if not form:
            return {}
        for axis in self.order:
            rows = {_row(tags, axis) for _, tags in form}
            if axis not in layout and rows and not rows & {"", "="}:
                return self._square_by_rank(form, layout, axis, sorted(rows))
        common = set(form.values())
        factor = ONE
        if len(common) == 1 and not self.atoms.marks(next(iter(common))):
            factor = next(iter(common))
            form = dict.fromkeys(form, ONE)
        shards = tuple((a, o) for a, o in layout.items() if o not in ("first", "last"))
        axes = self.algebra.varying(form) | {axis for axis, _ in shards}
        squared = self.algebra.opaque("square", (freeze(form), shards), -1, axes)
        for axis, owner in layout.items():
            if owner in ("first", "last"):
                squared = self.algebra.at(squared, axis, owner)
        return times(squared, factor * factor)

    def _square_by_rank(
        self, form: Form, layout: Layout, axis: str, rows: list[str]
    ) -> Form:
        """Values on different ranks do not meet in a square."""
        for i, left in enumerate(rows):
            for right in rows[:i]:
                self.positions.same(axis, left, right)
        total: Form = {}
        for row in rows:
            part = {key: poly for key, poly in form.items() if _row(key[1], axis) == row}
            inner = self.square(self.algebra.take(part, axis, row), layout)
            total = plus(total, self.algebra.at(inner, axis, row))
        return total


MAX_TURNS = 8
"""Turns up to which a count over a loop of fixed length is written out."""


def _row(tags: tuple[tuple[str, str, str], ...], axis: str) -> str:
    return next((row for name, row, _ in tags if name == axis), "")


def layout_text(layout: Layout) -> str:
    """A layout as people read it."""
    return ", ".join(f"{axis}:{owner}" for axis, owner in layout.items()) or "full"
