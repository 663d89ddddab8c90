"""torchtitan's Python registry as blocks: the literal arguments of its calls, never executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from placement_proofs.configs.document import Block, Item, Scalar, read_text
from placement_proofs.errors import IllFormed

_CALLS: Mapping[str, str] = {
    "ParallelismConfig": "parallelism",
    "TrainingConfig": "training",
    "CompileConfig": "compile",
    "FullAC.Config": "activation_checkpoint",
    "SelectiveAC.Config": "activation_checkpoint",
    "MemoryBudgetAC.Config": "activation_checkpoint",
}
_MODES = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
_CALL = re.compile(r"\b(" + "|".join(re.escape(name) for name in _CALLS) + r")\(")
_FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_LONGEST = 20_000


def read_registry(path: Path) -> Block:
    """Read the configuration of a registry; an empty block if the file has none.

    Raises:
        IllFormed: several configurations in one file, or a call that does not close.
    """
    return parse_registry(read_text(path), path.name)


def parse_registry(text: str, file: str) -> Block:
    """Read the text of a registry; see :func:`read_registry`."""
    code = _without_comments(text)
    _single(code, file)
    tables: dict[str, Item] = {}
    for match in _CALL.finditer(code):
        name, line = match.group(1), code.count("\n", 0, match.start()) + 1
        inner = _arguments(code, match.end() - 1, f"{file}:{line}")
        items = dict(_items(inner, line, file))
        mode = _MODES.get(name.partition(".")[0])
        if mode:
            items["mode"] = Item(mode, line)
        tables.setdefault(_CALLS[name], Item(Block(line, items), line))
    return Block(1, tables)


def _single(code: str, file: str) -> None:
    starts = [(m.start(), m.group(1)) for m in _FUNCTION.finditer(code)]
    ends = [*(start for start, _ in starts[1:]), len(code)]
    named = [
        name
        for (start, name), end in zip(starts, ends, strict=False)
        if "ParallelismConfig(" in code[start:end] and "_degree=" in code[start:end]
    ]
    if len(named) > 1:
        raise IllFormed(
            file,
            f"{len(named)} configurations: {', '.join(named[:5])}",
            "one configuration is one placement",
            "write the one to check into a file of its own",
        )


def _without_comments(text: str) -> str:
    """The text with comments and the inside of strings over several lines blanked."""
    kept = []
    for line in text.split("\n"):
        mark, quote = len(line), ""
        for i, char in enumerate(line):
            if quote:
                quote = "" if char == quote else quote
            elif char in "\"'":
                quote = char
            elif char == "#":
                mark = i
                break
        kept.append(line[:mark])
    return "\n".join(kept)


def _arguments(code: str, start: int, place: str) -> str:
    """The text from an opening bracket to its partner."""
    stack: list[str] = []
    quote = ""
    for i in range(start, min(len(code), start + _LONGEST)):
        char = code[i]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _CLOSING:
            stack.append(_CLOSING[char])
        elif stack and char == stack[-1]:
            stack.pop()
            if not stack:
                return code[start : i + 1]
    raise IllFormed(place, "a call that does not close", "brackets come in pairs", "close it")


def _items(inner: str, line: int, file: str) -> Iterator[tuple[str, Item]]:
    try:
        call = ast.parse(f"f{inner}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise IllFormed(
            f"{file}:{line}", "no Python call", "the arguments are read as Python", "correct them"
        ) from None
    for keyword in call.keywords if isinstance(call, ast.Call) else []:
        if keyword.arg:
            at = line + keyword.value.lineno - 1
            yield keyword.arg, Item(_literal(keyword.value), at)


def _literal(node: ast.expr) -> Scalar | tuple[Scalar, ...]:
    """A number, word or list; a product of numbers; any other expression as a placeholder."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.BinOp(
            left=ast.Constant(value=int(left)), op=ast.Mult(), right=ast.Constant(value=int(right))
        ) if abs(left) < 10**12 and abs(right) < 10**12:
            return left * right
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return tuple(str(_literal(e)) for e in elements)
    return "${expression}"
