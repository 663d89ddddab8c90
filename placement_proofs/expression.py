"""The expression of a composition as text: read by walking Python's syntax, never evaluated."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from placement_proofs import strategies
from placement_proofs.composition import Argument, Composition, Strategy, compose
from placement_proofs.errors import IllFormed

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

MAX_TEXT = 10_000

_SIGNS: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Div: "/",
    ast.MatMult: "@",
    ast.Pow: "**",
    ast.BitOr: "|",
}
_OTHER_NAMES: Mapping[str, str] = {
    "dp": "data(dp=8)",
    "ddp": "data(dp=8)",
    "zero": "zero3(dp=8)",
    "tp": "tensor(tp=8)",
    "sp": "tensor(tp=8, sequence=True) or ulysses(sp=8)",
    "pp": "pipeline(pp=4, microbatches=8)",
    "cp": "context(cp=2)",
    "ep": "expert(ep=8)",
    "ga": "accumulate(micro=4)",
}
"""Names that people use for strategies, and what they write here."""


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
                    repr(_SIGNS.get(type(current.op), "another operator")),
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

    if name.lower() in _OTHER_NAMES:
        return f"write {_OTHER_NAMES[name.lower()]}"
    close = difflib.get_close_matches(name.lower(), STRATEGIES, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "name one of them, or a file that exists"
