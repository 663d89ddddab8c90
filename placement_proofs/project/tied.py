"""A tensor with copies on the first and the last pipeline stage as one element program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest

from placement_proofs.plan import Plan, Stage
from placement_proofs.program import Buffer as Copy
from placement_proofs.program import Guard, Loop, Move, Program, Reduce, Scale, Source, Term
from placement_proofs.program import Step as ElementStep
from placement_proofs.project.names import MICRO, held
from placement_proofs.project.tensors import FRESH, ZERO, Writer, assembled


def project_tied(plan: Plan, name: str) -> Program:
    """A tensor with a copy on the first and on the last stage, as one program.

    The stored copies are one buffer, each end gathers its own; the positions between them hold
    nothing that is read. Where the two stages do the same, all positions do it; where not, each end
    does its own.
    """
    axis = plan.pipeline
    ends = plan.tied(name)
    tensor = next(t for t in ends[0].tensors if t.name == name)
    families: dict[tuple[str, str], str] = {}
    terms: list[Term] = []
    writers = [
        Writer(plan, tensor, Guard(at=((axis, position),)), families, terms, whole)
        for position, whole in (("first", "u"), ("last", "v"))
    ]
    passes: list[ElementStep] = writers[0].counts()
    passes += [Move(FRESH, ZERO, why="no contribution yet")]
    cut = [_cut(writer, stage) for writer, stage in zip(writers, ends, strict=True)]
    passes += [step for uses, _ in cut for step in uses]
    passes += _joined(axis, *(rest for _, rest in cut))
    looped: list[ElementStep] = [Loop(MICRO, tuple(passes))] if writers[0].looped else passes
    ended = [_own(w, w.section(end.after)) for w, end in zip(writers, ends, strict=True)]
    after = [step for own, _ in ended for step in own]
    after += _joined(axis, *(rest for _, rest in ended))
    before = [s for w, end in zip(writers, ends, strict=True) for s in w.section(end.before)]
    copies = dict.fromkeys(copy for writer in writers for copy in writer.copies.declared())
    zero = Copy(ZERO, "", held(tensor.use))
    return assembled(plan, terms, [*copies, zero], [*before, *looped, *after])


def _joined(axis: str, first: list[ElementStep], last: list[ElementStep]) -> list[ElementStep]:
    """The steps of both ends; sums over the stages are one step of both."""
    if first == last:
        return first
    joined: list[ElementStep] = []
    nothing: list[ElementStep] = []
    for here, there in zip_longest(_parts(axis, first), _parts(axis, last), fillvalue=nothing):
        both = [s for s in here if _over_stages(axis, s)] or [
            s for s in there if _over_stages(axis, s)
        ]
        joined += both
        joined += _guarded([s for s in here if s not in both], Guard(at=((axis, "first"),)))
        joined += _guarded([s for s in there if s not in both], Guard(at=((axis, "last"),)))
    return joined


def _parts(axis: str, steps: list[ElementStep]) -> list[list[ElementStep]]:
    """Steps cut before each sum over the stages."""
    parts: list[list[ElementStep]] = [[]]
    for step in steps:
        if _over_stages(axis, step):
            parts.append([])
        parts[-1].append(step)
    return parts


def _over_stages(axis: str, step: ElementStep) -> bool:
    return isinstance(step, Reduce) and axis in step.axes


def _guarded(steps: Iterable[ElementStep], guard: Guard) -> list[ElementStep]:
    return [
        step
        if isinstance(step, Loop) or step.g.at
        else replace(step, g=replace(step.g, at=guard.at))
        for step in steps
    ]


def _cut(writer: Writer, stage: Stage) -> tuple[list[ElementStep], list[ElementStep]]:
    """One end's passes up to its last contribution, and what follows; contributions add up.

    A reduction that comes too early is this end's own.
    """
    steps = writer.section((*stage.forward, *stage.backward))
    last = max((i for i, s in enumerate(steps) if isinstance(s, Source)), default=-1)
    uses: list[ElementStep] = []
    for step in steps[: last + 1]:
        if isinstance(step, Source):
            uses.append(replace(step, add=True))
        else:
            uses += _guarded([step], writer.at) if _changes(step) else [step]
    own, rest = _own(writer, steps[last + 1 :])
    return uses + own, rest


def _own(
    writer: Writer, steps: Sequence[ElementStep]
) -> tuple[list[ElementStep], list[ElementStep]]:
    """Steps on an end's gathered copy, which nobody else reads, and the others."""
    own = [s for s in steps if writer.whole in (getattr(s, "dst", ""), getattr(s, "buf", ""))]
    return own, [s for s in steps if s not in own]


def _changes(step: ElementStep) -> bool:
    """Whether a step changes or hands on the gradient of the micro-batch."""
    return (isinstance(step, Reduce | Scale) and step.buf == FRESH) or (
        isinstance(step, Move) and step.src == FRESH
    )
