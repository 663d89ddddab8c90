"""Targets: sums of families of contributions with coefficients, read from text."""

from __future__ import annotations

import ast
from dataclasses import replace

from placement_proofs.errors import IllFormed
from placement_proofs.program import Term
from placement_proofs.program.expr import bad_expression, dotted, parse_ast
from placement_proofs.program.flow import BACK
from placement_proofs.program.print import expr_text

_OWN = "own__"
"""Stands for `@` while Python's parser reads the text."""


def parse_target(text: str, place: str) -> tuple[Term, ...]:
    """`c[dp,mb]/(dp*mb) + 2*d[dp]` as terms; `0` has none. Raises `IllFormed`."""
    if text.strip() == "0":
        return ()
    readable = text.replace("@", _OWN).replace("[]", "[()]")
    return tuple(
        _canonical(term, place) for term in _terms(parse_ast(readable, place), text, place)
    )


def _canonical(term: Term, place: str) -> Term:
    more = tuple(_canonical(other, place) for other in term.more)
    return replace(term, coef=expr_text(term.coef, place), more=more)


def _terms(node: ast.expr, text: str, place: str) -> list[Term]:
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _terms(left, text, place) + _terms(right, text, place)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _terms(left, text, place) + _scaled(right, "-({})", text, place)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _scaled(operand, "-({})", text, place)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product(left, right, text, place)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _scaled(left, f"({{}})/({_plain(right, text, place)})", text, place)
        case ast.Subscript(value=value, slice=index):
            return [_family(value, index, text, place)]
        case ast.Call(func=ast.Name("back"), args=[argument], keywords=[]):
            return [_backward(argument, text, place)]
        case ast.Call(func=func, args=[argument, *more], keywords=[]):
            return _function(func, argument, more, text, place)
    raise _bad(text, place)


def _bad(text: str, place: str) -> IllFormed:
    return IllFormed(
        place,
        repr(text[:60]),
        "a target is a sum of families with their indices, times coefficients",
        "write for example c[dp,mb]/(dp*mb)",
    )


def _scaled(node: ast.expr, pattern: str, text: str, place: str) -> list[Term]:
    terms = _terms(node, text, place)
    if any(term.fn not in ("", BACK) for term in terms):
        raise _bad(text, place)
    return [replace(term, coef=_tidy(pattern, term.coef)) for term in terms]


def _tidy(pattern: str, coef: str) -> str:
    if coef == "1" and pattern.startswith("({})*"):
        return pattern.removeprefix("({})*")
    return pattern.format(coef)


def _product(left: ast.expr, right: ast.expr, text: str, place: str) -> list[Term]:
    if _has_family(left) and _has_family(right):
        return _weighted(left, right, text, place)
    if _has_family(left) == _has_family(right):
        raise _bad(text, place)
    family, plain = (left, right) if _has_family(left) else (right, left)
    return _scaled(family, f"({{}})*({_plain(plain, text, place)})", text, place)


def _weighted(left: ast.expr, right: ast.expr, text: str, place: str) -> list[Term]:
    """A family times a count of the same indices, member by member."""
    terms, counts = _terms(left, text, place), _terms(right, text, place)
    if len(terms) != 1 or len(counts) != 1:
        raise _bad(text, place)
    term, count = terms[0], counts[0]
    plain = replace(count, coef="1", weights=()) == Term(count.family, term.over)
    if not plain or count.coef != "1" or count.weights or term.fn:
        raise _bad(text, place)
    return [replace(term, weights=(*term.weights, count.family))]


def _has_family(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Subscript | ast.Call) for part in ast.walk(node))


def _plain(node: ast.expr, text: str, place: str) -> str:
    if _has_family(node):
        raise _bad(text, place)
    return ast.unparse(node)


def _family(value: ast.expr, index: ast.expr, text: str, place: str) -> Term:
    name = dotted(value)
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    over = [dotted(part) for part in parts]
    if name is None or any(part is None for part in over):
        raise bad_expression(place, text)
    return Term(name, tuple(str(part).replace(_OWN, "@") for part in over))


def _backward(value: ast.expr, text: str, place: str) -> Term:
    """What the flow's backward from an activation gives."""
    name = dotted(value)
    if name is None:
        raise bad_expression(place, text)
    return Term(name, fn=BACK)


def _function(
    func: ast.expr, argument: ast.expr, others: list[ast.expr], text: str, place: str
) -> list[Term]:
    inner = [_terms(node, text, place) for node in (argument, *others)]
    name = dotted(func)
    if name is None or any(len(terms) != 1 or terms[0].fn for terms in inner):
        raise _bad(text, place)
    first, *more = [terms[0] for terms in inner]
    return [replace(first, fn=name, more=tuple(more))]
