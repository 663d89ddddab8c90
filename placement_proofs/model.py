"""Models: tensors with shapes, values, and operations with one layout rule per kind.

A layout rule says, for one mesh axis, which layouts an operation accepts, what it gives, and how
its parameters are fed: sharded (own part), replicated (a part of the gradient sum on each rank) or
invariant (the whole gradient on every rank). Axes are independent (the semantics page, section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from placement_proofs.layout import INVARIANT, PARTIAL, REPLICATED, Kind, On, sharded
from placement_proofs.mesh import Dim
from placement_proofs.shape import Shape


@dataclass(frozen=True)
class Tensor:
    """A parameter: its shape in elements, placement group and gather unit.

    ``tied_to_head`` marks an embedding that the head uses too, on another pipeline stage.
    ``trainable`` is false for frozen parameters: no gradient, no optimizer state.
    """

    name: str
    shape: tuple[Dim, ...]
    group: str
    unit: str
    trainable: bool = True


@dataclass(frozen=True)
class Value:
    """An activation: its global shape; ``residual`` values live in the home layout of each axis."""

    name: str
    shape: tuple[Dim, ...]
    residual: bool = False
    integer: bool = False


@dataclass(frozen=True)
class Op:
    """One operation: values in, one value out, parameters used, the block it belongs to.

    ``beside`` names a parameter of the same parallel region: where that one is sharded by output,
    this operation reads the region's input too (key and value projections beside the queries').
    ``internals`` are kept from its forward to its backward pass, ``scratch`` is held while its
    backward pass runs.
    """

    kind: str
    out: str
    ins: tuple[str, ...]
    params: tuple[str, ...] = ()
    block: str = ""
    attrs: tuple[tuple[str, Dim], ...] = ()
    internals: tuple[tuple[str, tuple[Dim, ...]], ...] = ()
    beside: str = ""
    scratch: tuple[tuple[str, tuple[Dim, ...]], ...] = ()


@dataclass(frozen=True)
class Block:
    """A run of operations that pipeline stages do not cut; ``times`` identical copies of it."""

    name: str
    times: Dim = 1


@dataclass(frozen=True)
class Model:
    """Tensors, values and operations in forward order; ``dims`` gives symbols their integers.

    ``B`` (sequences in a global batch) is not in ``dims``: it follows from the composition and
    ``micro_batch`` (sequences per rank and micro-batch). ``shape`` is what a transformer was made
    from: layers of several kinds are cut into stages one by one.
    """

    name: str
    tensors: tuple[Tensor, ...]
    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    blocks: tuple[Block, ...]
    dims: Mapping[str, int] = field(default_factory=dict)
    micro_batch: int = 1
    shape: Shape | None = None

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def value(self, name: str) -> Value:
        return next(v for v in self.values if v.name == name)


@dataclass(frozen=True)
class Seen:
    """What a layout rule sees of one axis: layouts and ranks of inputs, parameters, the home.

    ``whole`` asks for inputs that are whole on the axis; ``pending_bias`` leaves a sum pending
    when a bias is added to it.
    """

    ins: tuple[On, ...]
    ndims: tuple[int, ...]
    params: tuple[On, ...]
    home: On
    attention: str | None = None
    beside: On = INVARIANT
    whole: bool = False
    pending_bias: bool = False


@dataclass(frozen=True)
class Rule:
    """What an operation needs of each input, what it gives, and how its parameters are fed."""

    needs: tuple[On, ...]
    out: On
    uses: tuple[On, ...] = ()
    statistics: bool = False


def _fed(on: On) -> On:
    """How an unsharded parameter is fed by a use on an input with layout ``on``."""
    return INVARIANT if on.kind is Kind.INVARIANT else REPLICATED


def _settled(on: On, home: On, *whole_dims: int) -> On:
    """``on`` if it is a known value and cuts none of ``whole_dims``; else the home layout."""
    return home if on == PARTIAL or on.dim in whole_dims else on


def _linear(see: Seen) -> Rule:
    """y = x W^T with W of shape (out, in): the column and row forms of arXiv 1909.08053."""
    last = see.ndims[0] - 1
    weight = see.params[0]
    if weight == sharded(0):
        return Rule((REPLICATED,), sharded(last), (weight,))
    if weight == sharded(1):
        return Rule((sharded(last),), PARTIAL, (weight,))
    inside = see.beside == sharded(0)
    x = REPLICATED if inside else _settled(see.ins[0], see.home, last)
    if see.whole and not inside:
        x = INVARIANT
    return Rule((x,), x, (_fed(x),))


def _bias(see: Seen) -> Rule:
    last = see.ndims[0] - 1
    if see.params[0] == sharded(0):
        return Rule((sharded(last),), sharded(last), (see.params[0],))
    if see.pending_bias and see.ins[0] == PARTIAL:
        return Rule((PARTIAL,), PARTIAL, (INVARIANT,))
    x = _settled(see.ins[0], see.home, last)
    return Rule((x,), x, (_fed(x),))


def _norm(see: Seen) -> Rule:
    x = _settled(see.ins[0], see.home, see.ndims[0] - 1)
    return Rule((x,), x, (_fed(x),))


def _head_norm(see: Seen) -> Rule:
    """A norm of each head of (batch, sequence, heads * size), with one weight for all heads."""
    x = _settled(see.ins[0], see.home)
    return Rule((x,), x, (_fed(x),))


def _pointwise(see: Seen) -> Rule:
    """A non-linear function of values at the same place: all inputs alike and none pending."""
    first = see.ins[0]
    same = first if all(on == first for on in see.ins) else see.home
    x = _settled(same, see.home)
    return Rule((x,) * len(see.ins), x)


def _residual(see: Seen) -> Rule:
    return Rule((see.home,) * len(see.ins), see.home)


def _attention(see: Seen) -> Rule:
    """Queries, keys and values (batch, sequence, heads * head size)."""
    query, keys = _settled(see.ins[0], see.home), see.ins[1:]
    if query == sharded(2):
        return Rule((query, *(on if on == query else REPLICATED for on in keys)), query)
    if query == sharded(1) and see.attention == "heads":
        return Rule((sharded(2),) * 3, sharded(2))
    if query == sharded(1):
        return Rule((query, REPLICATED, REPLICATED), query)
    return Rule((query, query, query), query)


def _latent_attention(see: Seen) -> Rule:
    """Queries, keys, the rotary key that all heads share, and values (arXiv 2405.04434)."""
    query = _settled(see.ins[0], see.home)
    if query == sharded(1) and see.attention == "heads":
        query = sharded(2)
    if query == sharded(2):
        return Rule((query, query, REPLICATED, query), query)
    keys = REPLICATED if query == sharded(1) else query
    return Rule((query, keys, keys, keys), query)


def _embedding(see: Seen) -> Rule:
    """Rows of a table (vocabulary, hidden); a vocabulary shard gives pending sums."""
    if see.params[0] == sharded(0):
        return Rule((INVARIANT,), PARTIAL, (see.params[0],))
    ids = INVARIANT if see.whole else see.home
    return Rule((ids,), ids, (_fed(ids),))


def _loss(see: Seen) -> Rule:
    """Cross-entropy, a mean over (batch, sequence); over vocabulary shards it needs statistics."""
    logits = see.ins[0]
    if logits == sharded(2):
        return Rule((logits,), INVARIANT, statistics=True)
    x = logits if logits in (INVARIANT, sharded(0), sharded(1)) else see.home
    return Rule((x,), INVARIANT if x == INVARIANT else PARTIAL)


def _dispatched(on: On) -> On:
    """The layout of tokens (batch, sequence, ...) in the order (expert, batch, sequence, ...)."""
    return on if on.dim is None else sharded(on.dim + 1)


def _dispatch(see: Seen) -> Rule:
    x = _settled(see.ins[0], see.home, 2)
    return Rule((x,), _dispatched(x))


def _combine(see: Seen) -> Rule:
    """Expert outputs weighted by gates; both lie where the tokens live."""
    return Rule((_dispatched(see.home), see.home), see.home)


def _expert(see: Seen) -> Rule:
    """y[e] = x[e] W[e]^T with W of shape (experts, out, in)."""
    weight = see.params[0]
    if weight == sharded(0):
        return Rule((sharded(0),), sharded(0), (weight,))
    if weight == sharded(1):
        return Rule((REPLICATED,), sharded(3), (weight,))
    if weight == sharded(2):
        return Rule((sharded(3),), PARTIAL, (weight,))
    x = _settled(see.ins[0], _dispatched(see.home), 0, 3)
    return Rule((x,), x, (_fed(x),))


def _opaque(see: Seen) -> Rule:
    """A whole network as one operation: tensor-parallel parts of it meet in one sum."""
    if see.params[0].kind is Kind.SHARDED:
        return Rule((REPLICATED,), PARTIAL, (see.params[0],))
    x = _settled(see.ins[0], see.home)
    return Rule((x,), x, (_fed(x),))


MASK = ".mask"
"""Names of dropout masks end so: what an operation keeps for itself that is one byte or less."""

FLOAT32 = ".float32"
"""Names of what is kept in float32 whatever the width of activations end so."""

RULES: Mapping[str, Callable[[Seen], Rule]] = {
    "embedding": _embedding,
    "norm": _norm,
    "linear": _linear,
    "bias": _bias,
    "activation": _pointwise,
    "multiply": _pointwise,
    "dropout": _pointwise,
    "attention": _attention,
    "head_norm": _head_norm,
    "latent_attention": _latent_attention,
    "add": _residual,
    "dispatch": _dispatch,
    "combine": _combine,
    "expert": _expert,
    "loss": _loss,
    "opaque": _opaque,
}


class Half(Enum):
    """Which gradients a backward run works out; a zero-bubble schedule runs the halves apart."""

    BOTH = "both"
    INPUTS = "inputs"
    WEIGHTS = "weights"


BACKWARD_READS: Mapping[str, tuple[int, ...]] = {
    "embedding": (0,),
    "norm": (0,),
    "linear": (0,),
    "bias": (),
    "activation": (0,),
    "multiply": (0, 1),
    "dropout": (),
    "attention": (0, 1, 2),
    "head_norm": (0,),
    "latent_attention": (0, 1, 2, 3),
    "add": (),
    "dispatch": (),
    "combine": (0, 1),
    "expert": (0,),
    "loss": (0,),
    "opaque": (0,),
}
"""Which inputs the backward step of each kind reads: what a forward pass has to keep."""

PARAMETERS_READ = frozenset({"linear", "expert", "norm", "head_norm", "opaque"})
"""The kinds whose backward step reads the values of their parameters."""

WEIGHTS_READ: Mapping[str, tuple[int, ...]] = {"linear": (0,), "expert": (0,)}
"""The kinds whose backward step comes in two halves (arXiv 2401.10241): which inputs the gradient
of the weight reads. The gradient of the input then reads the others, and the weight."""


def backward_reads(kind: str, half: Half = Half.BOTH) -> tuple[int, ...]:
    """Which inputs a backward step, or a half of it, reads."""
    match half:
        case Half.BOTH:
            return BACKWARD_READS[kind]
        case Half.WEIGHTS:
            return WEIGHTS_READ[kind]
        case Half.INPUTS:
            late = WEIGHTS_READ[kind]
            return tuple(i for i in BACKWARD_READS[kind] if i not in late)
