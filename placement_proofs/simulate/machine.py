"""The machine: executes a plan on virtual ranks, one training step after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placement_proofs.mesh import parent
from placement_proofs.plan import Action, Local, Phase, Position, Run, Step, Transfer
from placement_proofs.schedule import Pass, Slot, law_of, slots
from placement_proofs.simulate.data import Source
from placement_proofs.simulate.field import Field
from placement_proofs.simulate.local import Locals
from placement_proofs.simulate.mail import Mail, Meetings, Running, drive
from placement_proofs.simulate.memory import Memory
from placement_proofs.simulate.meters import HeldMeter, TrafficMeter
from placement_proofs.simulate.optimizers import Rule
from placement_proofs.simulate.ranks import World
from placement_proofs.simulate.runs import Runs
from placement_proofs.simulate.site import Setting
from placement_proofs.simulate.state import Frame, new_frame
from placement_proofs.simulate.wire import Wire

Frames = Mapping[int, Frame]
"""The frames of a pass by rank."""


@dataclass
class Machine:
    """A plan on all ranks of a mesh, with what they hold."""

    world: World
    field: Field
    source: Source
    rule: Rule
    traffic: TrafficMeter
    held: HeldMeter
    memory: Memory = dataclasses.field(init=False)
    frames: dict[tuple[int, int], Frames] = dataclasses.field(default_factory=dict)
    done: int = 0
    """Steps done by all stages."""

    def __post_init__(self) -> None:
        self.memory = Memory(self.world, self.field, self.held, self.source.parameters())
        values = self.world.plan.values.values()
        self.silent = {v.name for v in values if v.integer} | set(self.source.inputs())
        self.mail = Mail()
        self.setting = Setting(loss=self.world.plan.loss)
        self.runs = Runs(self.world, self.field, self.source, self.memory, self.setting)
        self.wire = Wire(self.world, self.field, self.memory, self.mail, self.traffic)
        self.meetings = Meetings(self.wire.over_stages)
        self.locals = Locals(self.world, self.field, self.memory, self.wire.exchange, self.rule)

    def step(self, number: int) -> None:
        """One training step.

        Raises:
            CannotRun: a step of the plan does not fit what the ranks hold, or they wait for ever.
        """
        self.setting.step, self.locals.turn = number, number + 1
        plan = self.world.plan
        self.memory.count_tokens(self.setting)
        programs = {position.name: self.position(position) for position in plan.positions}
        drive(programs, lambda: self.done)
        self.mail.check_empty()
        self.traffic.running = False

    def position(self, position: Position) -> Running:
        """The program of the ranks of a pipeline position."""
        plan = self.world.plan
        stages = [stage for stage, _ in position.stages]
        for k in stages:
            yield from self.section(k, plan.stages[k].before, {})
        for slot in slots(plan, position, self.world.sizes):
            yield from self.one_pass(stages[slot.chunk], slot)
        yield from self.ending(stages)

    def ending(self, stages: Sequence[int]) -> Running:
        """After the loop. The clip of one stage waits for the squares of all of the position."""
        parts = {k: _parts(self.world.plan.stages[k].after) for k in stages}
        for i in range(3):
            for k in stages:
                yield from self.section(k, parts[k][i], {})
        self.memory.end_step(stages)

    def one_pass(self, stage: int, slot: Slot) -> Running:
        """A micro-batch through a stage: forward, backward, or for the gradients of weights."""
        plan, key = self.world.plan, (stage, slot.micro)
        if slot.kind is Pass.FORWARD:
            self.frames[key] = self.opened(*key)
        yield from self.section(
            stage, getattr(plan.stages[stage], slot.kind.value), self.frames[key]
        )
        if slot.kind is (Pass.WEIGHTS if law_of(plan).apart else Pass.BACKWARD):
            for frame in self.frames.pop(key).values():
                frame.close()

    def opened(self, stage: int, micro: int) -> Frames:
        frames = {r: new_frame(self.held, r, micro, self.silent) for r in self.memory.ranks[stage]}
        self.runs.feed(stage, frames)
        return frames

    def section(self, stage: int, steps: Iterable[Step], frames: Frames) -> Running:
        """Steps in order; yields what it waits for when another position is behind."""
        for step in steps:
            if isinstance(step, Run):
                self.runs.perform(stage, step, frames)
            elif isinstance(step, Transfer):
                yield from self.transfer(stage, step, frames)
            elif step.action is Action.RECEIVE:
                channels = self.wire.channels(stage, step)
                while not self.mail.ready(channels):
                    yield f"{step.items[0].name} of micro-batch {_micro(frames)}"
                self.wire.receive(stage, step, frames)
            else:
                self.locals.perform(stage, step, frames)
            self.done += 1

    def transfer(self, stage: int, step: Transfer, frames: Frames) -> Running:
        axis = self.world.plan.pipeline
        crossing = [a for a in step.axes if parent(a) == axis]
        if step.shift or not crossing:
            self.wire.within(stage, step, frames)
            return
        expected = self.world.sizes.axis(crossing[0])
        ticket = self.meetings.join(stage, step, expected)
        while not ticket.done:
            yield f"{step.kind.value} of {step.items[0].name} over {'*'.join(step.axes)}"


def _parts(after: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step], Sequence[Step]]:
    """The steps before the global norm, those that sum it up, and those from the clip on."""
    norm = next((i for i, step in enumerate(after) if step.where.phase is Phase.CLIP), len(after))
    clip = next((i for i, step in enumerate(after) if _clips(step)), norm)
    return after[:norm], after[norm:clip], after[max(norm, clip) :]


def _clips(step: Step) -> bool:
    return isinstance(step, Local) and step.action is Action.CLIP


def _micro(frames: Frames) -> int:
    return next(iter(frames.values())).micro if frames else 0
