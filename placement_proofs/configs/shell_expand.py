"""Expansion of shell words: variables with defaults, arithmetic on whole numbers, splitting."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from placement_proofs.configs.document import Scalar
from placement_proofs.configs.shell_lex import Lexer, Mark, Part, Token
from placement_proofs.errors import IllFormed

MAX_PIECES = 60_000
MAX_CHARACTERS = 1_000_000
MAX_DEPTH = 12


@dataclass(frozen=True)
class Piece:
    """Text after expansion; unquoted text is split at blanks."""

    text: str
    mark: Mark
    quoted: bool = False


Word: TypeAlias = tuple[Piece, ...]
Value: TypeAlias = tuple[Word, ...]
"""A variable: one word, or the elements of an array."""

_SUBSTITUTION = re.compile(r"([A-Za-z_]\w*|[0-9]+|[@*#?])(\[[@*]\])?(:?[-=+?]|/{1,2})?(.*)\Z", re.S)
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}\Z")
_NUMBER = re.compile(r"[-+]?[0-9]{1,17}(_[0-9]{3})*\Z")
_ARITHMETIC = re.compile(r"[\w\s+*/%()<>=!?:-]+\Z")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def text_of(word: Iterable[Piece]) -> str:
    """The text of a word."""
    return "".join(piece.text for piece in word)


def scalar(text: str) -> Scalar:
    """A number, a truth value or a text."""
    text = text.strip().strip("\"'")
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text.replace("_", "")) if _NUMBER.match(text) else text


def merged(pieces: Sequence[Piece], line: int) -> Mark:
    """The origin of a word: its first line, and whatever is open or conditional in it."""
    if not pieces:
        return Mark(line)
    marks = [piece.mark for piece in pieces]
    named = [next((m.open for m in marks if m.open), ""), next((m.default for m in marks), "")]
    named[1] = next((m.default for m in marks if m.default), "")
    return Mark(marks[0].line, named[0], named[1], max(m.when for m in marks))


class Expander:
    """The variables of a script and the expansion of words with them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.variables: dict[str, Value] = {}
        self.used: set[str] = set()
        self.pieces = 0
        self.characters = 0
        self.depth = 0

    def words(self, token: Token) -> list[Word]:
        """The words that a token becomes: none, one or several."""
        result: list[list[Piece]] = [[]]
        kept = False
        for part in token.parts:
            if part.quoted or part.kind == "text":
                kept = kept or part.quoted or bool(part.text)
            self._append(result, part)
        words = [tuple(word) for word in result if word]
        return words or ([()] if kept else [])

    def joined(self, token: Token) -> Word:
        """The one word of an assignment's right side: nothing is split."""
        pieces: list[Piece] = []
        for part in token.parts:
            for number, word in enumerate(self._expanded(part)):
                pieces += (Piece(" ", part.mark, True),) if number else ()
                pieces += word
        return tuple(pieces)

    def _append(self, result: list[list[Piece]], part: Part) -> None:
        for number, word in enumerate(self._expanded(part)):
            if number and part.quoted and part.text.endswith("[*]"):
                result[-1].append(Piece(" ", part.mark, True))
            elif number:
                result.append([])
            if part.quoted or part.kind == "text":
                result[-1] += word
                continue
            self._split(result, word)

    def _split(self, result: list[list[Piece]], word: Word) -> None:
        """Cut the pieces of an unquoted expansion at blanks."""
        for piece in word:
            if piece.text.startswith("$(") and piece.mark.open:
                result[-1].append(piece)
                continue
            chunks = piece.text.split()
            if piece.text[:1].isspace() and result[-1]:
                result.append([])
            for number, chunk in enumerate(chunks):
                if number:
                    result.append([])
                result[-1].append(Piece(chunk, piece.mark))
            if chunks and piece.text[-1:].isspace():
                result.append([])

    def _expanded(self, part: Part) -> Value:
        match part.kind:
            case "text":
                value: Value = ((Piece(part.text, part.mark, part.quoted),),)
            case "variable":
                value = self._variable(part)
            case "math":
                value = (self._math(part),)
            case "command":
                value = (self._open("$(...)", f"$({part.text[:40]})", part.mark),)
        self._count(value, part)
        return value

    def _count(self, value: Value, part: Part) -> None:
        self.pieces += sum(len(word) + 1 for word in value)
        self.characters += sum(len(piece.text) for word in value for piece in word)
        if self.pieces > MAX_PIECES or self.characters > MAX_CHARACTERS:
            raise IllFormed(
                f"{self.file}:{part.mark.line}",
                "variables that expand too far",
                f"a script's words expand to at most {MAX_CHARACTERS:,} characters",
                "is this the right file?",
            )

    def _open(self, name: str, text: str, mark: Mark) -> Word:
        return (Piece(text, replace(mark, open=mark.open or name)),)

    def _variable(self, part: Part) -> Value:
        match = _SUBSTITUTION.match(part.text)
        if match is None:
            return (self._open(part.text[:40], f"${{{part.text[:40]}}}", part.mark),)
        name, _, operator, rest = match.groups()
        value = self.variables.get(name)
        self.used.add(name)
        if operator and operator[-1] in "-=" and (value is None or not any(map(text_of, value))):
            return self._default(name, operator, rest, part)
        if operator and operator[-1] == "+":
            return self._alternative(value, rest, part)
        if value is None:
            return (self._open(name, f"${{{name}}}", part.mark),)
        if operator and operator[0] == "/":
            return tuple(_replaced(word, operator, rest) for word in value)
        if rest and not operator:
            return (self._open(name, f"${{{name}}}", part.mark),)
        return value

    def _default(self, name: str, operator: str, rest: str, part: Part) -> Value:
        """The script's own value for a variable of the environment."""
        marked = replace(part.mark, default=part.mark.default or name)
        word = tuple(
            replace(piece, mark=replace(piece.mark, default=piece.mark.default or name))
            for piece in self._nested(rest, marked)
        )
        value: Value = (word,)
        if "=" in operator:
            self.variables[name] = value
        return value

    def _alternative(self, value: Value | None, rest: str, part: Part) -> Value:
        if value is None:
            return ((),)
        return (self._nested(rest, part.mark),)

    def _nested(self, text: str, mark: Mark) -> Word:
        """The word inside ``${NAME:-word}``."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            rule = f"defaults nest at most {MAX_DEPTH} deep"
            raise IllFormed(f"{self.file}:{mark.line}", "deeper defaults", rule, "write the value")
        parts: list[Part] = []
        for token in Lexer(text, self.file, [0], [mark]).run():
            if parts and token.parts:
                parts.append(Part("text", " ", True, mark))
            parts += token.parts
        word = self.joined(Token("word", mark.line, tuple(parts)))
        self.depth -= 1
        return word

    def _math(self, part: Part) -> Word:
        """``$((...))``: a number, or open if a variable in it is open."""
        marks: list[Mark] = []
        number = arithmetic(part.text, lambda name: self._number(name, marks))
        opened = next((m.open for m in marks if m.open), "")
        default = next((m.default for m in marks if m.default), "")
        if number is None:
            return self._open(opened or "$((...))", f"$(({part.text[:40]}))", part.mark)
        return (Piece(str(number), replace(part.mark, default=default)),)

    def _number(self, name: str, marks: list[Mark]) -> int | None:
        value = self.variables.get(name)
        if value is None or not value:
            marks.append(Mark(0, open=name))
            return None
        marks.append(merged(value[0], 0))
        text = text_of(value[0]).strip()
        return int(text) if _WHOLE.match(text) and not marks[-1].open else None


def _replaced(word: Word, operator: str, rest: str) -> Word:
    """``${NAME//old/new}`` with literal texts."""
    old, _, new = rest.partition("/")
    count = -1 if operator == "//" else 1
    return tuple(replace(p, text=p.text.replace(old, new, count)) for p in word) if old else word


def arithmetic(text: str, lookup: Callable[[str], int | None]) -> int | None:
    """The value of a shell's whole-number expression, or ``None`` if it is not known.

    ``+ - * / %``, comparisons, brackets and ``a ? b : c``; read as a tree, not evaluated as code.
    """
    text = _VARIABLE.sub(r"\1", text).strip()
    if len(text) > 300 or not _ARITHMETIC.match(text):
        return None
    condition, question, rest = text.partition("?")
    if question:
        decided = arithmetic(condition, lookup)
        yes, _, no = rest.partition(":")
        return None if decided is None else arithmetic(yes if decided else no, lookup)
    try:
        tree = ast.parse(" ".join(text.split()), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _value(tree.body, lookup)


def _value(node: ast.expr, lookup: Callable[[str], int | None]) -> int | None:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return lookup(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value_or_none = _value(inner, lookup)
            return None if value_or_none is None else -value_or_none
        case ast.BinOp(left=left, op=operator, right=right):
            return _applied(_OPERATORS.get(type(operator)), left, right, lookup)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _applied(_COMPARISONS.get(type(operator)), left, right, lookup)
        case _:
            return None


def _applied(
    function: Callable[[int, int], int] | None,
    left: ast.expr,
    right: ast.expr,
    lookup: Callable[[str], int | None],
) -> int | None:
    first, second = _value(left, lookup), _value(right, lookup)
    if function is None or first is None or second is None:
        return None
    try:
        number = function(first, second)
    except ZeroDivisionError:
        return None
    return number if abs(number) < 10**18 else None


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: int(a / b) if abs(a) < 2**50 else a // b,
    ast.Mod: lambda a, b: a % b,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], int]] = {
    ast.Lt: lambda a, b: int(a < b),
    ast.LtE: lambda a, b: int(a <= b),
    ast.Gt: lambda a, b: int(a > b),
    ast.GtE: lambda a, b: int(a >= b),
    ast.Eq: lambda a, b: int(a == b),
    ast.NotEq: lambda a, b: int(a != b),
}
