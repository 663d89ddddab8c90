"""Expressions of element programs: text to a small tree, by walking Python's `ast`.

The tree is made of nested tuples, so that it can be hashed and shared by every reader.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeVar

from placement_proofs.errors import IllFormed

Op: TypeAlias = Literal["+", "-", "*", "/"]
V = TypeVar("V")
MAX_CHARS = 400


@dataclass(frozen=True, slots=True)
class Num:
    """A rational constant."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Name:
    """The size of an axis, the length of a loop, a count or a scalar buffer."""

    name: str


@dataclass(frozen=True, slots=True)
class Bin:
    """An operation on two expressions."""

    op: Op
    left: Tree
    right: Tree


Tree: TypeAlias = Num | Name | Bin

_OPS: dict[type[ast.operator], Op] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def bad_expression(place: str, found: str) -> IllFormed:
    """The error of a text that is not an expression."""
    return IllFormed(
        place,
        repr(found[:60]),
        "an expression has + - * / and parentheses over integers and names of sizes or scalars",
        "write for example 1/(dp*mb)",
    )


def parse_ast(text: str, place: str) -> ast.expr:
    """Python's tree of one expression, or `IllFormed`; nothing is evaluated."""
    if len(text) > MAX_CHARS:
        raise bad_expression(place, text)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise bad_expression(place, text) from None


def dotted(node: ast.expr) -> str | None:
    """The name `a.b.c` that a node spells, if it spells one."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            base = dotted(value)
            return None if base is None else f"{base}.{attr}"
        case _:
            return None


def _tree(node: ast.expr, text: str, place: str) -> Tree:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return Num(Fraction(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Bin("-", Num(Fraction(0)), _tree(operand, text, place))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPS:
            return Bin(_OPS[type(op)], _tree(left, text, place), _tree(right, text, place))
    name = dotted(node)
    if name is None:
        raise bad_expression(place, text)
    return Name(name)


@lru_cache(maxsize=4096)
def parse_expr(text: str, place: str = "expression") -> Tree:
    """The tree of an expression; raises `IllFormed` at `place`."""
    return _tree(parse_ast(text, place), text, place)


def folded(
    tree: Tree,
    number: Callable[[Fraction], V],
    named: Callable[[str], V],
    divided: Callable[[V, V], V],
) -> V:
    """The value of an expression in any arithmetic that has ``+``, ``-`` and ``*``."""
    match tree:
        case Num(value):
            return number(value)
        case Name(name):
            return named(name)
        case Bin(op, left, right):
            a, b = (folded(side, number, named, divided) for side in (left, right))
    return divided(a, b) if op == "/" else _ARITHMETIC[op](a, b)


_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def names_of(tree: Tree) -> Iterator[str]:
    """Every name in the expression."""
    match tree:
        case Name(name):
            yield name
        case Bin(_, left, right):
            yield from names_of(left)
            yield from names_of(right)
        case Num():
            return


def is_zero(text: str) -> bool:
    """Whether the expression is the constant 0."""
    return parse_expr(text) == Num(Fraction(0))
