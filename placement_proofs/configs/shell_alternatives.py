"""One value of a variable for the alternatives of an undecided branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placement_proofs.configs.shell_expand import Piece, Value, text_of
from placement_proofs.configs.shell_lex import Mark


def joined_values(name: str, alternatives: Sequence[Value | None], line: int) -> Value | None:
    """One value for several alternatives: arguments are marked, other values become open."""
    values = [value for value in alternatives if value is not None]
    if not any("--" in text_of(word) for value in values for word in value):
        return ((Piece(f"${{{name}}}", Mark(line, open=name, when=line)),),)
    everywhere = len(values) == len(alternatives)
    common = _prefix(values) if everywhere else 0
    if all(len(value) == 1 for value in values):
        same = _prefix([value[0] for value in values]) if everywhere else 0
        rest = [p for value in values for p in (*value[0][same:], Piece(" ", Mark(line)))]
        return ((*values[0][0][:same], *(_marked(piece, line) for piece in rest)),)
    tails = [tuple(_marked(p, line) for p in word) for v in values for word in v[common:]]
    return (*values[0][:common], *tails)


def _prefix(values: Sequence[Sequence[object]]) -> int:
    count = 0
    for column in zip(*values, strict=False):
        if any(item != column[0] for item in column):
            break
        count += 1
    return count


def _marked(piece: Piece, line: int) -> Piece:
    return replace(piece, mark=replace(piece.mark, when=piece.mark.when or line))
