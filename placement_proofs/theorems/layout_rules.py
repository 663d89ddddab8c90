"""The layout rules of operations, against exact numbers.

A rule says: with inputs in these layouts and parameters in those, the same operation on every
rank gives its result in that layout, and the gradient of each input and parameter comes out in
the dual of its layout. Both halves are compared, element by element, with one device. Layouts
that no rule gives are tried too: each either fails (with the number of ranks at which it does)
or is right and only unused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

from placement_proofs.layout import INVARIANT, PARTIAL, REPLICATED, On, dual, sharded
from placement_proofs.layout import Kind as LayoutKind
from placement_proofs.model import RULES, Rule, Seen
from placement_proofs.theorems.finding import Check, Finding, Theorem, conclude
from placement_proofs.theorems.small_tensors import (
    KINDS,
    ZERO,
    DoesNotFit,
    Dual,
    Index,
    Kind,
    Tensor,
    total,
)

COVERS = "exact numbers at 2 and 3 ranks (every op is a sum over dims, or acts place by place)"


@dataclass(frozen=True)
class Placed:
    """Layouts of inputs, parameters and result of one operation on one axis."""

    kind: str
    needs: tuple[On, ...]
    uses: tuple[On, ...]
    out: On

    def __str__(self) -> str:
        ins = ", ".join(map(str, self.needs + self.uses))
        return f"{self.kind}({ins}) -> {self.out}"


def _whole(rank: int, n: int, seed: int, integer: bool = False) -> Tensor:
    """A tensor of distinct small numbers, n along each dim."""
    indices = itertools.product(range(n), repeat=rank)
    numbers = ((31 * k + 17 * seed + k * k * (seed + 2)) for k in itertools.count(1))
    return {
        i: Dual(v % n if integer else v % 97 - 41) for i, v in zip(indices, numbers, strict=False)
    }


def _locals(tensor: Tensor, on: On, n: int) -> list[Tensor]:
    """What each rank has of a tensor in a layout."""
    if on.kind is LayoutKind.SHARDED:
        d = on.dim or 0
        return [{i: v for i, v in tensor.items() if i[d] == r} for r in range(n)]
    if on == PARTIAL:
        return _parts(tensor, n)
    return [tensor] * n


def _parts(tensor: Tensor, n: int) -> list[Tensor]:
    """Uneven parts of a sum."""
    first = {r: {i: Dual(v.at * (r + 1) % 11 - 3) for i, v in tensor.items()} for r in range(n - 1)}
    taken = {i: sum(part[i].at for part in first.values()) for i in tensor}
    return [*first.values(), {i: Dual(v.at - taken[i]) for i, v in tensor.items()}]


def _agrees(parts: list[Tensor], whole: Tensor, on: On) -> bool:
    """Whether the parts of all ranks are the whole in a layout."""
    if on == PARTIAL:
        return all(set(part) == set(whole) for part in parts) and all(
            sum(part[i].at for part in parts) == whole[i].at for i in whole
        )
    return all(
        _numbers(part) == _numbers(want)
        for part, want in zip(parts, _locals(whole, on, len(parts)), strict=True)
    )


def _numbers(tensor: Tensor) -> dict[Index, int]:
    return {index: value.at for index, value in tensor.items()}


def _gradient(kind: Kind, args: list[Tensor], which: int, cotangent: Tensor) -> Tensor:
    """The derivative of <cotangent, op(args)> by every element of one argument."""
    found: dict[Index, Dual] = {}
    for index, value in args[which].items():
        moved = {**args[which], index: Dual(value.at, 1)}
        out = kind.run(*args[:which], moved, *args[which + 1 :])
        found[index] = Dual(total([out[i] * cotangent.get(i, ZERO) for i in out]).by)
    return found


@cache
def fault(placed: Placed, n: int) -> str:
    """What differs from one device at n ranks; empty if nothing."""
    kind = KINDS[placed.kind]
    ranks = (*kind.ins, *kind.params)
    integers = [kind.integer and k < len(kind.ins) for k in range(len(ranks))]
    whole = [_whole(r, n, k, integers[k]) for k, r in enumerate(ranks)]
    layouts = (*placed.needs, *placed.uses)
    spread = [_locals(t, on, n) for t, on in zip(whole, layouts, strict=True)]
    args = [[tensors[r] for tensors in spread] for r in range(n)]
    want = kind.run(*whole)
    try:
        outs = [kind.run(*local) for local in args]
    except (DoesNotFit, KeyError):
        return "the local shapes do not fit"
    if not _agrees(outs, want, placed.out):
        return "the result differs"
    return _backward_fault(placed, kind, (whole, args), want, integers)


def _backward_fault(
    placed: Placed,
    kind: Kind,
    given: tuple[list[Tensor], list[list[Tensor]]],
    out: Tensor,
    integers: list[bool],
) -> str:
    whole, args = given
    n = len(args)
    cotangent = {i: Dual(7 + 5 * k % 13) for k, i in enumerate(out)}
    received = _locals(cotangent, dual(placed.out), n)
    for which, on in enumerate((*placed.needs, *placed.uses)):
        if integers[which]:
            continue
        want = _gradient(kind, whole, which, cotangent)
        got = [_gradient(kind, args[r], which, received[r]) for r in range(n)]
        if not _agrees(got, want, dual(on)):
            what = "parameter" if which >= len(placed.needs) else "input"
            return f"the gradient of the {what} differs"
    return ""


def _layouts(rank: int) -> tuple[On, ...]:
    return (INVARIANT, REPLICATED, PARTIAL, *(sharded(d) for d in range(rank)))


def _seen(name: str) -> Iterator[Seen]:
    """All that a rule can be asked on one axis."""
    kind = KINDS[name]
    ins = itertools.product(*(_layouts(rank) for rank in kind.ins))
    params = [tuple(p) for p in itertools.product(*(_weights(name, r) for r in kind.params))]
    homes = (INVARIANT, sharded(0), sharded(1))
    for layouts in ins:
        for uses, home in itertools.product(params, homes):
            for attention in (None, "heads", "ring") if name == "attention" else (None,):
                for whole in (False, True):
                    yield Seen(layouts, kind.ins, uses, home, attention, whole=whole)


def _weights(name: str, rank: int) -> tuple[On, ...]:
    """How the parameter of a kind may be placed."""
    if name == "norm":
        return (INVARIANT,)
    if name == "embedding":
        return (INVARIANT, sharded(0))
    return (INVARIANT, *(sharded(d) for d in range(rank)))


def accepted() -> tuple[Placed, ...]:
    """Every placement that some rule gives; statistics inside an op are not placements.

    Adding a bias to pending sums is a fault that a profile may have: it is a wrong form here.
    """
    found: dict[Placed, None] = {}
    for name in KINDS:
        for see in _seen(name):
            rule: Rule = RULES[name](see)
            if not rule.statistics:
                found[Placed(name, rule.needs, rule.uses, rule.out)] = None
    return tuple(found)


def rejected() -> tuple[Placed, ...]:
    """Placements with the right number of layouts that no rule gives."""
    known = set(accepted())
    return tuple(placed for placed in _all_placed() if placed not in known)


def _all_placed() -> Iterator[Placed]:
    for name, kind in KINDS.items():
        ins = [_layouts(rank) for rank in kind.ins]
        uses = [_layouts(rank) for rank in kind.params]
        for choice in itertools.product(*ins, *uses, _layouts(kind.out)):
            split = len(kind.ins)
            yield Placed(name, choice[:split], choice[split:-1], choice[-1])


def right() -> Finding:
    """Every placement that a rule gives is right, forward and backward."""
    placed = accepted()
    known = [(f"{name} has no function here", name in KINDS) for name in RULES]
    checks: Iterator[Check] = (
        (f"{p}: {found} at {n} ranks", not found)
        for p in placed
        for n in (2, 3)
        for found in (fault(p, n),)
    )
    wrong = sum(bool(fault(p, 2)) for p in rejected())
    unused = len(rejected()) - wrong
    note = f"{len(placed)} accepted placements; of those rejected {wrong} fail at 2 ranks"
    return conclude(COVERS, (), [*known, *checks], f"{note}, {unused} are right but unused")


def _one(placed: Placed) -> Finding:
    found = fault(placed, 2)
    return conclude(COVERS, (), ((f"{placed}: {found} at 2 ranks", not found),))


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
    "experts cut, their tokens not": Placed("expert", (REPLICATED,), (sharded(0),), sharded(0)),
}

LAYOUT_RULES = Theorem(
    "layout rules",
    "Every layout that a rule of an op kind accepts is right, forward and backward.",
    right,
    {name: partial(_one, p) for name, p in WRONG.items()},
)
