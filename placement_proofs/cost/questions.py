"""Questions to formulas: what fits, limits, crossings, what dominates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from placement_proofs.cost import symbols
from placement_proofs.cost.closed_form import Form
from placement_proofs.cost.evaluation import compiled
from placement_proofs.cost.symbols import Expr
from placement_proofs.errors import IllFormed

LARGEST = 2**40
"""The largest size that is tried."""


def bytes_of(text: str, place: str = "--fits") -> int:
    """Bytes of a text such as ``80GB`` or ``80G`` (1e9 each), ``80GiB`` (2**30 each) or ``8e10``.

    Raises:
        IllFormed: the text is no positive amount, or a small number whose unit was forgotten.

    >>> bytes_of("80GB")
    80000000000
    """
    number, unit = _split(text)
    try:
        value = Fraction(number) * (unit or 1) if len(number) < 40 else Fraction(0)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value < 1 or (unit is None and value < SMALLEST):
        raise IllFormed(
            place,
            repr(text[:60]),
            "an amount of bytes, with GB (1e9) or GiB (2^30); a number without a unit is bytes, "
            "and no device has so few",
            f"write {place} 80GB",
        )
    return int(value)


SMALLEST = 10**6
"""A number below this has a unit that was forgotten."""

UNITS = {
    **{f"{letter}ib": 2**power for letter, power in (("t", 40), ("g", 30), ("m", 20))},
    **{f"{letter}b": 10**power for letter, power in (("t", 12), ("g", 9), ("m", 6))},
    **{letter: 10**power for letter, power in (("t", 12), ("g", 9), ("m", 6))},
    "bytes": 1,
    "b": 1,
}
"""Bytes of a unit in small letters."""


def _split(text: str) -> tuple[str, int | None]:
    """The number of an amount, and the bytes of its unit."""
    small = text.strip().lower()
    unit = next((u for u in UNITS if small.endswith(u)), "")
    return small.removesuffix(unit).strip(), UNITS.get(unit)


@dataclass(frozen=True)
class Fit:
    """The smallest size at which a form is at most some bytes.

    Attributes:
        form, limit: what has to fit, and the bytes of the device.
        size: the symbol that was solved for; empty where nothing is open.
        least: the smallest size; ``None`` if none fits.
        at, before: bytes there and at one less (``None`` for size 1, or where none fits).
        floor: bytes as the size grows without bound (``None``: as far as it was tried).
        certain: whether the form never grows with the size, so that ``least`` is the smallest.
        rounded: the next power of two with its bytes, where ``least`` is none and it fits too.
    """

    form: str
    limit: int
    size: str
    least: int | None
    at: Fraction | None
    before: Fraction | None
    floor: Expr | None
    certain: bool
    rounded: tuple[int, Fraction] | None = None

    def text(self) -> str:
        """The answer in words."""
        fits_ = f"{self.form} fits {self.limit:,} bytes"
        if not self.size:
            return self._yes_or_no()
        if self.least is None:
            if self.floor is None:
                return f"{fits_} for no {self.size} that was tried: {TRIED}"
            return f"{fits_} for no {self.size}: it stays above {float(self.floor):,.0f} bytes"
        sure = "" if self.certain else f" (of those tried; it may grow with {self.size})"
        less = "" if self.before is None else f"; one less needs {float(self.before):,.0f}"
        power = ""
        if self.rounded is not None:
            power = f"; {self.size} = {self.rounded[0]} needs {float(self.rounded[1]):,.0f}"
        at = f"{float(self.at or 0):,.0f} bytes"
        return f"{fits_} from {self.size} = {self.least}{sure}: {at}{less}{power}"

    def _yes_or_no(self) -> str:
        need = float(self.at or 0)
        over = need - self.limit
        does = "fits" if over <= 0 else "does not fit"
        spare = f"{abs(over):,.0f} bytes {'to spare' if over <= 0 else 'too many'}"
        return f"{self.form} {does} {self.limit:,} bytes: it needs {need:,.0f}, {spare}"

    @property
    def ever(self) -> bool:
        """Whether it fits at all."""
        if self.size:
            return self.least is not None
        return self.at is not None and self.at <= self.limit

    def to_json(self) -> dict[str, object]:
        """Numbers by name; bytes are floats where they are not whole."""
        return {
            "form": self.form,
            "limit": self.limit,
            "size": self.size,
            "fits": self.ever,
            "least": self.least,
            "bytes": None if self.at is None else float(self.at),
            "bytes_of_one_less": None if self.before is None else float(self.before),
            "floor": None if self.floor is None else str(self.floor),
            "certain": self.certain,
            "power_of_two": None if self.rounded is None else self.rounded[0],
        }


EACH = 1024
"""Sizes that are tried one by one where a form may grow."""
TRIED = f"all to {EACH} and powers of two beyond"
"""What is tried then."""


def fits(form: Form, limit: int, values: Mapping[str, int | Fraction]) -> Fit:
    """The smallest value of the only symbol without a number at which ``form`` fits.

    Without such a symbol: whether it fits.

    Raises:
        IllFormed: more than one symbol is left.
    """
    left = symbols.replaced(form.exact, values)
    names = symbols.symbols_of(left)
    if len(names) > 1:
        others = " ".join(f"--set {name}=8" for name in names[1:])
        raise IllFormed(
            "--fits",
            f"{len(names)} open symbols: {', '.join(names)}",
            "one size is solved for, the others have numbers",
            f"give the others numbers, such as {others}",
        )
    if not names:
        need = Fraction(symbols.number(left, {}))
        return Fit(form.name, limit, "", None, need, None, None, True)
    (name,) = names
    value = compiled(left)

    def at(size: int) -> Fraction:
        return Fraction(value({name: Fraction(size)}))

    certain = never_grows(left, symbols.symbol(name))
    least = _least(at, limit) if certain else _first(at, limit)
    floor = symbols.limit(left, symbols.symbol(name)) if certain else None
    if floor is None and certain:
        floor = symbols.rational(at(LARGEST))
    before = at(least - 1) if least is not None and least > 1 else None
    here = None if least is None else at(least)
    return Fit(
        form.name, limit, name, least, here, before, floor, certain, _power(at, least, limit)
    )


def _power(
    at: Callable[[int], Fraction], least: int | None, limit: int
) -> tuple[int, Fraction] | None:
    """The next power of two after a size that is none, where it fits."""
    if least is None or least & (least - 1) == 0:
        return None
    size = 1 << least.bit_length()
    return (size, at(size)) if at(size) <= limit else None


def _first(at: Callable[[int], Fraction], limit: int) -> int | None:
    """The first size that fits, of all to ``EACH`` and powers of two beyond."""
    beyond = (2**power for power in range(EACH.bit_length(), LARGEST.bit_length()))
    return next((n for n in itertools.chain(range(1, EACH + 1), beyond) if at(n) <= limit), None)


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
            everywhere = f" for all {self.size} above 1" if self.size else ""
            return f"{words[self.smaller[0]]}{everywhere}"
        points = [f"{self.size} = {_number(p)}" for p in self.at]
        parts = [f"{words[self.smaller[0]]} below {points[0]}"]
        parts += [f"{words[s]} above {p}" for s, p in zip(self.smaller[1:], points, strict=True)]
        return ", ".join(parts)

    def to_json(self) -> dict[str, object]:
        """Sizes as floats."""
        return {"size": self.size, "at": [float(p) for p in self.at], "sign": list(self.smaller)}


def _number(point: Fraction | float) -> str:
    simple = isinstance(point, Fraction) and point.denominator < 1000
    return str(point) if simple else f"{float(point):.6g}"


def cross(
    a: Form,
    b: Form,
    values: Mapping[str, int | Fraction],
    others: Mapping[str, int | Fraction] | None = None,
) -> Crossing:
    """Where two formulas meet, all symbols but one having numbers.

    ``others`` are the numbers of the second one, where they are not those of the first.

    Raises:
        IllFormed: more than one symbol is open, or a maximum is compared.
    """
    second = symbols.replaced(b.exact, values if others is None else others)
    difference = symbols.replaced(a.exact, values) - second
    names = symbols.symbols_of(difference)
    if len(names) > 1:
        raise IllFormed(
            "--crossing",
            f"open symbols {', '.join(names)}",
            "two formulas cross at values of one size",
            "use one symbol for both, and numbers for the others with --set",
        )
    if names and symbols.is_stepped(difference):
        raise IllFormed(
            "--crossing",
            "formulas with maxima or with quotients rounded up",
            "they may cross many times",
            "leave --uneven out, or ask for one size with --set",
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
