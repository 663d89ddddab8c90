"""Questions to formulas: what fits, limits, crossings, what dominates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from placement_proofs.cost import symbols
from placement_proofs.cost.closed_form import Form
from placement_proofs.cost.symbols import Expr
from placement_proofs.errors import IllFormed

LARGEST = 2**40
"""The largest size that is tried."""


def bytes_of(text: str) -> int:
    """Bytes of a text such as ``80GB`` (1e9 each), ``80GiB`` (2**30 each) or ``1e9``.

    Raises:
        IllFormed: the text is no positive amount.

    >>> bytes_of("80GB")
    80000000000
    """
    units = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "TB": 10**12, "GB": 10**9, "MB": 10**6}
    unit = next((u for u in units if text.endswith(u)), "")
    number = text.removesuffix(unit).removesuffix("B").strip()
    try:
        value = Fraction(number) * units.get(unit, 1) if len(number) < 40 else Fraction(0)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value < 1:
        raise IllFormed(
            "--fits", repr(text[:60]), "an amount of bytes, with GB or GiB", "write --fits 80GB"
        )
    return int(value)


@dataclass(frozen=True)
class Fit:
    """The smallest size at which a form is at most some bytes.

    Attributes:
        form, limit: what has to fit, and the bytes of the device.
        size: the symbol that was solved for.
        least: the smallest size; ``None`` if none fits.
        at, before: bytes there and at one less (``None`` for size 1, or where none fits).
        floor: bytes as the size grows without bound.
        certain: whether the form never grows with the size, so that ``least`` is the smallest.
    """

    form: str
    limit: int
    size: str
    least: int | None
    at: Fraction | None
    before: Fraction | None
    floor: Expr
    certain: bool

    def text(self) -> str:
        """The answer in words."""
        if self.least is None:
            return (
                f"{self.form} fits {self.limit:,} bytes for no {self.size}: "
                f"it stays above {float(self.floor):,.0f} bytes"
            )
        sure = "" if self.certain else f" (of those tried; it may grow with {self.size})"
        less = "" if self.before is None else f"; one less needs {float(self.before):,.0f}"
        return (
            f"{self.form} fits {self.limit:,} bytes from {self.size} = {self.least}{sure}: "
            f"{float(self.at or 0):,.0f} bytes{less}"
        )

    def to_json(self) -> dict[str, object]:
        """Numbers by name; bytes are floats where they are not whole."""
        return {
            "form": self.form,
            "limit": self.limit,
            "size": self.size,
            "least": self.least,
            "bytes": None if self.at is None else float(self.at),
            "bytes_of_one_less": None if self.before is None else float(self.before),
            "floor": str(self.floor),
            "certain": self.certain,
        }


def fits(form: Form, limit: int, values: Mapping[str, int | Fraction]) -> Fit:
    """The smallest value of the only symbol without a number at which ``form`` fits.

    Raises:
        IllFormed: not exactly one symbol is left.
    """
    left = symbols.replaced(form.exact, values)
    names = symbols.symbols_of(left)
    if len(names) != 1:
        raise IllFormed(
            "--fits",
            f"{len(names)} open symbols: {', '.join(names) or 'none'}",
            "one size is solved for, the others have numbers",
            "leave one axis symbolic and give numbers with --set",
        )
    (name,) = names

    def at(size: int) -> Fraction:
        return Fraction(symbols.number(left, {name: size}))

    floor = symbols.limit(left, symbols.symbol(name))
    least = _least(at, limit)
    before = at(least - 1) if least is not None and least > 1 else None
    here = None if least is None else at(least)
    certain = never_grows(left, symbols.symbol(name))
    return Fit(form.name, limit, name, least, here, before, floor, certain)


def _least(at: Callable[[int], Fraction], limit: int) -> int | None:
    """The first size that fits, by doubling and halving (right where the form never grows)."""
    high = 1
    while at(high) > limit:
        high *= 2
        if high > LARGEST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) > limit else (low, middle)
    return high


def never_grows(expression: Expr, size: Expr) -> bool:
    """Whether every part of a formula stays or falls as a size grows (sufficient, not needed)."""
    if size not in expression.free_symbols:
        return True
    if expression.func.__name__ in ("Max", "Min", "Add"):
        return all(never_grows(part, size) for part in expression.args)
    if expression.func.__name__ == "ceiling":
        return never_grows(expression.args[0], size)
    whole = expression.expand()
    if whole.is_Add:
        return all(never_grows(part, size) for part in whole.args)
    coefficient, power = whole.as_coeff_exponent(size)
    return bool(size not in coefficient.free_symbols and coefficient >= 0 and power <= 0)


@dataclass(frozen=True)
class Share:
    """A part of a total: its name, its bytes, and its share between 0 and 1."""

    name: str
    bytes: Fraction
    share: float


def shares(forms: Sequence[Form], values: Mapping[str, int | Fraction]) -> list[Share]:
    """The parts of a sum with numbers, the largest first: the first one dominates."""
    parts = [(f.name, Fraction(symbols.number(f.exact, values))) for f in forms]
    total = sum(b for _, b in parts) or Fraction(1)
    ordered = sorted(parts, key=lambda part: -part[1])
    return [Share(name, held, float(held / total)) for name, held in ordered]


@dataclass(frozen=True)
class Crossing:
    """Where two formulas of one size are equal, and which is smaller between these sizes.

    Attributes:
        size: the symbol; empty where the two do not differ in any.
        at: the sizes, real and at least 1.
        smaller: for each stretch from 1 on, -1 where the first is smaller, 1 the second, 0 equal.
    """

    size: str
    at: tuple[Fraction | float, ...]
    smaller: tuple[int, ...]

    def text(self, other: str) -> str:
        """The answer in words."""
        words = {-1: f"less than {other}", 0: f"as much as {other}", 1: f"more than {other}"}
        if not self.at:
            stretch = f"{self.size} above 1" if self.size else "sizes"
            return f"{words[self.smaller[0]]} for all {stretch}"
        points = [f"{self.size} = {_number(p)}" for p in self.at]
        parts = [f"{words[self.smaller[0]]} below {points[0]}"]
        parts += [f"{words[s]} above {p}" for s, p in zip(self.smaller[1:], points, strict=True)]
        return ", ".join(parts)

    def to_json(self) -> dict[str, object]:
        """Sizes as floats."""
        return {"size": self.size, "at": [float(p) for p in self.at], "sign": list(self.smaller)}


def _number(point: Fraction | float) -> str:
    return str(point) if isinstance(point, Fraction) else f"{point:.6g}"


def cross(a: Form, b: Form, values: Mapping[str, int | Fraction]) -> Crossing:
    """Where two formulas meet, all symbols but one having numbers.

    Raises:
        IllFormed: more than one symbol is open, or a maximum is compared.
    """
    difference = symbols.replaced(a.exact - b.exact, values)
    names = symbols.symbols_of(difference)
    if len(names) > 1 or symbols.is_maximum(difference):
        raise IllFormed(
            "--crossing",
            f"open symbols {', '.join(names)}",
            "two formulas cross at values of one size",
            "use one symbol for both, and numbers for the others with --set",
        )
    if not names:
        return Crossing("", (), (_sign(difference),))
    points = tuple(p for p in symbols.roots(difference, symbols.symbol(names[0])) if p > 1)
    ends = [Fraction(1), *(Fraction(p) for p in points)]
    middles = [(x + y) / 2 for x, y in itertools.pairwise(ends)] + [ends[-1] + 1]
    signs = [_sign(symbols.replaced(difference, {names[0]: m})) for m in middles]
    return Crossing(names[0], points, tuple(signs))


def _sign(value: Expr) -> int:
    return int(bool(value > 0)) - int(bool(value < 0))
