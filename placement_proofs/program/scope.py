"""What a program has declared and written, while its steps are checked in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement_proofs.program import Axes, Expect, Held, Program, Step, Term
from placement_proofs.program.draws import drawn_families, flag_families
from placement_proofs.program.expr import names_of, parse_expr
from placement_proofs.program.rules import (
    ENDS,
    bare,
    check_names,
    check_position,
    distinct,
    known,
    require,
    sources,
    walk,
    zero_division,
)

MAX_DELAY = 8


@dataclass
class Scope:
    """What is known while the steps are checked in order."""

    program: Program
    written: set[str]
    scalars: set[str]
    families: dict[str, tuple[frozenset[str], bool]]
    open_loops: list[str] = field(default_factory=list)
    obligations: int = 0
    steps: int = 0


def families_of(program: Program) -> dict[str, tuple[frozenset[str], bool]]:
    """The indices of each family, and whether it is a count; every mention must agree."""
    found: dict[str, tuple[frozenset[str], bool]] = {}
    flags = flag_families(program)
    for source in sources(program.steps):
        _agree_family(found, source.family, source.over, source.count)
        require(
            source.flag == (source.family in flags),
            f"family {source.family}",
            "a flag here and a count elsewhere",
            "the members of a family are 0 or 1, or any counts",
            "write 'flag' at every mention",
        )
    for param in program.params:
        for term in param.target:
            _agree_family(found, term.family, term.over, False)
            _agree_weights(found, term)
    for step in walk(program.steps):
        if isinstance(step, Expect):
            for term in (t for outer in step.target for t in (outer, *outer.more)):
                is_count = found.get(term.family, (frozenset(), False))[1]
                _agree_family(found, term.family, bare(term.over), is_count)
                _agree_weights(found, term)
    require(
        not set(found) & drawn_families(program) & {s.family for s in sources(program.steps)},
        "families",
        "a random stream with the name of a family of contributions",
        "the numbers of a stream are no contributions",
        "rename one of them",
    )
    return found


def _agree_weights(found: dict[str, tuple[frozenset[str], bool]], term: Term) -> None:
    for name in term.weights:
        require(
            found.get(name) == (frozenset(bare(term.over)), True),
            f"weight {name} of {term.family}",
            "no count of the same indices",
            "a target is a sum of families, each weighted by counts of the same indices at most",
            f"write 'count k = {name}[{','.join(bare(term.over))}]'",
        )


def _agree_family(
    found: dict[str, tuple[frozenset[str], bool]], family: str, over: Axes, count: bool
) -> None:
    entry = (frozenset(over), count)
    distinct(over, f"indices of {family}")
    earlier = found.setdefault(family, entry)
    require(
        earlier == entry,
        f"family {family}",
        f"indices {sorted(entry[0])} here and {sorted(earlier[0])} elsewhere",
        "a family has one list of indices and is either a count or not",
        "write the same indices at every mention",
    )


def check_spec(state: Scope) -> None:
    """The parameters, their targets and their copies."""
    program = state.program
    names = tuple(p.name for p in program.params)
    check_names(names, "params")
    check_names(tuple(b.name for b in program.buffers), "buffers")
    for param in program.params:
        check_delay(param.late, f"param {param.name}")
        require(
            param.update in ("elementwise", "whole"),
            f"param {param.name}",
            f"update {param.update!r}",
            "an optimizer is 'elementwise' or 'whole'",
            "choose one of the two",
        )
        for term in param.target:
            check_term(state, term, f"target of {param.name}", own=False)
    for buffer in program.buffers:
        place = f"buffer {buffer.name}"
        if buffer.of:
            known((buffer.of,), names, place, "parameter")
        check_held(program, buffer.held, place)
        known(buffer.vary, program.axes, place, "axis")
    known(
        program.equal,
        tuple(f for f, (_, count) in state.families.items() if count),
        "assume equal",
        "count",
    )


def check_held(program: Program, held: Held, place: str) -> None:
    """A layout names known axes, each once."""
    known(tuple(axis for axis, _ in held), program.axes, place, "axis")
    distinct(tuple(axis for axis, _ in held), place)
    for _, owner in held:
        check_position(owner, place)


def check_term(state: Scope, term: Term, place: str, *, own: bool) -> None:
    """A term of a target or contract."""
    program = state.program
    if not own:
        require(
            not any(axis.startswith("@") for axis in term.over) and not term.fn,
            place,
            f"{term.family} with '@' or a function",
            "a gradient is a sum over all ranks, the same for every rank",
            "use '@' and functions only in expect",
        )
    known(bare(term.over), program.axes + program.loops, place, "index")
    _check_arguments(state, term, place, own=own)
    known((a for a in bare(term.over) if term.weights), program.axes, place, "index of a weight")
    counts = tuple(f for f, (_, count) in state.families.items() if count)
    check_expr(state, term.coef, place, program.axes + program.loops + counts)


def _check_arguments(state: Scope, term: Term, place: str, *, own: bool) -> None:
    for other in term.more:
        check_term(state, other, place, own=own)
    alike = term.fn != "max" or (not term.more and term.family in flag_families(state.program))
    require(
        alike and not any(other.more or other.fn for other in term.more),
        place,
        f"{term.fn} of {term.family}",
        "a function has families as its arguments, and a maximum one family of flags",
        "name the function otherwise, or count a flag",
    )


def check_flag(state: Scope, name: str, place: str, *, whole: bool) -> None:
    """A maximum is of flags as they were counted, and of nothing else."""
    flags = {s.dst for s in sources(state.program.steps) if s.flag}
    others = {s.dst for s in sources(state.program.steps) if not s.flag}
    require(
        whole and name in flags - others and name in state.scalars,
        place,
        f"the maximum of {name!r}",
        "a maximum is of flags (0 or 1), over all ranks of the axes",
        "write 'flag k = b[dp]' first",
    )


def check_delay(steps: int, place: str) -> None:
    """A declared staleness is a small number of steps."""
    require(
        0 <= steps <= MAX_DELAY,
        place,
        f"a delay of {steps}",
        f"a delay is at most {MAX_DELAY} steps",
        "declare the bound that the loop keeps",
    )


def check_expr(state: Scope, text: str, place: str, names: Axes) -> None:
    """An expression over known names."""
    tree = parse_expr(text, place)
    known(names_of(tree), names, place, "name")
    require(
        not zero_division(tree),
        place,
        repr(text),
        "a divisor is never zero",
        "divide by a size or a count",
    )


def partial_collective(state: Scope, step: Step, axes: Axes, place: str) -> None:
    """A collective is called by all ranks of its axes or by none."""
    shared = sorted({axis for axis, _ in step.g.at} & set(axes))
    require(
        not shared,
        place,
        f"a collective over {', '.join(shared)} that only some of its ranks call",
        "the others never arrive, so that it hangs",
        "guard it by another axis, or let every rank call it",
    )


def reads(state: Scope, names: Axes, place: str) -> None:
    """A buffer is written before it is read."""
    for name in names:
        require(
            name in state.written,
            place,
            f"buffer {name!r}, which nothing has written",
            "a buffer gets its layout and value from its declaration or its first write",
            "declare it or correct the spelling",
        )


def writes(state: Scope, name: str, place: str, *, scalar: bool, add: bool = False) -> None:
    """A write; scalars and tensors do not share a buffer."""
    check_position(name, place)
    declared = name in {b.name for b in state.program.buffers}
    seen = name in state.written
    clash = (declared and scalar) or (seen and add and scalar != (name in state.scalars))
    require(
        not clash,
        place,
        f"buffer {name!r} as a scalar and as a tensor",
        "counts and norms are alike for all elements, tensors are not",
        "use two buffers",
    )
    state.written.add(name)
    (state.scalars.add if scalar else state.scalars.discard)(name)


def scalar_guard(state: Scope, step: Step, place: str) -> None:
    """A scalar is not written at the owner of an element."""
    generic = [p for _, p in step.g.at if p.removeprefix("!") not in ENDS]
    require(
        not generic,
        place,
        f"a scalar that is written only at {', '.join(generic)}",
        "an owner is of one element, a scalar belongs to all of them",
        "use first or last",
    )


def check_scalars(state: Scope, names: Axes, place: str) -> None:
    """The buffers are scalars."""
    known(names, tuple(sorted(state.scalars)), place, "scalar")


def tensor(state: Scope, name: str, place: str) -> None:
    """The buffer is no scalar."""
    require(
        name not in state.scalars,
        place,
        f"a shard of the scalar {name!r}",
        "a scalar cannot be cut",
        "use sum or take",
    )


def check_local_expr(state: Scope, text: str, place: str) -> None:
    """An expression over sizes and scalars."""
    names = state.program.axes + state.program.loops + tuple(sorted(state.scalars))
    check_expr(state, text, place, names)
