"""The value of a shell's tests (``[ ... ]``), where their words are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from placement_proofs.configs.shell_expand import Word, text_of


def holds(words: Sequence[Word]) -> bool | None:
    """The value of a test, if nothing in it is open."""
    texts = [text_of(word) for word in words]
    for connector, absorbing in (("||", True), ("&&", False)):
        if connector in texts:
            at = texts.index(connector)
            sides = [holds(words[:at]), holds(words[at + 1 :])]
            return absorbing if absorbing in sides else None if None in sides else not absorbing
    if texts[:1] == ["!"]:
        inner = holds(words[1:])
        return None if inner is None else not inner
    if any(piece.mark.open for word in words for piece in word):
        return None
    match texts:
        case ["-z", text]:
            return not text
        case ["-n", text]:
            return bool(text)
        case [left, "=" | "==", right]:
            return None if set(right) & set("*?[") else left == right
        case [left, "!=", right]:
            return None if set(right) & set("*?[") else left != right
        case [left, operator, right] if operator in _TESTS and _number(left) and _number(right):
            return _TESTS[operator](int(left), int(right))
        case _:
            return None


def _number(text: str) -> bool:
    return bool(re.fullmatch(r"-?[0-9]{1,18}", text))


_TESTS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: bool(a == b),
    "-ne": lambda a, b: bool(a != b),
    "-gt": lambda a, b: bool(a > b),
    "-ge": lambda a, b: bool(a >= b),
    "-lt": lambda a, b: bool(a < b),
    "-le": lambda a, b: bool(a <= b),
}
