"""Compositions: strategies multiplied, the rules of composing, and the expression as text."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from placement_proofs import strategies
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Axis, Dim, Mesh
from placement_proofs.placement import Mode, Placement, Schedule
from placement_proofs.strategies import Argument, Strategy

STRATEGIES: Mapping[str, Callable[..., Strategy]] = {
    function.__name__: function
    for function in (
        strategies.single,
        strategies.data,
        strategies.zero1,
        strategies.zero2,
        strategies.zero3,
        strategies.fsdp,
        strategies.hsdp,
        strategies.tensor,
        strategies.pipeline,
        strategies.context,
        strategies.ulysses,
        strategies.expert,
        strategies.offload,
        strategies.recompute,
        strategies.accumulate,
        strategies.place,
    )
}

MAX_SIZE = 10**9
MAX_TEXT = 10_000


@dataclass(frozen=True)
class Composition:
    """A product of strategies. ``repr`` is the expression; :func:`parse` reads it back."""

    strategies: tuple[Strategy, ...]

    def __mul__(self, other: Strategy | Composition) -> Composition:
        more = (other,) if isinstance(other, Strategy) else other.strategies
        return compose(*self.strategies, *more)

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.strategies))

    @property
    def mesh(self) -> Mesh:
        """The axes in the order in which they were written."""
        axes = {axis.name: axis for s in self.strategies for axis in s.axes}
        subsets = (("pp:tied", "pp"),) if "pp" in axes else ()
        return Mesh(tuple(axes.values()), subsets)

    @property
    def placement(self) -> Placement:
        """The placement table of all strategies together."""
        parts = [s.placement for s in self.strategies]
        return Placement(
            tuple(p for part in parts for p in part.places),
            tuple(f for part in parts for f in part.flows),
            next((part.micro for part in parts if part.micro != 1), 1),
            next((part.schedule for part in parts if part.schedule), None),
        )

    def resized(self, sizes: Mapping[str, Dim]) -> Composition:
        """The same composition on a mesh with other sizes; ``micro`` sets the micro-batches."""
        return Composition(tuple(_resized(s, sizes) for s in self.strategies))


def _resized(strategy: Strategy, sizes: Mapping[str, Dim]) -> Strategy:
    axes = tuple(Axis(a.name, sizes.get(a.name, a.size)) for a in strategy.axes)
    micro = sizes.get("micro") if strategy.placement.micro != 1 else None
    named: dict[str, Argument] = {a.name: a.size for a in axes}
    if micro is not None:
        named |= {"micro": micro, "microbatches": micro}
    return replace(
        strategy,
        axes=axes,
        arguments=tuple((key, named.get(key, value)) for key, value in strategy.arguments),
        placement=replace(strategy.placement, micro=micro) if micro else strategy.placement,
    )


def compose(*parts: Strategy) -> Composition:
    """Multiply strategies.

    Raises:
        IllFormed: two strategies claim one axis, one kind of loop or one kind of stage; a size is
            not a positive integer or a symbol; a sharding names an axis that the mesh lacks.
    """
    composition = Composition(parts)
    for strategy in parts:
        _check_sizes(strategy)
    _check_axes(parts)
    _check_once(parts, "pipeline", lambda p: p.schedule)
    _check_loops(parts)
    _check_names(composition)
    _check_repeats(parts)
    return composition


def _check_sizes(strategy: Strategy) -> None:
    loops = [("micro-batches", strategy.placement.micro)]
    for name, size in [*((a.name, a.size) for a in strategy.axes), *loops]:
        if not _is_size(size):
            raise IllFormed(
                f"{strategy.name}({name}=...)",
                repr(size),
                f"a size is a whole number from 1 to {MAX_SIZE:,} or the name of a symbol",
                f"write {name}=8 or {name}=N",
            )


def _is_size(size: object) -> bool:
    if isinstance(size, bool):
        return False
    if isinstance(size, int):
        return 1 <= size <= MAX_SIZE
    return isinstance(size, str) and size.isidentifier()


def _check_axes(parts: tuple[Strategy, ...]) -> None:
    seen: dict[str, Strategy] = {}
    for strategy in parts:
        for axis in strategy.axes:
            first = seen.setdefault(axis.name, strategy)
            if first is strategy or (strategy.name == "place" and axis in first.axes):
                continue
            raise IllFormed(
                repr(Composition(parts)),
                f"axis {axis.name} of {first!r} and of {strategy!r}",
                "each mesh axis belongs to one strategy",
                f"keep one of {first.name} and {strategy.name}",
            )


def _check_once(
    parts: tuple[Strategy, ...], what: str, of: Callable[[Placement], Schedule | None]
) -> None:
    having = [s for s in parts if of(s.placement)]
    if len(having) > 1:
        raise IllFormed(
            repr(Composition(parts)),
            f"{len(having)} times {what}",
            "stages are cut once",
            "keep one",
        )


def _check_loops(parts: tuple[Strategy, ...]) -> None:
    loops = [s for s in parts if s.placement.micro != 1]
    if len(loops) > 1:
        raise IllFormed(
            repr(Composition(parts)),
            " and ".join(map(repr, loops)),
            "a pipeline's micro-batches are the accumulation loop; there is one such loop",
            "give their product to one of the two",
        )


def _check_names(composition: Composition) -> None:
    names = set(composition.mesh.names)
    for place in composition.placement.places:
        unknown = set(place.axes) - names
        if unknown:
            raise IllFormed(
                repr(composition),
                f"shard_over names {', '.join(sorted(unknown))}",
                f"the mesh has the axes {', '.join(sorted(names)) or 'none'}",
                "multiply by the strategy that brings the axis, or leave it out",
            )


def _check_repeats(parts: tuple[Strategy, ...]) -> None:
    counts = Counter(s.name for s in parts if s.name in ("recompute", "single"))
    counts += Counter(
        f"offload of {p.state.value}"
        for s in parts
        for p in s.placement.places
        if p.mode is Mode.OFFLOADED
    )
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise IllFormed(
            repr(Composition(parts)), f"{twice[0]} twice", "it is said once", "merge the two"
        )


def parse(text: str, *, place: str = "expression") -> Composition:
    """Read an expression such as ``zero3(dp=8) * tensor(tp=4, sequence=True)``.

    Known names, literals and ``*`` only: nothing is evaluated.

    Raises:
        IllFormed: the text is not such an expression; the message has the place and the remedy.

    >>> parse("zero3(dp=8) * pipeline(pp=2, microbatches=16)")
    zero3(dp=8) * pipeline(pp=2, microbatches=16)
    """
    if len(text) > MAX_TEXT:
        raise IllFormed(place, f"{len(text):,} characters", f"at most {MAX_TEXT:,}", "shorten it")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise IllFormed(
            place,
            repr(text[:80]),
            f"not an expression ({getattr(error, 'msg', None) or error})",
            'write strategies joined by *, such as "zero3(dp=8) * tensor(tp=4)"',
        ) from None
    return compose(*(_call(node, place) for node in _factors(tree.body, place)))


def _factors(node: ast.expr, place: str) -> list[ast.expr]:
    """The factors of a product, without recursion (text may nest deeply)."""
    pending, factors = [node], []
    while pending:
        current = pending.pop()
        if isinstance(current, ast.BinOp):
            if not isinstance(current.op, ast.Mult):
                raise IllFormed(
                    place,
                    type(current.op).__name__,
                    "strategies are joined by * only",
                    "write zero3(dp=8) * tensor(tp=4)",
                )
            pending += [current.right, current.left]
        else:
            factors.append(current)
    return factors


def _call(node: ast.expr, place: str) -> Strategy:
    name = node.func if isinstance(node, ast.Call) else node
    if not isinstance(name, ast.Name) or name.id not in STRATEGIES:
        raise IllFormed(
            place,
            _shown(node),
            f"the strategies are {', '.join(STRATEGIES)}",
            _nearest(name.id if isinstance(name, ast.Name) else ""),
        )
    if not isinstance(node, ast.Call):
        return STRATEGIES[name.id]()
    positional = [_literal(arg, place) for arg in node.args]
    named = {key.arg or "**": _literal(key.value, place) for key in node.keywords}
    if len(named) < len(node.keywords):
        raise IllFormed(place, _shown(node), "each argument is given once", "keep one of the two")
    try:
        return STRATEGIES[name.id](*positional, **named)
    except TypeError as error:
        raise IllFormed(
            place, _shown(node), _plain(error, name.id), f"see: {_signature(name.id)}"
        ) from None


def _literal(node: ast.expr, place: str) -> Argument:
    match node:
        case ast.Constant(value=bool() | int() | str() | None as value):
            return value
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(str(_literal(item, place)) for item in items)
        case _:
            raise IllFormed(
                place,
                _shown(node),
                "an argument is a number, a symbol, a text, True, False or a tuple of axis names",
                "write dp=8 or dp=N",
            )


def _shown(node: ast.expr) -> str:
    return ast.unparse(node)[:80] if not isinstance(node, ast.BinOp) else "an operation"


def _plain(error: TypeError, name: str) -> str:
    return str(error).replace(f"{name}() ", "").replace("got an unexpected", "has no")


def _signature(name: str) -> str:
    import inspect

    parameters = inspect.signature(STRATEGIES[name]).parameters.values()
    words = [p.name + ("=..." if p.kind == p.KEYWORD_ONLY else "") for p in parameters]
    return f"{name}({', '.join(words)})"


def _nearest(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, STRATEGIES, n=1, cutoff=0.4)
    return f"did you mean {close[0]}?" if close else "see placement-proofs check --help"
