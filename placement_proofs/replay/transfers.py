"""What collectives do: sums, means, gathers, broadcasts and slices, rank by rank."""

from __future__ import annotations

import math
from fractions import Fraction

from placement_proofs.program import Held, Reduce, Slice, Take
from placement_proofs.replay.machine import Cell, Machine, ordered
from placement_proofs.replay.numbers import exact
from placement_proofs.replay.world import Element, Number, Rank


def transfer(machine: Machine, step: Reduce | Take | Slice) -> None:
    """Run a collective or a slice."""
    cell = machine.cell(step.buf)
    match step:
        case Reduce():
            new = _reduced(machine, step, cell)
        case Take():
            new = _taken(machine, step, cell)
        case Slice():
            new = _sliced(machine, step, cell, ((step.axis, step.owner),))
    machine.write(step.buf, new, step.g)


def _reduced(machine: Machine, step: Reduce, cell: Cell) -> Cell:
    world = machine.world
    inner = tuple((a, o) for a, o in cell.held if a in step.axes)
    scale = Fraction(1, math.prod(world.sizes[a] for a in step.axes) if step.mean else 1)

    def highest(rank: Rank, element: Element) -> Number:
        return max(cell.data[peer][element] for peer in world.along(rank, step.axes))

    if step.top:
        return machine.filled(cell.held, highest)

    def value(rank: Rank, element: Element) -> Number:
        total: Number = 0
        for peer in world.along(rank, step.axes):
            slot = world.slot(element, peer, inner) if inner else element
            if slot is not None:
                total += cell.data[peer].get(slot, 0)
        return exact(total * scale)

    summed = machine.filled(cell.held, value)
    if step.to is None:
        return summed
    return _sliced(machine, step, summed, tuple((axis, step.to) for axis in step.axes))


def _taken(machine: Machine, step: Take, cell: Cell) -> Cell:
    world = machine.world
    owner = dict(cell.held).get(step.axis)
    rest = tuple((a, o) for a, o in cell.held if a != step.axis)

    def value(rank: Rank, element: Element) -> Number:
        peer = world.shift(rank, step.axis, world.position(step.axis, step.pos, element))
        where: Element | None = element
        if owner is not None:
            where = world.swap(element, peer, step.axis, owner, step.pos)
        return 0 if where is None else cell.data[peer].get(where, 0)

    return machine.filled(rest, value)


def _sliced(machine: Machine, step: Slice | Reduce, cell: Cell, cuts: Held) -> Cell:
    old = dict(cell.held)
    new = ordered(machine.world, tuple({**old, **dict(cuts)}.items()))
    for axis, owner in cuts:
        if axis in old and old[axis] != owner:
            machine.same_layout(step.buf, cell.held, new, "a shard is not cut again")
    world = machine.world
    data = {
        rank: {e: v for e, v in cells.items() if world.stores(rank, new, e)}
        for rank, cells in cell.data.items()
    }
    return Cell(new, data)
