"""The obligations of a replay: compared on every rank, for every element."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from placement_proofs.program import Buffer, Clip, Cover, Expect, Guard, Param, Program, Update, Use
from placement_proofs.replay.machine import Cell, Cells, Machine, fit
from placement_proofs.replay.numbers import exact
from placement_proofs.replay.world import Element, Number, Rank


def use(machine: Machine, step: Use) -> None:
    """A pass reads a copy: it must be current."""
    machine.count("state_consistency")
    late = f"none of the last {step.within + 1} versions" if step.within else "not current"
    note = f"the copy that is read is {late}"
    _check_current(machine, machine.copies[step.buf], step.g, note, step.within)


def _check_current(
    machine: Machine, copy: Buffer, guard: Guard, note: str, within: int = 0
) -> None:
    cells = machine.env[copy.name].data
    for rank in machine.world.ranks:
        for element in machine.world.elements:
            if not machine.world.stores(rank, copy.held, element):
                continue
            if not machine.runs(guard, rank, element):
                continue
            want = machine.current[copy.of, element]
            got = cells[rank].get(element)
            older = [past[copy.of, element] for past in machine.past[:within]]
            if got != want and got not in older:
                machine.fail("state_consistency", rank, element, want, got, copy.name, note)
                return


def update(machine: Machine, step: Update) -> None:
    """The optimizer updates a copy: old value, gradient and class are checked."""
    copy = machine.copies[step.buf]
    param = machine.program.param(copy.of)
    machine.count("state_consistency")
    _check_current(machine, copy, step.g, "the copy that is updated is not current")
    _check_gradient(machine, step, copy, param)
    hyper = param.hyper if step.hyper is None else step.hyper
    if step.hyper is not None:
        machine.count("contract")
        if hyper != param.hyper:
            rank, element = machine.world.ranks[0], machine.world.elements[0]
            machine.fail(
                "contract",
                rank,
                element,
                None,
                None,
                copy.name,
                f"hyper-parameters {', '.join(hyper)}, not {', '.join(param.hyper)}",
            )
    _do_update(machine, step, copy, param, hyper)


def _grad(machine: Machine, step: Update, copy: Buffer) -> Cell:
    """The gradient as the updating rank sees it, under the layout of the parameter."""
    cell = machine.cell(step.grad)
    state = dict(machine.env[copy.name].held)
    held = tuple((a, state.get(a, o)) for a, o in cell.held)
    return cell if held == cell.held else fit(machine, step.grad, cell, held)


def _updating(
    machine: Machine, step: Update, copy: Buffer
) -> Iterator[tuple[Rank, Element, Number]]:
    grad = _grad(machine, step, copy)
    for rank, cells in machine.env[copy.name].data.items():
        for element in cells:
            if element in grad.data[rank] and machine.runs(step.g, rank, element):
                yield rank, element, grad.data[rank][element]


def _check_gradient(machine: Machine, step: Update, copy: Buffer, param: Param) -> None:
    machine.count("gradient_integrity")
    for rank, element, got in _updating(machine, step, copy):
        want = machine.target(param, element)
        if got != want:
            machine.fail(
                "gradient_integrity", rank, element, want, got, param.name, terms=param.target
            )
            return


def _do_update(
    machine: Machine, step: Update, copy: Buffer, param: Param, hyper: tuple[str, ...]
) -> None:
    cells = machine.env[copy.name].data
    updating = list(_updating(machine, step, copy))
    grads = {(rank, element): value for rank, element, value in updating}
    whole = param.update == "whole"
    if whole:
        machine.count("optimizer_class")
    writes = machine.writes.setdefault(param.name, {})
    new: dict[tuple[Rank, Element], Number] = {}
    failed = False
    for rank, element, _ in updating:
        mates = machine.mates(element) if whole else [element]
        seen = [e for e in mates if (rank, e) in grads]
        if len(seen) != len(mates) and not failed:
            failed = True
            machine.fail(
                "optimizer_class",
                rank,
                element,
                len(mates),
                len(seen),
                param.name,
                "elements of the tensor that the update needs and that it has",
            )
        pairs = tuple((e, cells[rank][e], grads[rank, e]) for e in seen)
        new[rank, element] = machine.updated(param, hyper, pairs, element)
    for (rank, element), value in new.items():
        cells[rank][element] = value
        writes.setdefault(element, {})[copy.name, rank] = value


def expect(machine: Machine, step: Expect) -> None:
    """A contract is compared."""
    machine.count("contract")
    cell = machine.cell(step.buf)
    if step.kind == "drawn":
        _drawn(machine, step, cell)
        return
    for rank, cells in cell.data.items():
        for element, got in cells.items():
            if not machine.runs(step.g, rank, element):
                continue
            want = _expected(machine, step, cell, rank, element)
            if want != got:
                machine.fail(
                    "contract",
                    rank,
                    element,
                    want,
                    got,
                    step.buf,
                    step.about,
                    terms=step.target,
                )
                return


def cover(machine: Machine, step: Cover) -> None:
    """Count the rows that each rank gets, and those that none gets."""
    machine.count("contract")
    rows, ranks = machine.world.sizes[step.rows], machine.world.sizes[step.axis]
    if step.divides and rows % ranks:
        return
    chunk = -(-rows // ranks) if step.up else rows // ranks
    shares = [len(range(i * chunk, min((i + 1) * chunk, rows))) for i in range(ranks)]
    rank, element = machine.world.ranks[-1], machine.world.elements[0]
    if sum(shares) != rows:
        note = "every row is on some rank"
        machine.fail("contract", rank, element, rows, sum(shares), step.rows, note)
    elif step.even and len(set(shares)) > 1:
        note = "every rank has equally many rows"
        machine.fail("contract", rank, element, shares[0], shares[-1], step.rows, note)


def _drawn(machine: Machine, step: Expect, cell: Cell) -> None:
    """Numbers differ on ranks that differ on the axes, and on no others."""
    places = [machine.world.index[axis] for axis in step.axes]
    for element in machine.world.elements:
        holders = [r for r in cell.data if element in cell.data[r]]
        running = [r for r in holders if machine.runs(step.g, r, element)]
        for rank, peer in itertools.combinations(running, 2):
            apart = any(rank[i] != peer[i] for i in places)
            left, right = cell.data[rank][element], cell.data[peer][element]
            if (left != right) != apart:
                want = None if apart else left
                note = f"{step.about}, alike on ranks whose data differ" if apart else step.about
                machine.fail("contract", peer, element, want, right, step.buf, note)
                return


def _expected(machine: Machine, step: Expect, cell: Cell, rank: Rank, element: Element) -> Number:
    if step.kind == "is":
        terms = (machine.term(t, rank, element) for t in step.target)
        return exact(sum(terms, start=0))
    if step.kind == "same":
        other = machine.cell(step.other)
        machine.same_layout(step.other, cell.held, other.held, "compared values are alike")
        return other.data[rank][element]
    axes = step.axes or machine.world.axes
    for peer in machine.world.along(rank, axes):
        if element in cell.data[peer] and machine.runs(step.g, peer, element):
            return cell.data[peer][element]
    return cell.data[rank][element]


def check_norm(machine: Machine, step: Clip) -> None:
    """The squared norm must count every element of the group once."""
    machine.count("norm_integrity")
    params, loose = clip_group(machine.program, step, machine.grad_of)
    want: Number = 0
    sound = True
    for param in params:
        actual = _agreed(
            machine, [b for b in step.bufs if machine.grad_of.get(b) == param.name], step
        )
        target = machine.plain_target(param)
        sound = sound and actual in (None, target)
        if actual is False:
            sound = False
        values = actual if isinstance(actual, dict) else target
        want += sum((v * v for v in values.values()), start=0)
    for name in loose:
        actual = _agreed(machine, [name], step)
        if isinstance(actual, dict):
            want += sum((v * v for v in actual.values()), start=0)
        else:
            sound = False
    _compare_norm(machine, step, exact(want), sound)


def _compare_norm(machine: Machine, step: Clip, want: Number, sound: bool) -> None:
    for rank, cells in machine.cell(step.by).data.items():
        for element, got in cells.items():
            if machine.runs(step.g, rank, element) and got != want:
                machine.fail(
                    "norm_integrity",
                    rank,
                    element,
                    want,
                    got,
                    step.by,
                    "square of the global norm",
                    dependent=not sound,
                )
                return


def _agreed(machine: Machine, names: list[str], step: Clip) -> Cells | bool | None:
    """One value per element if all holders agree, else False; None without buffers."""
    if not names:
        return None
    found: Cells = {}
    for name in names:
        for rank, cells in machine.cell(name).data.items():
            for element, value in cells.items():
                if not machine.runs(step.g, rank, element):
                    continue
                if found.setdefault(element, value) != value:
                    return False
    return found if len(found) == len(machine.world.elements) else False


def clip_group(
    program: Program, step: Clip, grad_of: Mapping[str, str]
) -> tuple[tuple[Param, ...], tuple[str, ...]]:
    """The parameters whose norm a clip needs, and its buffers that belong to none."""
    own = {grad_of[b] for b in step.bufs if b in grad_of}
    groups = {p.clip for p in program.params if p.name in own and p.clip is not None}
    params = tuple(p for p in program.params if p.name in own or p.clip in groups)
    return params, tuple(b for b in step.bufs if b not in grad_of)
