"""Degrees of a mesh as strategies, as the frameworks of the FSDP and Megatron families lay them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from placement_proofs import strategies
from placement_proofs.composition import Strategy, compose
from placement_proofs.configs.document import Block, Section, Value
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.record import Batch, Dtypes, Imported, Kind
from placement_proofs.mesh import Dim


@dataclass(frozen=True)
class Degrees:
    """Sizes of a mesh in ranks; ``shard`` counts the ranks of the experts where ``borrowed``.

    ``over_experts``: the states of dense layers are sharded over the experts' ranks too.
    """

    replicate: Dim = 1
    shard: Dim = 1
    cp: int = 1
    sp: int = 1
    ep: int = 1
    tp: int = 1
    pp: int = 1
    cp_method: str = "all-gather"
    sequence: bool = False
    vocabulary: bool = True
    borrowed: bool = False
    over_experts: bool = True

    @property
    def data(self) -> Dim:
        """The size of the data axis beside the experts' axis; a symbol stays one."""
        if not self.borrowed or self.ep == 1 or not isinstance(self.shard, int):
            return self.shard
        return self.shard // self.ep

    @property
    def expert_axis(self) -> int:
        """``ep`` where it fits into the data ranks, else 1."""
        borrowed = self.borrowed and isinstance(self.shard, int)
        fits = not borrowed or (isinstance(self.shard, int) and self.shard % self.ep == 0)
        return self.ep if fits else 1


def sharded_parts(degrees: Degrees, notes: Notes, *, reshard: bool = True) -> list[Strategy]:
    """FSDP over the data ranks (and context and expert ranks), replicas, and the other axes."""
    own = _fitted(degrees, notes)
    axes = {"cp": own.cp, "sp": own.sp, "ep": own.ep if own.over_experts else 1}
    over = tuple(name for name, size in axes.items() if size > 1)
    parts: list[Strategy] = []
    if not over and own.replicate != 1 and own.data != 1:
        hybrid = strategies.hsdp(
            dp_replicate=own.replicate, dp_shard=own.data, reshard_after_forward=reshard
        )
        return [hybrid, *other_parts(own)]
    if own.replicate != 1:
        parts.append(strategies.place(batch="S(0)", dp_replicate=own.replicate))
    shard_over = ("dp", *over) if over else None
    parts.append(strategies.fsdp(dp=own.data, reshard_after_forward=reshard, shard_over=shard_over))
    parts += other_parts(own)
    if "ep" not in over:
        return parts
    if not reshard:
        notes.assume("experts are gathered again in the backward pass; other layers stay gathered")
    return [*parts, *expert_shards(own, "S*", "S", "S")]


def stage_parts(stage: int, degrees: Degrees, notes: Notes) -> list[Strategy]:
    """ZeRO stage 0 or 1 over data, context and expert ranks (Megatron's distributed optimizer)."""
    own = _fitted(degrees, notes)
    if stage == 0:
        return [strategies.data(dp=own.data), *other_parts(own)]
    axes = {"cp": own.cp, "sp": own.sp, "ep": own.ep}
    over = tuple(name for name, size in axes.items() if size > 1)
    data = strategies.zero1(dp=own.data, shard_over=("dp", *over) if over else None)
    experts = expert_shards(own, "R", "S", "R") if own.ep > 1 else []
    return [data, *other_parts(own), *experts]


def expert_shards(own: Degrees, parameters: str, optimizer: str, gradients: str) -> list[Strategy]:
    """Shards of the experts over the ranks that have the same experts: data and context ranks.

    Other layers are sharded over the experts' ranks too, so experts need a placement of their own.
    """
    modes = (parameters, optimizer, gradients)
    axes: dict[str, Dim] = {"dp": own.data, "cp": own.cp, "sp": own.sp}
    return [
        _expert_shard(group, axis, size, modes)
        for axis, size in axes.items()
        if size != 1
        for group in ("expert_in", "expert_out")
    ]


def _expert_shard(group: str, axis: str, size: Dim, modes: tuple[str, str, str]) -> Strategy:
    make = partial(
        strategies.place, group=group, parameters=modes[0], optimizer=modes[1], gradients=modes[2]
    )
    match axis:
        case "dp":
            return make(dp=size)
        case "cp":
            return make(cp=size)
    return make(sp=size)


def _fitted(degrees: Degrees, notes: Notes) -> Degrees:
    """Degrees whose expert axis is an axis of its own beside the data axis."""
    if degrees.expert_axis == degrees.ep:
        return replace(degrees, shard=degrees.data, borrowed=False)
    notes.assume(
        f"groups of {degrees.ep} experts' ranks reach beyond the {degrees.shard} data-parallel "
        "ranks; the composition has no such axis and places experts as other layers"
    )
    return replace(degrees, ep=1, borrowed=False)


def other_parts(degrees: Degrees) -> list[Strategy]:
    """Context, Ulysses, expert and tensor axes above one rank."""
    parts: list[Strategy] = []
    if degrees.cp > 1:
        parts.append(strategies.context(cp=degrees.cp, method=degrees.cp_method))
    if degrees.sp > 1:
        parts.append(strategies.ulysses(sp=degrees.sp))
    if degrees.ep > 1:
        parts.append(strategies.expert(ep=degrees.ep))
    if degrees.tp > 1:
        parts.append(
            strategies.tensor(
                tp=degrees.tp, sequence=degrees.sequence, vocabulary=degrees.vocabulary
            )
        )
    return parts


@dataclass(frozen=True)
class Pipe:
    """A pipeline: ranks, micro-batches (a symbol if unknown), schedule, chunks on a rank."""

    pp: int = 1
    micro: Dim = 1
    schedule: str = "1f1b"
    chunks: int = 1

    def parts(self) -> list[Strategy]:
        """The pipeline, or the accumulation loop without one."""
        if self.pp == 1:
            return [strategies.accumulate(micro=self.micro)] if self.micro != 1 else []
        interleaved = self.chunks > 1
        schedule = "interleaved" if interleaved else self.schedule
        return [
            strategies.pipeline(
                pp=self.pp, microbatches=self.micro, schedule=schedule, chunks=self.chunks
            )
        ]


@dataclass(frozen=True)
class Result:
    """What a format's own part of an import comes to."""

    parts: Iterable[Strategy]
    world: World
    batch: Batch
    dtypes: Dtypes


def imported(format: str, path: Path, result: Result, notes: Notes) -> Imported:
    """The record of an import; a single rank where no strategy is left."""
    parts = tuple(result.parts) or (strategies.single(),)
    return Imported(
        format,
        str(path),
        compose(*parts),
        result.world.size,
        tuple(notes.fields),
        tuple(notes.findings),
        result.batch,
        result.dtypes,
        tuple(notes.assumptions),
    )


def given_world(world: int | None) -> World:
    """The world of the command line, or an unknown one."""
    return World(world, "", "unknown" if world is None else "cli or environment")


def named_product(sizes: Mapping[str, int]) -> str:
    """``tp 2 * pp 4`` for messages; degrees of one are left out unless all are."""
    shown = [f"{name} {size}" for name, size in sizes.items() if size != 1]
    return " * ".join(shown or [f"{name} {size}" for name, size in sizes.items()])


def add_degree(name: str, size: Dim, place: str, notes: Notes, note: str = "") -> None:
    """Record a degree that was computed; a symbol is unknown."""
    known = isinstance(size, int)
    notes.add(name, size, "derived" if known else "unknown", place, note)


def repeated_keys(
    file: str, block: Block, notes: Notes, where: str, kind: Kind = "ignored"
) -> None:
    """Keys that a YAML file gives twice: the last one wins, unless the framework refuses them."""
    what = "the last one wins" if kind == "ignored" else "the framework refuses the file"
    for key, line in block.repeated:
        notes.find(
            kind,
            "key given twice",
            f"{file}:{line} {key[:60]}",
            f"{key[:60]} is given twice; {what}",
            "keep one of the two",
            where,
        )
    for item in block.items.values():
        for inner in _blocks(item.value):
            repeated_keys(file, inner, notes, where, kind)


def _blocks(value: Value) -> list[Block]:
    if isinstance(value, Block):
        return [value]
    return [b for v in value for b in _blocks(v)] if isinstance(value, tuple) else []


def unknown_keys(
    section: Section, known: frozenset[str], kind: Kind, who: str, where: str, notes: Notes
) -> None:
    """A finding for every key of a section that the framework does not know."""
    for key in section:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
            notes.find(
                kind,
                "unknown key",
                section.place(key),
                f"{who} does not know the key {key[:60]!r}",
                f"did you mean {close[0]}?" if close else "remove it, or correct its name",
                where,
            )


def misspelt_keys(
    section: Section, known: frozenset[str], kind: Kind, who: str, where: str, notes: Notes
) -> None:
    """A finding for keys that are nearly one of ``known``, where not every key is listed here."""
    for key in section:
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.88)
        if key not in known and close:
            notes.find(
                kind,
                "unknown key",
                section.place(key),
                f"{who} does not know the key {key[:60]!r}",
                f"did you mean {close[0]}?",
                where,
            )


def auto_values(
    section: Section, known: frozenset[str] | None, who: str, where: str, notes: Notes
) -> None:
    """``auto`` in keys that nobody fills; ``known`` are the keys to look at (all if ``None``)."""
    for key in section:
        if section.is_auto(key) and (known is None or key in known):
            notes.find(
                "rejected",
                "auto needs a filler",
                section.place(key),
                f"{who} does not fill auto in {key[:60]}; its default is taken",
                "write a value, or remove the key",
                where,
            )


def one_rank(shard: Dim, place: str, notes: Notes) -> None:
    """Sharding over a group of one saves nothing."""
    if shard == 1:
        notes.find(
            "unlikely",
            "sharding over one rank",
            place,
            "the states are sharded over one rank: nothing is saved",
            "use more data-parallel ranks, or leave sharding off",
            "not a rule of the framework: a share of one is the whole",
        )
