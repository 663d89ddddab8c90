"""State consistency, optimizer class and loop induction as SMT-LIB 2 over uninterpreted functions.

The copies of a parameter are terms, one for each copy and kind of rank (the named positions of
an axis, and any other); an update applies a function symbol to the copy and its gradient. Given
gradient integrity (the coefficients have scripts of their own), every read and every update must
find the specification's term, and all writers must write equal terms. A loop that ticks starts
from an arbitrary state in which the copies that agree at its start agree; they must again at its
end: the induction over steps. There is a script for each way in which the named positions of an
axis coincide (first and last only where there is one rank).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from placement_proofs.program import (
    Apply,
    Axes,
    Buffer,
    Expect,
    Guard,
    Init,
    Loop,
    Move,
    Program,
    Reduce,
    Sample,
    Scale,
    Slice,
    Source,
    Square,
    Step,
    Take,
    Tick,
    Update,
    Use,
)
from placement_proofs.program.expr import is_zero
from placement_proofs.program.rules import ENDS, walk
from placement_proofs.prove.core import Outside, _owners

Rank = tuple[str, ...]
Cells = dict[Rank, str]
Same = dict[tuple[str, str], str]
"""For a position of an axis, the name of the one with which it coincides."""


@dataclass
class Machine:
    """Copies as terms; the goals so far; names of what is unknown."""

    program: Program
    ones: frozenset[str]
    same: Same = field(default_factory=dict)
    cells: dict[str, Cells] = field(default_factory=dict)
    spec: dict[str, str] = field(default_factory=dict)
    goals: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    functions: dict[str, int] = field(default_factory=dict)
    layouts: dict[str, dict[str, str]] = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)
    written: dict[str, list[str]] = field(default_factory=dict)
    ticks: int = 0

    def __post_init__(self) -> None:
        self.places = [self._places(axis) for axis in self.program.axes]
        self.ranks: list[Rank] = list(itertools.product(*self.places))
        for param in self.program.params:
            self.spec[param.name] = self.fresh(f"state_{param.name}")
        for buffer in self.program.buffers:
            self.layouts[buffer.name] = dict(buffer.held)
            if buffer.of:
                self.cells[buffer.name] = {
                    r: self._initial(buffer, r) for r in self.holders(buffer)
                }

    def _places(self, axis: str) -> tuple[str, ...]:
        if axis in self.ones:
            return ("only",)
        names = (self.name(axis, owner) for owner in _owners(self.program, axis))
        return (*dict.fromkeys(names), "other")

    def name(self, axis: str, position: str) -> str:
        """The one name of all positions that coincide with this."""
        return self.same.get((axis, position), position)

    def fresh(self, hint: str) -> str:
        """A new unknown."""
        name = f"{_clean(hint)}_{len(self.unknown)}"
        self.unknown.append(name)
        return name

    def apply(self, function: str, *args: str) -> str:
        """A function of terms."""
        name = _clean(function)
        self.functions[name] = len(args)
        return f"({name} {' '.join(args)})"

    def _initial(self, buffer: Buffer, rank: Rank) -> str:
        vary = [a for a in buffer.vary if a not in self.ones]
        if all(rank[self.program.axes.index(a)] == self.name(a, "first") for a in vary):
            return self.spec[buffer.of]
        return self.fresh(f"initial_{buffer.name}")

    def holds(self, rank: Rank, held: dict[str, str]) -> bool:
        """Whether a rank stores the generic element of a layout."""
        at = dict(zip(self.program.axes, rank, strict=True))
        return all(at[a] in (self.name(a, o), "only") for a, o in held.items())

    def holders(self, buffer: Buffer) -> list[Rank]:
        """The ranks that store it where it is used."""
        return [r for r in self.ranks if self.holds(r, dict(buffer.held))]

    def meets(self, guard: Guard, rank: Rank) -> bool:
        """Whether a rank is at the positions of a guard."""
        at = dict(zip(self.program.axes, rank, strict=True))
        return all(
            (at[a] in (self.name(a, text.removeprefix("!")), "only")) != text.startswith("!")
            for a, text in guard.at
        )

    def active(self, guard: Guard) -> bool:
        """Whether a step runs in this turn and size class."""
        sizes = all((axis in self.ones) == one for axis, one in guard.sizes)
        return sizes and all(self._turn(loop, test) for loop, test in guard.turns)

    def _turn(self, loop: str, test: str) -> bool:
        here = self.turns.get(loop, "middle")
        hit = here in (test.removeprefix("!"), "only")
        return hit != test.startswith("!")


def scripts(program: Program, ones: frozenset[str] = frozenset()) -> Iterator[str]:
    """The blocks of one size class, one for each way in which named positions coincide.

    Raises:
        Outside: a step has no place in them, or nothing is claimed.
    """
    found = (script(program, ones, same) for same in coincidences(program, ones))
    yield from dict.fromkeys(found)


def script(program: Program, ones: frozenset[str] = frozenset(), same: Same | None = None) -> str:
    """One block: unsat if states agree and updates see what they need.

    Raises:
        Outside: a step has no place in it, or nothing is claimed.
    """
    if program.owners or any(p.late for p in program.params):
        raise Outside("owners with digits, or declared staleness")
    machine = Machine(program, ones, same or {})
    _run(machine, program.steps)
    if not machine.goals:
        raise Outside("no copies")
    return _text(machine)


def coincidences(program: Program, ones: frozenset[str]) -> Iterator[Same]:
    """Every way in which the named positions of each axis of several ranks are the same."""
    axes = [axis for axis in program.axes if axis not in ones]
    ways = [list(_partitions(axis, _owners(program, axis))) for axis in axes]
    for choice in itertools.product(*ways):
        yield {key: name for same in choice for key, name in same.items()}


def _partitions(axis: str, names: list[str]) -> Iterator[Same]:
    """Each name alone or with one before it; first and last are apart."""
    if not names:
        yield {}
        return
    *before, name = sorted(names, key=lambda n: (n not in ENDS, n))
    for same in _partitions(axis, before):
        yield same
        if name not in ENDS:
            alone = [other for other in before if (axis, other) not in same]
            yield from ({**same, (axis, name): other} for other in alone)


def _text(machine: Machine) -> str:
    lines = ["(declare-sort Value 0)"]
    lines += [f"(declare-const {name} Value)" for name in machine.unknown]
    lines += [
        f"(declare-fun {name} ({' '.join(['Value'] * count)}) Value)"
        for name, count in sorted(machine.functions.items())
    ]
    goals = [f"(= {left} {right})" for left, right in dict.fromkeys(machine.goals)]
    lines.append(f"(assert (not (and true {' '.join(goals)})))")
    return "\n".join(lines) + "\n"


def _run(m: Machine, steps: tuple[Step, ...]) -> None:
    for step in steps:
        if m.active(step.g):
            _step(m, step)


def _step(m: Machine, step: Step) -> None:
    match step:
        case Loop():
            _loop(m, step)
        case Use(within=0):
            _read(m, step.buf, step.g)
        case Use():
            raise Outside("a bounded staleness")
        case Source(dst=dst, held=held, add=add):
            if not add or dst not in m.layouts:
                m.layouts[dst] = dict(held)
            if dst in m.cells:
                raise Outside("a copy is overwritten by contributions")
        case Update():
            _update(m, step)
        case Tick():
            _tick(m)
        case Move():
            _move(m, step)
        case Take() | Slice() | Reduce():
            _transfer(m, step)
        case Scale(buf=buf, by=by) if buf in m.cells:
            m.cells[buf] = {r: m.apply(f"scale {by}", t) for r, t in m.cells[buf].items()}
        case Init(dst=dst) | Apply(dst=dst) | Sample(dst=dst) | Square(dst=dst):
            if dst in m.cells:
                raise Outside("a copy is overwritten by a draw or a function")
            args = step.args if isinstance(step, Apply) else ()
            m.layouts[dst] = dict(m.layouts.get(args[0], {})) if args else {}
        case Expect():
            _expect(m, step)


def _read(m: Machine, name: str, guard: Guard) -> None:
    """What is read must be the specification's state on every rank that should have it."""
    buffer = next(b for b in m.program.buffers if b.name == name)
    for rank in m.holders(buffer):
        if m.meets(guard, rank):
            m.goals.append((m.cells[name].get(rank) or m.fresh("absent"), m.spec[buffer.of]))


def _update(m: Machine, step: Update) -> None:
    _read(m, step.buf, step.g)
    buffer = next(b for b in m.program.buffers if b.name == step.buf)
    param = m.program.param(buffer.of)
    held = m.layouts.get(step.grad, {})
    function = f"update {param.name} {' '.join(param.hyper)}"
    used = function if step.hyper is None else f"update {param.name} {' '.join(step.hyper)}"
    cut = {a for a in {**dict(buffer.held), **held} if a not in m.ones}
    if param.update == "whole" and any(_shards(m, buffer, held, axis) for axis in cut):
        used += " of a shard"
    target = _target(m, param.name)
    for rank, old in list(m.cells[step.buf].items()):
        if m.meets(step.g, rank) and m.holds(rank, held):
            new = m.apply(used, old, target)
            m.goals.append((new, m.apply(function, old, target)))
            m.cells[step.buf][rank] = new
            m.written.setdefault(param.name, []).append(new)


def _shards(m: Machine, buffer: Buffer, held: dict[str, str], axis: str) -> bool:
    owner = {**dict(buffer.held), **held}[axis]
    return owner not in ("first", "last") and not owner.startswith("tensor")


def _target(m: Machine, name: str) -> str:
    """The gradient that the specification has at its present state."""
    return m.apply(f"target {name} {m.ticks}", m.spec[name])


def _tick(m: Machine) -> None:
    for param in m.program.params:
        if param.target:
            m.goals += list(itertools.pairwise(m.written.get(param.name, [])))
            function = f"update {param.name} {' '.join(param.hyper)}"
            m.spec[param.name] = m.apply(function, m.spec[param.name], _target(m, param.name))
    m.written.clear()
    m.ticks += 1


def _move(m: Machine, step: Move) -> None:
    if step.src in m.layouts:
        m.layouts[step.dst] = dict(m.layouts[step.src])
    if step.src not in m.cells or is_zero(step.coef):
        if step.dst in m.cells:
            raise Outside("a copy is overwritten by another value")
        return
    old = m.cells.get(step.dst, {})
    new = dict(m.cells[step.src])
    if step.coef != "1":
        new = {r: m.apply(f"times {step.coef}", t) for r, t in new.items()}
    if step.add:
        new = {r: m.apply("plus", old.get(r) or m.fresh("absent"), t) for r, t in new.items()}
    guarded = {r: (t if m.meets(step.g, r) else old.get(r, t)) for r, t in new.items()}
    m.cells[step.dst] = guarded


def _transfer(m: Machine, step: Take | Slice | Reduce) -> None:
    layout = m.layouts.setdefault(step.buf, {})
    copied = m.cells.get(step.buf)
    match step:
        case Reduce(axes=axes, to=to, mean=mean):
            if copied is not None:
                m.cells[step.buf] = _averaged(m, copied, axes, mean and not step.g.at)
            if to is not None:
                layout.update(dict.fromkeys(axes, to))
        case Slice(axis=axis, owner=owner):
            layout[axis] = owner
            if copied is not None:
                m.cells[step.buf] = {r: t for r, t in copied.items() if m.holds(r, {axis: owner})}
        case Take(axis=axis, pos=pos):
            layout.pop(axis, None)
            if copied is not None and axis not in m.ones:
                m.cells[step.buf] = _taken(m, copied, axis, pos, step.g)


def _averaged(m: Machine, cells: Cells, axes: Axes, mean: bool) -> Cells:
    """A mean of copies that all hold the same term is that term.

    Raises:
        Outside: they hold different ones, or are summed.
    """
    along = {m.program.axes.index(axis) for axis in axes}
    groups: dict[Rank, set[str]] = {}
    for rank, term in cells.items():
        rest = tuple(p for k, p in enumerate(rank) if k not in along)
        groups.setdefault(rest, set()).add(term)
    if not mean or set(cells) != set(m.ranks) or any(len(terms) > 1 for terms in groups.values()):
        raise Outside("copies that differ are averaged")
    return cells


def _taken(m: Machine, cells: Cells, axis: str, pos: str, guard: Guard) -> Cells:
    k = m.program.axes.index(axis)
    found: Cells = {}
    for rank in m.ranks:
        source = (*rank[:k], m.name(axis, pos), *rank[k + 1 :])
        if not m.meets(guard, rank) and rank in cells:
            found[rank] = cells[rank]
        elif source in cells:
            found[rank] = cells[source]
    return found


def _expect(m: Machine, step: Expect) -> None:
    cells = m.cells.get(step.buf)
    if cells is None or step.kind in ("is", "drawn"):
        return
    if step.kind == "same":
        other = m.cells.get(step.other, {})
        m.goals += [(t, other[r]) for r, t in cells.items() if r in other]
    elif set(step.axes or m.program.axes) == set(m.program.axes):
        m.goals += list(itertools.pairwise(cells.values()))


def _loop(m: Machine, step: Loop) -> None:
    if not any(isinstance(inner, Tick) for inner in walk(step.body)):
        for turn in ("first", "middle", "last"):
            m.turns[step.axis] = turn
            _run(m, step.body)
        m.turns.pop(step.axis)
        return
    _induction(m, step)


def _induction(m: Machine, step: Loop) -> None:
    """Copies that are the state at the start and again at the end are so at every step."""
    if any(test.endswith("last") for inner in walk(step.body) for _, test in inner.g.turns):
        raise Outside("the last step differs")
    before = dict(m.cells)
    kept = {(b, r) for b, cells in before.items() for r, t in cells.items() if t in _specs(m)}
    goals, unknown = list(m.goals), list(m.unknown)
    while True:
        m.goals, m.unknown, m.cells = list(goals), list(unknown), dict(before)
        m.turns[step.axis] = "middle"
        _arbitrary(m, kept)
        _run(m, step.body)
        held = {(b, r) for b, r in kept if m.cells.get(b, {}).get(r) in _specs(m)}
        if held == kept:
            break
        kept = held
    m.turns.pop(step.axis)


def _arbitrary(m: Machine, kept: set[tuple[str, Rank]]) -> None:
    """Forget everything but which copies agree with the state."""
    m.spec = {name: m.fresh(f"step_{name}") for name in m.spec}
    of: dict[str, str] = {b.name: b.of for b in m.program.buffers}
    m.cells = {
        b: {r: m.spec[of[b]] if (b, r) in kept else m.fresh(f"other_{b}") for r in cells}
        for b, cells in m.cells.items()
        if b in of
    }


def _specs(m: Machine) -> set[str]:
    return set(m.spec.values())


def _clean(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text.strip())
