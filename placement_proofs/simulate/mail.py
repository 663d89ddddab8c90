"""How pipeline positions meet: messages in order, and collectives over stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from placement_proofs.plan import Transfer, What
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array

Running: TypeAlias = Generator[str, None, None]
"""A position's program; it yields what it waits for."""

Channel: TypeAlias = tuple[int, int, What]
"""The stage and rank that a message goes to, and what it carries."""


@dataclass
class Mail:
    """Messages between stages; each channel keeps its order."""

    channels: dict[Channel, deque[Array]] = field(default_factory=dict)

    def send(self, channel: Channel, array: Array) -> None:
        """Put a message at the end of a channel."""
        self.channels.setdefault(channel, deque()).append(array)

    def ready(self, channels: Iterable[Channel]) -> bool:
        """Whether every channel has a message."""
        return all(self.channels.get(c) for c in channels)

    def take(self, channel: Channel) -> Array:
        """The oldest message of a channel."""
        return self.channels[channel].popleft()

    def check_empty(self) -> None:
        """Raises:
        CannotRun: a message was sent and never received.
        """
        for (stage, rank, what), waiting in self.channels.items():
            if waiting:
                raise CannotRun(
                    f"{len(waiting)} messages ({what.value}) to rank {rank} in stage {stage} "
                    "are never received"
                )


@dataclass
class Ticket:
    """One collective over stages, until all positions have come to it."""

    members: dict[int, Transfer] = field(default_factory=dict)
    done: bool = False


@dataclass
class Meetings:
    """Collectives whose members run different programs."""

    perform: Callable[[Mapping[int, Transfer]], None]
    open: dict[tuple[str, ...], Ticket] = field(default_factory=dict)

    def join(self, stage: int, transfer: Transfer, expected: int) -> Ticket:
        """A stage comes to a collective; the last one of ``expected`` performs it for all."""
        ticket = self.open.setdefault(transfer.axes, Ticket())
        ticket.members[stage] = transfer
        if len(ticket.members) == expected:
            kinds = {(t.kind, len(t.items)) for t in ticket.members.values()}
            if len(kinds) > 1:
                raise CannotRun(f"stages meet in different collectives over {transfer.axes}")
            self.perform(ticket.members)
            ticket.done = True
            del self.open[transfer.axes]
        return ticket


def drive(programs: Mapping[str, Running], progress: Callable[[], int]) -> None:
    """Run programs in turn until all have ended; ``progress`` counts the steps that were done.

    Raises:
        CannotRun: every program that is left waits (a deadlock); the message says for what.
    """
    waiting: dict[str, str] = {}
    left = dict(programs)
    while left:
        before = progress(), len(left)
        for name, program in list(left.items()):
            try:
                waiting[name] = next(program)
            except StopIteration:
                del left[name]
                waiting.pop(name, None)
        if left and (progress(), len(left)) == before:
            told = "; ".join(f"{name} waits for {what}" for name, what in waiting.items())
            raise CannotRun(f"deadlock: {told}")
