"""The structure of a shell script: commands, branches, loops. Nothing is executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from placement_proofs.configs.shell_lex import Token
from placement_proofs.errors import IllFormed

MAX_DEPTH = 40


@dataclass(frozen=True)
class Command:
    """A simple command. ``join`` is the operator before it: ``&&``, ``||``, ``|`` or nothing."""

    words: tuple[Token, ...]
    heredocs: tuple[Token, ...]
    target: Token | None
    join: str


@dataclass(frozen=True)
class If:
    """Branches with their conditions, in order; ``otherwise`` is the ``else`` part."""

    branches: tuple[tuple[Body, Body], ...]
    otherwise: Body | None
    line: int
    join: str


@dataclass(frozen=True)
class Choice:
    """Bodies of which a ``case`` or a loop runs one, several or none."""

    bodies: tuple[Body, ...]
    line: int
    join: str
    variable: str = ""


@dataclass(frozen=True)
class Group:
    """Commands in brackets or braces."""

    body: Body
    join: str


@dataclass(frozen=True)
class Function:
    """A named body, which runs where its name is a command."""

    name: str
    body: Body
    join: str = ""


Node: TypeAlias = Command | If | Choice | Group | Function
Body: TypeAlias = tuple[Node, ...]


class Parser:
    """Reads tokens to a tree; misplaced keywords are ordinary words."""

    def __init__(self, tokens: Sequence[Token], file: str) -> None:
        self.tokens, self.file, self.at, self.depth = tokens, file, 0, 0

    def script(self) -> Body:
        """The whole script."""
        nodes: list[Node] = []
        while self.at < len(self.tokens):
            nodes += self.body(frozenset())
            self.at += 1
        return tuple(nodes)

    def _peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _keyword(self) -> str:
        token = self._peek()
        return token.bare or token.operator if token else ""

    def body(self, ends: frozenset[str]) -> Body:
        """Commands up to a keyword in ``ends``, which is not consumed."""
        nodes: list[Node] = []
        join = ""
        self._enter()
        while (token := self._peek()) is not None and self._keyword() not in ends:
            if token.kind == "operator" and token.operator not in ("(", ">"):
                if token.operator in (")", ";;"):
                    break
                join = token.operator if token.operator in ("&&", "||", "|") else ""
                if token.operator == "\n" and nodes and self._continued():
                    join = "&&"
                self.at += 1
                continue
            nodes.append(self._node(join))
            join = ""
        self.depth -= 1
        return tuple(nodes)

    def _continued(self) -> bool:
        """Whether the newline follows ``&&``, which continues the list."""
        before = self.tokens[self.at - 1]
        return before.kind == "operator" and before.operator == "&&"

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            line = self.tokens[min(self.at, len(self.tokens) - 1)].line
            rule = f"branches and brackets nest at most {MAX_DEPTH} deep"
            raise IllFormed(f"{self.file}:{line}", "deeper nesting", rule, "is this the file?")

    def _node(self, join: str) -> Node:
        token = self.tokens[self.at]
        match self._keyword():
            case "if":
                return self._if(token.line, join)
            case "for" | "while" | "until" | "select":
                return self._loop(token.line, join)
            case "case":
                return self._case(token.line, join)
            case "function":
                return self._named(join)
            case "{":
                return Group(self._inside("}"), join)
            case "(":
                return Group(self._inside(")"), join)
            case _:
                return self._command(join)

    def _inside(self, end: str) -> Body:
        self.at += 1
        body = self.body(frozenset({end}))
        self._take(end)
        return body

    def _take(self, word: str) -> bool:
        if self._keyword() != word:
            return False
        self.at += 1
        return True

    def _if(self, line: int, join: str) -> If:
        branches: list[tuple[Body, Body]] = []
        otherwise: Body | None = None
        while self._take("if") or self._take("elif"):
            condition = self.body(frozenset({"then", "fi"}))
            self._take("then")
            branches.append((condition, self.body(frozenset({"elif", "else", "fi"}))))
        if self._take("else"):
            otherwise = self.body(frozenset({"fi"}))
        self._take("fi")
        return If(tuple(branches), otherwise, line, join)

    def _loop(self, line: int, join: str) -> Choice:
        kind = self._keyword()
        self.at += 1
        name = self._keyword() if kind in ("for", "select") else ""
        self.body(frozenset({"do", "done"}))
        self._take("do")
        body = self.body(frozenset({"done"}))
        self._take("done")
        return Choice((body,), line, join, name)

    def _case(self, line: int, join: str) -> Choice:
        bodies: list[Body] = []
        while self._keyword() not in ("in", "") or self._keyword() == "case":
            self.at += 1
        self._take("in")
        while self._peek() is not None and self._keyword() != "esac":
            if not self._pattern():
                continue
            bodies.append(self.body(frozenset({";;", "esac"})))
            self._take(";;")
        self._take("esac")
        return Choice(tuple(bodies), line, join)

    def _pattern(self) -> bool:
        """Skip a pattern with its bracket; false if the case ends first."""
        while self._peek() is not None and self._keyword() != "esac":
            self.at += 1
            if self.tokens[self.at - 1].operator == ")":
                return True
        return False

    def _command(self, join: str) -> Node:
        words: list[Token] = []
        heredocs: list[Token] = []
        target: Token | None = None
        while (token := self._peek()) is not None:
            if token.kind == "heredoc":
                heredocs.append(token)
            elif token.operator == ">":
                following = self.tokens[self.at + 1 : self.at + 2]
                if following and following[0].kind == "word":
                    target = following[0]
                    self.at += 1
            elif token.kind == "operator":
                if token.operator == "(" and len(words) == 1 and self._function():
                    return Function(words[0].bare, self._function_body(2))
                break
            else:
                words.append(token)
            self.at += 1
        return Command(tuple(words), tuple(heredocs), target, join)

    def _function(self) -> bool:
        return (
            self.at + 1 < len(self.tokens)
            and self.tokens[self.at].operator == "("
            and self.tokens[self.at + 1].operator == ")"
        )

    def _function_body(self, skip: int) -> Body:
        """The body after ``name ()``."""
        self.at += skip
        while self._keyword() == "\n":
            self.at += 1
        return self._inside("}") if self._keyword() == "{" else ()

    def _named(self, join: str) -> Node:
        """``function name { ... }`` with or without brackets after the name."""
        self.at += 1
        name = self._keyword()
        self.at += 1
        return Function(name, self._function_body(2 if self._function() else 0), join)
