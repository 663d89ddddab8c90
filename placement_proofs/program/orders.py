"""Steps that run beside others: every order in which they may take effect.

`start r: sum g dp` may take effect at any time from there to `wait r`, or to the end of the loop's
body (of the program) if nothing waits for it. Only its order with steps that touch the same buffers
matters, so that few orders are left; a program is right if it is right in all of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from placement_proofs.errors import IllFormed
from placement_proofs.program import Guard, Loop, Program, Step
from placement_proofs.program.flow import Flow
from placement_proofs.program.print import step_text

MAX_ORDERS = 64

Body = tuple[Step, ...]


def has_orders(program: Program) -> bool:
    """Whether a step runs beside others, or an edge depends on sizes."""
    beside = any(step.g.starts or step.g.after for step in _walk(program.steps))
    return beside or any(flow.only for flow in program.flow)


def in_order(program: Program) -> Program:
    """The program in which every step takes effect where it is written."""
    if not has_orders(program):
        return program
    flow = tuple(replace(f, only=()) for f in program.flow)
    return replace(program, steps=_plain(program.steps), flow=flow)


def orders(program: Program, sizes: Mapping[str, int] | None = None) -> tuple[Program, ...]:
    """The program in every order that matters, as it is written first, and for every case.

    Where edges depend on sizes, there is a case for one rank and one for several (of the axes in
    `sizes`, that of their size).

    Raises:
        IllFormed: a wait has no start, or the orders are too many.
    """
    _check(program.steps, "step ")
    return tuple(order for case in _cases(program, sizes or {}) for order in _ordered(case))


def _cases(program: Program, sizes: Mapping[str, int]) -> Iterator[Program]:
    axes = tuple(dict.fromkeys(axis for flow in program.flow for axis, _ in flow.only))
    given = {**dict(program.sizes), **sizes}
    choices = [(given[a] == 1,) if a in given else (True, False) for a in axes]
    for ones in itertools.product(*choices):
        case = dict(zip(axes, ones, strict=True))
        yield _case(program, case, given) if axes else program


def _case(program: Program, case: Mapping[str, bool], given: Mapping[str, int]) -> Program:
    """The program where the axes have one rank, or several: no step runs at other sizes."""
    flow = tuple(
        replace(f, only=())
        if all(case[axis] is one for axis, one in f.only)
        else Flow(f.out, "pass", f.args, axes=f.axes, back="nothing")
        for f in program.flow
    )
    fixed = tuple((axis, 1) for axis, one in case.items() if one and axis not in given)
    many = tuple((axis, False) for axis, one in case.items() if not one and axis not in given)
    steps = (
        replace(step, g=replace(step.g, sizes=(*step.g.sizes, *many))) for step in program.steps
    )
    return replace(program, flow=flow, sizes=(*program.sizes, *fixed), steps=tuple(steps))


def _ordered(program: Program) -> tuple[Program, ...]:
    found: list[Body] = []
    for steps in _bodies(program.steps):
        if len(found) >= MAX_ORDERS:
            raise IllFormed(
                "start",
                f"more than {MAX_ORDERS} orders",
                "every order of steps that run beside others is tried",
                "wait earlier, or leave out steps that do not touch the same buffers",
            )
        found.append(_plain(steps))
    return tuple(replace(program, steps=steps) for steps in dict.fromkeys(found))


def waiting(steps: Body) -> Iterator[tuple[str, Body]]:
    """The body with one more wait, in words: late ones first."""
    for at, step in enumerate(steps):
        if isinstance(step, Loop):
            for text, body in waiting(step.body):
                yield text, (*steps[:at], replace(step, body=body), *steps[at + 1 :])
        later = [i for i in range(at + 1, len(steps)) if touched(step) & touched(steps[i])]
        for index in reversed(later if step.g.starts else []):
            name, other = step.g.starts, steps[index]
            kept = tuple(_unwaited(s, name) for s in steps)
            guard = replace(kept[index].g, after=(*kept[index].g.after, name))
            waits = replace(kept[index], g=guard)
            text = f"'wait {name}' before '{step_text(replace(other, why=''))}'"
            yield text, (*kept[:index], waits, *kept[index + 1 :])


def _unwaited(step: Step, name: str) -> Step:
    after = tuple(other for other in step.g.after if other != name)
    return replace(step, g=replace(step.g, after=after))


def _walk(steps: Body) -> Iterator[Step]:
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from _walk(step.body)


def _check(steps: Body, place: str) -> None:
    open_tasks: set[str] = set()
    for index, step in enumerate(steps):
        here = f"{place}{index + 1}"
        unknown = [name for name in step.g.after if name not in open_tasks]
        if unknown or step.g.starts in open_tasks or (step.g.starts and isinstance(step, Loop)):
            raise IllFormed(
                here,
                f"wait {unknown[0]}" if unknown else f"start {step.g.starts}",
                "a step is started once, and waited for once, later in the same body",
                "correct the name",
            )
        open_tasks -= set(step.g.after)
        open_tasks |= {step.g.starts} - {""}
        if isinstance(step, Loop):
            _check(step.body, f"{here}.")


def _bodies(steps: Body) -> Iterator[Body]:
    """The body in every order; inner bodies first."""
    loops = [i for i, step in enumerate(steps) if isinstance(step, Loop)]
    if loops and any(s.g.starts for s in _walk(_inner(steps[loops[0]]))):
        at = loops[0]
        loop = steps[at]
        assert isinstance(loop, Loop)
        for body in _bodies(loop.body):
            done = replace(loop, body=_plain(body))
            yield from _bodies((*steps[:at], done, *steps[at + 1 :]))
        return
    at = next((i for i, step in enumerate(steps) if step.g.starts), -1)
    if at < 0:
        yield steps
        return
    step = replace(steps[at], g=replace(steps[at].g, starts=""))
    for moved in _moments(steps, at, step):
        yield from _bodies(moved)


def _inner(step: Step) -> Body:
    return step.body if isinstance(step, Loop) else ()


def _moments(steps: Body, at: int, step: Step) -> Iterator[Body]:
    """The step where it is started, and after each later step that touches what it touches."""
    before, rest = steps[:at], steps[at + 1 :]
    name = steps[at].g.starts
    yield (*before, step, *rest)
    for index, other in enumerate(rest):
        if name in other.g.after:
            return
        if touched(step) & touched(other):
            yield (*before, *rest[: index + 1], step, *rest[index + 1 :])


def touched(step: Step) -> frozenset[str]:
    """The names in a step, those of buffers among them; of a loop, those in its body."""
    if isinstance(step, Loop):
        return frozenset().union(*map(touched, step.body))
    bare = step_text(replace(step, g=Guard(), why=""))
    return frozenset(re.findall(r"[A-Za-z_][\w.]*", bare.partition(" ")[2]))


def _plain(steps: Body) -> Body:
    bare = (replace(step, g=replace(step.g, starts="", after=())) for step in steps)
    return tuple(
        replace(step, body=_plain(step.body)) if isinstance(step, Loop) else step for step in bare
    )
