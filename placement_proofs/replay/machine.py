"""The state of a replay: what every rank stores, and what one device would do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from placement_proofs.errors import IllFormed
from placement_proofs.program import Axes, Buffer, Expr, Guard, Held, Param, Program, Term, Update
from placement_proofs.program.draws import draws
from placement_proofs.program.expr import names_of, parse_expr
from placement_proofs.program.rules import sources, walk
from placement_proofs.replay.numbers import evaluate, exact
from placement_proofs.replay.result import Mismatch, Path, Replay, step_name
from placement_proofs.replay.world import Element, Number, Rank, World

Cells: TypeAlias = dict[Element, Number]


@dataclass
class Cell:
    """A buffer: its layout, and per rank the elements that the rank stores."""

    held: Held
    data: dict[Rank, Cells]


Watch: TypeAlias = Callable[["Machine", str], None]
"""Is shown the machine `"before"` and `"after"` every step that runs, at its path."""


class Stop(Exception):
    """Ends a replay at its first mismatch."""


class Machine:
    """Runs one program on one mesh; `turns`, `tick` and `path` are where it is."""

    def __init__(
        self, program: Program, world: World, stop: bool, watch: Watch | None = None
    ) -> None:
        self.program = program
        self.world = world
        self.stop = stop
        self.watch = watch
        self.result = Replay(dict(world.sizes))
        self.turns: dict[str, int] = {}
        self.tick = 0
        self.path: Path = ()
        self.env: dict[str, Cell] = {}
        self.drawn = draws(program)
        self.streams = frozenset(drawn.family for drawn in self.drawn.values())
        self.past: list[dict[tuple[str, Element], Number]] = []
        self.copies = {b.name: b for b in program.buffers}
        self.counts = {s.family: s.over for s in sources(program.steps) if s.count}
        self.writes: dict[str, dict[Element, dict[tuple[str, Rank], Number]]] = {}
        self.current = {
            (p.name, e): world.free(("w", p.name, e))
            for p in program.params
            for e in world.elements
        }
        self.targets: dict[str, Cells] = {}
        self.constants: dict[str, Number] = {}
        self.grad_of = grad_params(program)
        for buffer in program.buffers:
            self.env[buffer.name] = self.initial(buffer)

    def seen(self, when: str) -> None:
        """Show the machine to the one who watches."""
        if self.watch is not None:
            self.watch(self, when)

    # --- state -----------------------------------------------------------------------

    def initial(self, buffer: Buffer) -> Cell:
        """A copy at the start: the true value, except where copies are said to differ."""

        def value(rank: Rank, element: Element) -> Number:
            if not buffer.of:
                return 0
            key = tuple(rank[self.world.index[axis]] for axis in buffer.vary)
            if any(key):
                return self.world.free(("init", buffer.name, element, key))
            return self.current[buffer.of, element]

        return self.filled(ordered(self.world, buffer.held), value)

    def cell(self, name: str) -> Cell:
        """A buffer that has been written; raises `IllFormed` if it has not."""
        found = self.env.get(name)
        if found is None:
            raise IllFormed(
                f"step {step_name(self.path)}",
                f"buffer {name!r}, which is not written on this path",
                "a buffer is read only after it was written",
                "write it under the same guards, or declare it",
            )
        return found

    def filled(self, held: Held, value: Callable[[Rank, Element], Number]) -> Cell:
        """A buffer with a value for every rank and element that it stores."""
        world = self.world
        return Cell(
            held,
            {
                rank: {e: value(rank, e) for e in world.elements if world.stores(rank, held, e)}
                for rank in world.ranks
            },
        )

    def runs(self, guard: Guard, rank: Rank, element: Element) -> bool:
        """Whether a rank runs a step, for an element."""
        for axis, position in guard.at:
            negated = position.startswith("!")
            if self.world.at(rank, axis, position.removeprefix("!"), element) == negated:
                return False
        return True

    def open(self, guard: Guard) -> bool:
        """Whether a step runs at all in this turn and on this mesh."""
        for axis, one in guard.sizes:
            if (self.world.sizes[axis] == 1) != one:
                return False
        return all(self.turn(loop, test) for loop, test in guard.turns)

    def turn(self, loop: str, test: str) -> bool:
        """Whether a test of the current turn holds."""
        last = self.world.sizes[loop] - 1
        hit = self.turns[loop] == (0 if test.lstrip("!") == "first" else last)
        return hit != test.startswith("!")

    def write(self, name: str, new: Cell, guard: Guard) -> None:
        """Store a new value on the ranks where the guard holds; the others keep theirs."""
        if not guard.at:
            self.env[name] = new
            return
        old = self.env.get(name)
        if old is None:
            old = self.filled(new.held, lambda rank, element: 0)
        self.same_layout(name, old.held, new.held, "a guarded write keeps the layout")
        for rank, cells in new.data.items():
            for element in cells:
                if not self.runs(guard, rank, element):
                    new.data[rank][element] = old.data[rank][element]
        self.env[name] = new

    def same_layout(self, name: str, old: Held, new: Held, rule: str) -> None:
        """Raise `IllFormed` unless two layouts are the same."""
        if dict(old) != dict(new):
            raise IllFormed(
                f"step {step_name(self.path)}",
                f"buffer {name!r} of layout {layout_text(old)}"
                f" and a value of layout {layout_text(new)}",
                rule,
                "slice or gather first",
            )

    def number(self, text: Expr, rank: Rank, element: Element) -> Number:
        """The value of an expression on a rank."""
        found = self.constants.get(text)
        if found is not None:
            return found
        sizes = self.world.sizes

        def look(name: str) -> Number:
            return sizes[name] if name in sizes else self.cell(name).data[rank][element]

        tree = parse_expr(text)
        value = evaluate(tree, look, self.path)
        if all(name in sizes for name in names_of(tree)):
            self.constants[text] = value
        return value

    # --- the specification -----------------------------------------------------------

    def indices(self, over: Axes, rank: Rank) -> Iterator[tuple[tuple[str, int], ...]]:
        """All index tuples of a family, in a canonical order; `@axis` is the rank's own."""
        own: dict[str, int] = {}
        free: list[str] = []
        for name in over:
            axis = name.lstrip("@")
            if axis == name:
                free.append(axis)
            elif axis in self.world.index:
                own[axis] = rank[self.world.index[axis]]
            else:
                own[axis] = self.turns.get(axis, 0)
        for values in itertools.product(*(range(self.world.sizes[axis]) for axis in free)):
            yield tuple(sorted({**own, **dict(zip(free, values, strict=True))}.items()))

    def contribution(
        self, family: str, element: Element, index: tuple[tuple[str, int], ...]
    ) -> Number:
        """The value of one member of a family, in this step of the specification."""
        if family in self.counts:
            return self.world.count(family, (self.tick, index))
        if family in self.streams:
            index = tuple((axis, i) for axis, i in index if self.world.sizes[axis] > 1)
        return self.world.free((family, self.tick, element, index))

    def total(self, family: str) -> Number:
        """A count over all its indices."""
        over = self.counts[family]
        rank = self.world.ranks[0]
        indices = self.indices(over, rank)
        return sum((self.contribution(family, (), i) for i in indices), start=0)

    def term(self, term: Term, rank: Rank, element: Element) -> Number:
        """A term of a target or contract, as a rank sees it."""

        def look(name: str) -> Number:
            return self.total(name) if name in self.counts else self.world.sizes[name]

        members = [self.weighted(term, element, i) for i in self.indices(term.over, rank)]
        if term.fn == "max":
            return max(members)
        total = sum(members, start=0)
        value = exact(evaluate(parse_expr(term.coef), look, self.path) * total)
        more = tuple(self.term(other, rank, element) for other in term.more)
        return self.world.function(term.fn, (value, *more)) if term.fn else value

    def weighted(self, term: Term, element: Element, index: tuple[tuple[str, int], ...]) -> Number:
        """A member of a term's family times its own weights."""
        value = self.contribution(term.family, element, index)
        for name in term.weights:
            value *= self.contribution(name, element, index)
        return value

    def plain_target(self, param: Param) -> Cells:
        """The gradient of the current step on one device, before clipping."""
        if param.name not in self.targets:
            rank, now = self.world.ranks[0], self.tick
            self.tick = now - param.late
            terms = param.target if self.tick >= 0 else ()
            self.targets[param.name] = {
                e: exact(sum((self.term(t, rank, e) for t in terms), start=0))
                for e in self.world.elements
            }
            self.tick = now
        return self.targets[param.name]

    def target(self, param: Param, element: Element) -> Number:
        """The gradient of the current step on one device."""
        value = self.plain_target(param)[element]
        if param.clip is None:
            return value
        group = [p for p in self.program.params if p.clip == param.clip]
        norm = sum((v * v for p in group for v in self.plain_target(p).values()), start=0)
        return exact(value * self.world.function("clip", (exact(norm),)))

    def advance(self) -> None:
        """The specification completes its step."""
        self.past.insert(0, dict(self.current))
        for param in self.program.params:
            if param.target:
                self.advance_param(param)
        self.tick += 1
        self.targets.clear()
        self.writes.clear()

    def advance_param(self, param: Param) -> None:
        """A new version: what all writers agree on, else what one device computes."""
        written = self.writes.get(param.name, {})
        true: Cells = {}
        for element in self.world.elements:
            values = written.get(element, {})
            distinct = set(values.values())
            if len(distinct) == 1:
                true[element] = distinct.pop()
                continue
            true[element] = self.true_update(param, element)
            if values:
                (_, rank), got = next(
                    item for item in values.items() if item[1] != next(iter(values.values()))
                )
                first = next(iter(values.values()))
                self.fail(
                    "state_consistency",
                    rank,
                    element,
                    first,
                    got,
                    param.name,
                    "copies were updated to different values",
                )
        self.count("state_consistency")
        for element, value in true.items():
            self.current[param.name, element] = value

    def true_update(self, param: Param, element: Element) -> Number:
        """The update of one device."""
        mates = self.mates(element) if param.update == "whole" else [element]
        pairs = tuple((e, self.current[param.name, e], self.target(param, e)) for e in mates)
        return self.updated(param, param.hyper, pairs, element)

    def updated(
        self,
        param: Param,
        hyper: tuple[str, ...],
        pairs: tuple[tuple[Element, Number, Number], ...],
        element: Element,
    ) -> Number:
        """The result of an update: a free value per arguments."""
        return self.world.free(("update", param.name, hyper, pairs, element))

    def mates(self, element: Element) -> list[Element]:
        """The elements of the same tensor: alike in the owners of whole tensors."""
        keep = [i for (_, name), i in self.world.owner.items() if name.startswith("tensor")]
        return [e for e in self.world.elements if all(e[i] == element[i] for i in keep)]

    # --- bookkeeping -----------------------------------------------------------------

    def count(self, condition: str) -> None:
        """Count an obligation."""
        self.result.obligations[condition] = self.result.obligations.get(condition, 0) + 1

    def fail(
        self,
        condition: str,
        rank: Rank,
        element: Element,
        expected: Number | None,
        got: Number | None,
        subject: str,
        note: str = "",
        dependent: bool = False,
        terms: tuple[Term, ...] = (),
    ) -> None:
        """Record a mismatch."""
        shown = tuple(
            (_show(t.family, i), self.contribution(t.family, element, i))
            for t in terms
            for i in self.indices(t.over, rank)
        )
        turns = tuple(self.turns.items())
        self.result.mismatches.append(
            Mismatch(
                condition,
                self.path,
                rank,
                element,
                turns,
                self.tick,
                expected,
                got,
                subject,
                note,
                dependent,
                shown[:64],
            )
        )
        if self.stop:
            raise Stop


def grad_params(program: Program) -> dict[str, str]:
    """The parameter of each gradient buffer that an update reads."""
    of = {b.name: b.of for b in program.buffers}
    return {s.grad: of[s.buf] for s in walk(program.steps) if isinstance(s, Update)}


def ordered(world: World, held: Held) -> Held:
    """A layout in the order of the axes; an axis of one rank cuts nothing."""
    cut = (pair for pair in held if world.sizes[pair[0]] > 1)
    return tuple(sorted(cut, key=lambda pair: world.index[pair[0]]))


def layout_text(held: Held) -> str:
    """A layout as people read it."""
    return ", ".join(f"{axis}:{owner}" for axis, owner in held) or "full"


def _show(family: str, index: tuple[tuple[str, int], ...]) -> str:
    return f"{family}[{', '.join(f'{axis}={i}' for axis, i in index)}]"


def fit(machine: Machine, name: str, cell: Cell, held: Held) -> Cell:
    """The same memory read under another owner of the same axes."""
    axes = [axis for axis, _ in held]
    if axes != [axis for axis, _ in cell.held]:
        machine.same_layout(name, held, cell.held, "shards and full tensors do not mix")
    data: dict[Rank, Cells] = {}
    for rank in machine.world.ranks:
        data[rank] = {
            e: _slot_value(machine, cell, rank, e, held)
            for e in machine.world.elements
            if machine.world.stores(rank, held, e)
        }
    return Cell(held, data)


def _slot_value(machine: Machine, cell: Cell, rank: Rank, element: Element, held: Held) -> Number:
    where: Element | None = element
    for (axis, old), (_, new) in zip(cell.held, held, strict=True):
        if where is not None:
            where = machine.world.swap(where, rank, axis, old, new)
    return 0 if where is None else cell.data[rank].get(where, 0)
