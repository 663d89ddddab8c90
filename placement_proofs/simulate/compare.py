"""Two machines side by side: a plan and one device, step by step."""

from __future__ import annotations

from placement_proofs.composition import Composition
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import IntSizes
from placement_proofs.model import Model
from placement_proofs.plan import Action, Local, Plan
from placement_proofs.simulate.data import Source
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Field
from placement_proofs.simulate.machine import Machine
from placement_proofs.simulate.meters import Held, HeldMeter, TrafficMeter
from placement_proofs.simulate.optimizers import Rule
from placement_proofs.simulate.ranks import World
from placement_proofs.simulate.result import Difference, RankMeters, Simulation


def one_device(plan: Plan, model: Model) -> Plan:
    """The plan of one rank on the same model, with a global norm if the plan has one."""
    norms = (Action.SQUARE, Action.CLIP)
    clipping = any(isinstance(s, Local) and s.action in norms for _, _, s in plan.steps())
    return derive(Composition(()), model, clipping=clipping, loss=plan.loss)


def runs(
    world: World, model: Model, field: Field, rule: Rule, seed: int
) -> tuple[Machine, Machine]:
    """A machine for the plan and one for a single device, with the same parameters and batches.

    Raises:
        IllFormed: the plan's layers are folded.
    """
    _check_unfolded(world)
    sizes = IntSizes({"micro": 1}, world.sizes.symbols)
    alone = World(one_device(world.plan, model), sizes, ({},))
    machine, reference = (_machine(w, model, field, rule, seed) for w in (world, alone))
    return machine, reference


def _machine(world: World, model: Model, field: Field, rule: Rule, seed: int) -> Machine:
    source = Source(model, world, field, seed)
    return Machine(world, field, source, rule, TrafficMeter(world), HeldMeter())


def _check_unfolded(world: World) -> None:
    times = {t.times for stage in world.plan.stages for t in stage.tensors}
    times |= {step.where.times for _, _, step in world.plan.steps()}
    counts = {count for position in world.plan.positions for _, count in position.stages}
    folded = [t for t in times | counts if world.sizes.dim(t) != 1]
    positions = world.sizes.axis(world.plan.pipeline) if world.plan.pipeline else 1
    if folded or len(world.plan.positions) != positions:
        raise IllFormed(
            "simulate",
            "a plan in which one layer stands for many",
            "a simulation needs the layers and the pipeline positions one by one",
            "derive the plan from a model that is not folded",
        )


def compare(machine: Machine, reference: Machine, steps: int) -> Simulation:
    """Run both and compare all copies of all parameters after every step."""
    difference: Difference | None = None
    failure = ""
    for number in range(steps):
        reference.step(number)
        try:
            machine.step(number)
        except CannotRun as reason:
            failure = str(reason)
            break
        difference = _difference(machine, reference, number + 1)
        if difference:
            break
    equal = not failure and difference is None
    meters = tuple(_meters(machine, rank) for rank in range(len(machine.world.ranks)))
    return Simulation(equal, steps, machine.field.name, difference, failure, meters)


def _difference(machine: Machine, reference: Machine, step: int) -> Difference | None:
    """The first copy that differs from the single device's parameter."""
    whole = reference.memory.stores[0, 0].stored
    world, memory = machine.world, machine.memory
    for (stage, rank), store in memory.stores.items():
        for name, tensor in memory.tensors[stage].items():
            bounds = world.bounds(tensor.shape, tensor.stored, rank)
            expected = whole.get(name)[tuple(slice(a, b) for a, b in bounds)]
            if not machine.field.same(store.stored.get(name), expected):
                return Difference(name, world.ranks[rank], step)
    return None


def _meters(machine: Machine, rank: int) -> RankMeters:
    held = {state: machine.held.gauges(rank, state)[0].peak for state in Held}
    traffic = machine.traffic.lines.get(rank, {})
    peak = machine.held.device[rank].peak
    return RankMeters(machine.world.ranks[rank], dict(traffic), held, peak)
