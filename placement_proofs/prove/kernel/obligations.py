"""Normal forms, and the steps that compare with them: gradients, norms, contracts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

from placement_proofs.prove.kernel.machine import Machine
from placement_proofs.prove.kernel.numbers import Num, Rank, Rejected, Row, Undecided, each, plus
from placement_proofs.prove.kernel.steps import (
    Step,
    counted,
    expression,
    indices,
    meets,
    member,
    own_index,
    write,
)


def clip(m: Machine, s: Step) -> None:
    """The norm must count every element of the group once; then gradients are marked as clipped."""
    want: Row = {}
    for name in s["group"]:
        inner = m.frozen(form(m, name))
        cut = _cut(m, s["by"], inner)
        for shard in itertools.product(*(range(m.sizes[axis]) for axis, _ in cut)):
            whose = tuple((*pair, i) for pair, i in zip(cut, shard, strict=True))
            want = plus(want, {("squares", inner, whose): m.number(1)} if inner else {})
    clipped = {rank for buf in s["bufs"] for rank in m.rows[buf]}
    for rank in sorted(clipped | set(m.rows[s["by"]])):
        if meets(m, rank, s.get("at", ())):
            m.compare(m.rows[s["by"]][rank], want, f"the norm {s['by']}")
    for buf in s["bufs"]:
        write(m, s, buf, each(m.rows[buf], partial(_clipped, group=s["name"])), m.held[buf])


def _cut(m: Machine, by: str, inner: Hashable) -> tuple[tuple[str, str], ...]:
    """By which axes and owners the squares of a gradient come in shards: all shards are wanted."""
    keys = (key for row in m.rows[by].values() for key in row)
    mine = (key[2] for key in keys if isinstance(key, tuple) and key[:2] == ("squares", inner))
    found = {tuple((axis, owner) for axis, owner, _ in shard) for shard in mine}
    if len(found) > 1:
        raise Undecided(f"{by}: squares of shards beside those of other shards or of the whole")
    return next(iter(found), ())


def _clipped(row: Row, group: str | None) -> Row:
    return {("clipped", group, key): number for key, number in row.items()}


def form(m: Machine, name: str, rank: Rank | None = None) -> Row:
    """A normal form of the certificate, which is one more that was reached."""
    m.reached.add(name)
    return target(m, m.cert["normal_form"][name]["terms"], rank)


def target(m: Machine, terms: Any, rank: Rank | None = None) -> Row:
    """The normal form that a value must reach, as a linear form."""
    rows = []
    for term in terms:
        row = _members(m, term, rank)
        if "fn" in term:
            more = (_members(m, other, rank) for other in term["more"])
            args = tuple(m.frozen(arg) for arg in (row, *more))
            row = {("function", term["fn"], args): m.number(1)}
        rows.append(row)
    return plus(*rows)


def _members(m: Machine, term: Any, rank: Rank | None) -> Row:
    """All members of a family times a coefficient; `@axis` is the rank's own index."""
    over = [name.removeprefix("@") for name in term["over"]]
    own = [name.removeprefix("@") for name in term["over"] if name.startswith("@")]
    loops = [name for name in over if name not in m.axes and name not in own]
    row: Row = {}
    turn = m.turn
    by = expression(m, term["coef"], lambda name: _total(m, name))
    for turns in itertools.product(*(range(m.sizes[loop]) for loop in loops)):
        m.turn = {**turn, **dict(zip(loops, turns, strict=True))}
        for index in indices(m, over):
            at = dict(zip(over, index, strict=True))
            if all(a not in m.axes or rank is None or at[a] == own_index(m, rank, a) for a in own):
                row[member(m, term["family"], over, index)] = by
    m.turn = turn
    return row


def _total(m: Machine, family: str) -> Num:
    """The sum of all counts of a family."""
    over = m.cert["counts"][family]
    choices = itertools.product(*(range(m.sizes[name]) for name in over))
    found = [counted(m, family, over, index) for index in choices]
    whole = found[0]
    for number in found[1:]:
        whole = whole + number
    return whole.more(m.degree(*over))


def update(m: Machine, s: Step) -> None:
    """The gradient is the normal form, on every rank that has gradient and parameter."""
    want, group = form(m, s["param"]), m.cert["normal_form"][s["param"]]["clip"]
    if group is not None:
        want = _clipped(want, group)
    places = [*s["held"].items(), *s.get("at", ())]
    rows = {r: row for r, row in m.rows[s["grad"]].items() if meets(m, r, places)}
    if not rows and "at" not in s:
        raise Rejected(f"{s['param']} at {dict(m.sizes)}: no rank has gradient and parameter")
    for rank, row in rows.items():
        m.compare(row, want, f"{s['param']}, rank {rank},")


def expect(m: Machine, s: Step) -> None:
    """A contract: a value is its normal form, that of another buffer, or the same on all ranks."""
    rows = {r: row for r, row in m.rows[s["buf"]].items() if meets(m, r, s.get("at", ()))}
    for rank, row in rows.items():
        what = f"{s['buf']}, rank {rank},"
        match s["kind"]:
            case "is":
                m.compare(row, form(m, s["form"], rank), what)
            case "same":
                m.compare(row, m.rows[s["other"]][rank], what)
            case "agree":
                alike = (o for o in rows if all(o[k] == rank[k] for k in _others(m, s["axes"])))
                m.compare(row, rows[next(alike)], what)
            case _:
                raise Rejected(f"there is no contract {s['kind']}")


def _others(m: Machine, axes: list[str]) -> list[int]:
    along = {m.axes.index(axis) for axis in axes}
    return [k for k in range(len(m.axes)) if k not in along]


def tick(m: Machine, _: Step) -> None:
    """The specification goes to its next step."""
    m.ticks += 1


OBLIGATIONS: Mapping[str, Callable[[Machine, Step], None]] = {
    "clip": clip,
    "update": update,
    "expect": expect,
    "tick": tick,
}
