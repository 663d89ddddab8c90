"""The specification of an abstract run: targets of the current step, as values."""

from __future__ import annotations

from placement_proofs.program import Param, Term
from placement_proofs.prove.algebra import ONE
from placement_proofs.prove.forms import Form, Symbol, plus, times
from placement_proofs.prove.state import State
from placement_proofs.prove.values import clip_factor, function, square, top


def family(state: State, family: str, over: tuple[str, ...]) -> int:
    """The symbol of a family of contributions (or counts) of this step."""
    kind = "count" if family in state.counts else "contribution"
    if family in state.streams:
        over = tuple(axis for axis in over if axis not in state.size.ones)
    return state.symbols.id(Symbol(kind, family, state.tick, tuple(sorted(over))))


def term_value(state: State, term: Term) -> Form:
    """A term of a target or contract."""
    form = _members(state, term)
    if term.fn == "max":
        return top(state, form, tuple(axis for axis in term.over if axis in state.order))
    if not term.fn:
        return form
    args = (form, *(_members(state, other) for other in term.more))
    return function(state, term.fn, args, {}, False)


def _members(state: State, term: Term) -> Form:
    """The sum of the members of a family, or the rank's own ones."""
    over = tuple(axis.lstrip("@") for axis in term.over)
    tags: list[tuple[str, str, str]] = []
    for name in term.over:
        axis = name.lstrip("@")
        own = axis != name or (term.fn == "max" and axis in state.order)
        if not own or axis in state.size.ones:
            continue
        if axis in state.order:
            tags.append((axis, "=", "="))
        else:
            tags.append((axis, "", state.turns[axis]))
    key = (family(state, term.family, over), tuple(sorted(tags)))
    marks = tuple((a, "c") for a in sorted(over) if a not in state.size.ones)
    weight = ONE
    for name in term.weights:
        weight = weight * state.count(name, state.tick, (), marks)
    return times({key: weight}, state.expr(term.coef, local=False))


def plain_target(state: State, param: Param) -> Form:
    """The gradient of the current step on one device, before clipping."""
    key = (param.name, state.tick - param.late)
    if key not in state.targets:
        now = state.tick
        state.tick = now - param.late
        state.targets[key] = _summed(state, param) if state.tick >= 0 else {}
        state.tick = now
    return state.targets[key]


def _summed(state: State, param: Param) -> Form:
    total: Form = {}
    for term in param.target:
        total = plus(total, term_value(state, term))
    return total


def target(state: State, param: Param) -> Form:
    """The gradient of the current step on one device."""
    plain = plain_target(state, param)
    if param.clip is None:
        return plain
    norm: Form = {}
    for member in state.program.params:
        if member.clip == param.clip:
            norm = plus(norm, square(state, plain_target(state, member), {}))
    return times(plain, clip_factor(state, norm))
