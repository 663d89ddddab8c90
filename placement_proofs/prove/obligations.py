"""The obligations of a run: gradient, state, norm, optimizer class and contracts."""

from __future__ import annotations

from itertools import pairwise

from placement_proofs.program import Buffer, Clip, Cover, Expect, Param, Program, Update, Use
from placement_proofs.program.rules import walk
from placement_proofs.prove.algebra import ONE
from placement_proofs.prove.forms import Form, Layout, minus, plus
from placement_proofs.prove.spec import plain_target, target, term_value
from placement_proofs.prove.state import Obligation, State
from placement_proofs.prove.values import function, shards, square

Where = list[tuple[str, str, bool]]


def oblige(
    state: State,
    condition: str,
    subject: str,
    got: Form,
    want: Form,
    layout: Layout,
    note: str = "",
    dependent: bool = False,
) -> bool:
    """Record one comparison; returns whether it holds."""
    got, want = _flat(state, got), _flat(state, want)
    holds = state.compare.equal(got, want, layout)
    state.obligations.append(
        Obligation(condition, state.path, subject, got, want, layout, holds, note, dependent)
    )
    return holds


def _flat(state: State, form: Form) -> Form:
    """The value with powers of flags written as flags."""
    if not state.flags:
        return form
    flat = ((key, state.atoms.flat(poly)) for key, poly in form.items())
    return {key: poly for key, poly in flat if poly}


def _declared(state: State, buffer: Buffer) -> tuple[Form, Layout]:
    """A copy as its declared layout sees it; where only a shard is left, the rest is absent."""
    form, actual = state.cell(buffer.name)
    layout = state.layout(buffer.held)
    for axis, owner in actual.items():
        if axis not in layout:
            form = state.algebra.at(form, axis, owner)
    common = {a: o for a, o in actual.items() if a in layout}
    form = state.relayout((form, common), {a: layout[a] for a in common})
    return state.algebra.settle(form, layout), layout


def _current(state: State, buffer: Buffer, where: Where, note: str, within: int = 0) -> bool:
    form, layout = _declared(state, buffer)
    want = _version(state, buffer, where, (form, layout), within)
    return oblige(
        state,
        "state_consistency",
        buffer.name,
        state.mask(form, where),
        state.mask(want, where),
        layout,
        note,
    )


def _version(
    state: State, buffer: Buffer, where: Where, cell: tuple[Form, Layout], within: int
) -> Form:
    """The current version, or the one of the few before it that the copy is."""
    form, layout = cell
    current = state.algebra.settle(state.current[buffer.of], layout)
    seen = state.mask(form, where)
    trained = bool(state.params[buffer.of].target)
    for back in range(1, min(within, state.tick if trained else 0) + 1):
        old = state.algebra.settle(state.version(buffer.of, state.tick - back), layout)
        if state.compare.equal(seen, state.mask(old, where), layout):
            return old
    return current


def use(state: State, step: Use) -> None:
    """A pass reads a copy: it must be the current version."""
    buffer = state.copies[step.buf]
    where = state.where(step.g, state.layout(buffer.held))
    if where is not None:
        late = f"none of the last {step.within + 1} versions" if step.within else "not current"
        _current(state, buffer, where, f"the copy that is read is {late}", step.within)


def update(state: State, step: Update) -> None:
    """The optimizer updates a copy: its gradient, its old value and its class are checked."""
    buffer = state.copies[step.buf]
    param = state.params[buffer.of]
    old, layout = state.cell(step.buf)
    where = state.where(step.g, layout)
    if where is None:
        return
    current = _current(state, buffer, where, "the copy that is updated is not current")
    grad, extra = _gradient(state, step, layout)
    joint = {**layout, **extra}
    want = state.algebra.settle(target(state, param), joint)
    shown = state.mask(grad, where)
    right = oblige(state, "gradient_integrity", param.name, shown, state.mask(want, where), joint)
    whole = _class(state, param, joint)
    named = _hyper(state, step, param)
    if right and current and whole and named:
        new = state.version(param.name, state.tick + 1)
    else:
        pair = (state.seen(old, where), state.seen(want if right else grad, where))
        new = _opaque(state, step, param, pair, joint)
    _written(state, step, param, new, joint)
    for axis, owner in extra.items():
        new = plus(
            state.algebra.at(new, axis, owner),
            minus(old, state.algebra.at(old, axis, owner)),
        )
    state.write(step.buf, new, layout, step.g)


def _gradient(state: State, step: Update, layout: Layout) -> tuple[Form, Layout]:
    """The gradient in the layout of its parameter, and the axes on which it is smaller."""
    form, actual = state.cell(step.grad)
    common = {a: o for a, o in actual.items() if a in layout}
    form = state.relayout((form, common), {a: layout[a] for a in common})
    extra = {a: o for a, o in actual.items() if a not in layout}
    return state.algebra.settle(form, {**layout, **extra}), extra


def _class(state: State, param: Param, layout: Layout) -> bool:
    if param.update != "whole":
        return True
    cut = [axis for axis, owner in layout.items() if shards(owner)]
    missing: Form = {}
    for axis in cut:
        missing = plus(missing, state.algebra.opaque("shards", (param.name, axis), -1, ()))
    note = f"the whole-tensor update of {param.name} sees only a shard on {', '.join(cut)}"
    return oblige(state, "optimizer_class", param.name, missing, {}, {}, note if cut else "")


def _hyper(state: State, step: Update, param: Param) -> bool:
    if step.hyper is None:
        return True
    names = [state.algebra.opaque("hyper", h, -1, ()) for h in (step.hyper, param.hyper)]
    note = f"hyper-parameters {', '.join(step.hyper)}, not {', '.join(param.hyper)}"
    return oblige(state, "contract", param.name, names[0], names[1], {}, note)


def _opaque(
    state: State, step: Update, param: Param, pair: tuple[Form, Form], layout: Layout
) -> Form:
    hyper = param.hyper if step.hyper is None else step.hyper
    whole = param.update == "whole"
    return function(state, f"update {param.name} {' '.join(hyper)}", pair, layout, whole)


def _written(state: State, step: Update, param: Param, new: Form, layout: Layout) -> None:
    where = state.where(step.g, layout) or []
    negated = any(flag for _, _, flag in where)
    seen = state.algebra.settle(state.seen(new, where), layout)
    uniform = None if negated or state.algebra.varying(seen) else seen
    if uniform is None and not negated and not state.algebra.varying(state.mask(new, where)):
        uniform = seen
    state.writes.setdefault(param.name, {})[step.buf, step.g.at] = uniform


def tick(state: State) -> None:
    """The specification completes its step; copies must have been updated alike."""
    for param in state.program.params:
        if param.target:
            _advance(state, param)
    state.tick += 1
    state.writes = {}


def _advance(state: State, param: Param) -> None:
    true = state.version(param.name, state.tick + 1)
    forms = list(state.writes.get(param.name, {}).values())
    agreed = true
    if forms:
        known = [form for form in forms if form is not None]
        same = len(known) == len(forms) and all(
            state.compare.equal(a, b, {}) for a, b in pairwise(known)
        )
        other = state.algebra.opaque("unequal", (param.name, state.tick), -1, ())
        note = "copies were updated to different values"
        oblige(state, "state_consistency", param.name, {} if same else other, {}, {}, note)
        if same:
            agreed = known[0]
    state.current[param.name] = true
    if agreed != true:
        _rename(state, agreed, true)


def _rename(state: State, old: Form, new: Form) -> None:
    """What all writers wrote is the new version, right or wrong: later faults stay apart."""
    if len(old) != 1:
        return
    (((symbol, tags), poly),) = old.items()
    ((version, _),) = new
    columns = {axis: column for axis, _, column in tags if column}
    if poly != ONE or state.symbols.symbols[symbol].kind != "function":
        return
    for name, (form, layout) in state.env.items():
        if not any(key[0] == symbol for key in form):
            continue
        renamed: Form = {}
        for (other, where), coef in form.items():
            same = other == symbol and {a: c for a, _, c in where if c} == columns
            rows = tuple((a, r, "") for a, r, _ in where if r)
            renamed = plus(renamed, {(version, rows) if same else (other, where): coef})
        state.env[name] = (renamed, layout)


def expect(state: State, step: Expect) -> None:
    """A contract beyond parameters and gradients."""
    form, layout = state.cell(step.buf)
    where = state.where(step.g, layout)
    if where is None:
        return
    if step.kind == "agree":
        _agree(state, step, form, layout, where)
        return
    if step.kind == "drawn":
        _drawn(state, step, form, layout, where)
        return
    if step.kind == "is":
        want: Form = {}
        for term in step.target:
            want = plus(want, term_value(state, term))
        want = state.algebra.settle(want, layout)
    else:
        want, other = state.cell(step.other)
        state.same_layout(step.other, layout, other, "compared values are alike")
    oblige(
        state,
        "contract",
        step.buf,
        state.mask(form, where),
        state.mask(want, where),
        layout,
        step.about,
    )


def _agree(state: State, step: Expect, form: Form, layout: Layout, where: Where) -> None:
    seen = state.seen(form, where)
    axes = set(step.axes or state.program.axes) - set(layout) - set(state.size.ones)
    varying = sorted(state.algebra.varying(seen) & axes)
    want = plus(seen, state.algebra.opaque("unequal", tuple(varying), -1, ())) if varying else seen
    oblige(state, "contract", step.buf, seen, want, layout, step.about)


def _drawn(state: State, step: Expect, form: Form, layout: Layout, where: Where) -> None:
    """One fresh number for each position on the axes, the same on all others."""
    seen = state.seen(form, where)
    axes = set(step.axes) - set(state.size.ones)
    right = len(seen) == 1 and not layout and set(seen.values()) == {ONE}
    for symbol, tags in seen:
        own = {(axis, row) for axis, row, _ in tags if axis in state.order}
        fresh = state.symbols.symbols[symbol].kind in ("contribution", "draw")
        right = right and fresh and own == {(axis, "=") for axis in axes}
    want = seen if right else plus(seen, state.algebra.opaque("undrawn", step.buf, -1, ()))
    oblige(state, "contract", step.buf, seen, want, layout, step.about)


def cover(state: State, step: Cover) -> None:
    """How rows are cut: right for all sizes, or for the sizes that are known.

    Rounded down, a remainder is on no rank; rounded up, all rows are on some rank, but not
    equally many. Both are right where the axis divides the rows, and on one rank.
    """
    fixed = state.fixed
    divides = step.divides or step.axis in state.size.ones
    if step.rows in fixed and step.axis in fixed:
        divides = divides or fixed[step.rows] % fixed[step.axis] == 0
    right = divides or (step.up and not step.even)
    lost: Form = {} if right else state.algebra.opaque("rows", (step.rows, step.axis), -1, ())
    note = "every rank has equally many rows" if step.even else "every row is on some rank"
    oblige(state, "contract", step.rows, lost, {}, {}, note)


# --- norms ---------------------------------------------------------------------------


def grad_params(program: Program) -> dict[str, str]:
    """The parameter of each gradient buffer that an update reads."""
    of = {b.name: b.of for b in program.buffers}
    return {s.grad: of[s.buf] for s in walk(program.steps) if isinstance(s, Update)}


def norm(state: State, step: Clip) -> None:
    """The squared norm must count every element of the group's gradients once."""
    of = grad_params(state.program)
    own = {of[name] for name in step.bufs if name in of}
    groups = {p.clip for p in state.program.params if p.name in own and p.clip is not None}
    want: Form = {}
    sound = True
    for param in state.program.params:
        if param.name not in own and param.clip not in groups:
            continue
        bufs = [name for name in step.bufs if of.get(name) == param.name]
        target = plain_target(state, param)
        actual = _agreed(state, bufs, step) if bufs else target
        sound = sound and actual is not None and state.compare.equal(actual, target, {})
        want = plus(want, square(state, target if actual is None else actual, {}))
    for name in step.bufs:
        if name not in of:
            actual = _agreed(state, [name], step)
            sound = sound and actual is not None
            want = plus(want, square(state, actual or {}, {}))
    form, layout = state.cell(step.by)
    where = state.where(step.g, layout)
    if where is None:
        return
    oblige(
        state,
        "norm_integrity",
        step.by,
        state.mask(form, where),
        state.mask(want, where),
        layout,
        "square of the global norm",
        dependent=not sound,
    )


def _agreed(state: State, names: list[str], step: Clip) -> Form | None:
    """The value on which all holders agree, or None."""
    found: Form | None = None
    for name in names:
        form, layout = state.cell(name)
        where = state.where(step.g, layout)
        if where is None:
            continue
        seen = state.algebra.settle(state.seen(form, where), layout)
        if state.algebra.varying(seen):
            return None
        if found is not None and not state.compare.equal(seen, found, {}):
            return None
        found = seen
    return found
