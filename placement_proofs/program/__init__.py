"""Element programs: what every rank does to one generic element, as plain data.

A program has three parts that are kept apart (the semantics page, sections 3 and 4):
the mesh (`Program.axes`), the specification (`Param`: what one device would compute) and
the steps (what the ranks do). The prover and the replay share this data and nothing else.

Positions on an axis are written by name. `first` and `last` are its end positions; any
other name is the owner of the generic element, somewhere on that axis. An owner whose name
starts with `tensor` owns whole tensors (a layer-wise optimizer); any other owns a shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from placement_proofs.program.flow import Flow
from placement_proofs.program.spec import Axes as Axes
from placement_proofs.program.spec import Buffer as Buffer
from placement_proofs.program.spec import Expr as Expr
from placement_proofs.program.spec import Held as Held
from placement_proofs.program.spec import Owner as Owner
from placement_proofs.program.spec import Param as Param
from placement_proofs.program.spec import Term as Term

TurnTest: TypeAlias = Literal["first", "last", "!first", "!last"]


@dataclass(frozen=True, slots=True)
class Guard:
    """When, and on which ranks, a step runs; all parts must hold.

    `sizes`: (axis, True) runs only if the size of the axis is one, (axis, False) only if
    it is not. `turns`: (loop, test of the current turn). `at`: (axis, position) or
    (axis, "!position"): only the ranks at (or not at) that position run the step.
    `starts` names a step that may take effect at any later time of the body it is in, up to the
    step that waits for it (`after`): see `program.orders`.
    """

    sizes: tuple[tuple[str, bool], ...] = ()
    turns: tuple[tuple[str, TurnTest], ...] = ()
    at: tuple[tuple[str, str], ...] = ()
    starts: str = ""
    after: tuple[str, ...] = ()


ALWAYS = Guard()


# --- steps ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """Local contributions of a family: `dst = factor * c[own index]`, or `+=` with `add`.

    `over` lists the indices of the family (mesh axes and loops). On the axes of `summed` the
    sum has already been taken (tokens routed to the owner). `held` is the layout of the
    result. `count` marks token counts: scalars, alike for all elements, usable in `Expr`;
    `flag` counts that are 0 or 1 (the rank takes part, has tokens, wants to skip). With `back`,
    a copy, they are what the flow's backward from the activation `family` gives for it.
    """

    dst: str
    family: str
    over: Axes = ()
    summed: Axes = ()
    held: Held = ()
    add: bool = False
    factor: Expr = "1"
    count: bool = False
    flag: bool = False
    back: str = ""
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Init:
    """An opaque value or random draw, named by site and counter; `vary`: axes in its key."""

    dst: str
    name: str
    vary: Axes = ()
    held: Held = ()
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """Numbers from a random stream, whose counter every draw advances by one.

    The generator is seeded by the rank's coordinates on the axes of `key`, or the numbers are
    a function of the logical index on the axes of `index`, as on one device. With `replay`
    the counter is set back to where the named buffer was drawn (recomputation); `number` says
    which draw it is, where the ranks' counters differ as only some of them drew before.
    In a target, `stream` (first draw) and `stream.n1` (second) are what one device draws.
    """

    dst: str
    stream: str
    key: Axes = ()
    index: Axes = ()
    replay: str = ""
    number: int | None = None
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Reduce:
    """Sum (or mean) over axes: all-reduce, or reduce-scatter to owner `to`.

    With `top` the maximum instead of the sum: of flags, whether any of them is set.
    """

    buf: str
    axes: Axes
    mean: bool = False
    to: str | None = None
    top: bool = False
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Take:
    """Every rank of the axis gets the value at `pos`: broadcast; all-gather from an owner."""

    buf: str
    axis: str
    pos: str
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """Each rank keeps only the elements that it owns on the axis."""

    buf: str
    axis: str
    owner: str
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiply by an expression; scalar buffers in it are read on the same rank."""

    buf: str
    by: Expr
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """`dst = coef * src`, or `+=` with `add`. A coefficient of 0 and src = dst is zeroing."""

    dst: str
    src: str
    add: bool = False
    coef: Expr = "1"
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Apply:
    """`dst = fn(args)`: an uninterpreted function, element by element unless `whole`."""

    dst: str
    fn: str
    args: tuple[str, ...]
    whole: bool = False
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Square:
    """`dst` = the sum of squares of all elements of `srcs` that the rank stores."""

    dst: str
    srcs: tuple[str, ...]
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Clip:
    """Multiply gradients by a function of the squared norm in scalar buffer `by`."""

    bufs: tuple[str, ...]
    by: str
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """A pass reads a parameter: the current one, or one of the `within` before it."""

    buf: str
    within: int = 0
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """The optimizer updates a copy in place; `hyper` when other than the specified ones."""

    buf: str
    grad: str
    hyper: tuple[str, ...] | None = None
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """The specification completes its step: every parameter with a target advances."""

    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Expect:
    """A contract on a buffer, beyond parameters and their gradients.

    `agree`: equal on all ranks of `axes` (default: all). `is`: equal to the target.
    `same`: equal to buffer `other`. `drawn`: different on ranks that differ on `axes`, and
    equal on ranks that do not (random numbers of shards and of replicas). `about` says what
    the value is, for messages: activation, metric, stream, state, ...
    """

    buf: str
    kind: Literal["agree", "is", "same", "drawn"]
    target: tuple[Term, ...] = ()
    other: str = ""
    axes: Axes = ()
    about: str = "value"
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Cover:
    """A contract on how `rows` rows (a declared length) are cut over the ranks of an axis.

    Rank i has the rows from i*c to (i+1)*c, with c = rows/axis rounded down or, with `up`, up
    (the last ranks may have fewer, or none). All rows must be on some rank; with `even` all
    ranks must have equally many. `divides` is the premise that the axis divides the rows.
    """

    rows: str
    axis: str
    up: bool = False
    even: bool = False
    divides: bool = False
    g: Guard = ALWAYS
    why: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """Repeat the body; the turns of `axis` are ordered. Its length is free or in `sizes`."""

    axis: str
    body: tuple[Step, ...]
    g: Guard = ALWAYS
    why: str = ""


Step: TypeAlias = (
    Source
    | Init
    | Sample
    | Reduce
    | Take
    | Slice
    | Scale
    | Move
    | Apply
    | Square
    | Clip
    | Use
    | Update
    | Tick
    | Expect
    | Cover
    | Loop
)


@dataclass(frozen=True, slots=True)
class Program:
    """An element program: mesh axes, loops, specification, buffers and steps.

    `sizes` fixes sizes of axes and lengths of loops; all others are free (>= 1). `equal`
    names the count families that are assumed to be equal on all ranks and turns. `owners` say
    which elements an owner has: the digits of an element's index, outermost first. `flow` is the
    forward pass, from which contributions are derived.
    """

    axes: Axes
    loops: Axes = ()
    params: tuple[Param, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    steps: tuple[Step, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    name: str = ""
    equal: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()
    flow: tuple[Flow, ...] = ()

    def param(self, name: str) -> Param:
        """The logical parameter of that name."""
        return next(p for p in self.params if p.name == name)


def validate(program: Program) -> None:
    """Raise `IllFormed` at the first place where a program has no meaning."""
    from placement_proofs.program.backward import derived
    from placement_proofs.program.check import check
    from placement_proofs.program.orders import orders

    orders(program)
    check(derived(program))
