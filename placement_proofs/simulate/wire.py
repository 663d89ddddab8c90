"""Transfers between what ranks hold: within a stage, over stages, by message, to the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from placement_proofs.layout import Collective
from placement_proofs.plan import Buffer, Item, Local, Transfer, What
from placement_proofs.simulate.field import Array, Field
from placement_proofs.simulate.mail import Channel, Mail
from placement_proofs.simulate.memory import Memory
from placement_proofs.simulate.meters import TrafficMeter
from placement_proofs.simulate.ranks import World
from placement_proofs.simulate.state import Frame
from placement_proofs.simulate.transfers import Exchange


@dataclass
class Wire:
    """Executes transfers and counts them."""

    world: World
    field: Field
    memory: Memory
    mail: Mail
    traffic: TrafficMeter
    exchange: Exchange = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.exchange = Exchange(self.world, self.field)

    def within(self, stage: int, step: Transfer, frames: Mapping[int, Frame]) -> None:
        """A transfer whose ranks all run the same stage, or a message to another stage."""
        ranks = self.memory.ranks[stage]
        for rank in ranks:
            self.traffic.count(step, rank)
        if step.kind is Collective.HOST:
            self._host(stage, step, frames)
        elif step.kind is Collective.POINT_TO_POINT:
            self._send(stage, step, frames)
        else:
            for item in step.items:
                parts = {r: self.memory.read(stage, r, item, frames.get(r)) for r in ranks}
                results = self.exchange.collective(step.kind, step.axes, item, parts)
                for rank, array in results.items():
                    self.memory.write(stage, rank, item, frames.get(rank), array)

    def over_stages(self, members: Mapping[int, Transfer]) -> None:
        """A collective whose members are ranks of several stages, outside of the loop."""
        stage_of = {r: k for k in members for r in self.memory.ranks[k]}
        for rank, k in stage_of.items():
            self.traffic.count(members[k], rank)
        first = next(iter(members.values()))
        for i, shared in enumerate(first.items):
            items: dict[int, Item] = {k: step.items[i] for k, step in members.items()}
            parts = {r: self.memory.read(k, r, items[k], None) for r, k in stage_of.items()}
            results = self.exchange.collective(first.kind, first.axes, shared, parts)
            for rank, array in results.items():
                self.memory.write(stage_of[rank], rank, items[stage_of[rank]], None, array)

    # messages

    def _send(self, stage: int, step: Transfer, frames: Mapping[int, Frame]) -> None:
        target = stage + step.shift
        for rank, frame in frames.items():
            for item in step.items:
                array = self.memory.read(stage, rank, item, frame)
                self.mail.send((target, self._neighbour(rank, step), item.what), array)

    def _neighbour(self, rank: int, step: Transfer) -> int:
        """The rank at the same place of the position that a message goes to."""
        group = self.world.members(rank, step.axes)
        return group[(group.index(rank) + step.shift) % len(group)]

    def channels(self, stage: int, step: Local) -> list[Channel]:
        """The channels that a receiving step of a stage reads."""
        return [(stage, r, item.what) for r in self.memory.ranks[stage] for item in step.items]

    def receive(self, stage: int, step: Local, frames: Mapping[int, Frame]) -> None:
        """Take the messages of a receiving step."""
        for rank, frame in frames.items():
            for item in step.items:
                array = self.mail.take((stage, rank, item.what))
                self.memory.write(stage, rank, item, frame, array)

    # host link

    def _host(self, stage: int, step: Transfer, frames: Mapping[int, Frame]) -> None:
        for rank in self.memory.ranks[stage]:
            for item in step.items:
                if item.what is What.ACTIVATION:
                    _swap(frames[rank], item.name, to_host=step.shift < 0)
                else:
                    self._copy(stage, rank, item)

    def _copy(self, stage: int, rank: int, item: Item) -> None:
        """Gradients go to the optimizer's host; parameters come back or are fetched for a use."""
        store = self.memory.stores[stage, rank]
        if item.what is What.GRADIENT:
            store.host.put(item.name, store.total.get(item.name))
        elif item.buffer is Buffer.MASTER:
            array: Array = store.master.get(item.name)
            self.memory.refresh(stage, rank, item.name, item.before, array)
        else:
            store.gathered.put(item.name, store.stored.get(item.name))
            store.layouts[item.name] = item.after


def _swap(frame: Frame, name: str, *, to_host: bool) -> None:
    """Copy a value to the host, or bring it back; the plan says when the device drops it."""
    if to_host:
        frame.away[name] = frame.values.get(name)
    else:
        frame.values.put(name, frame.away.pop(name))
