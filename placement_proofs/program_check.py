"""The rules of well-formedness of element programs.

Each rule stands for a program that was once accepted in silence and gave a false proof:
unknown axes and names, buffers that are read before they have a layout, shards added to
full tensors, collectives that only some of their ranks call, no obligation at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from placement_proofs.errors import IllFormed
from placement_proofs.program import (
    Apply,
    Axes,
    Clip,
    Expect,
    Guard,
    Held,
    Init,
    Loop,
    Move,
    Program,
    Reduce,
    Scale,
    Slice,
    Source,
    Square,
    Step,
    Take,
    Term,
    Tick,
    Update,
    Use,
)
from placement_proofs.program_expr import Bin, Num, Tree, is_zero, names_of, parse_expr

ENDS = ("first", "last")
MAX_STEPS = 5_000
MAX_AXES = 12
MAX_SIZE = 10**9
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


@dataclass
class _State:
    program: Program
    written: set[str]
    scalars: set[str]
    families: dict[str, tuple[frozenset[str], bool]]
    open_loops: list[str] = field(default_factory=list)
    obligations: int = 0
    steps: int = 0


def check(program: Program) -> None:
    """Raise `IllFormed` at the first broken rule."""
    _check_mesh(program)
    state = _State(
        program, {b.name for b in program.buffers}, set(), _families(program)
    )
    _check_spec(state)
    _check_body(state, program.steps, "step ")
    _require(
        state.obligations > 0,
        "program",
        "no use, update, clip or expect",
        "a program without obligations proves nothing",
        "say what must hold, for example 'use w' and 'update w g'",
    )


def _require(ok: bool, place: str, found: str, rule: str, remedy: str) -> None:
    if not ok:
        raise IllFormed(place, found, rule, remedy)


def _known(names: Iterator[str] | Axes, known: Axes, place: str, what: str) -> None:
    for name in names:
        _require(
            name in known,
            place,
            f"{what} {name!r}",
            f"only declared names have a meaning (here: {', '.join(known) or 'none'})",
            f"declare {name!r} or correct the spelling",
        )


def _distinct(names: Axes, place: str) -> None:
    for index, name in enumerate(names):
        _require(
            name not in names[:index],
            place,
            f"{name!r} twice",
            "a name has one meaning",
            "rename one of them",
        )


def _check_names(names: Axes, place: str) -> None:
    for name in names:
        _require(
            _NAME.match(name) is not None and name not in ENDS,
            place,
            f"the name {name[:40]!r}",
            "names are letters, digits, '_' and '.', and not 'first' or 'last'",
            "rename it",
        )
    _distinct(names, place)


def _check_mesh(program: Program) -> None:
    _check_names(program.axes + program.loops, "axes and loops")
    _require(
        len(program.axes) <= MAX_AXES,
        "axes",
        f"{len(program.axes)} axes",
        f"at most {MAX_AXES} are analysed",
        "merge axes that are always used together",
    )
    for axis, size in program.sizes:
        _known((axis,), program.axes + program.loops, "sizes", "axis")
        _require(
            1 <= size <= MAX_SIZE,
            f"size of {axis}",
            str(size),
            f"a size is an integer from 1 to {MAX_SIZE}",
            "give the number of ranks (or turns)",
        )


def _families(program: Program) -> dict[str, tuple[frozenset[str], bool]]:
    """The indices of each family, and whether it is a count; every mention must agree."""
    found: dict[str, tuple[frozenset[str], bool]] = {}
    for source in sources(program.steps):
        _agree_family(found, source.family, source.over, source.count)
    for param in program.params:
        for term in param.target:
            _agree_family(found, term.family, term.over, False)
    for step in walk(program.steps):
        if isinstance(step, Expect):
            for term in step.target:
                is_count = found.get(term.family, (frozenset(), False))[1]
                _agree_family(found, term.family, bare(term.over), is_count)
    return found


def bare(over: Axes) -> Axes:
    """The indices of a term without the mark of an unsummed one."""
    return tuple(axis.lstrip("@") for axis in over)


def _agree_family(
    found: dict[str, tuple[frozenset[str], bool]], family: str, over: Axes, count: bool
) -> None:
    entry = (frozenset(over), count)
    _distinct(over, f"indices of {family}")
    known = found.setdefault(family, entry)
    _require(
        known == entry,
        f"family {family}",
        f"indices {sorted(entry[0])} here and {sorted(known[0])} elsewhere",
        "a family has one list of indices and is either a count or not",
        "write the same indices at every mention",
    )


def walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Every step in program order, loops before their bodies."""
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from walk(step.body)


def sources(steps: tuple[Step, ...]) -> Iterator[Source]:
    """Every source of contributions."""
    return (step for step in walk(steps) if isinstance(step, Source))


def _check_spec(state: _State) -> None:
    program = state.program
    names = tuple(p.name for p in program.params)
    _check_names(names, "params")
    _check_names(tuple(b.name for b in program.buffers), "buffers")
    for param in program.params:
        _require(
            param.update in ("elementwise", "whole"),
            f"param {param.name}",
            f"update {param.update!r}",
            "an optimizer is 'elementwise' or 'whole'",
            "choose one of the two",
        )
        for term in param.target:
            _check_term(state, term, f"target of {param.name}", own=False)
    for buffer in program.buffers:
        place = f"buffer {buffer.name}"
        if buffer.of:
            _known((buffer.of,), names, place, "parameter")
        _check_held(program, buffer.held, place)
        _known(buffer.vary, program.axes, place, "axis")
    _known(program.equal, tuple(f for f, (_, count) in state.families.items() if count),
           "assume equal", "count")


def _check_held(program: Program, held: Held, place: str) -> None:
    _known(tuple(axis for axis, _ in held), program.axes, place, "axis")
    _distinct(tuple(axis for axis, _ in held), place)
    for _, owner in held:
        _check_position(owner, place)


def _check_position(position: str, place: str) -> None:
    _require(
        _NAME.match(position) is not None,
        place,
        f"position {position[:40]!r}",
        "a position is first, last or the name of an owner",
        "write for example dp:p",
    )


def _check_term(state: _State, term: Term, place: str, *, own: bool) -> None:
    program = state.program
    if not own:
        _require(
            not any(axis.startswith("@") for axis in term.over) and not term.fn,
            place,
            f"{term.family} with '@' or a function",
            "a gradient is a sum over all ranks, the same for every rank",
            "use '@' and functions only in expect",
        )
    _known(bare(term.over), program.axes + program.loops, place, "index")
    counts = tuple(f for f, (_, count) in state.families.items() if count)
    _check_expr(state, term.coef, place, program.axes + program.loops + counts)


def _check_expr(state: _State, text: str, place: str, known: Axes) -> None:
    tree = parse_expr(text, place)
    _known(names_of(tree), known, place, "name")
    _require(
        not _zero_division(tree),
        place,
        repr(text),
        "a divisor is never zero",
        "divide by a size or a count",
    )


def _zero_division(tree: Tree) -> bool:
    if not isinstance(tree, Bin):
        return False
    if tree.op == "/" and tree.right == Num(Fraction(0)):
        return True
    return _zero_division(tree.left) or _zero_division(tree.right)


def _check_body(state: _State, steps: tuple[Step, ...], prefix: str) -> None:
    for index, step in enumerate(steps):
        state.steps += 1
        _require(
            state.steps <= MAX_STEPS,
            "program",
            f"more than {MAX_STEPS} steps",
            "an element program is a few lines",
            "leave out steps of other elements",
        )
        _check_guard(state, step, f"{prefix}{index + 1}")
        _check_step(state, step, f"{prefix}{index + 1}")


def _check_guard(state: _State, step: Step, place: str) -> None:
    guard: Guard = step.g
    program = state.program
    _known(tuple(axis for axis, _ in guard.sizes), program.axes, place, "axis")
    _known(tuple(loop for loop, _ in guard.turns), tuple(state.open_loops), place, "open loop")
    _known(tuple(axis for axis, _ in guard.at), program.axes, place, "axis")
    for _, test in guard.turns:
        _require(
            test.lstrip("!") in ENDS,
            place,
            f"turn {test!r}",
            "turns are told apart by first, last, !first and !last",
            "use one of the four",
        )
    for _, position in guard.at:
        _check_position(position.removeprefix("!"), place)


def _partial(state: _State, step: Step, axes: Axes, place: str) -> None:
    shared = sorted({axis for axis, _ in step.g.at} & set(axes))
    _require(
        not shared,
        place,
        f"a collective over {', '.join(shared)} that only some of its ranks call",
        "the others never arrive, so that it hangs",
        "guard it by another axis, or let every rank call it",
    )


def _reads(state: _State, names: Axes, place: str) -> None:
    for name in names:
        _require(
            name in state.written,
            place,
            f"buffer {name!r}, which nothing has written",
            "a buffer gets its layout and value from its declaration or its first write",
            "declare it or correct the spelling",
        )


def _writes(state: _State, name: str, place: str, *, scalar: bool, add: bool = False) -> None:
    _check_position(name, place)
    declared = name in {b.name for b in state.program.buffers}
    known = name in state.written
    clash = (declared and scalar) or (known and add and scalar != (name in state.scalars))
    _require(
        not clash,
        place,
        f"buffer {name!r} as a scalar and as a tensor",
        "counts and norms are alike for all elements, tensors are not",
        "use two buffers",
    )
    state.written.add(name)
    (state.scalars.add if scalar else state.scalars.discard)(name)


def _scalar_guard(state: _State, step: Step, place: str) -> None:
    generic = [p for _, p in step.g.at if p.removeprefix("!") not in ENDS]
    _require(
        not generic,
        place,
        f"a scalar that is written only at {', '.join(generic)}",
        "an owner is of one element, a scalar belongs to all of them",
        "use first or last",
    )


def _check_scalars(state: _State, names: Axes, place: str) -> None:
    _known(names, tuple(sorted(state.scalars)), place, "scalar")


def _check_step(state: _State, step: Step, place: str) -> None:
    match step:
        case Source() | Init() | Reduce() | Take() | Slice() | Scale() | Move():
            _check_data(state, step, place)
        case Apply() | Square() | Clip():
            _check_function(state, step, place)
        case Use() | Update() | Tick() | Expect():
            _check_obligation(state, step, place)
        case Loop():
            _check_loop(state, step, place)


def _check_loop(state: _State, step: Loop, place: str) -> None:
    _known((step.axis,), state.program.loops, place, "loop")
    _require(
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
    state: _State, step: Source | Init | Reduce | Take | Slice | Scale | Move, place: str
) -> None:
    axes = state.program.axes
    match step:
        case Source():
            _check_source(state, step, place)
        case Init():
            _known(step.vary, axes, place, "axis")
            _check_held(state.program, step.held, place)
            _writes(state, step.dst, place, scalar=False)
        case Reduce():
            _reads(state, (step.buf,), place)
            _check_reduce(state, step, place)
        case Take() | Slice():
            _reads(state, (step.buf,), place)
            _known((step.axis,), axes, place, "axis")
            _check_position(step.pos if isinstance(step, Take) else step.owner, place)
            _partial(state, step, (step.axis,), place)
            if isinstance(step, Slice):
                _tensor(state, step.buf, place)
        case Scale():
            _reads(state, (step.buf,), place)
            _check_local_expr(state, step.by, place)
        case Move():
            _check_move(state, step, place)


def _check_source(state: _State, step: Source, place: str) -> None:
    program = state.program
    _known(step.over, program.axes + tuple(state.open_loops), place, "index")
    _known(step.summed, tuple(a for a in step.over if a in program.axes), place, "summed axis")
    _check_held(program, step.held, place)
    _check_local_expr(state, step.factor, place)
    if step.count:
        _scalar_guard(state, step, place)
        _require(
            not step.held,
            place,
            f"count {step.dst!r} with a layout",
            "a count is alike for all elements",
            "leave 'held' out",
        )
    _writes(state, step.dst, place, scalar=step.count, add=step.add)


def _check_reduce(state: _State, step: Reduce, place: str) -> None:
    _require(
        bool(step.axes),
        place,
        "a reduction over no axis",
        "a reduction names its axes",
        "name them, for example 'sum g dp'",
    )
    _known(step.axes, state.program.axes, place, "axis")
    _distinct(step.axes, place)
    _partial(state, step, step.axes, place)
    if step.to is not None:
        _check_position(step.to, place)
        _tensor(state, step.buf, place)


def _tensor(state: _State, name: str, place: str) -> None:
    _require(
        name not in state.scalars,
        place,
        f"a shard of the scalar {name!r}",
        "a scalar cannot be cut",
        "use sum or take",
    )


def _check_move(state: _State, step: Move, place: str) -> None:
    if is_zero(step.coef):
        _require(
            step.dst in state.written,
            place,
            f"zeroing {step.dst!r}, which has no layout yet",
            "a buffer gets its layout from its declaration or its first write",
            "declare it",
        )
        _reads(state, (step.src,), place)
        return
    _reads(state, (step.src,), place)
    _check_local_expr(state, step.coef, place)
    scalar = step.src in state.scalars
    if scalar:
        _scalar_guard(state, step, place)
    _writes(state, step.dst, place, scalar=scalar, add=step.add)


def _check_local_expr(state: _State, text: str, place: str) -> None:
    known = state.program.axes + state.program.loops + tuple(sorted(state.scalars))
    _check_expr(state, text, place, known)


def _check_function(state: _State, step: Apply | Square | Clip, place: str) -> None:
    match step:
        case Apply():
            _reads(state, step.args, place)
            scalars = {name in state.scalars for name in step.args}
            _require(
                len(scalars) == 1,
                place,
                f"{step.fn} of {', '.join(step.args) or 'nothing'}",
                "the arguments of a function are all tensors or all scalars",
                "split the step",
            )
            _check_position(step.fn, place)
            _writes(state, step.dst, place, scalar=scalars.pop())
        case Square():
            _reads(state, step.srcs, place)
            _scalar_guard(state, step, place)
            for name in step.srcs:
                _tensor(state, name, place)
            _require(
                bool(step.srcs), place, "squares of nothing", "a norm is of buffers", "name them"
            )
            _writes(state, step.dst, place, scalar=True)
        case Clip():
            _reads(state, (*step.bufs, step.by), place)
            _check_scalars(state, (step.by,), place)
            state.obligations += 1


def _check_obligation(state: _State, step: Use | Update | Tick | Expect, place: str) -> None:
    program = state.program
    copies = tuple(b.name for b in program.buffers if b.of)
    match step:
        case Use():
            _known((step.buf,), copies, place, "copy of a parameter")
            state.obligations += 1
        case Update():
            _known((step.buf,), copies, place, "copy of a parameter")
            _reads(state, (step.grad,), place)
            _tensor(state, step.grad, place)
            state.obligations += 1
        case Tick():
            _require(
                not step.g.at,
                place,
                "a tick on some ranks",
                "the specification has one clock",
                "leave the guard out",
            )
        case Expect():
            _reads(state, (step.buf,), place)
            _check_expect(state, step, place)
            state.obligations += 1


def _check_expect(state: _State, step: Expect, place: str) -> None:
    _known(step.axes, state.program.axes, place, "axis")
    complete = {
        "agree": True,
        "is": bool(step.target),
        "same": step.other in state.written,
    }
    _require(
        complete.get(step.kind, False),
        place,
        f"expect {step.kind!r} without what it is compared to",
        "a contract is 'agree', 'is' a target or 'same' as a buffer",
        "write for example 'expect y is c[tp]'",
    )
    for term in step.target:
        _check_term(state, term, place, own=True)
