"""What a shell script would start: its assignments followed in order, nothing executed.

Branches whose condition is known are followed; of the others every alternative is read and marked
with the line of the condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from placement_proofs.configs.document import words as names_of
from placement_proofs.configs.shell_alternatives import joined_values
from placement_proofs.configs.shell_condition import holds
from placement_proofs.configs.shell_expand import Expander, Piece, Value, Word, merged, text_of
from placement_proofs.configs.shell_lex import Lexer, Mark, Token
from placement_proofs.configs.shell_parse import (
    Body,
    Choice,
    Command,
    Function,
    Group,
    If,
    Node,
    Parser,
)
from placement_proofs.errors import IllFormed

MAX_NESTING = 6
MAX_STEPS = 20_000
MAX_BYTES = 200_000
_SILENT = names_of(
    "echo printf cp cat mkdir rm cd ls exit tee source . module ulimit shift wait sleep set "
    "pip conda wget sed grep"
)
_SETTERS = names_of("export declare local readonly typeset")
_SHELLS = names_of("sbatch bash sh srun ssh zsh")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_SBATCH = re.compile(r"[ \t]*#SBATCH[ \t]+-{1,2}([\w-]+)(?:[ \t]*=[ \t]*|[ \t]+)?([^\s#]*)")

_EDIT = re.compile(r"s/([A-Za-z_]\w*)/([^/]*)/")


@dataclass(frozen=True)
class Launch:
    """A command with its words, and the variables set in front of it."""

    words: Value
    line: int
    settings: tuple[tuple[str, Word], ...] = ()
    when: int = 0


@dataclass(frozen=True)
class Here:
    """A text that the script writes to a file."""

    target: str
    pieces: Word
    line: int


class Shell(Expander):
    """Follows a script. ``launches`` are its commands, ``heres`` the files it writes."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.launches: list[Launch] = []
        self.heres: list[Here] = []
        self.sourced: list[tuple[str, int]] = []
        self.substitutions: dict[str, Word] = {}
        self.directives: dict[str, Word] = {}
        self.settings: dict[str, Word] = {}
        self.functions: dict[str, Body] = {}
        self.called: set[str] = set()
        self.steps = 0
        self.nesting = 0
        self.when = 0

    def read(self, text: str) -> None:
        """Follow the text of a script.

        Raises:
            IllFormed: not readable as shell, or too large.
        """
        if len(text) > MAX_BYTES:
            found = f"{len(text):,} characters"
            raise IllFormed(self.file, found, f"scripts have at most {MAX_BYTES:,}", "shorten it")
        text = text.replace("\r\n", "\n")
        self._slurm(text)
        self._script(Lexer(text, self.file))
        for name in [name for name in self.functions if name not in self.called]:
            self._call(name, ())

    def _slurm(self, text: str, lines: Sequence[int] = ()) -> None:
        """``#SBATCH`` lines, and the variables that Slurm sets from them."""
        for number, row in enumerate(text.split("\n")):
            match = _SBATCH.match(row)
            if match:
                mark = Mark(lines[number] if number < len(lines) else number + 1)
                self.directives.setdefault(match[1], (Piece(match[2], mark),))
        for name, words in _SLURM.items():
            pieces = [w for word in words if (w := self._count_of(word))]
            if len(pieces) == len(words):
                number = 1
                for _, value in pieces:
                    number *= value
                self.variables.setdefault(name, ((Piece(str(number), pieces[0][0]),),))

    def _count_of(self, names: str) -> tuple[Mark, int] | None:
        """The number of a directive, such as 8 of ``--gres=gpu:a100:8``."""
        for name in names.split("|"):
            word = self.directives.get(name)
            number = text_of(word).rpartition(":")[2] if word else ""
            if word and number.isdigit() and len(number) < 10:
                return word[0].mark, int(number)
        return None

    def _script(self, lexer: Lexer) -> None:
        self.nesting += 1
        if self.nesting <= MAX_NESTING:
            self._body(Parser(lexer.run(), self.file).script())
        self.nesting -= 1

    def _step(self, cost: int, line: int) -> None:
        """Count what is followed; calls that multiply end here."""
        self.steps += cost
        if self.steps > MAX_STEPS:
            rule = f"a script is followed for at most {MAX_STEPS:,} commands"
            raise IllFormed(f"{self.file}:{line}", "more commands", rule, "is this the file?")

    def _body(self, body: Body) -> None:
        status: bool | None = True
        for node in body:
            self._step(1, _line(node))
            skip = (node.join == "&&" and status is False) or (node.join == "||" and status is True)
            if skip:
                continue
            if status is None and node.join in ("&&", "||"):
                self._undecided([(node,)], _line(node), complete=False)
                continue
            status = self._node(node)

    def _node(self, node: Node) -> bool | None:
        match node:
            case Command():
                return self._command(node)
            case If():
                self._if(node)
            case Choice():
                if node.variable:
                    opened = Mark(node.line, open=node.variable)
                    self.variables[node.variable] = ((Piece(f"${{{node.variable}}}", opened),),)
                self._undecided(node.bodies, node.line, complete=False)
            case Group():
                self._body(node.body)
            case Function():
                self.functions[node.name] = node.body
        return True

    def _if(self, node: If) -> None:
        bodies: list[Body] = []
        for condition, body in node.branches:
            decided = self._condition(condition)
            if decided is False:
                continue
            bodies.append(body)
            if decided:
                break
        else:
            bodies.append(node.otherwise or ())
        if len(bodies) == 1:
            self._body(bodies[0])
        else:
            self._undecided(bodies, node.line, complete=True)

    def _condition(self, body: Body) -> bool | None:
        """Whether a condition holds, if its words are known."""
        status: bool | None = None
        for node in body:
            this = self._test(node) if isinstance(node, Command) else None
            if node.join == "&&" and (status is False or this is False):
                status = False
            elif node.join == "||" and (status is True or this is True):
                status = True
            elif node.join and status is None:
                continue
            else:
                status = this
        return status

    def _test(self, command: Command) -> bool | None:
        words = [word for token in command.words for word in self.words(token) or [()]]
        if words and text_of(words[0]) in ("[", "[[", "test"):
            return holds([w for w in words[1:] if text_of(w) not in ("]", "]]")])
        plain = [text_of(word) for word in words]
        return {"true": True, "false": False, ":": True}.get(plain[0]) if len(plain) == 1 else None

    def _undecided(self, bodies: Sequence[Body], line: int, *, complete: bool) -> None:
        """Read every alternative and merge what they leave in the variables."""
        base, results, outer = dict(self.variables), list[dict[str, Value]](), self.when
        self.when = line
        for body in bodies:
            self._step(1 + len(base) // 10, line)
            self.variables = dict(base)
            self._body(body)
            results.append(self.variables)
        self.when = outer
        if not complete:
            results.append(base)
        names = dict.fromkeys(name for result in results for name in result)
        self.variables = {}
        for name in names:
            alternatives = [result.get(name) for result in results]
            if all(a is alternatives[0] or a == alternatives[0] for a in alternatives):
                value = alternatives[0]
            else:
                value = joined_values(name, alternatives, line)
            if value is not None:
                self.variables[name] = value

    def _command(self, command: Command) -> bool | None:
        tokens = list(command.words)
        settings: list[tuple[str, Word]] = []
        while tokens and (match := _assignment(tokens[0])):
            settings.append((match, self._assigned(tokens[0])))
            tokens.pop(0)
        name = tokens[0].bare if tokens else ""
        if name in ("[", "[[", "test", "true", "false"):
            return self._test(command)
        if not tokens or name in _SETTERS or name == ":":
            for setter in command.words:
                self._set(setter)
            self.settings.update(settings)
            return True
        words = tuple(word for token in tokens for word in self.words(token))
        if words:
            self._started(command, words, tuple(settings), name)
        return True

    def _call(self, name: str, arguments: Value) -> None:
        """Follow a function's body with its arguments; not inside itself."""
        self.called.add(name)
        outer = {key: self.variables.get(key) for key in (*map(str, range(1, 10)), "@", "*")}
        self.nesting += 1
        if self.nesting <= MAX_NESTING:
            given = {str(n): (word,) for n, word in enumerate(arguments[:9], 1)}
            self.variables |= given | ({"@": arguments, "*": arguments} if arguments else {})
            self._body(self.functions[name])
        self.nesting -= 1
        for key, value in outer.items():
            self.variables.pop(key, None)
            self.variables |= {} if value is None else {key: value}

    def _assigned(self, token: Token) -> Word:
        value = self._right_side(token)
        return value[0] if value else ()

    def _right_side(self, token: Token) -> Value:
        if token.array is not None:
            return tuple(word for element in token.array for word in self.words(element))
        match = _ASSIGNMENT.match(token.parts[0].text)
        first = replace(token.parts[0], text=token.parts[0].text[match.end() if match else 0 :])
        rest = token.parts[1:] if not first.text else (first, *token.parts[1:])
        return (self.joined(replace(token, parts=rest)),)

    def _set(self, token: Token) -> None:
        name = _assignment(token)
        if name is None:
            self.words(token)
            return
        value = self._right_side(token)
        before = self.variables.get(name, ())
        if "+=" in token.parts[0].text[: len(name) + 2]:
            array = token.array is not None
            value = (
                (*before, *value) if array else (tuple(p for w in before for p in w) + value[0],)
            )
        self.variables[name] = value

    def _started(
        self, command: Command, words: Value, settings: tuple[tuple[str, Word], ...], name: str
    ) -> None:
        """A command that is not an assignment."""
        for word in words[1:] if name == "sed" else ():
            if found := _EDIT.match(text_of(word)):
                self.substitutions[found[1]] = (Piece(found[2], merged(word, 0)),)
        if name in ("source", "."):
            self.sourced.append((text_of(words[-1])[:80], merged(words[-1], 0).line))
        if name == "unset":
            for word in words[1:]:
                self.variables.pop(text_of(word), None)
        for token in command.heredocs:
            self._heredoc(command, token, name)
        if name in self.functions:
            self._call(name, words[1:])
            return
        if name == "eval":
            self._again([piece for word in words[1:] for piece in (*word, Piece(" ", Mark(0)))])
            return
        for before, word in pairwise(words):
            if text_of(before) in ("-c", "-lc", "-xc", "-ic") and " " in text_of(word):
                self._again(word)
        if name not in _SILENT:
            line = command.words[0].line
            self.launches.append(Launch(words, line, settings, self.when))

    def _heredoc(self, command: Command, token: Token, name: str) -> None:
        word = self.joined(token)
        if name in _SHELLS and command.target is None:
            text = text_of(word)
            self._slurm(text, _lines(word))
            self._again(word)
            return
        target = text_of(self.joined(command.target)) if command.target else ""
        self.heres.append(Here(target, word, token.line))

    def _again(self, pieces: Iterable[Piece]) -> None:
        """Follow text that another shell would read."""
        starts, marks, parts = list[int](), list[Mark](), list[str]()
        length = 0
        for piece in pieces:
            starts.append(length)
            marks.append(piece.mark if piece.mark.line or not marks else marks[-1])
            parts.append(piece.text)
            length += len(piece.text)
        text = "".join(parts)
        if text.strip():
            self._script(Lexer(text, self.file, starts, marks))


def _line(node: Node) -> int:
    if isinstance(node, Command):
        tokens = node.words or node.heredocs
        return tokens[0].line if tokens else 0
    if isinstance(node, If | Choice):
        return node.line
    return _line(node.body[0]) if node.body else 0


def _lines(word: Word) -> list[int]:
    """The line of each line of a text."""
    lines = [word[0].mark.line] if word else []
    for piece in word:
        lines += [piece.mark.line + 1] * piece.text.count("\n")
    return lines


def _assignment(token: Token) -> str | None:
    """The name that a word assigns to."""
    if not token.parts or token.parts[0].kind != "text" or token.parts[0].quoted:
        return None
    match = _ASSIGNMENT.match(token.parts[0].text)
    return match[1] if match else None


_NODES, _TASKS = "nodes|N", "ntasks-per-node"
_GPUS = "gpus-per-node|gres"
_SLURM = {
    "SLURM_NNODES": (_NODES,),
    "SLURM_JOB_NUM_NODES": (_NODES,),
    "SLURM_GPUS_PER_NODE": (_GPUS,),
    "SLURM_GPUS_ON_NODE": (_GPUS,),
    "SLURM_NTASKS_PER_NODE": (_TASKS,),
    "SLURM_CPUS_PER_TASK": ("cpus-per-task|c",),
    "SLURM_NTASKS": (_NODES, _TASKS),
    "SLURM_NPROCS": (_NODES, _TASKS),
}
