"""A composition by roles: degrees, sharding, loop, recomputation, offload.

What a writer of another format needs. Compositions that differ in axes of one rank or in spelling
(``fsdp`` and ``zero3``) have the same reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from placement_proofs.composition import Composition, Strategy
from placement_proofs.mesh import Dim

STAGES: Mapping[str, int] = {"data": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "hsdp": 3}
EXPERTS = ("expert_in", "expert_out")


@dataclass(frozen=True)
class Reading:
    """Degrees by role, in ranks; a size may be a symbol.

    ``shard`` are the data ranks over which a ZeRO ``stage`` shards, ``replicate`` the copies of
    such groups; at stage 0 every data rank is in ``shard``. ``over`` are the other axes of the
    sharding (``cp``, ``sp``, ``ep``), ``experts_over`` the axes that shard states of experts
    (``dp`` is one of them). ``keep`` keeps parameters gathered from the forward to the backward
    pass.
    ``micro`` counts micro-batches, with or without a pipeline. ``other`` has no role.
    """

    replicate: Dim = 1
    shard: Dim = 1
    stage: int = 0
    keep: bool = False
    over: frozenset[str] = frozenset()
    experts_over: frozenset[str] = frozenset()
    tp: Dim = 1
    sequence: bool = False
    vocabulary: bool = True
    replicate_kv: bool = False
    cp: Dim = 1
    method: str = "all-gather"
    sp: Dim = 1
    ep: Dim = 1
    pp: Dim = 1
    micro: Dim = 1
    schedule: str = "1f1b"
    chunks: int = 1
    recompute: str = "none"
    offload: frozenset[tuple[str, str]] = frozenset()
    other: tuple[str, ...] = ()

    def away(self, state: str) -> str:
        """Where a state is stored off the device; empty if it is not."""
        return next((where for name, where in self.offload if name == state), "")

    @property
    def world(self) -> int | None:
        """The product of all degrees, where they are numbers."""
        sizes = (self.replicate, self.shard, self.tp, self.cp, self.sp, self.ep, self.pp)
        known = [size for size in sizes if isinstance(size, int)]
        return math.prod(known) if len(known) == len(sizes) else None

    @property
    def samples(self) -> int | None:
        """Ranks with samples of their own: data and expert ranks."""
        sizes = (self.replicate, self.shard, self.ep)
        known = [size for size in sizes if isinstance(size, int)]
        return math.prod(known) if len(known) == len(sizes) else None


def read_degrees(composition: Composition) -> Reading:
    """The roles in a composition; axes of one rank play none."""
    reading = Reading()
    for strategy in composition.strategies:
        reading = _with(reading, strategy)
    return _plain(reading)


def _with(reading: Reading, strategy: Strategy) -> Reading:
    given = dict(strategy.arguments)
    sizes = {axis.name: axis.size for axis in strategy.axes}
    match strategy.name:
        case "data" | "zero1" | "zero2" | "zero3" | "fsdp":
            over = given.get("shard_over")
            return replace(
                reading,
                shard=sizes["dp"],
                stage=STAGES[strategy.name],
                keep=given.get("reshard_after_forward") is False,
                over=frozenset(over if isinstance(over, tuple) else ("dp",)) - {"dp"},
            )
        case "hsdp":
            keep = given.get("reshard_after_forward") is False
            copies, shard = sizes["dp_replicate"], sizes["dp_shard"]
            return replace(reading, replicate=copies, shard=shard, stage=3, keep=keep)
        case "pipeline" | "accumulate":
            return _loop(reading, strategy)
        case "place":
            return _placed(reading, strategy)
        case _:
            return _model_axis(reading, strategy.name, strategy, sizes)


def _model_axis(
    reading: Reading, name: str, strategy: Strategy, sizes: Mapping[str, Dim]
) -> Reading:
    given = dict(strategy.arguments)
    match name:
        case "tensor":
            return replace(
                reading,
                tp=sizes["tp"],
                sequence=bool(given.get("sequence", False)),
                vocabulary=given.get("vocabulary") is not False,
                replicate_kv=bool(given.get("replicate_kv", False)),
            )
        case "context":
            return replace(reading, cp=sizes["cp"], method=str(given.get("method", "all-gather")))
        case "ulysses":
            return replace(reading, sp=sizes["sp"])
        case "expert":
            return replace(reading, ep=sizes["ep"])
        case "recompute":
            return replace(reading, recompute=strategy.positional[0])
        case "offload":
            where = str(given.get("to", "host"))
            states = {(state, where) for state in strategy.positional}
            return replace(reading, offload=reading.offload | states)
    return reading


def _loop(reading: Reading, strategy: Strategy) -> Reading:
    placement = strategy.placement
    micro = placement.micro if placement.micro != 1 else reading.micro
    if placement.schedule is None:
        return replace(reading, micro=micro)
    pp, chunks = strategy.axes[0].size, placement.schedule.chunks
    return replace(reading, pp=pp, micro=micro, schedule=placement.schedule.kind, chunks=chunks)


def _placed(reading: Reading, strategy: Strategy) -> Reading:
    """Copies of shard groups, states of experts sharded apart, or a placement without a role."""
    (axis,) = strategy.axes
    given = {k: v for k, v in strategy.arguments if k != axis.name}
    if given == {"batch": "S(0)"} and axis.name == "dp_replicate":
        return replace(reading, replicate=axis.size)
    if given.get("group") in EXPERTS:
        over = {axis.name} if axis.size != 1 else set()
        return replace(reading, experts_over=reading.experts_over | over)
    return reading if axis.size == 1 else replace(reading, other=(*reading.other, repr(strategy)))


def _plain(reading: Reading) -> Reading:
    """The same placement in its plainest reading."""
    sizes = {"cp": reading.cp, "sp": reading.sp, "ep": reading.ep}
    over = frozenset(name for name in reading.over if sizes.get(name, 2) != 1)
    reading = replace(reading, over=over)
    if reading.shard == 1 and not over:
        reading = replace(reading, stage=0)
    reading = replace(reading, experts_over=_experts_over(reading))
    if reading.stage == 0:
        reading = replace(reading, keep=False, over=frozenset(), experts_over=frozenset())
        reading = _one_data_axis(reading)
    if reading.tp == 1:
        reading = replace(reading, sequence=False, vocabulary=True, replicate_kv=False)
    if reading.cp == 1:
        reading = replace(reading, method="all-gather")
    return replace(reading, schedule="1f1b", chunks=1) if reading.pp == 1 else reading


def _experts_over(reading: Reading) -> frozenset[str]:
    """Sharding of every state applies to experts unless it is over their own axis too."""
    if reading.ep == 1:
        return frozenset()
    common = frozenset() if "ep" in reading.over else reading.over | {"dp"}
    over = reading.experts_over | common
    return over if reading.shard != 1 else over - {"dp"}


def _one_data_axis(reading: Reading) -> Reading:
    copies, shard = reading.replicate, reading.shard
    if isinstance(copies, int) and isinstance(shard, int):
        return replace(reading, replicate=1, shard=copies * shard)
    return replace(reading, replicate=1, shard=copies) if shard == 1 else reading


def differences(one: Reading, two: Reading) -> Iterable[tuple[str, object, object]]:
    """The roles in which two readings differ, with both values."""
    for field in fields(Reading):
        first, second = getattr(one, field.name), getattr(two, field.name)
        if first != second:
            yield field.name, first, second
