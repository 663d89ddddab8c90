"""The specification of an abstract run: targets of the current step, as values."""

from __future__ import annotations

from placement_proofs.program import Param, Term
from placement_proofs.prove.algebra import ONE
from placement_proofs.prove.forms import Form, Symbol, plus, times
from placement_proofs.prove.state import State
from placement_proofs.prove.values import clip_factor, function, square


def family(state: State, family: str, over: tuple[str, ...]) -> int:
    """The symbol of a family of contributions (or counts) of this step."""
    kind = "count" if family in state.counts else "contribution"
    return state.symbols.id(Symbol(kind, family, state.tick, tuple(sorted(over))))


def term_value(state: State, term: Term) -> Form:
    """A term of a target or contract."""
    over = tuple(axis.lstrip("@") for axis in term.over)
    tags: list[tuple[str, str, str]] = []
    for name in term.over:
        axis = name.lstrip("@")
        if axis == name or axis in state.size.ones:
            continue
        if axis in state.order:
            tags.append((axis, "=", "="))
        else:
            tags.append((axis, "", state.turns[axis]))
    key = (family(state, term.family, over), tuple(sorted(tags)))
    form: Form = times({key: ONE}, state.expr(term.coef, local=False))
    return function(state, term.fn, (form,), {}, False) if term.fn else form


def plain_target(state: State, param: Param) -> Form:
    """The gradient of the current step on one device, before clipping."""
    key = (param.name, state.tick)
    if key not in state.targets:
        total: Form = {}
        for term in param.target:
            total = plus(total, term_value(state, term))
        state.targets[key] = total
    return state.targets[key]


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
