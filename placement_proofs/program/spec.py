"""What one device would do: parameters with their targets, their copies, owners of elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Axes: TypeAlias = tuple[str, ...]
Held: TypeAlias = tuple[tuple[str, str], ...]
"""Axis and owner: only that position of the axis stores the generic element."""
Expr: TypeAlias = str
"""`+ - * /` and parentheses over integers, axis sizes, loop lengths and scalar buffers."""


@dataclass(frozen=True, slots=True)
class Term:
    """`coef` times the sum of a family of contributions over mesh axes and loops.

    `over` lists every index of the family. An entry `@axis` is not summed: it is the rank's
    own index (only in `Expect`). In `coef` a count family stands for its total. `fn` applies
    an uninterpreted function to the sum (only in `Expect`), `more` are its further arguments.
    `weights` are count families of the same indices: every member is multiplied by its own.
    """

    family: str
    over: Axes = ()
    coef: Expr = "1"
    fn: str = ""
    weights: Axes = ()
    more: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Param:
    """A logical parameter: what one device trains.

    `target` is the gradient of the current step as a sum of terms; a parameter without one
    is frozen. `clip` names the group whose gradients share one norm. `update` says whether
    the optimizer works element by element or needs the whole tensor. `hyper` names the
    hyper-parameters that its update reads. With `late` = k the one device, too, uses at every
    step the gradient of k steps before (none in the first k): a declared staleness.
    """

    name: str
    target: tuple[Term, ...] = ()
    clip: str | None = None
    update: Literal["elementwise", "whole"] = "elementwise"
    hyper: tuple[str, ...] = ()
    late: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """A physical copy of a logical parameter, with its layout and initial value.

    `held` is its layout wherever it is used or updated. `vary` lists the axes on which the
    initial copies differ. With `of=""` it is a plain buffer that starts as zero.
    """

    name: str
    of: str
    held: Held = ()
    vary: Axes = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner `name` on an axis as a digit of the element's index in mixed radix.

    `digits` are the radices from the outermost in: axes, loops, integers, and once `...`,
    whatever the tensor's size leaves. The owner's digit is that of the axis, or the one in
    brackets: `[old] ...` are shards for `old` ranks, read by as many of this axis. Two owners
    of an axis are the same map of elements iff their digits have the same radix and stride.
    """

    axis: str
    name: str
    digits: tuple[str, ...]
