"""Repairs of a refuted program: single edits that were proved, with their cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from placement_proofs.errors import IllFormed
from placement_proofs.program import (
    Apply,
    Clip,
    Expect,
    Guard,
    Loop,
    Move,
    Program,
    Reduce,
    Scale,
    Slice,
    Source,
    Square,
    Step,
    Take,
    Update,
    Use,
    validate,
)
from placement_proofs.program.backward import derived
from placement_proofs.program.expr import is_zero
from placement_proofs.program.mend import Mend, mends
from placement_proofs.program.orders import has_orders, orders
from placement_proofs.prove.blame import paths, reads, writes
from placement_proofs.prove.blocks import agreed, blocks
from placement_proofs.prove.edits import Edit, plain
from placement_proofs.prove.edits import ring as _ring
from placement_proofs.prove.engine import execute
from placement_proofs.prove.rebuild import rebuilt
from placement_proofs.prove.remedies import broadcasts, given, moves, scalings, small_edits
from placement_proofs.prove.result import ProgramResult
from placement_proofs.prove.sizes import TooManyCases
from placement_proofs.replay import Path, step_name
from placement_proofs.verdict import Verdict

MAX_TRIES = 400
MAX_REPAIRS = 3


@dataclass(frozen=True)
class Repair:
    """One edit that makes the program provable for all sizes.

    `cost` is the extra ring traffic a rank has per element of the payload, as a closed form
    in the axis sizes ('0' for local edits). `broken` is the program that `program` differs from:
    with a flow, the one in which its contributions are written out if no step stands for them.
    """

    action: str
    step: Path
    text: str
    cost: str
    program: Program
    broken: Program

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "action": self.action,
            "step": step_name(self.step),
            "text": self.text,
            "cost": self.cost,
        }


@dataclass(frozen=True)
class _Edit:
    action: str
    at: Path
    steps: tuple[Step, ...]
    drop: bool
    text: str
    cost: str


def find_repairs(program: Program, result: ProgramResult) -> tuple[Repair, ...]:
    """Up to three single edits after which every obligation is proved, cheapest idea first."""
    if result.verdict is not Verdict.REFUTED or result.counterexample is None:
        return ()
    mended = (_mended(mend, program) for mend in mends(program) if _proved(mend.program))
    found = list(islice(mended, MAX_REPAIRS - 1))
    if has_orders(program):
        return tuple(found)
    if _of_forward(program, result.counterexample.step):
        return tuple(found)
    program = _numbered(program)
    failed = result.counterexample.step
    found += _searched(program, failed, MAX_REPAIRS - len(found))
    start = agreed(program)
    if start is not None and not found:
        there, text, steps = start
        edits = _searched(there, (failed[0] + steps, *failed[1:]), 1)
        found = [replace(edit, text=f"{text}{edit.text}", broken=program) for edit in edits]
    return tuple(sorted(found, key=lambda repair: repair.cost != "0"))


def _searched(program: Program, failed: Path, wanted: int) -> list[Repair]:
    """Single edits that were proved, up to a number."""
    found: list[Repair] = []
    seen: set[Program] = {program}
    for tried, edit in enumerate(_candidates(program, failed)):
        if tried >= MAX_TRIES or len(found) >= wanted:
            break
        if edit.program in seen or _elsewhere(edit, found) or " number=" in edit.text:
            continue
        if _proved(edit.program):
            found.append(
                Repair(edit.action, edit.step, edit.text, edit.cost, edit.program, program)
            )
        seen.add(edit.program)
    return found


def _of_forward(program: Program, failed: Path) -> bool:
    """Whether a contract failed that was derived from the flow, not written."""
    written = derived(program).steps
    step = written[failed[0]]
    return bool(program.flow) and isinstance(step, Expect) and step not in program.steps


def _numbered(program: Program) -> Program:
    """The program whose steps have the numbers of the counterexample."""
    written = derived(program)
    ours, theirs = (
        [(path, type(step)) for path, step in paths(p.steps)] for p in (program, written)
    )
    return program if theirs[: len(ours)] == ours else written


def _mended(mend: Mend, broken: Program) -> Repair:
    cost = _ring(mend.passes, mend.axes) if mend.passes else "0"
    return Repair(mend.action, (0,), mend.text, cost, mend.program, broken)


def _elsewhere(edit: Edit, found: list[Repair]) -> bool:
    """Whether a repair inserts or moves the same step, only at another place."""
    what = re.search(r"'[^']*'", edit.text)
    same = [r for r in found if (r.action, r.cost) == (edit.action, edit.cost)]
    return what is not None and any(
        _placed(r.text) and _placed(edit.text) and what[0] in r.text for r in same
    )


def _placed(text: str) -> bool:
    return text.startswith(("before step", "after step", "move "))


def _candidates(program: Program, failed: Path) -> Iterator[Edit]:
    """Single steps first, near the obligation, then larger parts, factors and order."""
    steps = dict(paths(program.steps))
    names = _closure(program, set(reads(steps[failed])))
    near = [path for path, step in steps.items() if names & set(writes(step))]
    yield from small_edits(program, near)
    for edit in _edits(program, failed):
        new = _edited(program, edit)
        yield Edit(edit.action, edit.at, edit.text, edit.cost, new)
    yield from rebuilt(program)
    yield from scalings(program, near)
    yield from broadcasts(program, near)
    yield from moves(program, [*near, failed])
    yield from blocks(program)


def _proved(program: Program) -> bool:
    try:
        validate(program)
        return all(execute(derived(order), {}).holds for order in orders(program))
    except (IllFormed, TooManyCases):
        return False


def _edited(program: Program, edit: _Edit) -> Program:
    return replace(program, steps=_replaced(program.steps, edit.at, edit))


def _replaced(steps: tuple[Step, ...], at: Path, edit: _Edit) -> tuple[Step, ...]:
    head, rest = at[0], at[1:]
    before, after = steps[:head], steps[head + 1 :]
    here = steps[head]
    if not rest:
        kept: tuple[Step, ...] = () if edit.drop else (here,)
        return (*before, *edit.steps, *kept, *after)
    assert isinstance(here, Loop)
    return (*before, replace(here, body=_replaced(here.body, rest, edit)), *after)


# --- candidate edits -----------------------------------------------------------------


def _edits(program: Program, failed: Path) -> Iterator[_Edit]:
    """Edits near what the failed obligation reads first, then everywhere."""
    steps = dict(paths(program.steps))
    names = _closure(program, set(reads(steps[failed])))
    near = [path for path, step in steps.items() if names & set(writes(step))]
    yield from _changes(program, steps, near)
    yield from _inserts(program, steps, failed, sorted(names))
    yield from _publishes(program, steps)
    yield from _removals(program, steps, near)
    yield from _scales(program, steps, failed)


def _closure(program: Program, names: set[str]) -> set[str]:
    """The buffers that a value was computed from."""
    for _ in range(4):
        for _, step in paths(program.steps):
            if names & set(writes(step)):
                match step:
                    case Move(src=src):
                        names = names | {src}
                    case Square(srcs=srcs):
                        names = names | set(srcs)
                    case Clip(by=by):
                        names = names | {by}
                    case Apply(args=args):
                        names = names | set(args)
                    case Expect(other=other):
                        names = names | {other}
                    case _:
                        pass
    return names


def _swap(path: Path, step: Step, new: Step, action: str, cost: str = "0") -> _Edit:
    text = f"replace '{plain(step)}' by '{plain(new)}'"
    return _Edit(action, path, (new,), True, text, cost)


def _changes(program: Program, steps: dict[Path, Step], near: list[Path]) -> Iterator[_Edit]:
    for path in near:
        step = steps[path]
        match step:
            case Reduce(axes=axes):
                yield _swap(path, step, replace(step, mean=not step.mean), "change the scale")
                for axis in program.axes:
                    others = tuple(a for a in axes if a != axis)
                    chosen = others if axis in axes else (*axes, axis)
                    if chosen:
                        new = replace(step, axes=chosen)
                        cost = "0" if axis in axes else _ring(2, (axis,))
                        yield _swap(path, step, new, "set the right axes", cost)
                        yield _swap(
                            path, step, replace(new, mean=not step.mean), "set the right axes", cost
                        )
            case Source() | Move() if not _zeroing(step):
                yield _swap(path, step, replace(step, add=not step.add), "add or overwrite")
                if isinstance(step, Source) and not step.add:
                    yield _first_turn(program, path, step)
            case _:
                pass
        if step.g.sizes:
            bare = replace(step, g=replace(step.g, sizes=()))
            yield _swap(path, step, bare, "remove the size guard")


def _zeroing(step: Step) -> bool:
    return isinstance(step, Move) and is_zero(step.coef)


def _first_turn(program: Program, path: Path, step: Source) -> _Edit:
    loops = [s.axis for p, s in paths(program.steps) if isinstance(s, Loop) and path[: len(p)] == p]
    loop = loops[-1] if loops else ""
    first = replace(step, g=replace(step.g, turns=((loop, "first"),)))
    later = replace(step, add=True, g=replace(step.g, turns=((loop, "!first"),)))
    text = f"after the first turn: '{plain(replace(step, add=True))}'"
    steps = (first, later) if loop else (step,)
    return _Edit("add or overwrite", path, steps, True, text, "0")


def _inserts(
    program: Program, steps: dict[Path, Step], failed: Path, names: list[str]
) -> Iterator[_Edit]:
    """A missing reduction or broadcast, before the obligation or before a use of the value."""
    places = [failed]
    places += [p for p, s in steps.items() if isinstance(s, Clip | Square) and p != failed]
    for place in places:
        for name in names:
            for axes in (*((axis,) for axis in program.axes), program.axes):
                for mean in (False, True):
                    new = Reduce(name, axes, mean=mean)
                    yield _insert(place, new, "insert the missing reduction", _ring(2, axes))
            for axis in program.axes:
                take = Take(name, axis, "first")
                yield _insert(place, take, "insert the missing broadcast", _ring(1, (axis,)))


def _insert(path: Path, new: Step, action: str, cost: str) -> _Edit:
    text = f"before step {step_name(path)}: '{plain(new)}'"
    return _Edit(action, path, (new,), False, text, cost)


def _publishes(program: Program, steps: dict[Path, Step]) -> Iterator[_Edit]:
    """Copies that are read but do not follow the copy that is updated."""
    updated = {step.buf for step in steps.values() if isinstance(step, Update)}
    copies = {b.name: b for b in program.buffers}
    for path, step in steps.items():
        if not isinstance(step, Use):
            continue
        reader = copies[step.buf]
        for name in sorted(updated - {reader.name}):
            writer = copies[name]
            if writer.of != reader.of:
                continue
            missing = [p for p in writer.held if p[0] not in dict(reader.held)]
            moves: list[Step] = [Move(reader.name, name)]
            moves += [Take(reader.name, axis, owner) for axis, owner in missing]
            text = "; ".join(plain(s) for s in moves)
            cost = _ring(1, tuple(axis for axis, _ in missing))
            yield _Edit(
                "publish the updated copy",
                path,
                tuple(moves),
                False,
                f"before step {step_name(path)}: '{text}'",
                cost,
            )
        for axis, owner in reader.held or (("", ""),):
            if axis:
                new = Slice(reader.name, axis, owner)
                yield _insert(path, new, "keep only the own shard", "0")
        for axis in program.axes:
            for owner in dict.fromkeys(("first", "p")):
                take = Take(reader.name, axis, owner)
                yield _insert((0,), take, "insert the missing broadcast", _ring(1, (axis,)))
                yield _insert(path, take, "insert the missing broadcast", _ring(1, (axis,)))


def _removals(program: Program, steps: dict[Path, Step], near: list[Path]) -> Iterator[_Edit]:
    for path in near:
        if given(program, steps[path]):
            continue
        if isinstance(steps[path], Reduce | Scale | Take | Slice | Move | Source):
            text = f"remove '{plain(steps[path])}'"
            yield _Edit("remove the step", path, (), True, text, "0")


def _scales(program: Program, steps: dict[Path, Step], failed: Path) -> Iterator[_Edit]:
    for name in reads(steps[failed]):
        for axis in (*program.axes, *program.loops):
            for by in (axis, f"1/{axis}"):
                yield _insert(failed, Scale(name, by, g=Guard()), "rescale", "0")
