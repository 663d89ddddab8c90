"""Loops: a few turns are run, and an induction shows that they stand for all.

Every step is linear in what earlier turns left behind and does not look at which turn left
it. So if the contributions of a turn have the same coefficients after a further turn as
before it (accumulated), or none (overwritten), and each turn adds its own in the same way,
then every later turn repeats this. A loop in which the specification ticks must reproduce
its state with all steps moved by one. A loop that does neither is unrolled to exact lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from placement_proofs.program import (
    ALWAYS,
    Apply,
    Init,
    Loop,
    Move,
    Sample,
    Source,
    Square,
    Step,
    Tick,
)
from placement_proofs.program.expr import is_zero, names_of, parse_expr
from placement_proofs.program.rules import delay, walk
from placement_proofs.prove.algebra import ONE, ZERO, Count, Mono, Poly, mono_poly
from placement_proofs.prove.forms import Form, Key, Symbol, plus, with_tag
from placement_proofs.prove.rewrite import Mentions, Rewriter
from placement_proofs.prove.state import Cell, State

Run: TypeAlias = Callable[[State, tuple[Step, ...], tuple[int, ...]], None]
Env: TypeAlias = dict[str, Cell]


class NotInductive(Exception):
    """A few turns of a loop do not stand for all."""

    def __init__(self, loop: str, turns: int = 3) -> None:
        super().__init__(loop)
        self.loop = loop
        self.turns = turns
        """Up to how many turns are run instead."""


def run_loop(state: State, step: Loop, run: Run) -> None:
    """Run a loop for every length that the size class allows."""
    path = state.path
    loop = step.axis
    if loop in state.size.bounded:
        _unrolled(state, step, run, state.size.bounded[loop])
    elif any(isinstance(inner, Tick) for inner in walk(step.body)):
        _ticking(state, step, run)
    else:
        _summed(state, step, run)
    state.turns.pop(loop, None)
    state.ends.pop(loop, None)
    state.path = path


LAST = -1


def _turn(state: State, step: Loop, run: Run, index: int, last: bool) -> None:
    path = state.path
    state.turns[step.axis] = "last" if index == LAST else f"#{index}"
    state.ends[step.axis] = (index == 0, last)
    run(state, step.body, path)
    state.path = path


def _alone(state: State, step: Loop) -> bool:
    return step.axis in state.size.ones


def _has_last(step: Loop) -> bool:
    return any(
        loop == step.axis and test.endswith("last")
        for inner in walk(step.body)
        for loop, test in inner.g.turns
    )


# --- exact lengths -------------------------------------------------------------------


def _unrolled(state: State, step: Loop, run: Run, turns: int) -> None:
    for index in range(turns):
        _turn(state, step, run, index, index == turns - 1)
    names = [f"#{index}" for index in range(turns)]
    mentions = Mentions(state.symbols, step.axis)
    for name, (form, layout) in state.env.items():
        state.env[name] = (_merge(form, step.axis, names, mentions), layout)


def _merge(form: Form, loop: str, names: list[str], mentions: Mentions) -> Form:
    """Write equal coefficients of all turns as one sum over the turns."""
    groups: dict[Key, dict[str, Poly]] = {}
    result: Form = {}
    for (symbol, tags), poly in form.items():
        own = [tag for tag in tags if tag[0] == loop and tag[2] in names]
        if own:
            rest = (symbol, with_tag(tags, loop, "", ""))
            groups.setdefault(rest, {})[own[0][2]] = poly
        else:
            result = plus(result, {(symbol, tags): poly})
    for key, parts in groups.items():
        first = next(iter(parts.values()))
        alike = len(parts) == len(names) and all(poly == first for poly in parts.values())
        if alike and not mentions.of(key, first):
            result = plus(result, {key: first})
            continue
        for turn, poly in parts.items():
            result = plus(result, {(key[0], with_tag(key[1], loop, "", turn)): poly})
    return result


# --- any length ----------------------------------------------------------------------


def _dead(step: Loop) -> set[str]:
    """Buffers that the body overwrites before it reads them: they carry nothing over."""
    seen: set[str] = set()
    dead: set[str] = set()
    for inner in step.body:
        names = _names(inner)
        target = _overwritten(inner)
        if target is not None and target not in seen:
            dead.add(target)
        seen |= names
    return dead


def _names(step: Step) -> set[str]:
    found: set[str] = set()
    for inner in walk((step,)):
        for slot in ("dst", "src", "buf", "grad", "other"):
            found.add(str(getattr(inner, slot, "")))
        for slot in ("by", "factor", "coef"):
            found.update(names_of(parse_expr(getattr(inner, slot, "0"))))
        for slot in ("args", "srcs", "bufs"):
            found.update(getattr(inner, slot, ()))
    return found


def _overwritten(step: Step) -> str | None:
    match step:
        case Source(dst=dst, add=False, factor="1", g=guard) | Init(dst=dst, g=guard):
            return dst if guard == ALWAYS else None
        case Sample(dst=dst, g=guard):
            return dst if guard == ALWAYS else None
        case Move(dst=dst, src=src, add=False, coef=coef, g=guard):
            plain = guard == ALWAYS and coef == "1" and src != dst and not is_zero(coef)
            return dst if plain else None
        case Apply(dst=dst, args=names, g=guard) | Square(dst=dst, srcs=names, g=guard):
            return dst if guard == ALWAYS and dst not in names else None
        case _:
            return None


def _summed(state: State, step: Loop, run: Run) -> None:
    loop = step.axis
    before = (dict(state.current), state.tick, _copy(state.writes))
    last = _has_last(step)
    _turn(state, step, run, 0, _alone(state, step))
    if _alone(state, step):
        return
    dead = _dead(step)
    first = dict(state.env)
    _turn(state, step, run, 1, False)
    second = dict(state.env)
    mentions = Mentions(state.symbols, loop)
    gone = _check_turn(state, loop, first, second, mentions, dead)
    if gone:
        _turn(state, step, run, 2, False)
        _check_third(state, loop, second, dict(state.env), mentions)
        state.env = dict(second)
    if (state.current, state.tick, state.writes) != before:
        raise NotInductive(loop)
    if not last:
        state.env = {
            name: _collapse(state, loop, first.get(name), cell, mentions)
            for name, cell in second.items()
        }
        return
    state.env = {
        name: _but_last(state, loop, first[name], cell, mentions, name in dead)
        for name, cell in second.items()
    }
    _turn(state, step, run, LAST, True)


def _split(form: Form, mentions: Mentions) -> dict[frozenset[str], Form]:
    parts: dict[frozenset[str], Form] = {}
    for key, poly in form.items():
        for turns, piece in _by_turn(key, poly, mentions).items():
            parts.setdefault(turns, {})[key] = piece
    return parts


def _by_turn(key: Key, poly: Poly, mentions: Mentions) -> dict[frozenset[str], Poly]:
    whole = mentions.of(key, poly)
    if len(whole) < 2 or len(poly.terms) == 1:
        return {whole: poly}
    found: dict[frozenset[str], Poly] = {}
    for mono, value in poly.terms.items():
        piece = mono_poly(mono, value)
        turns = mentions.of(key, piece)
        found[turns] = found.get(turns, ZERO) + piece
    return found


NONE: frozenset[str] = frozenset()
ZEROTH, FIRST, SECOND = (frozenset({f"#{i}"}) for i in range(3))


def _check_turn(
    state: State, loop: str, first: Env, second: Env, mentions: Mentions, dead: set[str]
) -> bool:
    """Compare the states after one and two turns; whether a live value was overwritten."""
    back = Rewriter(state.symbols, {(loop, "#1"): "#0"})
    gone = False
    for name, (form, layout) in second.items():
        if name not in first or first[name][1] != layout:
            raise NotInductive(loop)
        was = _split(first[name][0], mentions)
        now = _split(form, mentions)
        past, fresh = now.pop(ZEROTH, {}), now.pop(FIRST, {})
        same = now.get(NONE, {}) == was.get(NONE, {}) and set(now) <= {NONE}
        if not same or back.form(fresh) != was.get(ZEROTH, {}):
            raise NotInductive(loop)
        begun = was.get(ZEROTH, {})
        if any(begun.get(key) != poly for key, poly in past.items()):
            raise NotInductive(loop)
        gone = gone or (name not in dead and len(past) < len(begun))
    return gone


def _check_third(state: State, loop: str, second: Env, third: Env, mentions: Mentions) -> None:
    """What survived one further turn must survive all."""
    for name, (form, _) in third.items():
        was = _split(second[name][0], mentions).get(ZEROTH, {})
        now = _split(form, mentions)
        if now.get(ZEROTH, {}) != was:
            raise NotInductive(loop)
        back = Rewriter(state.symbols, {(loop, "#2"): "#1"})
        if back.form(now.get(SECOND, {})) != _split(second[name][0], mentions).get(FIRST, {}):
            raise NotInductive(loop)
        back = Rewriter(state.symbols, {(loop, "#1"): "#0"})
        if back.form(now.get(FIRST, {})) != was:
            raise NotInductive(loop)


def _collapse(state: State, loop: str, first: Cell | None, cell: Cell, mentions: Mentions) -> Cell:
    """The value after any number of turns, from those after one and two."""
    form, layout = cell
    parts = _split(form, mentions)
    was = _split(first[0], mentions).get(ZEROTH, {}) if first else {}
    past = parts.get(ZEROTH, {})
    result = dict(parts.get(NONE, {}))
    for key, poly in was.items():
        closed = _family(state, loop, "#0", key, poly, "" if key in past else "last")
        result = plus(result, closed)
    return result, layout


def _but_last(
    state: State, loop: str, first: Cell, cell: Cell, mentions: Mentions, dead: bool
) -> Cell:
    """The value before the last turn: the sum over all turns but that one."""
    form, layout = cell
    parts = _split(form, mentions)
    past = parts.get(ZEROTH, {})
    result = dict(parts.get(NONE, {}))
    for key, poly in _split(first[0], mentions).get(ZEROTH, {}).items():
        if key in past:
            result = plus(result, _family(state, loop, "#0", key, poly, ""))
            result = plus(result, _family(state, loop, "#0", key, -poly, "last"))
        elif not dead:
            raise NotInductive(loop)
    return result, layout


def _family(state: State, loop: str, turn: str, key: Key, poly: Poly, column: str) -> Form:
    """One term per turn, as a family over the turns: all of them, or only the last."""
    symbol, tags = key
    own = any(axis == loop and col == turn for axis, _, col in tags)
    inside = bool(Mentions(state.symbols, loop).symbol(symbol))
    if not own and not inside:
        return _count_sum(state, loop, turn, key, poly, column)
    bound = Rewriter(state.symbols, {(loop, turn): "~"})
    index = bound.symbol(symbol) if inside else symbol
    if inside:
        old = state.symbols.symbols[index]
        dims = tuple(sorted({*old.dims, loop}))
        index = state.symbols.id(Symbol(old.kind, old.data, old.tick, dims))
    return {(index, with_tag(tags, loop, "", column)): bound.poly(poly)}


def _count_sum(state: State, loop: str, turn: str, key: Key, poly: Poly, column: str) -> Form:
    """A coefficient that is a count of the turn: its sum is a total."""
    total = ZERO
    for mono, value in poly.terms.items():
        total = total + _count_mono(state, loop, turn, mono, column) * mono_poly((), value)
    return {key: total} if total else {}


def _count_mono(state: State, loop: str, turn: str, mono: Mono, column: str) -> Poly:
    product = ONE
    changed = 0
    for index, power in mono:
        atom = state.atoms.atoms[index]
        if isinstance(atom, Count) and (loop, turn) in atom.turns:
            changed += power if power == 1 else 2
            turns = tuple((a, (column or "*") if a == loop else t) for a, t in atom.turns)
            product = product * state.count(atom.family, atom.tick, turns, atom.marks)
        else:
            product = product * mono_poly(((index, power),))
    if changed != 1:
        raise NotInductive(loop)
    return product


# --- steps of the specification ------------------------------------------------------


def _ticking(state: State, step: Loop, run: Run) -> None:
    loop = step.axis
    _turn(state, step, run, 0, _alone(state, step))
    if _alone(state, step):
        return
    dead = _dead(step)
    longest = delay(state.program)
    previous = _snapshot(state, dead)
    for index in range(1, max(2, longest + 1) + 1):
        _turn(state, step, run, index, False)
        here = _snapshot(state, dead)
        if index >= longest and _moved(state, loop, index, previous) == here:
            break
        previous = here
    else:
        raise NotInductive(loop, longest + 2)
    later = len(state.path) > 1 or state.path[0] + 1 < len(state.program.steps)
    if index > 1 and (later or _has_last(step)):
        raise NotInductive(loop, longest + 2)
    if _has_last(step):
        _turn(state, step, run, index + 1, True)


Writes: TypeAlias = dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], Form | None]]


def _copy(writes: Writes) -> Writes:
    return {name: dict(values) for name, values in writes.items()}


@dataclass(frozen=True)
class _Snapshot:
    """What one turn hands on to the next."""

    env: dict[str, Cell]
    current: dict[str, Form]
    writes: Writes


def _snapshot(state: State, dead: set[str]) -> _Snapshot:
    env = {name: cell for name, cell in state.env.items() if name not in dead}
    return _Snapshot(env, dict(state.current), _copy(state.writes))


def _moved(state: State, loop: str, index: int, old: _Snapshot) -> _Snapshot:
    """The snapshot one step of the specification later."""
    move = Rewriter(state.symbols, {(loop, f"#{index - 1}"): f"#{index}"}, shift=1)
    return _Snapshot(
        {name: (move.form(form), layout) for name, (form, layout) in old.env.items()},
        {name: move.form(form) for name, form in old.current.items()},
        {
            name: {key: None if form is None else move.form(form) for key, form in forms.items()}
            for name, forms in old.writes.items()
        },
    )
