"""What a layout's memory and step time consist of: each term as a formula and as a number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from placement_proofs.cost import symbols
from placement_proofs.cost.symbols import Expr
from placement_proofs.cost.tape import ROUNDING, tape
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.forms import MIDDLE, Forms, forms
from placement_proofs.layouts.setting import Job, Kind, Layout


@dataclass(frozen=True)
class Item:
    """One term of a layout.

    Attributes:
        name: of the term.
        formula: of the kind of layouts.
        value: bytes or seconds.
        given: the values of the symbols at the layout.
    """

    name: str
    formula: Expr
    value: float
    given: Mapping[str, float] = field(repr=False)

    @cached_property
    def here(self) -> Expr:
        """The formula with maxima, minima and ceilings decided as they are at the layout."""
        return symbols.neat(decided(self.formula, self.given))


@dataclass(frozen=True)
class Bill:
    """All terms of a layout.

    Attributes:
        layout: whose they are.
        stage, fullest: the positions of the pipeline that take the longest and hold the most.
        time: seconds of a training step; they add up to ``step``.
        memory: bytes of the fullest rank; they add up to ``peak``.
        step: seconds.
        peak: bytes.
    """

    layout: Layout
    stage: str
    fullest: str
    time: tuple[Item, ...]
    memory: tuple[Item, ...]
    step: float
    peak: float

    def to_json(self) -> dict[str, object]:
        """Terms by name: seconds and bytes."""
        return {
            "slowest_stage": self.stage,
            "fullest_stage": self.fullest,
            "time": {item.name: item.value for item in self.time},
            "memory": {item.name: item.value for item in self.memory},
            "step": self.step,
            "peak": self.peak,
        }


def bill(layout: Layout, job: Job, constants: Constants) -> Bill:
    """The terms of one layout of a job.

    Raises:
        IllFormed: the layout does not fit the job.
    """
    made = forms(layout.kind, job)
    given = {**job.symbols, **constants.symbols, **job.columns(layout)}
    stage, time = _time(made, given)
    fullest, memory = _memory(made, given)
    whole = _numbers({"step": made.step, "peak": made.peak}, given)
    return Bill(layout, stage, fullest, time, memory, whole["step"], whole["peak"])


def _numbers(formulas: Mapping[str, Expr], given: Mapping[str, float]) -> dict[str, float]:
    return tape(formulas).run(given)


def _items(formulas: Mapping[str, Expr], given: Mapping[str, float]) -> tuple[Item, ...]:
    values = _numbers(formulas, given)
    return tuple(Item(name, f, values[name], given) for name, f in formulas.items() if values[name])


def decided(formula: Expr, given: Mapping[str, float]) -> Expr:
    """A formula in which each maximum, minimum and ceiling is what it is at some values.

    The ceiling of what is whole there is left out, and of anything else becomes a number.
    """
    if not formula.args:
        return formula
    kind = formula.func.__name__
    if kind in ("Max", "Min"):
        values = _numbers({str(i): part for i, part in enumerate(formula.args)}, given)
        sign = 1 if kind == "Max" else -1
        best = max(values, key=lambda i: (sign * values[i], formula.args[int(i)].is_number))
        part = formula.args[int(best)]
        return decided(part, given) if values[best] else symbols.total([])
    if kind == "ceiling":
        return _rounded(formula.args[0], given)
    return formula.func(*(decided(part, given) for part in formula.args))


def _time(made: Forms, given: Mapping[str, float]) -> tuple[str, tuple[Item, ...]]:
    """The slowest stage's terms over all micro-batches, then what a step has once."""
    micro = symbols.symbol("m")
    slots = _by_position(made.slots)
    totals = _numbers({name: symbols.total(parts.values()) for name, parts in slots.items()}, given)
    stage = max(totals, key=lambda name: totals[name])
    terms = {name: micro * slot for name, slot in slots[stage].items()}
    terms |= {name: form for name, form in made.time.items() if name != "slowest stage"}
    items = _items(terms, given)
    return stage, tuple(_with_slots(item, made.kind, totals, given) for item in items)


def _rounded(inner: Expr, given: Mapping[str, float]) -> Expr:
    """The ceiling of a formula: itself, layers over stages, or else a number."""
    value = _numbers({"x": inner}, given)["x"]
    if abs(value - round(value)) <= ROUNDING:
        return decided(inner, given)
    up = math.ceil(value)
    if set(symbols.symbols_of(inner)) == {"L", "p"}:
        chunks, rest = divmod(given["L"], given["p"] * up)
        if not rest:
            return symbols.symbol("L") / (symbols.symbol("p") * int(chunks))
    return symbols.rational(Fraction(up))


def _with_slots(
    item: Item, kind: Kind, slots: Mapping[str, float], given: Mapping[str, float]
) -> Item:
    """The bubble in the times of the stages' slots, where it is what those make it."""
    names = {name: f"slot_{name}" for name in slots}
    ends = [symbols.symbol(names[name]) for name in slots if name != MIDDLE]
    inner = symbols.symbol(names.get(MIDDLE, "")) if MIDDLE in slots else 0
    slowest = symbols.symbol(names[max(slots, key=lambda name: slots[name])])
    whole = symbols.total([*ends, (symbols.symbol("p") - 2) * inner, -slowest]) / kind.chunks
    values = {names[name]: time for name, time in slots.items()} | dict(given)
    same = item.name == "bubble" and abs(
        _numbers({"x": whole}, values)["x"] - item.value
    ) <= 1e-9 * abs(item.value)
    return replace(item, formula=whole, given=values) if same else item


def _memory(made: Forms, given: Mapping[str, float]) -> tuple[str, tuple[Item, ...]]:
    """The terms of the fullest position, allocator and reserve included."""
    bills = {name: _items(parts, given) for name, parts in _by_position(made.peaks).items()}
    fullest = max(bills, key=lambda name: sum(item.value for item in bills[name]))
    return fullest, bills[fullest]


def _by_position(terms: Mapping[str, Expr]) -> dict[str, dict[str, Expr]]:
    """Terms called ``position term``, by position."""
    found: dict[str, dict[str, Expr]] = {}
    for name, form in terms.items():
        position, _, term = name.partition(" ")
        found.setdefault(position, {})[term] = form
    return found
