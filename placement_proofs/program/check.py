"""The rules of well-formedness of element programs.

Each rule stands for a program that was once accepted in silence and gave a false proof:
unknown axes and names, buffers that are read before they have a layout, shards added to
full tensors, collectives that only some of their ranks call, no obligation at all.
"""

from __future__ import annotations

from placement_proofs.program import (
    Apply,
    Clip,
    Cover,
    Expect,
    Guard,
    Init,
    Loop,
    Move,
    Program,
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
from placement_proofs.program.draws import draws
from placement_proofs.program.expr import is_zero
from placement_proofs.program.owners import check_owners
from placement_proofs.program.rules import (
    ENDS,
    check_mesh,
    check_position,
    distinct,
    known,
    require,
)
from placement_proofs.program.scope import (
    Scope,
    check_delay,
    check_flag,
    check_held,
    check_local_expr,
    check_scalars,
    check_spec,
    check_term,
    families_of,
    partial_collective,
    reads,
    scalar_guard,
    tensor,
    writes,
)

MAX_STEPS = 5_000


def check(program: Program) -> None:
    """Raise `IllFormed` at the first broken rule."""
    check_mesh(program)
    check_owners(program)
    draws(program)
    state = Scope(program, {b.name for b in program.buffers}, set(), families_of(program))
    check_spec(state)
    _check_body(state, program.steps, "step ")
    require(
        state.obligations > 0,
        "program",
        "no use, update, clip or expect",
        "a program without obligations proves nothing",
        "say what must hold, for example 'use w' and 'update w g'",
    )


def _check_body(state: Scope, steps: tuple[Step, ...], prefix: str) -> None:
    for index, step in enumerate(steps):
        state.steps += 1
        require(
            state.steps <= MAX_STEPS,
            "program",
            f"more than {MAX_STEPS} steps",
            "an element program is a few lines",
            "leave out steps of other elements",
        )
        _check_guard(state, step, f"{prefix}{index + 1}")
        _check_step(state, step, f"{prefix}{index + 1}")


def _check_guard(state: Scope, step: Step, place: str) -> None:
    guard: Guard = step.g
    program = state.program
    known(tuple(axis for axis, _ in guard.sizes), program.axes, place, "axis")
    known(tuple(loop for loop, _ in guard.turns), tuple(state.open_loops), place, "open loop")
    known(tuple(axis for axis, _ in guard.at), program.axes, place, "axis")
    for _, test in guard.turns:
        require(
            test.lstrip("!") in ENDS,
            place,
            f"turn {test!r}",
            "turns are told apart by first, last, !first and !last",
            "use one of the four",
        )
    for _, position in guard.at:
        check_position(position.removeprefix("!"), place)


def _check_step(state: Scope, step: Step, place: str) -> None:
    match step:
        case Source() | Init() | Sample() | Reduce() | Take() | Slice() | Scale() | Move():
            _check_data(state, step, place)
        case Apply() | Square() | Clip():
            _check_function(state, step, place)
        case Use() | Update() | Tick() | Expect() | Cover():
            _check_obligation(state, step, place)
        case Loop():
            _check_loop(state, step, place)


def _check_loop(state: Scope, step: Loop, place: str) -> None:
    known((step.axis,), state.program.loops, place, "loop")
    require(
        step.axis not in state.open_loops and not step.g.at and bool(step.body),
        place,
        f"loop {step.axis} (inside itself, with a position guard, or empty)",
        "a loop has a body, is not inside itself, and all ranks run it",
        "rename the inner loop, or guard the steps of the body",
    )
    state.open_loops.append(step.axis)
    _check_body(state, step.body, f"{place}.")
    state.open_loops.pop()


def _check_data(
    state: Scope, step: Source | Init | Sample | Reduce | Take | Slice | Scale | Move, place: str
) -> None:
    axes = state.program.axes
    match step:
        case Source():
            _check_source(state, step, place)
        case Init():
            known(step.vary, axes, place, "axis")
            check_held(state.program, step.held, place)
            writes(state, step.dst, place, scalar=False)
        case Sample():
            _check_sample(state, step, place)
        case Reduce():
            reads(state, (step.buf,), place)
            _check_reduce(state, step, place)
        case Take() | Slice():
            reads(state, (step.buf,), place)
            known((step.axis,), axes, place, "axis")
            check_position(step.pos if isinstance(step, Take) else step.owner, place)
            partial_collective(state, step, (step.axis,), place)
            if isinstance(step, Slice):
                tensor(state, step.buf, place)
        case Scale():
            reads(state, (step.buf,), place)
            check_local_expr(state, step.by, place)
        case Move():
            _check_move(state, step, place)


def _check_source(state: Scope, step: Source, place: str) -> None:
    program = state.program
    known(step.over, program.axes + tuple(state.open_loops), place, "index")
    known(step.summed, tuple(a for a in step.over if a in program.axes), place, "summed axis")
    check_held(program, step.held, place)
    check_local_expr(state, step.factor, place)
    if step.count:
        scalar_guard(state, step, place)
        require(
            not step.held,
            place,
            f"count {step.dst!r} with a layout",
            "a count is alike for all elements",
            "leave 'held' out",
        )
    writes(state, step.dst, place, scalar=step.count, add=step.add)


def _check_sample(state: Scope, step: Sample, place: str) -> None:
    check_position(step.stream, place)
    known((*step.key, *step.index), state.program.axes, place, "axis")
    distinct((*step.key, *step.index), place)
    reads(state, (step.replay,) if step.replay else (), place)
    require(
        not step.g.at or step.number is not None,
        place,
        f"a draw from {step.stream!r} on some ranks only, set back by replay=",
        "the counters of the ranks differ, so that there is no common place to go back to",
        "let every rank draw",
    )
    writes(state, step.dst, place, scalar=False)


def _check_reduce(state: Scope, step: Reduce, place: str) -> None:
    require(
        bool(step.axes),
        place,
        "a reduction over no axis",
        "a reduction names its axes",
        "name them, for example 'sum g dp'",
    )
    known(step.axes, state.program.axes, place, "axis")
    distinct(step.axes, place)
    partial_collective(state, step, step.axes, place)
    if step.top:
        check_flag(state, step.buf, place, whole=step.to is None and not step.mean)
    if step.to is not None:
        check_position(step.to, place)
        tensor(state, step.buf, place)


def _check_move(state: Scope, step: Move, place: str) -> None:
    if is_zero(step.coef):
        require(
            step.dst in state.written,
            place,
            f"zeroing {step.dst!r}, which has no layout yet",
            "a buffer gets its layout from its declaration or its first write",
            "declare it",
        )
        reads(state, (step.src,), place)
        return
    reads(state, (step.src,), place)
    check_local_expr(state, step.coef, place)
    scalar = step.src in state.scalars
    if scalar:
        scalar_guard(state, step, place)
    writes(state, step.dst, place, scalar=scalar, add=step.add)


def _check_function(state: Scope, step: Apply | Square | Clip, place: str) -> None:
    match step:
        case Apply():
            reads(state, step.args, place)
            scalars = {name in state.scalars for name in step.args}
            require(
                len(scalars) == 1,
                place,
                f"{step.fn} of {', '.join(step.args) or 'nothing'}",
                "the arguments of a function are all tensors or all scalars",
                "split the step",
            )
            check_position(step.fn, place)
            writes(state, step.dst, place, scalar=scalars.pop())
        case Square():
            reads(state, step.srcs, place)
            scalar_guard(state, step, place)
            for name in step.srcs:
                tensor(state, name, place)
            require(
                bool(step.srcs), place, "squares of nothing", "a norm is of buffers", "name them"
            )
            writes(state, step.dst, place, scalar=True)
        case Clip():
            reads(state, (*step.bufs, step.by), place)
            check_scalars(state, (step.by,), place)
            state.obligations += 1


def _check_obligation(state: Scope, step: Use | Update | Tick | Expect | Cover, place: str) -> None:
    program = state.program
    copies = tuple(b.name for b in program.buffers if b.of)
    match step:
        case Use():
            known((step.buf,), copies, place, "copy of a parameter")
            check_delay(step.within, place)
            state.obligations += 1
        case Update():
            known((step.buf,), copies, place, "copy of a parameter")
            reads(state, (step.grad,), place)
            tensor(state, step.grad, place)
            state.obligations += 1
        case Tick():
            require(
                not step.g.at,
                place,
                "a tick on some ranks",
                "the specification has one clock",
                "leave the guard out",
            )
        case Cover():
            known((step.axis,), program.axes, place, "axis")
            known((step.rows,), program.loops, place, "length")
            require(
                not step.g.at and step.rows not in state.open_loops,
                place,
                f"rows {step.rows!r} on some ranks or turns",
                "all ranks agree on how rows are cut, and rows are not turns",
                "leave the guard out, or name another length",
            )
            state.obligations += 1
        case Expect():
            reads(state, (step.buf,), place)
            _check_expect(state, step, place)
            state.obligations += 1


def _check_expect(state: Scope, step: Expect, place: str) -> None:
    known(step.axes, state.program.axes, place, "axis")
    complete = {
        "agree": True,
        "is": bool(step.target),
        "same": step.other in state.written,
        "drawn": step.buf not in state.scalars,
    }
    require(
        complete.get(step.kind, False),
        place,
        f"expect {step.kind!r} without what it is compared to",
        "a contract is 'agree', 'drawn', 'is' a target or 'same' as a buffer",
        "write for example 'expect y is c[tp]'",
    )
    for term in step.target:
        check_term(state, term, place, own=True)
        for inner in (term, *term.more):
            loops = (a[1:] for a in inner.over if a.startswith("@"))
            names = (*state.program.axes, *state.open_loops)
            known(loops, names, place, "axis or open loop")
