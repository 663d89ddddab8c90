"""The steps of a certificate, read as linear maps on what every rank has.

Each function below is one kind of step: contributions and counts enter, collectives add and
copy, a factor multiplies, unknown functions give unknowns. A buffer that is held at an owner
stands for the generic element, at the ranks that own it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from placement_proofs.prove.kernel.machine import Machine
from placement_proofs.prove.kernel.numbers import Num, Rank, Rejected, Row, Undecided, each, plus

Step: TypeAlias = Mapping[str, Any]
ENDS = ("first", "last")
SCALAR: Hashable = ()
"""The key of a number: what a count is made of."""


# --- ranks and expressions -------------------------------------------------------------------


def position(m: Machine, axis: str, name: str) -> int:
    """The coordinate of an owner or an end."""
    return m.at[f"{axis}:{name}"]


def is_at(m: Machine, rank: Rank, axis: str, name: str) -> bool:
    """Whether a rank is at (or with `!`, not at) a position."""
    here = rank[m.axes.index(axis)] == position(m, axis, name.removeprefix("!"))
    return here != name.startswith("!")


def meets(m: Machine, rank: Rank, places: Any) -> bool:
    """Whether a rank is at all of these positions."""
    return all(is_at(m, rank, axis, name) for axis, name in places)


def expression(m: Machine, tree: Any, look: Callable[[str], Num]) -> Num:
    """A number, the name of a size or of a scalar, or [operator, left, right]."""
    if isinstance(tree, int):
        return m.number(tree)
    if isinstance(tree, str):
        return m.number(m.sizes[tree], tree) if tree in m.sizes else look(tree)
    op, left, right = tree[0], *(expression(m, part, look) for part in tree[1:])
    match op:
        case "+":
            return left + right
        case "-":
            return left + right * m.number(-1)
        case "*":
            return left * right
        case "/":
            return left / right
    raise ValueError(op)


def local(m: Machine, tree: Any, rank: Rank) -> Num:
    """An expression on a rank, which reads its own scalars."""

    def look(name: str) -> Num:
        row = m.rows[name][rank]
        if set(row) - {SCALAR}:
            raise Rejected(f"{name} is no scalar")
        return row[SCALAR]

    return expression(m, tree, look)


def write(m: Machine, step: Step, buf: str, new: dict[Rank, Row], held: dict[str, str]) -> None:
    """Store what a step gives, on the ranks that run it; the others keep theirs."""
    places = step.get("at", ())
    if places:
        old = m.rows.get(buf) or {rank: {} for rank in new}
        if set(old) != set(new):
            raise Rejected(f"{buf}: a guarded write changes the layout")
        new = {r: row if meets(m, r, places) else old[r] for r, row in new.items()}
    m.rows[buf], m.held[buf] = new, held


# --- contributions ---------------------------------------------------------------------------


def indices(m: Machine, over: list[str]) -> Iterator[tuple[int, ...]]:
    """One index of a family for each way in which it meets the named positions, per axis."""
    choices = []
    for axis in over:
        if axis not in m.axes:
            choices.append([m.turn[axis]])
            continue
        named = {p for key, p in m.at.items() if key.rpartition(":")[0] == axis}
        rest = [i for i in range(m.sizes[axis]) if i not in named][:1]
        choices.append([*sorted(named), *rest])
    yield from itertools.product(*choices)


def member(m: Machine, family: str, over: list[str], index: tuple[int, ...]) -> Hashable:
    """The name of one contribution of this step of the specification."""
    at = zip(over, index, strict=True)
    return (family, m.ticks, *(("turn" if a in m.turn else "rank", a, i) for a, i in at))


def source(m: Machine, s: Step) -> None:
    """`dst = factor * c[own index]`, or `+=`; a count is a number."""
    over, held, summed = s["over"], s["held"], s["summed"]

    def own(rank: Rank, index: tuple[int, ...]) -> bool:
        here = zip(over, index, strict=True)
        mine = ((a, i) for a, i in here if a in m.axes and a not in summed)
        return all(
            i == (position(m, a, held[a]) if a in held else rank[m.axes.index(a)]) for a, i in mine
        )

    ranks = [rank for rank in m.ranks if meets(m, rank, held.items())]
    new: dict[Rank, Row]
    if s.get("count"):
        new = {rank: {SCALAR: _count(m, s, rank)} for rank in ranks}
    else:
        new = {
            rank: {
                member(m, s["family"], over, index): local(m, s["factor"], rank)
                for index in indices(m, over)
                if own(rank, index)
            }
            for rank in ranks
        }
    store(m, s, new, dict(held))


def _count(m: Machine, s: Step, rank: Rank) -> Num:
    """A rank's own count, or the sum over the axes on which it is already summed."""
    choices = [
        range(m.sizes[a])
        if a in s["summed"]
        else [m.turn[a] if a in m.turn else own_index(m, rank, a)]
        for a in s["over"]
    ]
    found = [counted(m, s["family"], s["over"], i) for i in itertools.product(*choices)]
    total = found[0]
    for number in found[1:]:
        total = total + number
    return total.more(m.degree(*s["summed"])) * local(m, s["factor"], rank)


def own_index(m: Machine, rank: Rank, axis: str) -> int:
    """The coordinate of a rank on an axis."""
    return rank[m.axes.index(axis)]


def counted(m: Machine, family: str, over: list[str], index: tuple[int, ...]) -> Num:
    """The value of one count; those that are assumed equal are one unknown."""
    atom = family if family in m.cert["equal"] else member(m, family, over, index)
    return m.number(m.count(atom), "counts")


def store(m: Machine, s: Step, new: dict[Rank, Row], held: dict[str, str]) -> None:
    """Overwrite a buffer, or add to it."""
    old = m.rows.get(s["dst"])
    if s["add"] and old is not None:
        if set(old) != set(new):
            raise Rejected(f"{s['dst']}: shards and whole tensors do not mix")
        pairs = {(id(old[r]), id(row)): plus(old[r], row) for r, row in _apart(old, new)}
        new = {r: pairs[id(old[r]), id(row)] for r, row in new.items()}
        held = m.held[s["dst"]]
    write(m, s, s["dst"], new, held)


def _apart(old: Mapping[Rank, Row], new: Mapping[Rank, Row]) -> Iterator[tuple[Rank, Row]]:
    """One rank for each pair of rows that ranks share."""
    yield from {(id(old[r]), id(row)): (r, row) for r, row in new.items()}.values()


def zero(m: Machine, s: Step) -> None:
    """Nothing, in the layout that the buffer has or is declared with."""
    held = s["held"] if "held" in s else m.held[s["dst"]]
    ranks = [rank for rank in m.ranks if meets(m, rank, held.items())]
    write(m, s, s["dst"], {rank: {} for rank in ranks}, dict(held))


def move(m: Machine, s: Step) -> None:
    """`dst = coef * src`, or `+=`."""
    rows = m.rows[s["src"]]
    if _names(s["coef"]) & set(m.rows):
        new = {r: _times(row, local(m, s["coef"], r)) for r, row in rows.items()}
    else:
        new = each(rows, partial(_times, by=local(m, s["coef"], m.ranks[0])))
    store(m, s, new, m.held[s["src"]])


def _names(tree: Any) -> set[str]:
    """The names in an expression."""
    if isinstance(tree, list):
        return set().union(*map(_names, tree[1:]))
    return {tree} if isinstance(tree, str) else set()


def _times(row: Row, by: Num) -> Row:
    return {key: number * by for key, number in row.items()}


def scale(m: Machine, s: Step) -> None:
    """Multiply by an expression."""
    move(m, {**s, "dst": s["buf"], "src": s["buf"], "coef": s["by"], "add": False})


# --- collectives -----------------------------------------------------------------------------


Cell: TypeAlias = tuple[dict[Rank, Row], dict[str, str]]
"""What the ranks have of a buffer, and the owners at which it is held."""


def reduce(m: Machine, s: Step) -> None:
    """The sum (or mean) over axes, for all ranks or, then, for an owner."""
    cell = (m.rows[s["buf"]], m.held[s["buf"]])
    for axis in s["axes"]:
        cell = _summed(m, cell, axis)
        if s["mean"]:
            by = m.number(1) / m.number(m.sizes[axis], axis)
            cell = each(cell[0], partial(_times, by=by)), cell[1]
    for axis in s["axes"] if s["to"] is not None else ():
        cell = _kept(m, cell, axis, s["to"])
    write(m, s, s["buf"], *cell)


def _summed(m: Machine, cell: Cell, axis: str) -> Cell:
    """A sum over the ranks of an axis; different shards do not add up, an end is alone."""
    rows, held = cell
    if axis in held:
        apart = held[axis] not in ENDS and m.sizes[axis] > 1
        return (each(rows, lambda row: _mixed(m, row, axis)) if apart else rows), held
    k = m.axes.index(axis)
    new: dict[Rank, Row] = {}
    groups: dict[Rank, list[Row]] = {}
    for rank, row in rows.items():
        groups.setdefault((*rank[:k], *rank[k + 1 :]), []).append(row)
    for group, parts in groups.items():
        _alike(m, parts)
        row = {key: number.more(m.degree(axis)) for key, number in plus(*parts).items()}
        new |= {(*group[:k], i, *group[k:]): row for i in range(m.sizes[axis])}
    return new, held


def _mixed(m: Machine, row: Row, axis: str) -> Row:
    inner = m.frozen(row)
    return plus(row, {("other elements", axis, inner): m.number(1)}) if inner else row


def _alike(m: Machine, rows: list[Row]) -> None:
    """What is divided by a count is added only where all that add it divide by the same."""
    counts = m.variables.index("counts")
    factors: dict[Hashable, set[object]] = {}
    for key, number in ((key, number) for row in rows for key, number in row.items()):
        if any(degrees[counts] for _, degrees in number.under):
            found = factors.setdefault(key, set())
            found |= {factor for factor in number.under if factor[1][counts]}
            if len(found) > 1:
                raise Undecided("a sum of values divided by the counts of several ranks")


def keep(m: Machine, s: Step) -> None:
    """Each rank keeps what it owns on an axis."""
    write(m, s, s["buf"], *_kept(m, (m.rows[s["buf"]], m.held[s["buf"]]), s["axis"], s["owner"]))


def _kept(m: Machine, cell: Cell, axis: str, owner: str) -> Cell:
    rows, held = cell
    kept = {r: row for r, row in rows.items() if is_at(m, r, axis, owner)}
    if not kept:
        raise Rejected(f"no rank at {owner} of {axis} has it, at {dict(m.sizes)}")
    return kept, {**held, axis: owner}


def take(m: Machine, s: Step) -> None:
    """Every rank of an axis gets what the one at a position has."""
    rows, held = _kept(m, (m.rows[s["buf"]], m.held[s["buf"]]), s["axis"], s["pos"])
    k, n = m.axes.index(s["axis"]), m.sizes[s["axis"]]
    new = {(*r[:k], i, *r[k + 1 :]): row for r, row in rows.items() for i in range(n)}
    write(m, s, s["buf"], new, {a: o for a, o in held.items() if a != s["axis"]})


# --- unknowns --------------------------------------------------------------------------------


def draw(m: Machine, s: Step) -> None:
    """An unknown, one for each position on the axes on which it varies."""
    one = m.number(1)
    ranks = [rank for rank in m.ranks if meets(m, rank, s["held"].items())]
    keys = {r: ("draw", s["name"], *((a, own_index(m, r, a)) for a in s["vary"])) for r in ranks}
    write(m, s, s["dst"], {r: {keys[r]: one} for r in ranks}, dict(s["held"]))


def apply(m: Machine, s: Step) -> None:
    """An unknown function, the same for the same arguments."""
    first = s["args"][0]
    new: dict[Rank, Row] = {}
    for rank in m.rows[first]:
        args = tuple(m.frozen(m.rows[name][rank]) for name in s["args"])
        new[rank] = {("function", s["fn"], args): m.number(1)}
    write(m, s, s["dst"], new, m.held[first])


def square(m: Machine, s: Step) -> None:
    """The sum of the squares of all elements that a rank stores: one unknown for each shard."""
    new = {rank: plus(*(_squares(m, src, rank) for src in s["srcs"])) for rank in m.ranks}
    write(m, s, s["dst"], new, {})


def _squares(m: Machine, src: str, rank: Rank) -> Row:
    held = m.held[src]
    if not meets(m, rank, [(a, o) for a, o in held.items() if o in ENDS]):
        return {}
    cut = {a: o for a, o in held.items() if o not in ENDS}
    owner = tuple(
        position(m, a, cut[a]) if a in cut else i for a, i in zip(m.axes, rank, strict=True)
    )
    row = m.rows[src].get(owner, {})
    shard = tuple((a, cut[a], i) for a, i in zip(m.axes, rank, strict=True) if a in cut)
    inner = m.frozen(row)
    return {("squares", inner, shard): m.number(1)} if inner else {}


STEPS: Mapping[str, Callable[[Machine, Step], None]] = {
    "source": source,
    "zero": zero,
    "move": move,
    "scale": scale,
    "reduce": reduce,
    "keep": keep,
    "take": take,
    "draw": draw,
    "apply": apply,
    "square": square,
}
