"""The meaning of each step on abstract values: one run covers all sizes of a size class."""

from __future__ import annotations

from placement_proofs.program import (
    Apply,
    Clip,
    Cover,
    Expect,
    Init,
    Loop,
    Move,
    Reduce,
    Sample,
    Scale,
    Slice,
    Source,
    Square,
    Step,
    Take,
    Tick,
    Update,
    Use,
)
from placement_proofs.program.expr import is_zero
from placement_proofs.prove.algebra import ONE, Poly
from placement_proofs.prove.forms import Form, Layout, Symbol, Tag, plus, times
from placement_proofs.prove.loops import run_loop
from placement_proofs.prove.obligations import cover, expect, norm, tick, update, use
from placement_proofs.prove.spec import family
from placement_proofs.prove.state import State
from placement_proofs.prove.values import clip_factor, function, square, top


def run(state: State, steps: tuple[Step, ...], prefix: tuple[int, ...] = ()) -> None:
    """Run steps in order; obligations and buffers accumulate in the state."""
    for index, step in enumerate(steps):
        state.path = (*prefix, index)
        if state.runs(step.g):
            run_step(state, step)


def run_step(state: State, step: Step) -> None:
    """Run one step."""
    match step:
        case Loop():
            run_loop(state, step, run)
        case Source() | Init() | Sample() | Scale() | Move() | Apply() | Square() | Clip():
            _local(state, step)
        case Reduce() | Take() | Slice():
            _transfer(state, step)
        case Use():
            use(state, step)
        case Update():
            update(state, step)
        case Expect():
            expect(state, step)
        case Tick():
            tick(state)
        case Cover():
            cover(state, step)


def _local(
    state: State, step: Source | Init | Sample | Scale | Move | Apply | Square | Clip
) -> None:
    match step:
        case Sample():
            _sample(state, step)
        case Source():
            _source(state, step)
        case Init():
            layout = state.layout(step.held)
            vary = [axis for axis in step.vary if axis not in state.size.ones]
            drawn = state.algebra.opaque("draw", step.name, -1, vary)
            state.write(step.dst, state.algebra.settle(drawn, layout), layout, step.g)
        case Scale():
            form, layout = state.cell(step.buf)
            scaled = scale(state, form, state.expr(step.by, local=True), layout)
            state.write(step.buf, scaled, layout, step.g)
        case Move():
            _move(state, step)
        case Apply():
            _apply(state, step)
        case Square():
            total: Form = {}
            for name in step.srcs:
                total = plus(total, square(state, *state.cell(name)))
            state.write(step.dst, total, {}, step.g)
        case Clip():
            _clip(state, step)


def scale(state: State, form: Form, by: Poly, layout: Layout) -> Form:
    """A value times a coefficient that may differ from rank to rank."""
    if not state.atoms.marks(by):
        return times(form, by)
    result: Form = {}
    for (symbol, tags), poly in form.items():
        product = poly * by
        for axis, row, _ in tags:
            if row:
                new = "c" if row == "=" else f"@{row}"
                product = state.atoms.rename(product, axis, ("r",), new)
        for axis, owner in layout.items():
            product = state.atoms.rename(product, axis, ("r",), f"@{owner}")
        result = plus(result, {(symbol, tags): product})
    return result


def _source(state: State, step: Source) -> None:
    layout = state.layout(step.held)
    tags: list[Tag] = []
    for axis in step.over:
        if axis in state.size.ones or axis in step.summed:
            continue
        if axis not in state.order:
            tags.append((axis, "", state.turns[axis]))
        elif axis in layout:
            tags.append((axis, "", layout[axis]))
        else:
            tags.append((axis, "=", "="))
    form: Form = {(family(state, step.family, step.over), tuple(sorted(tags))): ONE}
    form = scale(state, form, state.expr(step.factor, local=True), layout)
    _store(state, step.dst, form, layout, step)


def _sample(state: State, step: Sample) -> None:
    drawn = state.drawn[state.path]
    keyed = [axis for axis in step.key if axis not in state.size.ones]
    name = f"{drawn.family}~{','.join(keyed)}" if keyed else drawn.family
    over = [a for a in (*step.index, *keyed, *drawn.loops) if a not in state.size.ones]
    tags = [(a, "=", "=") if a in state.order else (a, "", state.turns[a]) for a in over]
    symbol = Symbol("contribution", name, state.tick, tuple(sorted(over)))
    form: Form = {(state.symbols.id(symbol), tuple(sorted(tags))): ONE}
    state.write(step.dst, form, {}, step.g)


def _store(state: State, name: str, form: Form, layout: Layout, step: Source | Move) -> None:
    if step.add and name in state.env:
        old, old_layout = state.env[name]
        if list(old_layout) != list(layout):
            state.same_layout(name, old_layout, layout, "shards and full tensors do not mix")
        form = plus(old, state.relayout((form, layout), old_layout))
        layout = old_layout
    state.write(name, form, layout, step.g)


def _move(state: State, step: Move) -> None:
    if is_zero(step.coef):
        if not step.add:
            state.write(step.dst, {}, state.cell(step.dst)[1], step.g)
        return
    form, layout = state.cell(step.src)
    moved = scale(state, form, state.expr(step.coef, local=True), layout)
    _store(state, step.dst, moved, layout, step)


def _apply(state: State, step: Apply) -> None:
    cells = [state.cell(name) for name in step.args]
    layout = cells[0][1]
    for name, (_, other) in zip(step.args, cells, strict=True):
        state.same_layout(name, layout, other, "arguments of a function are alike")
    where = state.where(step.g, layout)
    if where is None:
        return
    args = tuple(state.seen(form, where) for form, _ in cells)
    value = function(state, step.fn, args, layout, step.whole)
    state.write(step.dst, value, layout, step.g)


def _clip(state: State, step: Clip) -> None:
    norm(state, step)
    by = state.cell(step.by)[0]
    for name in step.bufs:
        form, layout = state.cell(name)
        where = state.where(step.g, layout)
        if where is None:
            continue
        factor = clip_factor(state, state.seen(by, where))
        state.write(name, scale(state, form, factor, layout), layout, step.g)


# --- transfers -----------------------------------------------------------------------


def _transfer(state: State, step: Reduce | Take | Slice) -> None:
    form, layout = state.cell(step.buf)
    match step:
        case Reduce():
            form, layout = _reduced(state, step, form, layout)
        case Take():
            form, layout = _taken(state, step, form, layout)
        case Slice():
            form, layout = _sliced(state, step, form, layout, {step.axis: step.owner})
    state.write(step.buf, form, layout, step.g)


def _reduced(state: State, step: Reduce, form: Form, layout: Layout) -> tuple[Form, Layout]:
    if step.top:
        return top(state, form, step.axes), layout
    for axis in step.axes:
        if axis in state.size.ones:
            continue
        owner = layout.get(axis)
        if owner is None:
            form = state.algebra.sum(form, axis, state.length(axis))
        elif owner not in ("first", "last"):
            form = plus(form, state.other("sum", form, axis))
        if step.mean:
            form = times(form, state.atoms.inverse(state.length(axis)))
    if step.to is None:
        return form, layout
    return _sliced(state, step, form, layout, dict.fromkeys(step.axes, step.to))


def _taken(state: State, step: Take, form: Form, layout: Layout) -> tuple[Form, Layout]:
    axis = step.axis
    if axis in state.size.ones:
        return form, layout
    position = state.positions.name(axis, step.pos)
    rest = {a: o for a, o in layout.items() if a != axis}
    if axis in layout:
        return state.relayout((form, layout), {**rest, axis: position}), rest
    return state.algebra.take(form, axis, position), layout


def _sliced(
    state: State, step: Slice | Reduce, form: Form, layout: Layout, cuts: Layout
) -> tuple[Form, Layout]:
    new = dict(layout)
    for axis, owner in cuts.items():
        owner = state.positions.name(axis, owner)
        if axis in state.size.ones:
            continue
        if layout.get(axis, owner) != owner:
            state.same_layout(step.buf, layout, {**layout, axis: owner}, "a shard is not cut again")
        new[axis] = owner
    new = state.layout(tuple(new.items()))
    return state.algebra.settle(form, new), new
