"""Sizes as symbols, and what is done with formulas: the only importer of sympy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import sympy
from sympy.printing.pycode import PythonCodePrinter

from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim, parent
from placement_proofs.model import Model
from placement_proofs.plan import Plan

Expr: TypeAlias = Any
"""A sympy expression (sympy has no types)."""

MICRO_BATCH = "b"
MICRO = "m"
OPTIMIZER = "K"
PARAMETERS = "Psi"
PARAMETER_BYTES = "P"
RESERVED = (MICRO_BATCH, OPTIMIZER, PARAMETERS, PARAMETER_BYTES, "B")


def symbol(name: str) -> Expr:
    """A positive whole number."""
    return sympy.Symbol(name, integer=True, positive=True)


def quantity(name: str) -> Expr:
    """A positive number that need not be whole, such as a latency."""
    return sympy.Symbol(name, positive=True)


def whole(name: str) -> Expr:
    """A whole number, such as a quotient rounded up."""
    return sympy.Symbol(name, integer=True)


def axis_symbol(name: str, size: Dim) -> str:
    """The name of the symbol of an axis: the one that the composition uses, else ``N_<axis>``."""
    return size if isinstance(size, str) else f"N_{name}"


@dataclass(frozen=True)
class SymSizes:
    """Sizes of a plan on a model as symbols.

    ``divides`` takes every quotient as exact, as it is where all sizes divide; without it, a part
    is ``ceiling(size / parts)``. ``dims`` are the names of sizes of the model: in a size they come
    before an axis of the same name.
    """

    axes: Mapping[str, Expr]
    batch: Expr
    micro: Expr
    divides: bool = True
    known: dict[Dim, Expr] = field(default_factory=dict)
    dims: frozenset[str] = frozenset()

    def dim(self, value: Dim) -> Expr:
        if value not in self.known:
            self.known[value] = self._read(value)
        return self.known[value]

    def _read(self, value: Dim) -> Expr:
        if isinstance(value, int):
            return sympy.Integer(value)
        numerator, *divisors = value.split("/")
        above = [self._atom(factor.strip()) for factor in numerator.split("*")]
        below = [self._atom(divisor.strip()) for divisor in divisors]
        return sympy.Mul(*above) / sympy.Mul(*below)

    def _atom(self, name: str) -> Expr:
        if name.isdigit():
            return sympy.Integer(int(name))
        if name == "B":
            return self.batch
        own = name in self.axes and name not in self.dims
        return self.axes[name] if own else symbol(name)

    def axis(self, name: str) -> Expr:
        return sympy.Integer(2) if ":" in name else self.axes[parent(name)]

    def cdiv(self, a: Expr, b: Expr) -> Expr:
        return a / b if self.divides else sympy.ceiling(a / b)

    def product(self, values: Sequence[Expr]) -> Expr:
        return sympy.Mul(*values)

    def total(self, values: Sequence[Expr]) -> Expr:
        return sympy.Add(*values)

    def difference(self, a: Expr, b: Expr) -> Expr:
        return a - b

    def least(self, values: Sequence[Expr]) -> Expr:
        return sympy.Min(*values)

    def largest(self, values: Sequence[Expr]) -> Expr:
        kept = undominated(values) or [sympy.Integer(0)]
        return kept[0] if len(kept) == 1 else _maximum(kept)

    def ratio(self, a: Expr, b: Expr) -> Expr:
        return a / b

    def total_exact(self, values: Sequence[Expr]) -> Expr:
        return sympy.Add(*values)


def symbolic_sizes(plan: Plan, model: Model, *, divides: bool = True) -> SymSizes:
    """The sizes of ``plan`` on ``model`` as symbols.

    Axes have the symbol of the composition or ``N_<axis>``, micro-batches ``m``, sequences of one
    rank and micro-batch ``b``, dims of the model their own names.

    Raises:
        IllFormed: a symbol of the composition is also the name of a size of the model.
    """
    names = {a.name: axis_symbol(a.name, a.size) for a in plan.mesh.axes}
    loop = plan.micro if isinstance(plan.micro, str) else MICRO
    for name in [*names.values(), loop]:
        if name in model.dims or name in RESERVED:
            raise IllFormed(
                f"symbol {name}",
                f"also a size of the model {model.name} or of every model",
                "one name means one size",
                f"write another symbol, such as N_{name}",
            )
    axes = {axis: symbol(name) for axis, name in names.items()}
    micro = sympy.Integer(1) if plan.micro == 1 else symbol(loop)
    batch = sympy.Mul(symbol(MICRO_BATCH), micro, *(axes[a] for a in plan.batch_axes))
    known: dict[Dim, Expr] = {loop: micro} if isinstance(plan.micro, str) else {}
    if plan.micro != 1:
        known[plan.micro] = micro
    dims = frozenset(model.dims)
    return SymSizes({**axes, "micro": micro}, batch, micro, divides, known, dims)


def largest(values: Sequence[Expr]) -> Expr:
    """The maximum as it stands: nothing is compared, sizes below 1 are allowed."""
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else sympy.Max(*distinct, evaluate=False)


def least(values: Sequence[Expr]) -> Expr:
    """The minimum as it stands."""
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else sympy.Min(*distinct, evaluate=False)


def rounded_up(value: Expr) -> Expr:
    """The next whole number."""
    return sympy.ceiling(value)


def undominated(values: Iterable[Expr]) -> list[Expr]:
    """Without those that are nowhere above another one (all symbols are at least 1)."""
    kept: list[tuple[Expr, _Terms]] = []
    for value in dict.fromkeys(values):
        terms = _terms(value)
        if not any(_covers(other, terms) for _, other in kept):
            kept = [(v, other) for v, other in kept if not _covers(terms, other)]
            kept.append((value, terms))
    return [value for value, _ in kept]


def _maximum(values: Sequence[Expr]) -> Expr:
    """The maximum of several expressions, what they share taken out of it."""
    shared = set.intersection(*(set(sympy.Add.make_args(v)) for v in values))
    rest = [sympy.Add(*(t for t in sympy.Add.make_args(v) if t not in shared)) for v in values]
    return sympy.Add(*shared, sympy.Max(*rest, evaluate=False))


_Terms: TypeAlias = dict[Expr, Fraction]
"""Coefficients by monomial; a product with a difference such as ``L - 1`` is one monomial."""


def _terms(value: Expr) -> _Terms:
    pairs = (term.as_coeff_Mul() for term in sympy.Add.make_args(value))
    return {monomial: Fraction(int(c.p), int(c.q)) for c, monomial in pairs}


def _covers(a: _Terms, b: _Terms) -> bool:
    """Whether ``a >= b`` is plain: every term of ``b`` is paid for by terms of ``a`` above it."""
    if any(c < 0 for c in (*a.values(), *b.values())):
        return False
    rest = {m: c - b.get(m, 0) for m, c in a.items() if c > b.get(m, 0)}
    owed = {m: c - a.get(m, 0) for m, c in b.items() if c > a.get(m, 0)}
    for monomial, amount in owed.items():
        for other, surplus in rest.items():
            if amount > 0 and _above(other, monomial):
                paid = min(amount, surplus)
                rest[other] -= paid
                amount -= paid
        if amount > 0:
            return False
    return True


@lru_cache(maxsize=10_000)
def _above(a: Expr, b: Expr) -> bool:
    """Whether ``a / b`` is a product of whole powers of sizes, hence at least 1."""
    above, below = _powers(a), _powers(b)
    return all(
        (power := above.get(base, 0) - below.get(base, 0)) == 0
        or (power > 0 and isinstance(base, sympy.Symbol | sympy.ceiling))
        for base in above.keys() | below.keys()
    )


@lru_cache(maxsize=10_000)
def _powers(monomial: Expr) -> dict[Expr, Expr]:
    return dict(factor.as_base_exp() for factor in sympy.Mul.make_args(monomial))


def neat(expression: Expr) -> Expr:
    """Common factors taken out of the sum: of monomials, or all of them where that is quick."""
    if expression.has(sympy.Max, sympy.Min):
        return expression
    if len(expression.free_symbols) <= FEW and not expression.has(sympy.ceiling):
        return sympy.factor(expression)
    return sympy.gcd_terms(expression)


FEW = 4
"""Polynomials in at most so many symbols are factored (milliseconds)."""


def common(values: Sequence[Expr]) -> Expr:
    """The sum of neat formulas, with the first taken out where the others are multiples of it."""
    if not values or values[0] == 0:
        return neat(total(values))
    ratios = [value / values[0] for value in values]
    if any(sympy.count_ops(ratio) > 12 for ratio in ratios):
        return neat(total(values))
    content, rest = sympy.factor(total(ratios)).as_coeff_Mul()
    return content * values[0] * rest


def quotient(a: Expr, b: Expr) -> Expr:
    """``a / b`` of neat formulas."""
    result = a / b
    return sympy.factor(result) if sympy.count_ops(result) > 12 else result


def is_maximum(expression: Expr) -> bool:
    """Whether a maximum or a minimum occurs in a formula."""
    return bool(expression.has(sympy.Max, sympy.Min))


def collected(expression: Expr, over: Sequence[Expr]) -> Expr:
    """A polynomial as a sum of the given symbols, each with all that it is multiplied by."""
    return sympy.collect(sympy.expand(expression), list(over), sympy.factor)


def equal(a: Expr, b: Expr) -> bool:
    """Whether two formulas are the same for all sizes (maxima are compared as they stand)."""
    if a == b:
        return True
    if is_maximum(a - b):
        return False
    return bool(sympy.expand(a - b) == 0 or sympy.together(a - b).as_numer_denom()[0].expand() == 0)


def total(values: Iterable[Expr]) -> Expr:
    """The sum; zero when there is none."""
    return sympy.Add(*values)


def asymptotic(expression: Expr, axes: Iterable[Expr]) -> Expr:
    """The leading term as each axis grows: ``(N-1)/N`` becomes 1."""
    if expression.has(sympy.Max, sympy.Min, sympy.ceiling):
        return expression
    whole = result = sympy.expand(expression)
    for size in axes:
        result = _leading(result, size)
    return expression if result == whole else neat(result)


def _leading(expression: Expr, size: Expr) -> Expr:
    powers: dict[int, list[Expr]] = {}
    for term in sympy.Add.make_args(expression):
        powers.setdefault(int(term.as_coeff_exponent(size)[1]), []).append(term)
    return sympy.Add(*powers[max(powers)])


def replaced(expression: Expr, values: Mapping[str, int | Fraction | Expr]) -> Expr:
    """``expression`` with symbols replaced by numbers or formulas."""
    found = {s: values[s.name] for s in expression.free_symbols if s.name in values}
    return expression.xreplace({s: sympy.sympify(v) for s, v in found.items()})


def number(expression: Expr, values: Mapping[str, int | Fraction]) -> int | Fraction:
    """The value of an expression.

    Raises:
        IllFormed: a symbol has no value.
    """
    result = replaced(expression, values)
    if result.free_symbols:
        names = ", ".join(sorted(s.name for s in result.free_symbols))
        each = " ".join(f"--set {s.name}=8" for s in result.free_symbols)
        raise IllFormed(
            "numbers", f"no value for {names}", "every symbol needs one", f"give it, such as {each}"
        )
    result = sympy.Rational(result)
    return int(result) if result.q == 1 else Fraction(int(result.p), int(result.q))


def symbols_of(expression: Expr) -> list[str]:
    """The names of the symbols of an expression, sorted."""
    return sorted(s.name for s in expression.free_symbols)


def latex(expression: Expr) -> str:
    """The expression as LaTeX."""
    return str(sympy.latex(expression))


def is_stepped(expression: Expr) -> bool:
    """Whether a formula has maxima, minima or quotients rounded up."""
    return bool(expression.has(sympy.Max, sympy.Min, sympy.ceiling))


def limit(expression: Expr, size: Expr) -> Expr | None:
    """The limit as ``size`` grows without bound; ``None`` where sympy does not find it."""
    try:
        return sympy.limit(expression, size, sympy.oo)
    except NotImplementedError:
        return None


def solutions(expression: Expr, value: Fraction, size: Expr) -> list[int]:
    """The sizes, whole and at least 1, at which an expression has a value."""
    equation = sympy.Eq(expression, sympy.Rational(value.numerator, value.denominator))
    if equation in (sympy.true, sympy.false):
        return []
    return sorted(int(s) for s in sympy.solve(equation, size) if s.is_Integer and s >= 1)


def rational(value: Fraction) -> Expr:
    """An exact number as an expression."""
    return sympy.Rational(value.numerator, value.denominator)


def roots(expression: Expr, size: Expr) -> tuple[Fraction | float, ...]:
    """The real roots of a formula of one size that are at least 1; exact where rational."""
    above = sympy.together(expression).as_numer_denom()[0]
    found = sympy.real_roots(sympy.Poly(above, size)) if above.free_symbols == {size} else []
    exact = (Fraction(int(r.p), int(r.q)) if r.is_Rational else float(r) for r in found)
    return tuple(dict.fromkeys(r for r in exact if r >= 1))


class _Printer(PythonCodePrinter):  # type: ignore[misc]
    """Python text that is exact on fractions and needs the standard library only."""

    def _print_Rational(self, expr: Expr) -> str:
        return f"Fraction({expr.p}, {expr.q})"


def python_source(name: str, expression: Expr, note: str) -> str:
    """The source of a function that computes an expression exactly."""
    names = symbols_of(expression)
    kinds = {s.name: "int" if s.is_integer else "float" for s in expression.free_symbols}
    parameters = f"*, {', '.join(f'{n}: {kinds[n]}' for n in names)}" if names else ""
    body = _Printer({"fully_qualified_modules": True}).doprint(expression)
    lines = [
        "import math  # noqa: F401",
        "from fractions import Fraction",
        "",
        "",
        f"def {name}({parameters}) -> Fraction:",
        f'    """{note}"""',
        *(f"    {n} = Fraction({n})" for n in names),
        f"    return Fraction({body})",
        "",
    ]
    return "\n".join(lines)
