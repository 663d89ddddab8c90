"""Functions of abstract values: uninterpreted ones, sums of squares, clip factors."""

from __future__ import annotations

from placement_proofs.program.rules import ENDS
from placement_proofs.prove.algebra import ONE, ROW, Opaque, Poly
from placement_proofs.prove.forms import Form, Frozen, Layout, freeze, plus, times
from placement_proofs.prove.state import State


def function(state: State, fn: str, args: tuple[Form, ...], layout: Layout, whole: bool) -> Form:
    """An uninterpreted function of values of one layout."""
    frames = tuple(state.algebra.own_frame(arg, layout) for arg in args)
    if fn == "square" and (inner := _rooted(state, frames)) is not None:
        return state.algebra.settle(inner, layout)
    axes: set[str] = set()
    for frame in frames:
        axes |= state.algebra.varying(frame)
    cut = tuple(item for item in layout.items() if shards(item[1]))
    data = (fn, cut if whole else (), tuple(freeze(frame) for frame in frames))
    return state.algebra.settle(state.algebra.opaque("function", data, -1, axes), layout)


def _rooted(state: State, frames: tuple[Form, ...]) -> Form | None:
    """The argument of a square root, if the one frame is just that."""
    if len(frames) != 1 or len(frames[0]) != 1:
        return None
    (((symbol, tags), poly),) = frames[0].items()
    data = state.symbols.symbols[symbol].data
    own = tuple((axis, "=", "=") for axis in state.symbols.symbols[symbol].dims)
    if poly != ONE or tags != own or not isinstance(data, tuple) or data[0] != "sqrt":
        return None
    return dict(data[2][0])


def top(state: State, form: Form, axes: tuple[str, ...]) -> Form:
    """The maximum over the ranks of axes; of a maximum, over the axes of both."""
    varying = state.algebra.varying(form)
    axes = tuple(axis for axis in axes if axis in varying)
    if not axes:
        return form
    if (inner := _topped(state, form)) is not None:
        axes, form = (*axes, *inner[0]), dict(inner[1])
    data = (tuple(sorted(axes)), freeze(form))
    return state.algebra.opaque("max", data, -1, varying - set(axes))


def _topped(state: State, form: Form) -> tuple[tuple[str, ...], Frozen] | None:
    """The axes and the value of a maximum, if the form is just one."""
    if len(form) != 1:
        return None
    (((index, tags), poly),) = form.items()
    symbol = state.symbols.symbols[index]
    own = tuple((axis, "=", "=") for axis in symbol.dims)
    if symbol.kind != "max" or poly != ONE or tags != own or not isinstance(symbol.data, tuple):
        return None
    return symbol.data[0], symbol.data[1]


def square(state: State, form: Form, layout: Layout) -> Form:
    """The sum of squares of all elements that a rank stores."""
    if not form:
        return {}
    for axis in state.order:
        rows = {_row(tags, axis) for _, tags in form}
        if axis not in layout and rows and not rows & {"", "="}:
            return _square_by_rank(state, form, layout, axis, sorted(rows))
    common = set(form.values())
    factor = ONE
    if len(common) == 1 and not state.atoms.marks(next(iter(common))):
        factor = next(iter(common))
        form = dict.fromkeys(form, ONE)
    pieces = tuple((a, o) for a, o in layout.items() if o not in ENDS)
    axes = state.algebra.varying(form) | {axis for axis, _ in pieces}
    squared = state.algebra.opaque("square", (freeze(form), pieces), -1, axes)
    for axis, owner in layout.items():
        if owner in ENDS:
            squared = state.algebra.at(squared, axis, owner)
    return times(squared, factor * factor)


def _square_by_rank(state: State, form: Form, layout: Layout, axis: str, rows: list[str]) -> Form:
    """Values on different ranks do not meet in a square."""
    for i, left in enumerate(rows):
        for right in rows[:i]:
            state.positions.same(axis, left, right)
    total: Form = {}
    for row in rows:
        part = {key: poly for key, poly in form.items() if _row(key[1], axis) == row}
        inner = square(state, state.algebra.take(part, axis, row), layout)
        total = plus(total, state.algebra.at(inner, axis, row))
    return total


def _row(tags: tuple[tuple[str, str, str], ...], axis: str) -> str:
    return next((row for name, row, _ in tags if name == axis), "")


def clip_factor(state: State, norm: Form) -> Poly:
    """The factor that clipping derives from a squared norm."""
    marks = tuple(sorted((axis, ROW) for axis in state.algebra.varying(norm)))
    return state.atoms.poly(Opaque("clip", freeze(norm), marks))


def shards(owner: str) -> bool:
    """Whether a layout with that owner cuts tensors: the ends of an axis hold them whole."""
    return owner not in ENDS and not owner.startswith("tensor")
