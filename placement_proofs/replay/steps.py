"""What each step of data does to the buffers of all ranks."""

from __future__ import annotations

from collections.abc import Callable

from placement_proofs.program import Apply, Clip, Guard, Init, Move, Sample, Scale, Source, Square
from placement_proofs.program.expr import is_zero
from placement_proofs.replay.checks import check_norm
from placement_proofs.replay.machine import Cell, Machine, fit, ordered
from placement_proofs.replay.numbers import exact
from placement_proofs.replay.world import Element, Number, Rank


def local(
    machine: Machine, step: Source | Init | Sample | Scale | Move | Apply | Square | Clip
) -> None:
    """Run a step that moves nothing between ranks."""
    match step:
        case Sample():
            _sample(machine, step)
        case Source():
            _source(machine, step)
        case Init():
            _init(machine, step)
        case Scale():
            cell = machine.cell(step.buf)
            _map(machine, step.buf, cell, step.g, lambda r, e, v: v * machine.number(step.by, r, e))
        case Move():
            _move(machine, step)
        case Apply():
            _apply(machine, step)
        case Square():
            _square(machine, step)
        case Clip():
            _clip(machine, step)


def _map(
    machine: Machine,
    name: str,
    cell: Cell,
    guard: Guard,
    function: Callable[[Rank, Element, Number], Number],
) -> None:
    data = {
        rank: {e: exact(function(rank, e, v)) for e, v in cells.items()}
        for rank, cells in cell.data.items()
    }
    machine.write(name, Cell(cell.held, data), guard)


def _source(machine: Machine, step: Source) -> None:
    over = tuple(a if a in step.summed else f"@{a}" for a in step.over)

    def value(rank: Rank, element: Element) -> Number:
        total = sum(
            (machine.contribution(step.family, element, i) for i in machine.indices(over, rank)),
            start=0,
        )
        return exact(total * machine.number(step.factor, rank, element))

    new = machine.filled(ordered(machine.world, step.held), value)
    _store(machine, step.dst, new, step.add, step.g)


def _store(machine: Machine, name: str, new: Cell, add: bool, guard: Guard) -> None:
    old = machine.env.get(name)
    if add and old is not None:
        new = fit(machine, name, new, old.held)
        for rank, cells in new.data.items():
            for element in cells:
                cells[element] = exact(cells[element] + old.data[rank][element])
    machine.write(name, new, guard)


def _init(machine: Machine, step: Init) -> None:
    def value(rank: Rank, element: Element) -> Number:
        key = tuple(rank[machine.world.index[axis]] for axis in step.vary)
        return machine.world.free(("draw", step.name, element, key))

    machine.write(step.dst, machine.filled(ordered(machine.world, step.held), value), step.g)


def _sample(machine: Machine, step: Sample) -> None:
    """The number of a stream at its counter: by seed of the rank, or by logical index."""
    drawn, world = machine.drawn[machine.path], machine.world
    seeds = [axis for axis in step.key if world.sizes[axis] > 1]
    family = f"{drawn.family}~{','.join(seeds)}" if seeds else drawn.family

    def value(rank: Rank, element: Element) -> Number:
        own = {axis: rank[world.index[axis]] for axis in (*step.index, *seeds)}
        place = {**own, **{loop: machine.turns[loop] for loop in drawn.loops}}
        index = tuple(sorted((a, i) for a, i in place.items() if world.sizes[a] > 1))
        return world.free((family, machine.tick, element, index))

    machine.write(step.dst, machine.filled((), value), step.g)


def _move(machine: Machine, step: Move) -> None:
    src = machine.cell(step.dst if is_zero(step.coef) else step.src)
    data = {
        rank: {e: exact(v * machine.number(step.coef, rank, e)) for e, v in cells.items()}
        for rank, cells in src.data.items()
    }
    _store(machine, step.dst, Cell(src.held, data), step.add, step.g)


def _apply(machine: Machine, step: Apply) -> None:
    args = [machine.cell(name) for name in step.args]
    for name, arg in zip(step.args, args, strict=True):
        machine.same_layout(name, args[0].held, arg.held, "arguments of a function are alike")

    def value(rank: Rank, element: Element) -> Number:
        if not step.whole:
            return machine.world.function(step.fn, tuple(a.data[rank][element] for a in args))
        mates = [e for e in machine.mates(element) if e in args[0].data[rank]]
        seen = tuple((e, *(a.data[rank][e] for a in args)) for e in mates)
        return machine.world.function(step.fn, (seen, element))

    machine.write(step.dst, machine.filled(args[0].held, value), step.g)


def _square(machine: Machine, step: Square) -> None:
    sums = {
        rank: exact(
            sum((v * v for s in step.srcs for v in machine.cell(s).data[rank].values()), start=0)
        )
        for rank in machine.world.ranks
    }
    machine.write(step.dst, machine.filled((), lambda rank, element: sums[rank]), step.g)


def _clip(machine: Machine, step: Clip) -> None:
    check_norm(machine, step)
    norm = machine.cell(step.by)

    def factor(rank: Rank, element: Element) -> Number:
        return machine.world.function("clip", (norm.data[rank][element],))

    for name in step.bufs:
        cell = machine.cell(name)
        _map(machine, name, cell, step.g, lambda r, e, v: v * factor(r, e))
