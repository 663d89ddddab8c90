"""Comparison of compositions: ratios of memory and traffic as formulas, their limits, and the
sizes at which a ratio has a wanted value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from placement_proofs.composition import Composition, Strategy, compose
from placement_proofs.cost import symbols
from placement_proofs.cost.closed_form import ClosedForms, Form, closed_forms
from placement_proofs.cost.convention import DEFAULT, Convention
from placement_proofs.cost.symbols import Expr
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim
from placement_proofs.model import Model
from placement_proofs.profile import PAPER, Profile

HEADLINE = Fraction(8)
"""The saving that is asked about unless another is given: "8x memory at 1.5x traffic"."""


@dataclass(frozen=True)
class Row:
    """One composition against the first.

    Attributes:
        name: the expression.
        forms: its formulas.
        saving: memory between steps of the first divided by its own.
        saving_limit: the saving as the only axis grows; ``None`` with several axes.
        traffic: bytes sent, divided by those of the first; ``None`` if the first sends none.
        traffic_limit: the same as the only axis grows.
        exactly: the sizes of the only axis at which the saving is the wanted one.
    """

    name: str
    forms: ClosedForms
    saving: Expr
    saving_limit: Expr | None
    traffic: Expr | None
    traffic_limit: Expr | None
    exactly: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """Formulas as texts."""
        return {
            "composition": self.name,
            "persistent": str(self.forms.persistent.exact),
            "traffic": str(self.forms.traffic.exact),
            "saving": str(self.saving),
            "saving_limit": _text(self.saving_limit),
            "traffic_ratio": _text(self.traffic),
            "traffic_limit": _text(self.traffic_limit),
            "exactly": list(self.exactly),
        }


@dataclass(frozen=True)
class Comparison:
    """Compositions against the first of them; ``axis`` is the symbol that they all vary in."""

    convention: Convention
    rows: tuple[Row, ...]
    axis: str | None
    wanted: Fraction

    def text(self) -> str:
        """The ratios in words."""
        first, *others = self.rows
        lines = [
            str(self.convention),
            f"{first.name}: memory {first.forms.persistent.exact}, "
            f"traffic {first.forms.traffic.exact} (bytes of a rank)",
        ]
        for row in others:
            lines += self._lines(row, first.name)
        return "\n".join(lines)

    def _lines(self, row: Row, base: str) -> list[str]:
        lines = [
            f"{row.name}: memory {row.forms.persistent.exact}, traffic {row.forms.traffic.exact}",
            f"  memory of {base} / memory of {row.name} = {row.saving}",
            f"  traffic of {row.name} / traffic of {base} = {_text(row.traffic)}",
        ]
        if self.axis is None:
            return lines
        if row.exactly:
            sizes = " or ".join(f"{self.axis} = {n}" for n in row.exactly)
            lines.append(
                f"  the memory ratio is {self.wanted} exactly when {sizes}; "
                f"the traffic is then {_text(self._traffic_at(row))} times as much"
            )
        elif self.axis in symbols.symbols_of(row.saving):
            only = ", only in the limit" if row.saving_limit == self.wanted else ""
            lines.append(f"  the memory ratio is {self.wanted} for no whole {self.axis}{only}")
        lines.append(
            f"  as {self.axis} grows: memory ratio to {_text(row.saving_limit)}, "
            f"traffic ratio to {_text(row.traffic_limit)}"
        )
        return lines

    def _traffic_at(self, row: Row) -> Expr | None:
        if row.traffic is None or self.axis is None:
            return None
        return symbols.replaced(row.traffic, {self.axis: row.exactly[0]})

    def to_json(self) -> dict[str, object]:
        """Rows with formulas as texts."""
        return {
            "convention": self.convention.to_json(),
            "axis": self.axis,
            "wanted": str(self.wanted),
            "rows": [row.to_json() for row in self.rows],
        }


def _text(value: Expr | None) -> str:
    if value is None:
        return "unknown"
    return "infinity" if str(value) == "oo" else str(value)


def compare(
    compositions: Sequence[Composition | Strategy],
    model: Model,
    convention: Convention = DEFAULT,
    *,
    profile: Profile = PAPER,
    wanted: Fraction = HEADLINE,
) -> Comparison:
    """Compare compositions with the first of them, as formulas.

    ``K`` has its number, so that limits are numbers.

    Raises:
        IllFormed: fewer than two compositions, or one of them has no plan on the model.
    """
    if len(compositions) < 2:
        raise IllFormed(
            "compare", f"{len(compositions)} composition", "a ratio needs two", "add another"
        )
    compared = [compose(c) if isinstance(c, Strategy) else c for c in compositions]
    forms = [closed_forms(derive(c, model, profile), model, convention) for c in compared]
    sizes: dict[str, set[Dim]] = {}
    for a in (a for c in compared for a in c.mesh.axes):
        sizes.setdefault(symbols.axis_symbol(a.name, a.size), set()).add(a.size)
    alike = len(sizes) == 1 and len(next(iter(sizes.values()))) == 1
    axis = next(iter(sizes)) if alike else None
    bound = frozenset(name for name, given in sizes.items() if len(given) > 1)
    rows = (
        _row(_short(c), f, forms[0], axis, wanted, bound)
        for c, f in zip(compared, forms, strict=True)
    )
    return Comparison(convention, tuple(rows), axis, wanted)


def _short(composition: Composition) -> str:
    """The expression without the sizes that were not given (``data`` for ``data(dp='N_dp')``)."""
    parts = []
    for s in composition.strategies:
        unset = {a.name for a in s.axes if a.size == f"N_{a.name}"}
        parts.append(replace(s, arguments=tuple(p for p in s.arguments if p[0] not in unset)))
    return " * ".join(repr(part).removesuffix("()") for part in parts)


def _row(
    name: str,
    forms: ClosedForms,
    base: ClosedForms,
    axis: str | None,
    wanted: Fraction,
    bound: frozenset[str],
) -> Row:
    """``bound`` are symbols that stand for other numbers in other compositions."""
    saving = _ratio(_at(base.persistent, base, bound), _at(forms.persistent, forms, bound), base)
    traffic = None
    if base.traffic.exact != 0:
        traffic = _ratio(_at(forms.traffic, forms, bound), _at(base.traffic, base, bound), base)
    if axis is None:
        return Row(name, forms, saving, None, traffic, None, ())
    size = symbols.symbol(axis)
    alone = symbols.symbols_of(saving) == [axis]
    return Row(
        name,
        forms,
        saving,
        symbols.limit(saving, size),
        traffic,
        None if traffic is None else symbols.limit(traffic, size),
        tuple(symbols.solutions(saving, wanted, size)) if alone else (),
    )


def _at(form: Form, forms: ClosedForms, bound: frozenset[str]) -> Expr:
    known = {name: size for name, size in forms.axes_known.items() if name in bound}
    return symbols.replaced(form.exact, known)


def _ratio(above: Expr, below: Expr, forms: ClosedForms) -> Expr:
    """The quotient of two formulas, with the convention's ``K``."""
    value = forms.known[symbols.OPTIMIZER]
    return symbols.replaced(symbols.quotient(above, below), {symbols.OPTIMIZER: value})
