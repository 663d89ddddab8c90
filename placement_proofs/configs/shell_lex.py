"""The words of a POSIX shell script, with the line of every piece. Nothing is executed."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from placement_proofs.errors import IllFormed

MAX_TOKENS = 20_000

Kind = Literal["text", "variable", "math", "command"]


@dataclass(frozen=True)
class Mark:
    """Where a piece of text comes from.

    ``open`` names a variable that the script does not set; ``default`` one whose value the script
    supplies only if the environment has none; ``when`` is the line of an undecided condition.
    """

    line: int
    open: str = ""
    default: str = ""
    when: int = 0


@dataclass(frozen=True)
class Part:
    """A piece of a word as written: plain text, or an expansion whose inside is ``text``."""

    kind: Kind
    text: str
    quoted: bool
    mark: Mark


@dataclass(frozen=True)
class Token:
    """A word, an operator, or the text of a here-document.

    ``array`` holds the elements of ``NAME=(...)``; ``bare`` tells that no part was quoted.
    """

    kind: Literal["word", "operator", "heredoc"]
    line: int
    parts: tuple[Part, ...] = ()
    operator: str = ""
    array: tuple[Token, ...] | None = None

    @property
    def bare(self) -> str:
        """The text of a word without quotes or expansions; empty for any other word."""
        if self.kind != "word" or any(p.quoted or p.kind != "text" for p in self.parts):
            return ""
        return "".join(part.text for part in self.parts)


_PLAIN = re.compile(r"[^\s\\'\"$`;&|()<>#]+")
_QUOTED = re.compile(r"[^\\\"$`\n]+")
_NAME = re.compile(r"\$(\w+|[@*#?!$-])")
_OPERATOR = re.compile(r"&&|\|\||;;|&>>?|[;&|()]")
_REDIRECT = re.compile(r"[0-9]*(>>|>&|>\||<&|<>|>|<)")
_HERE = re.compile(r"[0-9]*<<(-?)[ \t]*(['\"\\]?)([\w.-]+)['\"]?")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\Z")


class Lexer:
    """Cuts ``text`` into tokens. ``starts`` and ``marks`` give every position its origin."""

    def __init__(
        self, text: str, file: str, starts: Sequence[int] = (), marks: Sequence[Mark] = ()
    ) -> None:
        self.text, self.file, self.at = text, file, 0
        if not starts:
            starts = [0, *(match.end() for match in re.finditer("\n", text))]
            marks = [Mark(number + 1) for number in range(len(starts))]
        self.starts, self.marks = starts, marks
        self.tokens: list[Token] = []
        self.pending: list[tuple[str, bool, bool, int]] = []
        self.testing = False

    def mark(self, position: int) -> Mark:
        """The origin of the character at ``position``."""
        return self.marks[max(0, bisect_right(self.starts, position) - 1)]

    def refuse(self, position: int, found: str) -> IllFormed:
        return IllFormed(
            f"{self.file}:{self.mark(position).line}",
            found,
            "the file is read as a POSIX shell script, without running it",
            "close it, or correct the quotes before this line",
        )

    def run(self) -> tuple[Token, ...]:
        """All tokens.

        Raises:
            IllFormed: a quote, bracket or here-document is not closed; too many words.
        """
        while self.at < len(self.text):
            self._step()
            if len(self.tokens) > MAX_TOKENS:
                raise self.refuse(self.at, f"more than {MAX_TOKENS:,} words")
        return tuple(self.tokens)

    def _step(self) -> None:
        char = self.text[self.at]
        if char == "\n":
            self._newline()
        elif char.isspace():
            self.at += 1
        elif self.text.startswith("\\\n", self.at):
            self.at += 2
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif not self._control():
            self._word_token()

    def _newline(self) -> None:
        self._operator("\n", 1)
        self.testing = False
        for name, strip, literal, place in self.pending:
            token = self._here(name, strip, literal)
            if place < len(self.tokens) and self.tokens[place].kind == "heredoc":
                self.tokens[place] = token
        self.pending = []

    def _operator(self, text: str, length: int) -> None:
        self.tokens.append(Token("operator", self.mark(self.at).line, operator=text))
        self.at += length

    def _control(self) -> bool:
        """Consume an operator, a redirection, ``((...))`` or the start of a here-document."""
        if self.text.startswith("((", self.at):
            return self._double_bracket()
        here = _HERE.match(self.text, self.at)
        if here and not self.text.startswith("<<<", self.at):
            self.pending.append((here[3], bool(here[1]), bool(here[2]), len(self.tokens)))
            self.tokens.append(Token("heredoc", self.mark(self.at).line))
            self.at = here.end()
            return True
        operator = _OPERATOR.match(self.text, self.at)
        redirect = None if self.testing else _REDIRECT.match(self.text, self.at)
        if redirect and not self.text.startswith(("<(", ">("), redirect.end() - 1):
            self._operator(">", redirect.end() - self.at)
        elif operator and self.testing and operator[0] != ";":
            part = Part("text", operator[0], False, self.mark(self.at))
            self.tokens.append(Token("word", part.mark.line, (part,)))
            self.at = operator.end()
        elif operator:
            self._operator(operator[0], len(operator[0]))
        else:
            return False
        return True

    def _double_bracket(self) -> bool:
        end = self._matching(self.at, "(", ")")
        part = Part("math", self.text[self.at + 2 : end - 2], False, self.mark(self.at))
        self.tokens.append(Token("word", part.mark.line, (part,)))
        self.at = end
        return True

    def _here(self, name: str, strip: bool, literal: bool) -> Token:
        """The lines up to ``name``, as one token whose parts keep their lines."""
        begin = self.at
        line = self.mark(begin).line
        while True:
            if self.at >= len(self.text):
                raise self.refuse(max(0, begin - 1), f"the here-document {name} has no end")
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            row = self.text[self.at : end]
            if (row.lstrip("\t") if strip else row).rstrip("\r") == name:
                break
            self.at = end + 1
        body = self._inside(begin, self.at, literal)
        self.at = end
        return Token("heredoc", line, body)

    def _inside(self, begin: int, end: int, literal: bool) -> tuple[Part, ...]:
        """The parts of a region in which blanks are text."""
        if literal:
            return tuple(self._literal(begin, end))
        first, last = bisect_right(self.starts, begin) - 1, bisect_right(self.starts, end)
        starts = [max(0, start - begin) for start in self.starts[max(0, first) : last]]
        marks = self.marks[max(0, first) : last]
        inner = Lexer(self.text[begin:end], self.file, starts, marks)
        return tuple(inner._quoted_parts(""))

    def _literal(self, begin: int, end: int) -> list[Part]:
        """Quoted text, one part a line."""
        parts: list[Part] = []
        while begin < end:
            stop = self.text.find("\n", begin, end)
            stop = end if stop < 0 else stop + 1
            following = bisect_right(self.starts, begin)
            if following < len(self.starts):
                stop = min(stop, max(self.starts[following], begin + 1))
            parts.append(Part("text", self.text[begin:stop], True, self.mark(begin)))
            begin = stop
        return parts

    def _word_token(self) -> None:
        begin, line = self.at, self.mark(self.at).line
        parts: list[Part] = []
        while self.at < len(self.text) and self._word_part(parts):
            pass
        if self.at == begin:
            parts.append(Part("text", self.text[begin], False, self.mark(begin)))
            self.at += 1
        token = Token("word", line, tuple(parts))
        if self.text.startswith("(", self.at) and _ARRAY.match(token.bare):
            token = self._array(token)
        self.testing = token.bare == "[[" or (self.testing and token.bare != "]]")
        self.tokens.append(token)

    def _array(self, token: Token) -> Token:
        begin, outer = self.at, self.tokens
        self.tokens, self.at = [], self.at + 1
        while not self.text.startswith(")", self.at):
            if self.at >= len(self.text):
                raise self.refuse(begin, "an array that is not closed")
            self._step()
        self.at += 1
        elements = tuple(t for t in self.tokens if t.kind == "word")
        self.tokens = outer
        return replace(token, array=elements)

    def _word_part(self, parts: list[Part]) -> bool:
        """Consume one part of an unquoted word; false at its end."""
        char, mark = self.text[self.at], self.mark(self.at)
        plain = _PLAIN.match(self.text, self.at)
        if plain or (char == "#" and parts):
            stop = plain.end() if plain else self.at + 1
            following = bisect_right(self.starts, self.at)
            if following < len(self.starts):
                stop = min(stop, max(self.starts[following], self.at + 1))
            parts.append(Part("text", self.text[self.at : stop], False, mark))
            self.at = stop
        elif char == "\\":
            self._escape(parts, mark)
        elif char == "'":
            self._single(parts)
        elif char == '"':
            self.at += 1
            parts += self._quoted_parts('"') or [Part("text", "", True, mark)]
        elif char in "$`":
            parts.append(self._expansion(False))
        elif self.text.startswith(("<(", ">("), self.at):
            self.at += 1
            parts.append(self._bracketed("command", "(", ")", 1, False))
        else:
            return self.testing and char in "()<>&|" and not parts and self._single_char(parts)
        return True

    def _single_char(self, parts: list[Part]) -> bool:
        parts.append(Part("text", self.text[self.at], False, self.mark(self.at)))
        self.at += 1
        return True

    def _escape(self, parts: list[Part], mark: Mark) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if following != "\n":
            parts.append(Part("text", following, True, mark))

    def _single(self, parts: list[Part]) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise self.refuse(self.at, "a single quote that is not closed")
        empty = [Part("text", "", True, self.mark(self.at))]
        parts += self._literal(self.at + 1, end) or empty
        self.at = end + 1

    def _quoted_parts(self, closing: str) -> list[Part]:
        """Parts up to ``closing`` (or the end of the text), where blanks are text."""
        begin, parts = self.at, list[Part]()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == closing:
                self.at += 1
                return parts
            plain = _QUOTED.match(self.text, self.at)
            if plain:
                parts += self._literal(self.at, plain.end())
                self.at = plain.end()
            elif char in "$`":
                parts.append(self._expansion(True))
            else:
                self._quoted_char(parts)
        if closing:
            raise self.refuse(begin - 1, "a double quote that is not closed")
        return parts

    def _quoted_char(self, parts: list[Part]) -> None:
        """A newline, a quote inside a here-document, or a backslash in double quotes."""
        mark, pair = self.mark(self.at), self.text[self.at : self.at + 2]
        self.at += 2 if pair[0] == "\\" else 1
        if pair == "\\\n":
            parts.append(Part("text", " ", True, mark))
        elif pair[0] == "\\":
            text = pair[1:] if pair[1:] in ("\\", '"', "$", "`") else pair
            parts.append(Part("text", text, True, mark))
        else:
            parts.append(Part("text", pair[0], True, mark))

    def _expansion(self, quoted: bool) -> Part:
        mark = self.mark(self.at)
        rest = self.text[self.at : self.at + 3]
        if rest.startswith("$(("):
            return self._bracketed("math", "(", ")", 2, quoted, after=1)
        if rest.startswith("$("):
            return self._bracketed("command", "(", ")", 1, quoted, after=1)
        if rest.startswith("$["):
            return self._bracketed("math", "[", "]", 1, quoted, after=1)
        if rest.startswith("${"):
            return self._bracketed("variable", "{", "}", 1, quoted, after=1)
        if rest.startswith("`"):
            return self._backquotes(quoted)
        name = _NAME.match(self.text, self.at)
        if name is None:
            self.at += 1
            return Part("text", "$", quoted, mark)
        text = name[1][0] if name[1][0].isdigit() else name[1]
        self.at += 1 + len(text)
        return Part("variable", text, quoted, mark)

    def _backquotes(self, quoted: bool) -> Part:
        begin = self.at
        end = self.text.find("`", begin + 1)
        if end < 0:
            raise self.refuse(begin, "a backquote that is not closed")
        self.at = end + 1
        return Part("command", self.text[begin + 1 : end], quoted, self.mark(begin))

    def _bracketed(
        self, kind: Kind, left: str, right: str, depth: int, quoted: bool, after: int = 0
    ) -> Part:
        begin = self.at
        self.at = self._matching(begin + after, left, right)
        text = self.text[begin + after + depth : self.at - depth]
        return Part(kind, text, quoted, self.mark(begin))

    def _matching(self, begin: int, left: str, right: str) -> int:
        """The position after the bracket that closes the one at ``begin``; quotes are skipped."""
        pattern = _BRACKETS[left]
        depth, at = 0, begin
        while match := pattern.search(self.text, at):
            at, found = match.end(), match[0][0]
            if found == left:
                depth += 1
            elif found == right:
                depth -= 1
                if depth == 0:
                    return at
        raise self.refuse(begin, f"{left} that is not closed")


_BRACKETS = {
    left: re.compile(
        rf"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|{re.escape(left)}|{re.escape(right)}", re.S
    )
    for left, right in ("()", "[]", "{}")
}
