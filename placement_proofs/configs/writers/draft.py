"""What a writer works on: the reading of a composition, what is lost, and what had to be chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Never

from placement_proofs.configs.degrees import Reading
from placement_proofs.configs.record import Batch, Dtypes
from placement_proofs.errors import IllFormed


@dataclass(frozen=True)
class Loss:
    """A role of the composition that the file does not carry, and why."""

    role: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{WORDS.get(self.role, self.role)} {self.value}: {self.reason}"


@dataclass(frozen=True)
class Chosen:
    """A value that the file needs and the source leaves open."""

    key: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key} {self.value}: {self.reason}"


WORDS: Mapping[str, str] = {
    "shard": "dp",
    "replicate": "dp_replicate",
    "stage": "ZeRO stage",
    "keep": "parameters kept gathered",
    "over": "sharded also over",
    "experts_over": "experts sharded over",
    "sequence": "sequence sharding",
    "vocabulary": "vocabulary sharding",
    "method": "context method",
    "micro": "micro-batches",
}
"""Roles as users write them, where the name is another."""

AXES: Mapping[str, str] = {
    "replicate": "copies of shard groups",
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "sp": "Ulysses",
    "ep": "expert parallelism",
    "pp": "a pipeline",
    "other": "placements written cell by cell",
}
"""Roles without which a file would mean other ranks: they are carried, or nothing is written."""

_GENERIC: Mapping[str, str] = {
    "stage": "states are not sharded so",
    "keep": "no key keeps parameters gathered from the forward to the backward pass",
    "over": "the ranks of the sharding cannot be named",
    "experts_over": "the ranks over which states of experts are sharded cannot be named",
    "sequence": "no key shards the residual stream over tensor ranks",
    "vocabulary": "embedding and head are sharded over tensor ranks",
    "replicate_kv": "it follows from the number of key and value heads, not from a key",
    "method": "no key chooses how attention meets the keys of other ranks",
    "schedule": "no key chooses the schedule",
    "chunks": "no key cuts a rank's layers into chunks",
    "micro": "no key counts micro-batches",
    "recompute": "no key of the file switches it; the program does",
    "offload": "no key moves these states off the device",
}


@dataclass
class Draft:
    """Collects during one conversion."""

    format: str
    name: str
    reading: Reading
    batch: Batch = field(default_factory=Batch)
    dtypes: Dtypes = field(default_factory=Dtypes)
    tokens: int | None = None
    losses: list[Loss] = field(default_factory=list)
    chosen: list[Chosen] = field(default_factory=list)

    def lose(self, role: str, reason: str = "", value: str = "") -> None:
        """Record what the file does not carry; the first reason for a role and value counts."""
        text = value or shown(getattr(self.reading, role))
        if not any(loss.role == role and loss.value == text for loss in self.losses):
            self.losses.append(Loss(role, text, reason or _GENERIC.get(role, "no key says it")))

    def choose(self, key: str, value: object, reason: str) -> None:
        """Record a value that the source leaves open."""
        self.chosen.append(Chosen(key, str(value), reason))

    def refuse(self, found: str, rule: str, remedy: str) -> Never:
        """Raise: the placement has no expression in this format."""
        raise IllFormed(f"--to {self.format}", found, rule, remedy)

    def limit(
        self, carried: Iterable[str], lost: Mapping[str, str] | None = None, under: str = ""
    ) -> None:
        """Of the roles that are not ``carried``, lose those in ``lost`` and refuse other axes."""
        plain, reasons, kept = Reading(), dict(lost or {}), {*carried, "shard"}
        for role in (f.name for f in fields(Reading) if f.name not in kept):
            if getattr(self.reading, role) == getattr(plain, role):
                continue
            if role in AXES and role not in reasons:
                self._no_axis(role, under)
            self.lose(role, reasons.get(role, ""))

    def _no_axis(self, role: str, under: str) -> Never:
        value = shown(getattr(self.reading, role))
        rule = " ".join(f"a file of {self.name} has no expression of {AXES[role]} {under}".split())
        self.refuse(
            f"{WORDS.get(role, role)} {value}",
            rule,
            "choose another format, or leave that strategy out",
        )

    def fixed(self, role: str, value: object, reason: str) -> None:
        """The format has one value of a role; another is lost."""
        if getattr(self.reading, role) != value:
            self.lose(role, reason)

    def sharding(self, over: Iterable[str], reason: str) -> None:
        """The format shards over the data ranks and ``over``, experts over their own copies."""
        if self.reading.stage == 0:
            return
        sizes = {name: getattr(self.reading, name, 1) for name in ("cp", "sp", "ep")}
        sizes["dp"] = self.reading.shard
        expected = frozenset(n for n in over if sizes[n] != 1)
        self.fixed("over", expected, reason)
        if self.reading.shard == 1 and not expected:
            self.lose("stage", "with one data rank there is nothing else to shard over")
        if self.reading.ep != 1:
            own = frozenset(name for name in ({*over} - {"ep"}) | {"dp"} if sizes[name] != 1)
            self.fixed("experts_over", own, "states of experts are sharded over their copies")

    def stages(self, allowed: Iterable[int], remedy: str) -> None:
        """Refuse ZeRO stages that the framework does not have."""
        if self.reading.stage not in allowed:
            rule = f"{self.name} has no expression of ZeRO stage {self.reading.stage}"
            self.refuse(f"ZeRO stage {self.reading.stage}", rule, remedy)

    def elsewhere(self) -> int:
        """The product of degrees that the file leaves to the program."""
        lost = {loss.role for loss in self.losses} & AXES.keys()
        sizes = [getattr(self.reading, role) for role in lost]
        return math.prod(size for size in sizes if isinstance(size, int))

    def number(self, role: str) -> int:
        """A degree as a number.

        Raises:
            IllFormed: it is a symbol.
        """
        value = getattr(self.reading, role)
        if isinstance(value, int):
            return value
        rule = f"a file of {self.name} needs a number here"
        return self.refuse(
            f"{WORDS.get(role, role)}={value}", rule, "pass --world, or write a size"
        )

    def experts(self, key: str) -> int | None:
        """A number of experts that fits the ranks, for the user to replace; none without ranks."""
        if self.reading.ep == 1:
            return None
        reason = "one expert on each rank: write the model's number, a multiple of it"
        self.choose(key, self.number("ep"), reason)
        return self.number("ep")

    def micro_batch(self, key: str) -> int:
        """Samples of a rank and micro-batch; one where the source does not say."""
        if not self.batch.micro_batch:
            self.choose(key, 1, "the source does not say how many samples a rank takes at once")
        return self.batch.micro_batch or 1

    def micro(self, key: str, *, by_total: bool = False) -> int | None:
        """Micro-batches of a step; ``None`` where the source leaves them open.

        ``by_total``: the format derives them from the global batch, which may be known.
        """
        if isinstance(self.reading.micro, int):
            return self.reading.micro
        if not by_total or self.batch.global_batch is None:
            self.lose("micro", f"the source does not say the number; {key} is left out")
        return None

    def away(self, carried: Mapping[str, tuple[str, ...]], reason: str = "") -> dict[str, str]:
        """Offloaded states that the format can store at one of its places; others are lost."""
        kept = {}
        for state, where in sorted(self.reading.offload):
            if where in carried.get(state, ()):
                kept[state] = where
            else:
                self.lose("offload", reason, f"{state} to {where}")
        return kept

    def global_batch(self, key: str) -> int | None:
        """Samples of a step, from which the format derives the micro-batches."""
        steps, ranks = self.micro(key, by_total=True), self.reading.samples
        if steps is None:
            return self.batch.global_batch
        if ranks is not None:
            return (self.batch.micro_batch or 1) * steps * ranks
        if steps > 1:
            self.lose("micro", "the global batch counts all ranks, whose number is open")
        return None


def shown(value: object) -> str:
    """A value of a reading in words."""
    if isinstance(value, frozenset | tuple):
        return ", ".join(sorted(map(str, value))) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
