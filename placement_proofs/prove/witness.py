"""Who holds what around the step to blame: the replay of a counterexample, watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from placement_proofs.program import Program, Step, Update
from placement_proofs.program.backward import derived
from placement_proofs.prove.blame import paths, reads, step_texts, writes
from placement_proofs.prove.counterexample import SEED, Counterexample
from placement_proofs.prove.result import ProgramResult
from placement_proofs.replay import Path, replay, step_name
from placement_proofs.replay.machine import Machine
from placement_proofs.replay.world import Element, Number, Rank, World

Cells: TypeAlias = Mapping[Rank, Mapping[Element, Number]]


@dataclass(frozen=True)
class Moment:
    """What the ranks hold before or after a step, in buffers by name."""

    when: str
    step: Path
    turns: tuple[tuple[str, int], ...]
    buffers: Mapping[str, Cells]


@dataclass
class _Watcher:
    """Keeps the last moments around the step to blame until the fault shows."""

    blamed: Path
    failed: Path
    turns: Mapping[str, int]
    names: tuple[str, ...]
    around: dict[str, Moment] = field(default_factory=dict)
    check: Moment | None = None
    world: World | None = None

    def __call__(self, machine: Machine, when: str) -> None:
        self.world = machine.world
        at_check = machine.path == self.failed and machine.turns == dict(self.turns)
        if machine.path == self.blamed and (self.check is None or at_check):
            self.around[when] = self._moment(machine, when)
        if at_check and when == "before":
            self.check = self._moment(machine, "at the check")

    def _moment(self, machine: Machine, when: str) -> Moment:
        kept = {
            name: {rank: dict(cells) for rank, cells in machine.env[name].data.items()}
            for name in self.names
            if name in machine.env
        }
        return Moment(when, machine.path, tuple(machine.turns.items()), kept)


def witness(program: Program, result: ProgramResult) -> tuple[dict[str, Any], ...]:
    """The moments before and after the step to blame, and where the fault shows, as plain data.

    Each has the step, the turns of the loops, and per rank the values of the buffers that the two
    steps are about. Empty where nothing is refuted.
    """
    found = result.counterexample
    if found is None:
        return ()
    program = derived(result.program or program)
    steps = dict(paths(program.steps))
    blamed = result.blame[0] if result.blame is not None else found.step
    about = [_about(steps[path], found.condition) for path in (blamed, found.step)]
    names = dict.fromkeys(name for some in about for name in some)
    watcher = _Watcher(blamed, found.step, dict(found.turns), tuple(names))
    _replay(program, found, watcher)
    texts = step_texts(program)
    ahead = [watcher.around[when] for when in ("before", "after") if when in watcher.around]
    last = [watcher.check] if watcher.check is not None and blamed != found.step else []
    world = watcher.world
    return tuple(_plain(m, texts[m.step], world) for m in [*ahead, *last] if world is not None)


def _replay(program: Program, found: Counterexample, watcher: _Watcher) -> None:
    """The run that the counterexample describes: in small primes if these show the fault."""
    sizes = {**dict(found.sizes), **dict(found.lengths)}
    if replay(program, sizes, None, watch=watcher).failed(found.condition) is None:
        watcher.around.clear()
        watcher.check = None
        replay(program, sizes, SEED, watch=watcher)


def _about(step: Step, condition: str) -> tuple[str, ...]:
    """The buffers of a step that tell something; of an update, the copy if that is wrong."""
    match step:
        case Update(grad=grad) if condition == "gradient_integrity":
            return (grad,)
        case Update(buf=buf, grad=grad):
            return (buf, grad)
        case _:
            return tuple(dict.fromkeys([*writes(step), *reads(step)]))


def _plain(moment: Moment, text: str, world: World) -> dict[str, Any]:
    return {
        "when": moment.when,
        "step": step_name(moment.step),
        "text": text,
        "turns": dict(moment.turns),
        "ranks": [
            {"rank": dict(zip(world.axes, rank, strict=True)), "holds": _holds(moment, rank, world)}
            for rank in world.ranks
        ],
    }


def _holds(moment: Moment, rank: Rank, world: World) -> list[dict[str, str]]:
    return [
        {"buffer": name, "element": _element(element, world), "value": str(value)}
        for name, cells in moment.buffers.items()
        for element, value in cells.get(rank, {}).items()
    ]


def _element(element: Element, world: World) -> str:
    """Whose part of the tensor it is: ``dp=0`` for the part of the first rank of dp."""
    pairs = zip(world.owner, element, strict=True)
    return ", ".join(f"{axis}={i}" for (axis, _), i in pairs if world.sizes[axis] > 1)
