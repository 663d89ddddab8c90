"""Exact replay of an element program on a concrete mesh, with the standard library only.

It shares nothing with the prover but the program. Every rank is run, every element, every
turn, in integers and fractions; what one device would do is computed next to it, and each
obligation is compared on the spot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from placement_proofs.errors import IllFormed
from placement_proofs.program import (
    Apply,
    Axes,
    Buffer,
    Clip,
    Expect,
    Expr,
    Guard,
    Held,
    Init,
    Loop,
    Move,
    Param,
    Program,
    Reduce,
    Scale,
    Slice,
    Source,
    Square,
    Step,
    Take,
    Term,
    Tick,
    Update,
    Use,
)
from placement_proofs.program_check import sources
from placement_proofs.program_expr import Bin, Name, Num, Tree, is_zero, parse_expr
from placement_proofs.replay_world import Element, Number, Rank, World

Path = tuple[int, ...]
Cells = dict[Element, Number]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One obligation that failed on one rank, for one element.

    `step` is the path of the step in the program (indices from 0, one a loop level);
    `turns` the turns of the open loops, from 0. `dependent` marks a norm that is wrong only
    because the gradients already are.
    """

    condition: str
    step: Path
    rank: Rank
    element: Element
    turns: tuple[tuple[str, int], ...]
    tick: int
    expected: Number | None
    got: Number | None
    subject: str
    note: str = ""
    dependent: bool = False
    contributions: tuple[tuple[str, Number], ...] = ()


@dataclass
class Replay:
    """Outcome of a replay: all mismatches in order, and the number of obligations met."""

    sizes: dict[str, int]
    mismatches: list[Mismatch] = field(default_factory=list)
    obligations: dict[str, int] = field(default_factory=dict)

    def failed(self, condition: str) -> Mismatch | None:
        """The first mismatch of a condition."""
        return next((m for m in self.mismatches if m.condition == condition), None)


@dataclass
class _Cell:
    held: Held
    data: dict[Rank, Cells]


def work(program: Program, sizes: Mapping[str, int]) -> int:
    """Rank-element pairs of a replay, the measure of its cost."""
    from placement_proofs.replay_world import owner_pairs

    pairs = [axis for axis, _ in owner_pairs(program)]
    turns = math.prod(sizes[loop] for loop in program.loops)
    return math.prod(sizes[axis] for axis in (*program.axes, *pairs)) * turns


def replay(
    program: Program, sizes: Mapping[str, int], seed: int | None = None, *, stop: bool = False
) -> Replay:
    """Run a program on a mesh of the given sizes (all axes and loops).

    `seed=None` uses small primes as free values, else large random integers. With `stop`
    the run ends at the first mismatch. Raises `IllFormed` if a step has no meaning there.
    """
    machine = _Machine(program, World(program, sizes, seed), stop)
    try:
        machine.run(program.steps, ())
    except _Stop:
        pass
    return machine.result


class _Stop(Exception):
    pass


class _Machine:
    def __init__(self, program: Program, world: World, stop: bool) -> None:
        self.program = program
        self.world = world
        self.stop = stop
        self.result = Replay(dict(world.sizes))
        self.turns: dict[str, int] = {}
        self.tick = 0
        self.path: Path = ()
        self.env: dict[str, _Cell] = {}
        self.copies = {b.name: b for b in program.buffers}
        self.counts = {s.family: s.over for s in sources(program.steps) if s.count}
        self.writes: dict[str, dict[Element, dict[tuple[str, Rank], Number]]] = {}
        self.current = {
            (p.name, e): world.free(("w", p.name, e)) for p in program.params for e in world.elements
        }
        self.targets: dict[str, Cells] = {}
        self.grad_of = _grad_params(program)
        for buffer in program.buffers:
            self.env[buffer.name] = self._initial(buffer)

    # --- state -----------------------------------------------------------------------

    def _initial(self, buffer: Buffer) -> _Cell:
        def value(rank: Rank, element: Element) -> Number:
            if not buffer.of:
                return 0
            key = tuple(rank[self.world.index[axis]] for axis in buffer.vary)
            if any(key):
                return self.world.free(("init", buffer.name, element, key))
            return self.current[buffer.of, element]

        return self._filled(_ordered(self.world, buffer.held), value)

    def _filled(self, held: Held, value: Callable[[Rank, Element], Number]) -> _Cell:
        world = self.world
        return _Cell(
            held,
            {
                rank: {e: value(rank, e) for e in world.elements if world.stores(rank, held, e)}
                for rank in world.ranks
            },
        )

    def _runs(self, guard: Guard, rank: Rank, element: Element) -> bool:
        for axis, position in guard.at:
            negated = position.startswith("!")
            if self.world.at(rank, axis, position.removeprefix("!"), element) == negated:
                return False
        return True

    def _open(self, guard: Guard) -> bool:
        for axis, one in guard.sizes:
            if (self.world.sizes[axis] == 1) != one:
                return False
        return all(self._turn(loop, test) for loop, test in guard.turns)

    def _turn(self, loop: str, test: str) -> bool:
        last = self.world.sizes[loop] - 1
        hit = self.turns[loop] == (0 if test.lstrip("!") == "first" else last)
        return hit != test.startswith("!")

    def _write(self, name: str, new: _Cell, guard: Guard) -> None:
        """Store a new value on the ranks where the guard holds; the others keep theirs."""
        if not guard.at:
            self.env[name] = new
            return
        old = self.env.get(name)
        if old is None:
            old = self._filled(new.held, lambda rank, element: 0)
        self._same_layout(name, old.held, new.held, "a guarded write keeps the layout")
        for rank, cells in new.data.items():
            for element, value in cells.items():
                if not self._runs(guard, rank, element):
                    new.data[rank][element] = old.data[rank][element]
        self.env[name] = new

    def _same_layout(self, name: str, old: Held, new: Held, rule: str) -> None:
        if dict(old) != dict(new):
            raise IllFormed(
                f"step {step_name(self.path)}",
                f"buffer {name!r} of layout {_layout(old)} and a value of layout {_layout(new)}",
                rule,
                "slice or gather first",
            )

    def _number(self, text: Expr, rank: Rank, element: Element) -> Number:
        def look(name: str) -> Number:
            if name in self.env and name not in self.world.sizes:
                return self.env[name].data[rank][element]
            return self.world.sizes[name]

        return _evaluate(parse_expr(text), look, self.path)

    # --- the specification -----------------------------------------------------------

    def _indices(self, over: Axes, rank: Rank) -> Iterator[tuple[tuple[str, int], ...]]:
        """All index tuples of a family, in a canonical order; `@axis` is the rank's own."""
        ranges: list[tuple[str, range]] = []
        for name in over:
            axis = name.lstrip("@")
            if axis == name:
                ranges.append((axis, range(self.world.sizes[axis])))
            else:
                own = self.turns.get(axis, 0)
                if axis in self.world.index:
                    own = rank[self.world.index[axis]]
                ranges.append((axis, range(own, own + 1)))
        ranges.sort()
        for values in itertools.product(*(r for _, r in ranges)):
            yield tuple(zip((a for a, _ in ranges), values, strict=True))

    def _contribution(
        self, family: str, element: Element, index: tuple[tuple[str, int], ...]
    ) -> Number:
        if family in self.counts:
            return self.world.count(family, (self.tick, index))
        return self.world.free((family, self.tick, element, index))

    def _total(self, family: str) -> Number:
        over = self.counts[family]
        rank = self.world.ranks[0]
        indices = self._indices(over, rank)
        return sum((self._contribution(family, (), i) for i in indices), start=0)

    def _term(self, term: Term, rank: Rank, element: Element) -> Number:
        def look(name: str) -> Number:
            return self._total(name) if name in self.counts else self.world.sizes[name]

        total = sum(
            (self._contribution(term.family, element, i) for i in self._indices(term.over, rank)),
            start=0,
        )
        value = _exact(_evaluate(parse_expr(term.coef), look, self.path) * total)
        return self.world.function(term.fn, (value,)) if term.fn else value

    def _plain_target(self, param: Param) -> Cells:
        """The gradient of the current step on one device, before clipping."""
        if param.name not in self.targets:
            rank = self.world.ranks[0]
            self.targets[param.name] = {
                e: _exact(sum((self._term(t, rank, e) for t in param.target), start=0))
                for e in self.world.elements
            }
        return self.targets[param.name]

    def _target(self, param: Param, element: Element) -> Number:
        value = self._plain_target(param)[element]
        if param.clip is None:
            return value
        group = [p for p in self.program.params if p.clip == param.clip]
        norm = sum((v * v for p in group for v in self._plain_target(p).values()), start=0)
        return _exact(value * self.world.function("clip", (_exact(norm),)))

    def _advance(self) -> None:
        for param in self.program.params:
            if param.target:
                self._advance_param(param)
        self.tick += 1
        self.targets.clear()
        self.writes.clear()

    def _advance_param(self, param: Param) -> None:
        written = self.writes.get(param.name, {})
        true: Cells = {}
        for element in self.world.elements:
            values = written.get(element, {})
            distinct = set(values.values())
            if len(distinct) == 1:
                true[element] = distinct.pop()
                continue
            true[element] = self._true_update(param, element)
            if values:
                (_, rank), got = next(
                    item for item in values.items() if item[1] != next(iter(values.values()))
                )
                first = next(iter(values.values()))
                self._fail("state_consistency", rank, element, first, got, param.name,
                           "copies were updated to different values")
        self._count("state_consistency")
        for element, value in true.items():
            self.current[param.name, element] = value

    def _true_update(self, param: Param, element: Element) -> Number:
        mates = self._mates(element) if param.update == "whole" else [element]
        pairs = tuple(
            (e, self.current[param.name, e], self._target(param, e)) for e in mates
        )
        return self._updated(param, param.hyper, pairs, element)

    def _updated(
        self,
        param: Param,
        hyper: tuple[str, ...],
        pairs: tuple[tuple[Element, Number, Number], ...],
        element: Element,
    ) -> Number:
        return self.world.free(("update", param.name, hyper, pairs, element))

    def _mates(self, element: Element) -> list[Element]:
        """The elements of the same tensor: alike in the owners of whole tensors."""
        keep = [i for (_, name), i in self.world.owner.items() if name.startswith("tensor")]
        return [e for e in self.world.elements if all(e[i] == element[i] for i in keep)]

    # --- bookkeeping -----------------------------------------------------------------

    def _count(self, condition: str) -> None:
        self.result.obligations[condition] = self.result.obligations.get(condition, 0) + 1

    def _fail(
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
        shown = tuple(
            (_show(t.family, i), self._contribution(t.family, element, i))
            for t in terms
            for i in self._indices(bare_over(t), rank)
        )
        turns = tuple(self.turns.items())
        self.result.mismatches.append(
            Mismatch(condition, self.path, rank, element, turns, self.tick, expected, got,
                     subject, note, dependent, shown[:64])
        )
        if self.stop:
            raise _Stop

    # --- steps -----------------------------------------------------------------------

    def run(self, steps: tuple[Step, ...], prefix: Path) -> None:
        for index, step in enumerate(steps):
            self.path = (*prefix, index)
            if self._open(step.g):
                self._step(step)

    def _step(self, step: Step) -> None:
        match step:
            case Loop():
                path = self.path
                for turn in range(self.world.sizes[step.axis]):
                    self.turns[step.axis] = turn
                    self.run(step.body, path)
                del self.turns[step.axis]
            case Source() | Init() | Scale() | Move() | Apply() | Square() | Clip():
                self._local(step)
            case Reduce() | Take() | Slice():
                self._transfer(step)
            case Use():
                self._use(step)
            case Update():
                self._update(step)
            case Expect():
                self._expect(step)
            case Tick():
                self._advance()

    def _local(self, step: Source | Init | Scale | Move | Apply | Square | Clip) -> None:
        match step:
            case Source():
                self._source(step)
            case Init():
                self._init(step)
            case Scale():
                cell = self.env[step.buf]
                self._map(step.buf, cell, step.g, lambda r, e, v: v * self._number(step.by, r, e))
            case Move():
                self._move(step)
            case Apply():
                self._apply(step)
            case Square():
                self._square(step)
            case Clip():
                self._clip(step)

    def _map(
        self,
        name: str,
        cell: _Cell,
        guard: Guard,
        function: Callable[[Rank, Element, Number], Number],
    ) -> None:
        data = {
            rank: {e: _exact(function(rank, e, v)) for e, v in cells.items()}
            for rank, cells in cell.data.items()
        }
        self._write(name, _Cell(cell.held, data), guard)

    def _source(self, step: Source) -> None:
        over = tuple(
            a if a in step.summed else f"@{a}" for a in step.over
        )

        def value(rank: Rank, element: Element) -> Number:
            total = sum(
                (self._contribution(step.family, element, i) for i in self._indices(over, rank)),
                start=0,
            )
            return _exact(total * self._number(step.factor, rank, element))

        new = self._filled(_ordered(self.world, step.held), value)
        self._store(step.dst, new, step.add, step.g)

    def _store(self, name: str, new: _Cell, add: bool, guard: Guard) -> None:
        old = self.env.get(name)
        if add and old is not None:
            new = self._fit(name, new, old.held)
            for rank, cells in new.data.items():
                for element in cells:
                    cells[element] = _exact(cells[element] + old.data[rank][element])
        self._write(name, new, guard)

    def _fit(self, name: str, cell: _Cell, held: Held) -> _Cell:
        """The same memory read under another owner of the same axes."""
        axes = [axis for axis, _ in held]
        if axes != [axis for axis, _ in cell.held]:
            self._same_layout(name, held, cell.held, "shards and full tensors do not mix")
        data: dict[Rank, Cells] = {}
        for rank in self.world.ranks:
            data[rank] = {
                e: self._slot_value(cell, rank, e, held)
                for e in self.world.elements
                if self.world.stores(rank, held, e)
            }
        return _Cell(held, data)

    def _slot_value(self, cell: _Cell, rank: Rank, element: Element, held: Held) -> Number:
        where: Element | None = element
        for (axis, old), (_, new) in zip(cell.held, held, strict=True):
            if where is not None:
                where = self.world.swap(where, rank, axis, old, new)
        return 0 if where is None else cell.data[rank].get(where, 0)

    def _init(self, step: Init) -> None:
        def value(rank: Rank, element: Element) -> Number:
            key = tuple(rank[self.world.index[axis]] for axis in step.vary)
            return self.world.free(("draw", step.name, element, key))

        self._write(step.dst, self._filled(_ordered(self.world, step.held), value), step.g)

    def _move(self, step: Move) -> None:
        src = self.env[step.dst if is_zero(step.coef) else step.src]
        data = {
            rank: {e: _exact(v * self._number(step.coef, rank, e)) for e, v in cells.items()}
            for rank, cells in src.data.items()
        }
        self._store(step.dst, _Cell(src.held, data), step.add, step.g)

    def _apply(self, step: Apply) -> None:
        args = [self.env[name] for name in step.args]
        for name, arg in zip(step.args, args, strict=True):
            self._same_layout(name, args[0].held, arg.held, "arguments of a function are alike")

        def value(rank: Rank, element: Element) -> Number:
            if not step.whole:
                return self.world.function(step.fn, tuple(a.data[rank][element] for a in args))
            mates = [e for e in self._mates(element) if e in args[0].data[rank]]
            seen = tuple((e, *(a.data[rank][e] for a in args)) for e in mates)
            return self.world.function(step.fn, (seen, element))

        self._write(step.dst, self._filled(args[0].held, value), step.g)

    def _square(self, step: Square) -> None:
        sums = {
            rank: _exact(
                sum((v * v for s in step.srcs for v in self.env[s].data[rank].values()), start=0)
            )
            for rank in self.world.ranks
        }
        self._write(step.dst, self._filled((), lambda rank, element: sums[rank]), step.g)

    def _clip(self, step: Clip) -> None:
        self._check_norm(step)
        norm = self.env[step.by]

        def factor(rank: Rank, element: Element) -> Number:
            return self.world.function("clip", (norm.data[rank][element],))

        for name in step.bufs:
            cell = self.env[name]
            self._map(name, cell, step.g, lambda r, e, v: v * factor(r, e))

    # --- transfers -------------------------------------------------------------------

    def _transfer(self, step: Reduce | Take | Slice) -> None:
        cell = self.env[step.buf]
        match step:
            case Reduce():
                new = self._reduced(step, cell)
            case Take():
                new = self._taken(step, cell)
            case Slice():
                new = self._sliced(step, cell, ((step.axis, step.owner),))
        self._write(step.buf, new, step.g)

    def _reduced(self, step: Reduce, cell: _Cell) -> _Cell:
        world = self.world
        inner = tuple((a, o) for a, o in cell.held if a in step.axes)
        scale = Fraction(1, math.prod(world.sizes[a] for a in step.axes) if step.mean else 1)

        def value(rank: Rank, element: Element) -> Number:
            total: Number = 0
            for peer in world.along(rank, step.axes):
                slot = world.slot(element, peer, inner) if inner else element
                if slot is not None:
                    total += cell.data[peer].get(slot, 0)
            return _exact(total * scale)

        summed = self._filled(cell.held, value)
        if step.to is None:
            return summed
        return self._sliced(step, summed, tuple((axis, step.to) for axis in step.axes))

    def _taken(self, step: Take, cell: _Cell) -> _Cell:
        world = self.world
        owner = dict(cell.held).get(step.axis)
        rest = tuple((a, o) for a, o in cell.held if a != step.axis)

        def value(rank: Rank, element: Element) -> Number:
            peer = world.shift(rank, step.axis, world.position(step.axis, step.pos, element))
            where: Element | None = element
            if owner is not None:
                where = world.swap(element, peer, step.axis, owner, step.pos)
            return 0 if where is None else cell.data[peer].get(where, 0)

        return self._filled(rest, value)

    def _sliced(self, step: Slice | Reduce, cell: _Cell, cuts: Held) -> _Cell:
        old = dict(cell.held)
        new = _ordered(self.world, tuple({**old, **dict(cuts)}.items()))
        for axis, owner in cuts:
            if axis in old and old[axis] != owner:
                self._same_layout(step.buf, cell.held, new, "a shard is not cut again")
        world = self.world
        data = {
            rank: {e: v for e, v in cells.items() if world.stores(rank, new, e)}
            for rank, cells in cell.data.items()
        }
        return _Cell(new, data)

    # --- obligations -----------------------------------------------------------------

    def _use(self, step: Use) -> None:
        self._count("state_consistency")
        self._check_current(self.copies[step.buf], step.g, "the copy that is read is not current")

    def _check_current(self, copy: Buffer, guard: Guard, note: str) -> None:
        cells = self.env[copy.name].data
        for rank in self.world.ranks:
            for element in self.world.elements:
                if not self.world.stores(rank, copy.held, element):
                    continue
                if not self._runs(guard, rank, element):
                    continue
                want = self.current[copy.of, element]
                got = cells[rank].get(element)
                if got != want:
                    self._fail("state_consistency", rank, element, want, got, copy.name, note)
                    return

    def _update(self, step: Update) -> None:
        copy = self.copies[step.buf]
        param = self.program.param(copy.of)
        self._count("state_consistency")
        self._check_current(copy, step.g, "the copy that is updated is not current")
        self._check_gradient(step, copy, param)
        hyper = param.hyper if step.hyper is None else step.hyper
        if step.hyper is not None:
            self._count("contract")
            if hyper != param.hyper:
                rank, element = self.world.ranks[0], self.world.elements[0]
                self._fail("contract", rank, element, None, None, copy.name,
                           f"hyper-parameters {', '.join(hyper)}, not {', '.join(param.hyper)}")
        self._do_update(step, copy, param, hyper)

    def _grad(self, step: Update, copy: Buffer) -> _Cell:
        """The gradient as the updating rank sees it, under the layout of the parameter."""
        cell = self.env[step.grad]
        state = dict(self.env[copy.name].held)
        held = tuple((a, state.get(a, o)) for a, o in cell.held)
        return cell if held == cell.held else self._fit(step.grad, cell, held)

    def _updating(self, step: Update, copy: Buffer) -> Iterator[tuple[Rank, Element, Number]]:
        grad = self._grad(step, copy)
        for rank, cells in self.env[copy.name].data.items():
            for element in cells:
                if element in grad.data[rank] and self._runs(step.g, rank, element):
                    yield rank, element, grad.data[rank][element]

    def _check_gradient(self, step: Update, copy: Buffer, param: Param) -> None:
        self._count("gradient_integrity")
        for rank, element, got in self._updating(step, copy):
            want = self._target(param, element)
            if got != want:
                self._fail("gradient_integrity", rank, element, want, got, param.name,
                           terms=param.target)
                return

    def _do_update(
        self, step: Update, copy: Buffer, param: Param, hyper: tuple[str, ...]
    ) -> None:
        cells = self.env[copy.name].data
        updating = list(self._updating(step, copy))
        grads = {(rank, element): value for rank, element, value in updating}
        whole = param.update == "whole"
        if whole:
            self._count("optimizer_class")
        writes = self.writes.setdefault(param.name, {})
        new: dict[tuple[Rank, Element], Number] = {}
        failed = False
        for rank, element, _ in updating:
            mates = self._mates(element) if whole else [element]
            seen = [e for e in mates if (rank, e) in grads]
            if len(seen) != len(mates) and not failed:
                failed = True
                self._fail("optimizer_class", rank, element, len(mates), len(seen), param.name,
                           "elements of the tensor that the update needs and that it has")
            pairs = tuple((e, cells[rank][e], grads[rank, e]) for e in seen)
            new[rank, element] = self._updated(param, hyper, pairs, element)
        for (rank, element), value in new.items():
            cells[rank][element] = value
            writes.setdefault(element, {})[copy.name, rank] = value

    def _expect(self, step: Expect) -> None:
        self._count("contract")
        cell = self.env[step.buf]
        for rank, cells in cell.data.items():
            for element, got in cells.items():
                if not self._runs(step.g, rank, element):
                    continue
                want = self._expected(step, cell, rank, element)
                if want != got:
                    self._fail("contract", rank, element, want, got, step.buf, step.about,
                               terms=step.target)
                    return

    def _expected(self, step: Expect, cell: _Cell, rank: Rank, element: Element) -> Number:
        if step.kind == "is":
            terms = (self._term(t, rank, element) for t in step.target)
            return _exact(sum(terms, start=0))
        if step.kind == "same":
            other = self.env[step.other]
            self._same_layout(step.other, cell.held, other.held, "compared values are alike")
            return other.data[rank][element]
        axes = step.axes or self.world.axes
        for peer in self.world.along(rank, axes):
            if element in cell.data[peer] and self._runs(step.g, peer, element):
                return cell.data[peer][element]
        return cell.data[rank][element]

    def _check_norm(self, step: Clip) -> None:
        self._count("norm_integrity")
        params, loose = clip_group(self.program, step, self.grad_of)
        want: Number = 0
        sound = True
        for param in params:
            actual = self._agreed([b for b in step.bufs if self.grad_of.get(b) == param.name], step)
            target = self._plain_target(param)
            sound = sound and actual in (None, target)
            if actual is False:
                sound = False
            values = target if actual is None or actual is False else actual
            want += sum((v * v for v in values.values()), start=0)
        for name in loose:
            actual = self._agreed([name], step)
            if actual is False or actual is None:
                sound = False
            else:
                want += sum((v * v for v in actual.values()), start=0)
        self._compare_norm(step, _exact(want), sound)

    def _compare_norm(self, step: Clip, want: Number, sound: bool) -> None:
        for rank, cells in self.env[step.by].data.items():
            for element, got in cells.items():
                if self._runs(step.g, rank, element) and got != want:
                    self._fail("norm_integrity", rank, element, want, got, step.by,
                               "square of the global norm", dependent=not sound)
                    return

    def _agreed(self, names: list[str], step: Clip) -> Cells | bool | None:
        """One value per element if all holders agree, else False; None without buffers."""
        if not names:
            return None
        found: Cells = {}
        for name in names:
            for rank, cells in self.env[name].data.items():
                for element, value in cells.items():
                    if not self._runs(step.g, rank, element):
                        continue
                    if found.setdefault(element, value) != value:
                        return False
        return found if len(found) == len(self.world.elements) else False


def _grad_params(program: Program) -> dict[str, str]:
    from placement_proofs.program_check import walk

    of = {b.name: b.of for b in program.buffers}
    return {s.grad: of[s.buf] for s in walk(program.steps) if isinstance(s, Update)}


def clip_group(
    program: Program, step: Clip, grad_of: Mapping[str, str]
) -> tuple[tuple[Param, ...], tuple[str, ...]]:
    """The parameters whose norm a clip needs, and its buffers that belong to none."""
    own = {grad_of[b] for b in step.bufs if b in grad_of}
    groups = {p.clip for p in program.params if p.name in own and p.clip is not None}
    params = tuple(p for p in program.params if p.name in own or p.clip in groups)
    return params, tuple(b for b in step.bufs if b not in grad_of)


def bare_over(term: Term) -> Axes:
    """The indices over which the contributions of a term are shown."""
    return tuple(term.over)


def step_name(path: Path) -> str:
    """The path of a step as people count: `3.2` is the second step of the third."""
    return ".".join(str(i + 1) for i in path)


def _ordered(world: World, held: Held) -> Held:
    return tuple(sorted(held, key=lambda pair: world.index[pair[0]]))


def _layout(held: Held) -> str:
    return ", ".join(f"{axis}:{owner}" for axis, owner in held) or "full"


def _show(family: str, index: tuple[tuple[str, int], ...]) -> str:
    return f"{family}[{', '.join(f'{axis}={i}' for axis, i in index)}]"


def _exact(value: Number) -> Number:
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    return value


def _evaluate(tree: Tree, look: Callable[[str], Number], path: Path) -> Number:
    match tree:
        case Num(value):
            return _exact(value)
        case Name(name):
            return look(name)
        case Bin(op, left, right):
            a, b = _evaluate(left, look, path), _evaluate(right, look, path)
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
    if b == 0:
        raise IllFormed(
            f"step {step_name(path)}", "a division by zero", "a divisor is never zero",
            "divide by a size or a count",
        )
    return _exact(Fraction(a) / Fraction(b))
