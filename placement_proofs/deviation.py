"""One deviation of a plan as a line of text: an action, a selection of steps, an argument."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields

from placement_proofs.errors import IllFormed
from placement_proofs.layout import Collective
from placement_proofs.plan import Action, Phase, What

ACTIONS = (
    "drop",
    "duplicate",
    "insert",
    "replace",
    "rescale",
    "regroup",
    "reorder",
    "overwrite",
)
MOVES = ("earlier", "later", "first", "last")

_KINDS = {kind.value for kind in (*Collective, *Action)}
_WHAT = {what.value.replace("activation gradient", "cotangent"): what for what in What}
WORDS = {what: word for word, what in _WHAT.items()}
_ARGUMENTS = {"rescale": "by", "regroup": "to", "reorder": "to", "replace": "with"}


@dataclass(frozen=True)
class Selector:
    """Which steps of a plan, and which of their items; what is empty selects everything.

    Attributes:
        kind: a collective or a local action, such as ``all-reduce`` or ``accumulate``.
        what: parameter, gradient, activation, cotangent or statistic.
        axes: the axes of a transfer, all of them and in its order.
        group: a parameter group; tensor: the name of a parameter or value.
        phase: forward, backward, recompute, reduce, clip or update.
        why: the step's reason; stage: the name of a pipeline stage.
        nth: only the step with this number among those selected, from 0.
    """

    kind: str = ""
    what: str = ""
    axes: tuple[str, ...] = ()
    group: str = ""
    tensor: str = ""
    phase: str = ""
    why: str = ""
    stage: str = ""
    nth: int | None = None

    def __str__(self) -> str:
        words = [self.kind, self.what, "*".join(self.axes)]
        for name in ("group", "tensor", "phase", "why", "stage", "nth"):
            value = getattr(self, name)
            words.append("" if value in ("", None) else shlex.quote(f"{name}={value}"))
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Deviation:
    """One deviation: an action on the selected steps.

    ``argument`` is the factor of ``rescale`` (``by=1/dp``), the axes of ``regroup`` (``to=tp``; of
    squares, the partial norm that they join: ``to=squares:tp``), where ``reorder`` moves a step in
    its section (``to=earlier``, later, first, last), or the kind that ``replace`` puts in its place
    (``with=slice``). ``insert`` adds the collective that is selected, which the plan does not have.
    """

    action: str
    select: Selector
    argument: str = ""

    def __str__(self) -> str:
        key = _ARGUMENTS.get(self.action)
        words = [self.action, str(self.select), f"{key}={self.argument}" if key else ""]
        return " ".join(word for word in words if word)


def parse_deviation(text: str) -> Deviation:
    """Read a deviation; the inverse of ``str``.

    Raises:
        IllFormed: a word or a key is unknown, or the action's argument is missing.

    >>> print(parse_deviation("drop all-reduce gradient dp group=norm"))
    drop all-reduce gradient dp group=norm
    """
    try:
        action, *words = shlex.split(text)
    except ValueError:
        action, words = "", []
    if action not in ACTIONS:
        raise IllFormed(
            "deviation",
            repr(text[:80]),
            f"a deviation begins with one of {', '.join(ACTIONS)}",
            'write "drop all-reduce gradient dp"',
        )
    found: dict[str, str] = {}
    for word in words:
        key, value = _word(word, text)
        found[key] = value
    argument = found.pop(_ARGUMENTS.get(action, "by"), "")
    _check_argument(action, argument, text)
    return Deviation(action, _selector(found, text), argument)


def _word(word: str, text: str) -> tuple[str, str]:
    """The field of a selector that a word fills, and its value."""
    key, equals, value = word.partition("=")
    known = {f.name for f in fields(Selector)} | set(_ARGUMENTS.values())
    if equals:
        if key in known:
            return key, value
        raise IllFormed(
            "deviation", repr(word), f"the keys are {', '.join(sorted(known))}", text[:80]
        )
    if word in _KINDS:
        return "kind", word
    return ("what" if word in _WHAT else "axes"), word


def _selector(found: Mapping[str, str], text: str) -> Selector:
    nth = found.get("nth")
    phases = [phase.value for phase in Phase]
    if (nth is not None and not nth.isdigit()) or found.get("phase", "forward") not in phases:
        raise IllFormed(
            "deviation",
            repr(text[:80]),
            f"nth is a number from 0; a phase is one of {', '.join(phases)}",
            "correct it or leave it out",
        )
    words = {
        key: value for key, value in found.items() if key not in ("nth", "axes", "to", "by", "with")
    }
    axes = tuple(a for a in found.get("axes", "").split("*") if a)
    return Selector(**words, axes=axes, nth=None if nth is None else int(nth))


def _check_argument(action: str, argument: str, text: str) -> None:
    key = _ARGUMENTS.get(action)
    wrong = bool(argument) != bool(key) or (action == "reorder" and argument not in MOVES)
    wrong = wrong or (action == "replace" and argument not in _KINDS)
    if wrong or (action == "rescale" and not _is_factor(argument)):
        rules = {
            "rescale": "rescale takes a factor of numbers and axes: by=1/(dp*micro)",
            "regroup": "regroup takes axes: to=tp or to=dp*tp",
            "reorder": f"reorder takes one of {', '.join('to=' + m for m in MOVES)}",
            "replace": "replace takes the kind of the new step: with=slice or with=all-reduce",
        }
        rule = rules.get(action, f"{action} takes no argument")
        raise IllFormed("deviation", repr(text[:80]), rule, "see placement-proofs simulate --help")


def _is_factor(text: str) -> bool:
    below = words_of(text.partition("/")[2] or "1")
    return all(w.isdigit() or w.isidentifier() for w in words_of(text)) and "0" not in below


def words_of(text: str) -> list[str]:
    """The words of a factor such as ``1/(dp*micro)``, or of a product of axes."""
    return [w.strip() for part in text.split("/", 1) for w in part.strip().strip("()").split("*")]
