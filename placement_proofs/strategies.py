"""Strategies: each a few lines of placement. Sizes are integers or symbols (text).

Every function returns a :class:`Strategy`; strategies multiply to a composition. The keyword that
names a size is also the name of the mesh axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from placement_proofs.composition import Argument, Strategy
from placement_proofs.errors import IllFormed
from placement_proofs.layout import INVARIANT, On, sharded
from placement_proofs.mesh import Axis, Dim
from placement_proofs.placement import EVERY, Flow, Mode, Place, Placement, Schedule, State
from placement_proofs.schedule import LAWS


def _strategy(
    name: str,
    sizes: dict[str, Dim | None],
    placement: Placement,
    positional: tuple[str, ...] = (),
    **options: Argument,
) -> Strategy:
    """A strategy; ``options`` that are ``None`` or ``False`` are the defaults and not shown."""
    named = {axis: f"N_{axis}" if size is None else size for axis, size in sizes.items()}
    axes = tuple(Axis(axis, size) for axis, size in named.items())
    shown: dict[str, Any] = named | {k: v for k, v in options.items() if v not in (None, False)}
    return Strategy(name, positional, tuple(shown.items()), axes, placement)


_BATCH = sharded(0)
_SEQUENCE = sharded(1)


def _batch(axis: str) -> Flow:
    """Ranks of ``axis`` see different samples."""
    return Flow(axis, _BATCH, _BATCH)


def _sharded(
    states: Sequence[State],
    axes: tuple[str, ...],
    *,
    gathered: bool = False,
    keep: bool = False,
) -> tuple[Place, ...]:
    """``states`` of every group sharded over ``axes``; parameters gathered before use."""
    return tuple(
        Place(
            state,
            Mode.SHARDED_WITH_GATHER if gathered and state is State.PARAMETERS else Mode.SHARDED,
            axes,
            keep_after_forward=keep and state is State.PARAMETERS,
        )
        for state in states
    )


_ZERO = (State.OPTIMIZER, State.GRADIENTS, State.PARAMETERS)


def single() -> Strategy:
    """One device: every state whole, nothing communicated."""
    return _strategy("single", {}, Placement())


def data(*, dp: Dim | None = None) -> Strategy:
    """Data parallelism: every state replicated, each rank its own samples."""
    return _strategy("data", {"dp": dp}, Placement(flows=(_batch("dp"),)))


def _axes(names: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Axes to shard over; one may be written without a tuple."""
    return (names,) if isinstance(names, str) else names


def _zero(stage: int, dp: Dim | None, shard_over: tuple[str, ...] | None) -> Strategy:
    shard_over = _axes(shard_over)
    places = _sharded(_ZERO[:stage], shard_over or ("dp",), gathered=True)
    placement = Placement(places, (_batch("dp"),))
    return _strategy(f"zero{stage}", {"dp": dp}, placement, shard_over=shard_over)


def zero1(*, dp: Dim | None = None, shard_over: tuple[str, ...] | None = None) -> Strategy:
    """ZeRO stage 1: optimizer state sharded (arXiv 1910.02054).

    ``shard_over`` shards over a product of axes, such as ``("dp", "cp")``.
    """
    return _zero(1, dp, shard_over)


def zero2(*, dp: Dim | None = None, shard_over: tuple[str, ...] | None = None) -> Strategy:
    """ZeRO stage 2: optimizer state and gradients sharded."""
    return _zero(2, dp, shard_over)


def zero3(*, dp: Dim | None = None, shard_over: tuple[str, ...] | None = None) -> Strategy:
    """ZeRO stage 3: optimizer state, gradients and parameters sharded; parameters gathered."""
    return _zero(3, dp, shard_over)


def fsdp(
    *,
    dp: Dim | None = None,
    reshard_after_forward: bool = True,
    shard_over: tuple[str, ...] | None = None,
) -> Strategy:
    """Fully sharded data parallelism (arXiv 2304.11277).

    Without ``reshard_after_forward`` the parameters stay gathered from the forward to the backward
    pass: 2P of traffic instead of 3P.
    """
    keep = not reshard_after_forward
    shard_over = _axes(shard_over)
    places = _sharded(_ZERO, shard_over or ("dp",), gathered=True, keep=keep)
    strategy = _strategy(
        "fsdp", {"dp": dp}, Placement(places, (_batch("dp"),)), shard_over=shard_over
    )
    return _with(strategy, reshard_after_forward=False) if keep else strategy


def hsdp(
    *,
    dp_replicate: Dim | None = None,
    dp_shard: Dim | None = None,
    reshard_after_forward: bool = True,
) -> Strategy:
    """Hybrid sharding: sharded on ``dp_shard``, replicated on ``dp_replicate``."""
    keep = not reshard_after_forward
    places = _sharded(_ZERO, ("dp_shard",), gathered=True, keep=keep)
    flows = (_batch("dp_replicate"), _batch("dp_shard"))
    sizes = {"dp_replicate": dp_replicate, "dp_shard": dp_shard}
    strategy = _strategy("hsdp", sizes, Placement(places, flows))
    return _with(strategy, reshard_after_forward=False) if keep else strategy


def _with(strategy: Strategy, **shown: Argument) -> Strategy:
    """``strategy`` with arguments shown that differ from a default of true."""
    return replace(strategy, arguments=(*strategy.arguments, *shown.items()))


_TENSOR_DIMS = {
    "column": 0,
    "column_bias": 0,
    "kv": 0,
    "kv_bias": 0,
    "row": 1,
    "expert_in": 1,
    "expert_out": 2,
    "matrix": 0,
}
_VOCABULARY_DIMS = {"embedding": 0, "head": 0, "head_bias": 0}

_ALL = (State.PARAMETERS, State.OPTIMIZER, State.GRADIENTS)


def _own_shards(axis: str, dims: dict[str, int]) -> tuple[Place, ...]:
    """Groups whose every state stays sharded on ``axis``, also while it is used."""
    return tuple(
        Place(state, Mode.SHARDED, (axis,), group, dim)
        for group, dim in dims.items()
        for state in _ALL
    )


def tensor(
    *,
    tp: Dim | None = None,
    sequence: bool = False,
    vocabulary: bool = True,
    replicate_kv: bool = False,
) -> Strategy:
    """Tensor parallelism (arXiv 1909.08053), with sequence parallelism (arXiv 2205.05198).

    ``sequence`` shards the residual stream on the sequence between the regions; ``vocabulary``
    shards embedding and head on the vocabulary; ``replicate_kv`` keeps key and value projections
    whole on every rank (needed where there are fewer key-value heads than ranks).
    """
    dims = _TENSOR_DIMS | (_VOCABULARY_DIMS if vocabulary else {})
    if replicate_kv:
        dims = {group: dim for group, dim in dims.items() if not group.startswith("kv")}
    home = _SEQUENCE if sequence else INVARIANT
    placement = Placement(_own_shards("tp", dims), (Flow("tp", INVARIANT, home),))
    options: dict[str, Argument] = {"sequence": sequence, "replicate_kv": replicate_kv}
    strategy = _strategy("tensor", {"tp": tp}, placement, positional=(), **options)
    return strategy if vocabulary else _with(strategy, vocabulary=False)


def pipeline(
    *,
    pp: Dim | None = None,
    microbatches: Dim = 1,
    schedule: str = "1f1b",
    chunks: int = 1,
) -> Strategy:
    """Pipeline parallelism over ``microbatches``, in the order of a named schedule.

    gpipe (arXiv 1811.06965), 1f1b and interleaved (2104.04473; chunks > 1), zb-h1 and zb-h2
    (2401.10241: gradients of weights in a pass of their own).
    """
    if schedule not in LAWS:
        raise IllFormed(
            "pipeline(schedule=...)",
            repr(schedule),
            f"a schedule is one of {', '.join(LAWS)}",
            'write schedule="1f1b"',
        )
    if LAWS[schedule].chunked != (chunks > 1):
        raise IllFormed(
            "pipeline(chunks=...)",
            f"schedule={schedule!r}, chunks={chunks}",
            "interleaved gives each rank two or more chunks of layers, the others one",
            'write schedule="interleaved", chunks=2',
        )
    placement = Placement(micro=microbatches, schedule=Schedule("pp", schedule, chunks))
    return _strategy(
        "pipeline",
        {"pp": pp},
        placement,
        microbatches=microbatches,
        schedule=None if schedule == "1f1b" else schedule,
        chunks=None if chunks == 1 else chunks,
    )


def context(*, cp: Dim | None = None, method: str = "all-gather") -> Strategy:
    """Context parallelism: the sequence sharded everywhere, keys and values exchanged in attention.

    ``method`` is ``"all-gather"`` or ``"ring"`` (arXiv 2310.01889).
    """
    if method not in ("all-gather", "ring"):
        raise IllFormed(
            "context(method=...)",
            repr(method),
            "keys and values meet by all-gather or by ring",
            'write method="ring"',
        )
    placement = Placement(flows=(Flow("cp", _SEQUENCE, _SEQUENCE, method),))
    return _strategy(
        "context", {"cp": cp}, placement, method=None if method == "all-gather" else method
    )


def ulysses(*, sp: Dim | None = None) -> Strategy:
    """Ulysses (arXiv 2309.14509): sequence sharded, exchanged for heads around attention."""
    placement = Placement(flows=(Flow("sp", _SEQUENCE, _SEQUENCE, "heads"),))
    return _strategy("ulysses", {"sp": sp}, placement)


def expert(*, ep: Dim | None = None) -> Strategy:
    """Expert parallelism: experts sharded on ``ep``, whose ranks see different samples.

    ``ep`` is an axis of its own: a job with 8 data-parallel ranks in groups of 4 for the experts
    is ``data(dp=2) * expert(ep=4)``.
    """
    places = _own_shards("ep", {"expert_in": 0, "expert_out": 0})
    return _strategy("expert", {"ep": ep}, Placement(places, (_batch("ep"),)))


def offload(*states: str, to: str = "host") -> Strategy:
    """States stored off the device: ``offload("optimizer", "parameters", to="nvme")``."""
    known = [state.value for state in State]
    wrong = [state for state in states if state not in known]
    if wrong or not states or to not in ("host", "nvme"):
        raise IllFormed(
            "offload(...)",
            ", ".join([*map(repr, states), f"to={to!r}"]),
            f"states are {', '.join(known)}; they go to host or nvme",
            'write offload("optimizer", to="host")',
        )
    if "gradients" in states and "optimizer" not in states:
        raise IllFormed(
            "offload(...)",
            '"gradients" without "optimizer"',
            "gradients leave the device with the optimizer that reads them",
            'write offload("optimizer", "gradients")',
        )
    places = tuple(Place(State(state), Mode.OFFLOADED, where=to) for state in states)
    return _strategy(
        "offload", {}, Placement(places), tuple(states), to=None if to == "host" else to
    )


def recompute(what: str = "full") -> Strategy:
    """Activation recomputation: ``"full"`` blocks, ``"selective"`` (attention core), ``"none"``."""
    if what not in ("full", "selective", "none"):
        raise IllFormed(
            "recompute(...)",
            repr(what),
            "recomputation is none, selective or full",
            'write recompute("full")',
        )
    groups = {"full": ("block",), "selective": ("attention", "latent_attention"), "none": ()}
    places = tuple(
        Place(State.ACTIVATIONS, Mode.MATERIALIZED, group=group) for group in groups[what]
    )
    return _strategy("recompute", {}, Placement(places), (what,))


def accumulate(*, micro: Dim = 1) -> Strategy:
    """Gradient accumulation over ``micro`` micro-batches before one update."""
    return _strategy("accumulate", {}, Placement(micro=micro), micro=micro)


def place(
    *,
    group: str = EVERY,
    parameters: str = "R",
    optimizer: str = "R",
    gradients: str = "R",
    batch: str = "R",
    **sizes: Dim,
) -> Strategy:
    """A placement written directly: modes of one group on one axis.

    ``place(dp=8, parameters="S*", optimizer="S", gradients="S", batch="S(0)")`` is ZeRO-3. A mode
    is ``R``, ``S``, ``S*`` or, on another tensor dim than 0, ``S(1)``, ``S*(1)``; ``batch`` is the
    layout in which the activations enter and live on the axis.
    """
    if len(sizes) != 1:
        raise IllFormed(
            "place(...)",
            f"axes {', '.join(sizes) or 'none'}",
            "beside group, parameters, optimizer, gradients and batch: one axis at a time",
            "correct a name, or multiply one place(...) for each axis",
        )
    (axis,) = sizes
    modes = {
        State.PARAMETERS: parameters,
        State.OPTIMIZER: optimizer,
        State.GRADIENTS: gradients,
    }
    places = tuple(
        Place(state, mode, (axis,), group, dim)
        for state, text in modes.items()
        for mode, dim in [_mode(state, text)]
        if mode is not Mode.REPLICATED
    )
    _, dim = _mode(State.ACTIVATIONS, batch)
    on: On = INVARIANT if batch == "R" else sharded(dim)
    flows = (Flow(axis, on, on),) if group == EVERY or on != INVARIANT else ()
    shown: dict[str, Argument] = {state.value: text for state, text in modes.items() if text != "R"}
    return _strategy(
        "place",
        dict(sizes),
        Placement(places, flows),
        group=None if group == EVERY else group,
        batch=None if batch == "R" else batch,
        positional=(),
        **shown,
    )


def _mode(state: State, text: str) -> tuple[Mode, int]:
    """``"S*(1)"`` as a mode and a tensor dim."""
    word, _, rest = text.partition("(")
    dim = rest.removesuffix(")") or "0"
    known = [m.value for m in (Mode.REPLICATED, Mode.SHARDED, Mode.SHARDED_WITH_GATHER)]
    if word not in known or not dim.isdigit() or (rest and not rest.endswith(")")):
        raise IllFormed(
            f"place({state.value}=...)",
            repr(text),
            "a mode is R, S or S*, with the tensor dim in brackets if it is not 0",
            'write "S", "S*" or "S(1)"',
        )
    return Mode(word), int(dim)
