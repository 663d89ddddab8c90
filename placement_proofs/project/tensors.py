"""One parameter of a plan as an element program: uses, contributions, reductions, update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from placement_proofs.layout import Collective, Kind, Layout, shard_axes
from placement_proofs.model import Half
from placement_proofs.plan import (
    Action,
    Buffer,
    Item,
    Local,
    Plan,
    PlanTensor,
    Run,
    Stage,
    Step,
    Transfer,
    What,
)
from placement_proofs.program import (
    ALWAYS,
    Guard,
    Init,
    Loop,
    Move,
    Param,
    Program,
    Reduce,
    Scale,
    Source,
    Term,
    Tick,
    Update,
    Use,
)
from placement_proofs.program import Buffer as Copy
from placement_proofs.program import Step as ElementStep
from placement_proofs.program.expr import names_of, parse_expr
from placement_proofs.project.names import (
    MICRO,
    STEP,
    gathered,
    held,
    lost,
    owner_of,
    sliced,
)

STORED, WHOLE, MASTER, FRESH, TOTAL, ZERO = "w", "u", "m", "g", "G", "z"
TOKENS, COUNT, COUNTED = "tokens", "n", "k"
"""The plan's name for the token count; its family and its buffer in the program."""


@dataclass(frozen=True)
class Copies:
    """Which buffers a tensor needs: a master where the optimizer shards more, a gathered copy."""

    tensor: PlanTensor
    whole: str = WHOLE

    @property
    def master(self) -> str:
        return STORED if self.tensor.optimizer == self.tensor.stored else MASTER

    @property
    def used(self) -> str:
        return self.whole if lost(self.tensor.stored, self.tensor.use) else STORED

    def declared(self) -> Iterator[Copy]:
        yield Copy(STORED, "W", held(self.tensor.stored))
        if self.used == self.whole:
            yield Copy(self.whole, "W", held(self.tensor.use))
        if self.tensor.trainable and self.master == MASTER:
            yield Copy(MASTER, "W", held(self.tensor.optimizer))


@dataclass
class Writer:
    """Translates the steps of one stage that concern one tensor."""

    plan: Plan
    tensor: PlanTensor
    at: Guard = ALWAYS
    families: dict[tuple[str, str], str] = field(default_factory=dict)
    terms: list[Term] = field(default_factory=list)
    whole: str = WHOLE

    @property
    def copies(self) -> Copies:
        return Copies(self.tensor, self.whole)

    @property
    def coefficient(self) -> str:
        """What the specification multiplies every contribution by."""
        if self.plan.loss != "mean":
            return f"1/{COUNT}" if self.plan.loss == TOKENS else "1"
        axes = [a for a in self.plan.mean_axes if a != MICRO or self.looped]
        return f"1/({'*'.join(axes)})" if axes else "1"

    @property
    def looped(self) -> bool:
        return self.plan.micro != 1

    def section(self, steps: Iterable[Step]) -> list[ElementStep]:
        result: list[ElementStep] = []
        for step in steps:
            for made in self.step(step):
                if not (isinstance(made, Use) and result and result[-1] == made):
                    result.append(made)
        return result

    def step(self, step: Step) -> list[ElementStep]:
        match step:
            case Run():
                return self.run(step) if self.tensor.name in step.params else []
            case Transfer() if any(i.name == TOKENS for i in step.items):
                return [Reduce(COUNTED, step.axes, why=_why(step))]
            case Transfer():
                return [s for i in self.mine(step.items) for s in self.transfer(step, i)]
            case Local(action=Action.TICK):
                return []
            case Local():
                return [s for i in self.mine(step.items) for s in self.local(step, i)]

    def mine(self, items: Sequence[Item]) -> list[Item]:
        kinds = (What.PARAMETER, What.GRADIENT)
        return [i for i in items if i.name == self.tensor.name and i.what in kinds]

    # uses and contributions

    def run(self, run: Run) -> list[ElementStep]:
        use = Use(self.copies.used, g=self.at, why=f"{run.kind} {_direction(run)}")
        if not run.backward or not self.tensor.trainable or run.half is Half.INPUTS:
            return [use]
        source = self.source(run, run.uses[run.params.index(self.tensor.name)])
        return [source] if run.half is Half.WEIGHTS else [use, source]

    def source(self, run: Run, use: Layout) -> ElementStep:
        """The contribution of one use; on own axes that carry data, the ranks' sum already."""
        known = len(self.families)
        fed = [a for e in use if e.on.kind is Kind.REPLICATED for a in e.axes]
        summed = tuple(sorted(set(shard_axes(use)) & set(self.plan.mean_axes)))
        loops = [MICRO] if self.looped else []
        over = tuple(sorted({*fed, *summed})) + tuple(loops)
        family = self.families.setdefault((run.kind, run.out), f"c{known}")
        if len(self.families) > known:
            self.terms.append(Term(family, over, self.coefficient))
        return Source(
            FRESH,
            family,
            over,
            summed,
            held(use),
            add=known > 0,
            g=self.at,
            why=f"{run.kind} backward",
        )

    # traffic

    def transfer(self, step: Transfer, item: Item) -> list[ElementStep]:
        if step.kind is Collective.HOST:
            return []
        if item.what is What.PARAMETER:
            return self.parameter(step, item)
        buffer = FRESH if item.buffer is Buffer.MICRO else TOTAL
        why = _why(step)
        axes = tuple(axis.partition(":")[0] for axis in step.axes)
        match step.kind:
            case Collective.REDUCE_SCATTER:
                to = owner_of(lost(item.after, item.before), axes)
                return [Reduce(buffer, axes, to=to, why=why)]
            case Collective.ALL_GATHER:
                return gathered(buffer, lost(item.before, item.after), axes, why)
            case _:
                return [Reduce(buffer, axes, why=why)]

    def parameter(self, step: Transfer, item: Item) -> list[ElementStep]:
        """A gather before use, or the publication of updated parameters."""
        publish = item.buffer is Buffer.STORED
        target, source = (STORED, self.copies.master) if publish else (self.whole, STORED)
        start = self.tensor.optimizer if publish else self.tensor.stored
        first: list[ElementStep] = []
        if item.before == start and target != source:
            first = [Move(target, source, why=_why(step))]
        return first + gathered(target, lost(item.before, item.after), step.axes, _why(step))

    # local steps

    def local(self, step: Local, item: Item) -> list[ElementStep]:
        why = step.why
        match step.action:
            case Action.RELEASE if self.copies.used == self.whole:
                return [Init(self.whole, "released", held=held(self.tensor.use), why=why)]
            case Action.ACCUMULATE:
                return self.accumulate(step)
            case Action.SCALE:
                buffer = FRESH if item.buffer is Buffer.MICRO else TOTAL
                return [Scale(buffer, self.factor(step), why=why)]
            case Action.SLICE:
                return sliced(TOTAL, lost(item.after, item.before), why)
            case Action.UPDATE:
                return [Update(self.copies.master, TOTAL, why=why)]
            case _:
                return []

    def counts(self) -> list[ElementStep]:
        """Each rank's own tokens of the micro-batch, added up over the loop."""
        if self.plan.loss != TOKENS:
            return []
        over = tuple(a for a in self.plan.mean_axes if a != MICRO or self.looped)
        if not self.looped:
            return [Source(COUNTED, COUNT, over, count=True, why="own tokens")]
        first, later = Guard(turns=((MICRO, "first"),)), Guard(turns=((MICRO, "!first"),))
        return [
            Source(COUNTED, COUNT, over, count=True, g=first, why="own tokens"),
            Source(COUNTED, COUNT, over, add=True, count=True, g=later, why="own tokens"),
        ]

    def factor(self, step: Local) -> str:
        if TOKENS in step.factor:
            return step.factor.replace(TOKENS, COUNTED)
        return step.factor if self.looped else step.factor.replace(f"*{MICRO}", "")

    def accumulate(self, step: Local) -> list[ElementStep]:
        if not self.looped or step.overwrite:
            return [Move(TOTAL, FRESH, why=step.why)]
        first, later = Guard(turns=((MICRO, "first"),)), Guard(turns=((MICRO, "!first"),))
        return [
            Move(TOTAL, FRESH, g=first, why=step.why),
            Move(TOTAL, FRESH, add=True, g=later, why=step.why),
        ]


def _direction(run: Run) -> str:
    return "backward" if run.backward else "forward"


def _why(step: Transfer) -> str:
    return f"{step.kind.value} over {'*'.join(step.axes)}: {step.why}"


def project_tensor(plan: Plan, stage: Stage, tensor: PlanTensor) -> Program:
    """The element program of a tensor that one stage uses."""
    writer = Writer(plan, tensor)
    body = _body(writer, stage)
    return assembled(plan, writer.terms, list(writer.copies.declared()), body)


def _body(writer: Writer, stage: Stage) -> list[ElementStep]:
    before = writer.section(stage.before)
    passes = writer.counts() + writer.section((*stage.forward, *stage.backward, *stage.weights))
    after = writer.section(stage.after)
    looped: list[ElementStep] = [Loop(MICRO, tuple(passes))] if writer.looped else passes
    return [*before, *looped, *after]


def assembled(
    plan: Plan, terms: Sequence[Term], buffers: list[Copy], body: list[ElementStep]
) -> Program:
    """Axes are those the program names; one training step repeats."""
    param = Param("W", tuple(terms))
    steps = (Loop(STEP, (*body, Tick())),)
    loops = (STEP, MICRO) if plan.micro != 1 else (STEP,)
    axes = tuple(a for a in plan.mesh.names if a in _named(terms, buffers, body))
    return Program(axes, loops, (param,), tuple(buffers), steps)


def _named(terms: Sequence[Term], buffers: Sequence[Copy], body: Sequence[ElementStep]) -> set[str]:
    names = {a for t in terms for a in t.over} | {a for b in buffers for a, _ in b.held}
    for step in _flat(body):
        names |= {a for a, _ in step.g.at}
        if isinstance(step, Reduce):
            names |= set(step.axes)
        if isinstance(step, Source):
            names |= set(step.over)
        if isinstance(step, Scale):
            names |= set(names_of(parse_expr(step.by)))
    return names.union(*(names_of(parse_expr(term.coef)) for term in terms))


def _flat(steps: Iterable[ElementStep]) -> Iterator[ElementStep]:
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from _flat(step.body)
