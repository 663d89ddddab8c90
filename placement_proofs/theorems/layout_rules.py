"""The layout rules of operations, for every number of ranks, and against exact numbers.

A rule says: with inputs in these layouts and parameters in those, the same operation on every
rank gives its result in that layout, and the gradient of each input and parameter comes out in
the dual of its layout. Both halves are derived from what the operation is
(:mod:`~placement_proofs.theorems.indexed`) by rules that solvers prove sound
(:mod:`~placement_proofs.theorems.judging`), and compared with one device on exact numbers.
Layouts that no rule gives are tried too: each either fails (with numbers) or is only unused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

from placement_proofs.layout import INVARIANT, PARTIAL, REPLICATED, On, dual, sharded
from placement_proofs.model import RULES, Rule, Seen
from placement_proofs.theorems.finding import Check, Finding, Query, Theorem, conclude, reals
from placement_proofs.theorems.indexed import (
    GRADIENT,
    KINDS,
    Label,
    Leaf,
)
from placement_proofs.theorems.judging import (
    ALIKE,
    PENDING,
    SHIFTED,
    Judgement,
    is_cut,
    judge,
    open_cut,
)
from placement_proofs.theorems.judging import RULES as INFERENCE
from placement_proofs.theorems.small_tensors import (
    Number,
    Pair,
    claimed,
    follows_the_chain_rule,
)

COVERS = "every N >= 1, every extent and function; exact numbers at 2 and 3 ranks"


@dataclass(frozen=True)
class Placed:
    """Layouts of inputs, parameters and result of one operation on one axis.

    `shared` is the form in which ranks exchange statistics inside the operation.
    """

    kind: str
    needs: tuple[On, ...]
    uses: tuple[On, ...]
    out: On
    shared: bool = False

    def __str__(self) -> str:
        ins = ", ".join(map(str, self.needs + self.uses))
        return f"{self.kind}({ins}) -> {self.out}"

    @property
    def layouts(self) -> dict[str, On]:
        """The layout of each tensor by name, and of the gradient that comes in."""
        kind = KINDS[self.kind]
        names = (*kind.ins, *kind.params, GRADIENT)
        return dict(zip(names, (*self.needs, *self.uses, dual(self.out)), strict=True))


# --- for every N -------------------------------------------------------------------------


def underived(placed: Placed) -> str:
    """Which half of a placement the rules do not give; empty if they give both."""
    kind, layouts = KINDS[placed.kind], placed.layouts
    element, cut = kind.form(placed.shared), kind.cut(placed.layouts)
    if not kind.fits(element, layouts):
        return "the local shapes do not fit"
    sums = {name for name, on in layouts.items() if on == PARTIAL and name != GRADIENT}
    if not _is(judge(element, cut, sums), kind.out, placed.out, cut):
        return "the result is not of its layout"
    sums |= {GRADIENT} if layouts[GRADIENT] == PARTIAL else set()
    for leaf, term in kind.gradients(placed.shared):
        if not _is_gradient(leaf, judge(term, cut, sums), layouts[leaf.name], cut):
            return f"the gradient of {leaf.name} is not of its layout"
    return ""


def _is(found: Judgement | None, labels: tuple[Label, ...], on: On, cut: frozenset[Label]) -> bool:
    """Whether a judgement, with these labels open, is a value of a layout."""
    opened = {label for label in labels if is_cut(label, cut)}
    wanted = {labels[on.dim]} if on.dim is not None else set()
    return found is (PENDING if on == PARTIAL else ALIKE) and opened == wanted


def _is_gradient(leaf: Leaf, found: Judgement | None, on: On, cut: frozenset[Label]) -> bool:
    """The same for a gradient; what a rank picked is its own part, and zero elsewhere."""
    picked = open_cut(leaf, cut) & leaf.picked
    if found is ALIKE and picked and on == REPLICATED:
        return open_cut(leaf, cut) == picked
    return _is(found, leaf.labels, dual(on), cut)


# --- what the rules of the package accept -------------------------------------------------


def _layouts(rank: int) -> tuple[On, ...]:
    return (INVARIANT, REPLICATED, PARTIAL, *(sharded(d) for d in range(rank)))


def _ranks(tensors: dict[str, tuple[Label, ...]]) -> tuple[int, ...]:
    return tuple(map(len, tensors.values()))


def _seen(name: str) -> Iterator[Seen]:
    """All that a rule can be asked on one axis."""
    kind = KINDS[name]
    ndims = _ranks(dict(kind.ins))
    ins = itertools.product(*(_layouts(rank) for rank in ndims))
    weights = (_weights(name, r) for r in _ranks(dict(kind.params)))
    params = [tuple(p) for p in itertools.product(*weights)]
    homes = (INVARIANT, sharded(0), sharded(1))
    for layouts in ins:
        for uses, home in itertools.product(params, homes):
            for attention in (None, "heads", "ring") if name == "attention" else (None,):
                for whole in (False, True):
                    yield Seen(layouts, ndims, uses, home, attention, whole=whole)


def _weights(name: str, rank: int) -> tuple[On, ...]:
    """How the parameter of a kind may be placed."""
    if name == "norm":
        return (INVARIANT,)
    if name == "embedding":
        return (INVARIANT, sharded(0))
    return (INVARIANT, *(sharded(d) for d in range(rank)))


@cache
def accepted() -> tuple[Placed, ...]:
    """Every placement that some rule gives.

    Adding a bias to pending sums is a fault that a profile may have: it is a wrong form here.
    """
    found: dict[Placed, None] = {}
    for name in KINDS:
        for see in _seen(name):
            rule: Rule = RULES[name](see)
            found[Placed(name, rule.needs, rule.uses, rule.out, rule.statistics)] = None
    return tuple(found)


@cache
def rejected() -> tuple[Placed, ...]:
    """Placements with the right number of layouts that no rule gives."""
    known = set(accepted())
    return tuple(placed for placed in _all_placed() if placed not in known)


def _all_placed() -> Iterator[Placed]:
    forms = [(name, kind, False) for name, kind in KINDS.items()]
    forms += [(name, kind, True) for name, kind, _ in forms if kind.shared is not None]
    for name, kind, shared in forms:
        ins = [_layouts(rank) for rank in _ranks(dict(kind.ins))]
        uses = [_layouts(rank) for rank in _ranks(dict(kind.params))]
        for choice in itertools.product(*ins, *uses, _layouts(len(kind.out))):
            split = len(kind.ins)
            yield Placed(name, choice[:split], choice[split:-1], choice[-1], shared)


# --- exact numbers -----------------------------------------------------------------------


@cache
def fault(placed: Placed, n: int) -> str:
    """What differs from one device at n ranks; empty if nothing."""
    found = claimed(placed.kind, placed.layouts, placed.out, n, placed.shared)
    return next((pair.what for pair in found if pair.got != pair.want), "")


def _witness(placed: Placed) -> Query:
    """The first pair that differs at 2 ranks, written out, at the numbers that show it."""
    found = claimed(placed.kind, placed.layouts, placed.out, 2, placed.shared, traced=True)
    pair = next(pair for pair in found if pair.got != pair.want)
    if not (isinstance(pair.got, Number) and isinstance(pair.want, Number)):
        return _misfit(placed, pair)
    named = {**pair.got.named, **pair.want.named}
    premises = tuple(f"(= {name} {number}.0)" for name, number in named.items() if number >= 0)
    below = tuple(f"(= {name} (- {-number}.0))" for name, number in named.items() if number < 0)
    goal = f"(= {pair.got.text} {pair.want.text})"
    return Query(f"{placed}: {pair.what}", "QF_NRA", reals(*named), (*premises, *below), goal)


def _misfit(placed: Placed, pair: Pair) -> Query:
    """A rank lacks an element: its extent is not that of the other tensor."""
    premises = (f"(= here {pair.got}.0)", f"(= there {pair.want}.0)")
    return Query(
        f"{placed}: {pair.what}", "QF_LRA", reals("here", "there"), premises, "(= here there)"
    )


# --- the theorem -------------------------------------------------------------------------


def _wrong_and_unused() -> tuple[tuple[Placed, ...], tuple[Placed, ...]]:
    """The placements that no rule gives: those that fail at 2 ranks, and those that do not."""
    wrong = tuple(p for p in rejected() if fault(p, 2))
    return wrong, tuple(p for p in rejected() if not fault(p, 2))


def checks() -> Iterator[Check]:
    """Derivations and numbers say the same, and the package accepts nothing else."""
    for name in RULES:
        yield f"{name} has no expression here", name in KINDS
        yield f"{name}: the chain rule is not that of dual numbers", follows_the_chain_rule(name)
    for placed in accepted():
        yield f"{placed}: {underived(placed)}", not underived(placed)
        for n in (2, 3):
            yield f"{placed}: {fault(placed, n)} at {n} ranks", not fault(placed, n)
    wrong, unused = _wrong_and_unused()
    for placed in wrong:
        yield f"{placed}: derived, but {fault(placed, 2)} at 2 ranks", bool(underived(placed))
    for placed in unused:
        yield f"{placed}: {underived(placed)}, but right at 2 ranks", not underived(placed)


def right() -> Finding:
    """Every placement that a rule gives is derived, and right on numbers too."""
    wrong, unused = _wrong_and_unused()
    note = (
        f"{len(accepted())} accepted placements derived; of those rejected {len(wrong)} fail at 2 "
        f"ranks and have no derivation, {len(unused)} have one but are unused"
    )
    return conclude(COVERS, (*INFERENCE, *SHIFTED), checks(), note)


def _one(placed: Placed) -> Finding:
    found = conclude(COVERS, (_witness(placed),))
    return replace(found, evidence=f"{placed}: {fault(placed, 2)} at 2 ranks")


WRONG = {
    "a non-linear function of pending sums": Placed("activation", (PARTIAL,), (), PARTIAL),
    "a bias added to pending sums": Placed("bias", (PARTIAL,), (INVARIANT,), PARTIAL),
    "a norm of a sharded last dim": Placed("norm", (sharded(2),), (sharded(0),), sharded(2)),
    "a column-parallel matrix fed invariant": Placed(
        "linear", (INVARIANT,), (sharded(0),), sharded(2)
    ),
    "a row-parallel matrix whose result counts as whole": Placed(
        "linear", (sharded(2),), (sharded(1),), INVARIANT
    ),
    "attention of sharded queries to own keys only": Placed(
        "attention", (sharded(1),) * 3, (), sharded(1)
    ),
    "a weight on sharded tokens fed invariant": Placed(
        "linear", (sharded(1),), (INVARIANT,), sharded(1)
    ),
    "a table cut by rows whose result counts as whole": Placed(
        "embedding", (INVARIANT,), (sharded(0),), INVARIANT
    ),
    "a product of two pending sums": Placed("multiply", (PARTIAL, PARTIAL), (), PARTIAL),
    "the loss of sharded tokens counts as whole": Placed("loss", (sharded(0),), (), INVARIANT),
    "the loss of a sharded vocabulary without its exchanges": Placed(
        "loss", (sharded(2),), (), INVARIANT
    ),
    "a replicated value added to a pending sum": Placed("add", (PARTIAL, REPLICATED), (), PARTIAL),
    "experts cut, their tokens not": Placed("expert", (REPLICATED,), (sharded(0),), sharded(0)),
}

LAYOUT_RULES = Theorem(
    "layout rules",
    "Every layout that a rule of an op kind accepts is right, forward and backward.",
    right,
    {name: partial(_one, p) for name, p in WRONG.items()},
)
