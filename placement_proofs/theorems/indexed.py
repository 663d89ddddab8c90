"""Operations as expressions over indices, their gradients, and their values on small tensors.

An element of a result is sums, products and functions of elements: y[b,s,o] = sum_i x[b,s,i]
W[o,i]. Labels name the dims; a primed label runs over the same dim as the plain one. Functions
are unknown (a function `f` has partial derivatives `f/0`, `f/1`, ...); what depends only on the
place in the whole tensor (a mask, a route, the words to predict) is the same wherever it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from placement_proofs.layout import On

Label: TypeAlias = str

GRADIENT = "gradient"
"""The name of the gradient that comes in."""


@dataclass(frozen=True)
class Leaf:
    """An element of an input, a parameter or the gradient that comes in.

    Labels in `picked` are chosen by the operation: a rank that has all of the dim reads its part.
    """

    name: str
    labels: tuple[Label, ...]
    picked: frozenset[Label] = frozenset()


@dataclass(frozen=True)
class Place:
    """A number that depends only on the place in the whole tensor."""

    name: str
    labels: tuple[Label, ...]


@dataclass(frozen=True)
class Is:
    """1 where an integer is the index, else 0."""

    of: Leaf | Place
    label: Label


@dataclass(frozen=True)
class Mul:
    """A product."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Add:
    """A sum of a few."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Sum:
    """The sum over a dim, or what a rank has of it."""

    label: Label
    body: Expr


@dataclass(frozen=True)
class Top:
    """The maximum over a dim, or what a rank has of it."""

    label: Label
    body: Expr


@dataclass(frozen=True)
class Fn:
    """An unknown function, place by place."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Reduced:
    """An all-reduce inside the operation: a sum, or a maximum."""

    body: Expr
    top: bool = False


@dataclass(frozen=True)
class Const:
    """A number."""

    number: int


Expr: TypeAlias = Leaf | Place | Is | Mul | Add | Sum | Top | Fn | Reduced | Const


def free(expr: Expr) -> frozenset[Label]:
    """The labels that an expression leaves open."""
    match expr:
        case Leaf(labels=labels) | Place(labels=labels):
            return frozenset(labels)
        case Is(of, label):
            return free(of) | {label}
        case Mul(parts) | Add(parts) | Fn(_, parts):
            return frozenset().union(*map(free, parts))
        case Sum(label, body) | Top(label, body):
            return free(body) - {label}
        case Reduced(body):
            return free(body)
        case Const():
            return frozenset()


def plain(label: Label) -> Label:
    """The dim of a label."""
    return label.removesuffix("'")


def labels_of(expr: Expr) -> Iterator[Label]:
    """Every label, open or summed over."""
    match expr:
        case Sum(label, body) | Top(label, body):
            yield label
            yield from labels_of(body)
        case Mul(parts) | Add(parts) | Fn(_, parts):
            for part in parts:
                yield from labels_of(part)
        case Reduced(body):
            yield from labels_of(body)
        case _:
            yield from free(expr)


def reductions(expr: Expr) -> Iterator[Reduced]:
    """Every all-reduce inside."""
    match expr:
        case Mul(parts) | Add(parts) | Fn(_, parts):
            for part in parts:
                yield from reductions(part)
        case Sum(_, body) | Top(_, body):
            yield from reductions(body)
        case Reduced(body):
            yield expr
            yield from reductions(body)
        case _:
            return


def leaves(expr: Expr) -> Iterator[Leaf]:
    """Every leaf, as often as it stands there."""
    match expr:
        case Leaf():
            yield expr
        case Is(of):
            yield from leaves(of)
        case Mul(parts) | Add(parts) | Fn(_, parts):
            for part in parts:
                yield from leaves(part)
        case Sum(_, body) | Top(_, body) | Reduced(body):
            yield from leaves(body)
        case Place() | Const():
            return


def gradients(expr: Expr, cotangent: Expr) -> Iterator[tuple[Leaf, Expr]]:
    """The chain rule, backwards: for each leaf, a term of the gradient with the leaf's labels.

    The cotangent of an inner sum is that of the outer, whatever the index; what the leaf does
    not tell apart is summed. Maxima and reductions have gradients of their own (`Kind.backward`).
    """
    match expr:
        case Leaf(labels=labels):
            rest = sorted(free(cotangent) - set(labels))
            yield expr, reduce(lambda body, label: Sum(label, body), rest, cotangent)
        case Mul(parts):
            for i, part in enumerate(parts):
                others = (*parts[:i], *parts[i + 1 :])
                yield from gradients(part, Mul((cotangent, *others)))
        case Add(parts):
            for part in parts:
                yield from gradients(part, cotangent)
        case Sum(_, body):
            yield from gradients(body, cotangent)
        case Fn(name, args):
            for i, arg in enumerate(args):
                yield from gradients(arg, Mul((cotangent, Fn(f"{name}/{i}", args))))
        case Place() | Const() | Is():
            return
        case _:
            raise TypeError(expr)


# --- numbers -----------------------------------------------------------------------------

Index: TypeAlias = Mapping[Label, int]
Tensor: TypeAlias = Mapping[tuple[int, ...], Any]


@dataclass(frozen=True)
class Rank:
    """What one rank has: its part of each tensor, and of the range of each label."""

    tensors: Mapping[str, Tensor]
    ranges: Mapping[Label, Sequence[int]]


def value(expr: Expr, at: Index, rank: Rank, ranks: Sequence[Rank]) -> Any:
    """The value on a rank, at an index; an all-reduce asks all ranks."""

    def again(part: Expr, here: Index = at, on: Rank = rank) -> Any:
        return value(part, here, on, ranks)

    match expr:
        case Leaf(name, labels):
            return rank.tensors[name][tuple(at[label] for label in labels)]
        case Place(name, labels):
            return (sum(at[label] for label in labels) + len(name)) % 2
        case Is(of, label):
            return int(again(of) == at[label])
        case Mul(parts):
            return reduce(lambda a, b: a * b, map(again, parts))
        case Add(parts):
            return reduce(lambda a, b: a + b, map(again, parts))
        case Sum(label, body):
            return sum(again(body, {**at, label: i}) for i in rank.ranges[label])
        case Top(label, body):
            return max(again(body, {**at, label: i}) for i in rank.ranges[label])
        case Fn(name, args):
            return _function(name, [again(arg) for arg in args])
        case Reduced(body, top):
            everywhere = [again(body, at, other) for other in ranks]
            return max(everywhere) if top else sum(everywhere)
        case Const(number):
            return number


def _function(name: str, args: Sequence[Any]) -> Any:
    """Some function that is not additive, of that name; `f/i` is its derivative by argument i."""
    plain, _, by = name.partition("/")
    factors = [a * 2 if str(i) == by else a * a + len(plain) for i, a in enumerate(args)]
    return reduce(lambda a, b: a * b, factors)


# --- the kinds of operations -------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """An operation: what an element of its result is, of inputs and parameters by name.

    `shared` is the form that ranks compute together where the last dim is cut, and `backward`
    its gradient by the first input.
    """

    element: Expr
    out: tuple[Label, ...]
    ins: Mapping[str, tuple[Label, ...]]
    params: Mapping[str, tuple[Label, ...]]
    integer: bool = False
    shared: Expr | None = None
    backward: Expr | None = None

    @property
    def dims(self) -> dict[str, tuple[Label, ...]]:
        """The labels of each tensor, and of the gradient that comes in."""
        return {**self.ins, **self.params, GRADIENT: self.out}

    @property
    def inner(self) -> frozenset[Label]:
        """All labels inside, open or summed over."""
        return frozenset(labels_of(self.element))

    def form(self, shared: bool) -> Expr:
        """The element, in the form that one device or that ranks together compute."""
        return self.shared if shared and self.shared is not None else self.element

    def cut(self, layouts: Mapping[str, On]) -> frozenset[Label]:
        """The dims that layouts cut."""
        dims = self.dims
        return frozenset(dims[name][on.dim] for name, on in layouts.items() if on.dim is not None)

    def fits(self, element: Expr, layouts: Mapping[str, On]) -> bool:
        """Whether a rank can run it: what has a dim that is cut is cut there, or picks its part."""
        cut = self.cut(layouts)
        return all(
            dim == layouts[leaf.name].dim or label in leaf.picked or plain(label) not in cut
            for leaf in leaves(element)
            for dim, label in enumerate(leaf.labels)
        )

    def gradients(self, shared: bool) -> Iterator[tuple[Leaf, Expr]]:
        """Terms of the gradients of inputs and parameters; integers have none."""
        if shared and self.backward is not None:
            (name,) = self.ins
            yield Leaf(name, self.ins[name]), self.backward
        else:
            yield from gradients(self.element, Leaf(GRADIENT, self.out))


def _kind(element: Expr, out: str, ins: str, params: str = "", integer: bool = False) -> Kind:
    """Tensors as words: `x:bsi` is x with labels b, s and i."""

    def tensors(text: str) -> dict[str, tuple[Label, ...]]:
        return {name: tuple(dims) for name, _, dims in (w.partition(":") for w in text.split())}

    return Kind(element, tuple(out), tensors(ins), tensors(params), integer)


def _leaf(text: str, picked: str = "") -> Leaf:
    name, _, dims = text.partition(":")
    labels = tuple(dims.replace("H", "h'")) if "H" not in dims else (*dims[:-1], "h'")
    return Leaf(name, labels, frozenset(picked))


X = _leaf("x:bsh")
_SCORE = Fn("exp", (Mul((_leaf("q:bsh"), _leaf("k:bth", "h"))),))
_ATTENTION = Mul(
    (
        Sum("t", Mul((_SCORE, _leaf("v:bth", "h")))),
        Fn("inverse", (Sum("t", _SCORE),)),
    )
)
_LOGIT = _leaf("x:bsv")
_WORD = Is(Place("word", ("b", "s")), "v")


def _loss() -> Kind:
    """Cross-entropy: log(sum_v exp x[v]) - x[word], summed over all places.

    Ranks that share the vocabulary exchange the maximum, the sum of shifted exponentials and the
    logit of the word; exp(x - m) is a function of x and m here.
    """

    def summed(body: Expr) -> Expr:
        return Sum("b", Sum("s", body))

    plain = Add(
        (
            Fn("log", (Sum("v", Fn("exp", (_LOGIT,))),)),
            Mul((Const(-1), Sum("v", Mul((_WORD, _LOGIT))))),
        )
    )
    top = Reduced(Top("v", _LOGIT), top=True)
    shifted = Fn("exp of difference", (_LOGIT, top))
    weight = Reduced(Sum("v", shifted))
    picked = Reduced(Sum("v", Mul((_WORD, _LOGIT))))
    shared = Add((Fn("log", (weight,)), top, Mul((Const(-1), picked))))
    share = Add((Mul((shifted, Fn("inverse", (weight,)))), Mul((Const(-1), _WORD))))
    kind = _kind(summed(plain), "", "x:bsv")
    backward = Mul((Leaf(GRADIENT, ()), share))
    return Kind(kind.element, (), kind.ins, {}, shared=summed(shared), backward=backward)


KINDS: Mapping[str, Kind] = {
    "embedding": _kind(
        Sum("v", Mul((Is(_leaf("ids:bs"), "v"), _leaf("W:vh")))), "bsh", "ids:bs", "W:vh", True
    ),
    "norm": _kind(
        Mul((Fn("f", (X, Sum("h'", Fn("g", (_leaf("x:bsH"),))))), _leaf("w:h"))),
        "bsh",
        "x:bsh",
        "w:h",
    ),
    "linear": _kind(Sum("i", Mul((_leaf("x:bsi"), _leaf("W:oi")))), "bso", "x:bsi", "W:oi"),
    "bias": _kind(Add((X, _leaf("w:h"))), "bsh", "x:bsh", "w:h"),
    "activation": _kind(Fn("f", (X,)), "bsh", "x:bsh"),
    "dropout": _kind(Mul((Place("mask", ("b", "s", "h")), X)), "bsh", "x:bsh"),
    "multiply": _kind(Mul((X, _leaf("y:bsh"))), "bsh", "x:bsh y:bsh"),
    "attention": _kind(_ATTENTION, "bsh", "q:bsh k:bth v:bth"),
    "add": _kind(Add((X, _leaf("y:bsh"))), "bsh", "x:bsh y:bsh"),
    "dispatch": _kind(Mul((Place("route", ("b", "s", "e")), X)), "ebsh", "x:bsh"),
    "combine": _kind(Sum("e", Mul((_leaf("y:ebsh"), _leaf("g:bse")))), "bsh", "y:ebsh g:bse"),
    "expert": _kind(Sum("i", Mul((_leaf("x:ebsi"), _leaf("W:eoi")))), "ebso", "x:ebsi", "W:eoi"),
    "loss": _loss(),
    "opaque": _kind(Sum("k", Fn("f", (_leaf("W:k"), X))), "bsh", "x:bsh", "W:k"),
}
"""The kinds of :data:`placement_proofs.model.RULES`. One number a head in attention: what else a
head has lies on dims that no axis cuts."""
