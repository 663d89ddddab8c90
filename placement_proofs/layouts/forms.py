"""Forms: memory and step time of a kind of layouts, as formulas in its degrees.

Memory and traffic are those of the plan that the kind's composition has on the model with its
kernels (:mod:`placement_proofs.cost`). The symbols are

- of the layout: ``t p d c e`` (degrees), ``b`` (sequences of a micro-batch), ``m`` (micro-batches);
- of the model: its sizes (``h f V s L a akv hkv`` and more);
- of the machine: ``flops``, ``bandwidth``, ``inside``, ``between`` (bytes/s of links), their
  latencies, ``node`` (devices of a node);
- the constants (:mod:`placement_proofs.layouts.constants`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from placement_proofs.cost import symbols
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.measure import largest
from placement_proofs.cost.memory import memory
from placement_proofs.cost.symbols import Expr, SymSizes, symbol
from placement_proofs.derive import derive
from placement_proofs.layouts.kernels import ATTENTION, with_kernels
from placement_proofs.layouts.links import seconds
from placement_proofs.layouts.setting import Job, Kind
from placement_proofs.layouts.stages import OF_STAGE, staged
from placement_proofs.layouts.work import Work, work_of
from placement_proofs.models import Shape, transformer
from placement_proofs.plan import Plan
from placement_proofs.profile import PAPER


@dataclass(frozen=True)
class Forms:
    """Formulas of a kind of layouts.

    Attributes:
        kind: whose they are.
        memory: bytes that a rank holds by ``position term``, such as ``last saved activations``.
        peaks: the same with what the allocator takes beside, and the reserve.
        peak: bytes of the fullest rank: the largest sum of ``peaks`` over positions.
        slots: seconds of one micro-batch by ``position term``.
        time: seconds of a training step by term; they add up to the step.
        step: seconds of a training step.
    """

    kind: Kind
    memory: Mapping[str, Expr]
    peaks: Mapping[str, Expr]
    peak: Expr
    slots: Mapping[str, Expr]
    time: Mapping[str, Expr]
    step: Expr


def forms(kind: Kind, job: Job) -> Forms:
    """The formulas of a kind on the job's model; sizes stay symbols.

    Raises:
        IllFormed: the kind has no plan on the model.
    """
    return _forms(
        kind, _structure(job.shape), job.convention, job.vocabulary, job.whole_logits, job.repeats
    )


@lru_cache(maxsize=1024)
def _forms(
    kind: Kind,
    shape: Shape,
    convention: Convention,
    vocabulary: bool,
    whole_logits: bool,
    repeats: bool,
) -> Forms:
    plan, sizes = _symbolic(kind, shape, vocabulary, repeats)
    inner, inside = plan, sizes
    if not kind.pipeline:
        inner, inside = _symbolic(replace(kind, pipeline=True), shape, vocabulary, repeats)
    names = [p.name for p in plan.positions]
    ends = [name for name in names if name != MIDDLE]
    logits = _logits(plan, sizes) * symbol("y")
    if whole_logits and kind.tensor and vocabulary:
        logits = _logits(plan, sizes) * symbol("t") * (symbol("y") + GATHERED_LOGIT)
    held = _memory(plan, sizes, convention, ends, _layer(inner, inside, convention), logits)
    held = {k: staged(x, kind, k) for k, x in held.items()}
    work = {n: work_of(plan, sizes, convention, n, kind.attention, kind.norm) for n in names}
    slots = {f"{n} {term}": x for n in names for term, x in _slot(work[n], kind, sizes).items()}
    slots = {k: staged(x, kind, k) for k, x in slots.items()}
    time = _time(kind, slots, work, sizes)
    time["update"] = 2 * symbols.largest([held[f"{n} optimizer"] for n in ends]) / _reading()
    peaks = _peaks(held, ends)
    peak = symbols.largest([_at(peaks, n) for n in ends])
    return Forms(kind, held, peaks, peak, slots, time, symbols.total(time.values()))


def _at(terms: Mapping[str, Expr], position: str) -> Expr:
    """The sum of the terms of a position."""
    return symbols.total(x for k, x in terms.items() if k.startswith(f"{position} "))


def _structure(shape: Shape) -> Shape:
    """A shape with other numbers and the same formulas: only what is present counts."""
    return replace(
        shape,
        layers=4,
        hidden=64,
        heads=8,
        kv_heads=8,
        ffn=128,
        vocabulary=64,
        sequence=16,
        experts=4 if shape.experts else 0,
        top_k=2 if shape.experts and shape.top_k > 1 else 1,
        shared_ffn=128 if shape.experts and shape.shared_ffn else 0,
        head_dim=16 if shape.query == "ha" else 0,
        positions=16 if shape.positions else 0,
        fused_attention=True,
        micro_batch=1,
    )


def _symbolic(kind: Kind, shape: Shape, vocabulary: bool, repeats: bool) -> tuple[Plan, SymSizes]:
    """The plan of a kind, and sizes with a symbol for every degree."""
    model = with_kernels(transformer(shape, folded=True), kind.attention, kind.norm)
    profile = replace(PAPER, recompute_all=repeats)
    plan = derive(kind.composition(vocabulary=vocabulary), model, profile)
    sizes = symbols.symbolic_sizes(plan, model)
    if "pp" not in sizes.axes:
        return plan, sizes
    share = "L/pp" if kind.chunks == 1 else f"L/pp/{kind.chunks}"
    axes = {**sizes.axes, "pp": symbol("p")}
    return plan, replace(sizes, axes=axes, known={share: OF_STAGE})


def _layer(plan: Plan, sizes: SymSizes, convention: Convention) -> Expr:
    """What the fullest moment of a layer holds beside what is saved (bytes)."""
    held = memory(plan, sizes, convention, MIDDLE)
    return held.peak - held.persistent - held.saved


def _memory(
    plan: Plan,
    sizes: SymSizes,
    convention: Convention,
    names: list[str],
    layer: Expr,
    logits: Expr,
) -> dict[str, Expr]:
    """Bytes by position and term. Middle stages hold no more than the first one.

    At the end that has the loss, logits come on top of what a layer holds: the allocator gives
    free blocks of one size to others only in part. The sum is never below the peak of the plan.
    """
    found: dict[str, Expr] = {}
    for name in names:
        held = memory(plan, sizes, convention, name)
        saved, beside = held.saved, held.peak - held.persistent - held.saved
        found |= {f"{name} {state}": x for state, x in held.by.items()}
        if name != FIRST:
            kept = (convention.logits or convention.activation) * _logits(plan, sizes)
            saved, beside = saved - kept, symbols.largest([layer, beside + kept - logits])
            found[f"{name} {LOGITS}"] = logits
        found[f"{name} {SAVED}"] = saved
        found[f"{name} {LAYER}"] = beside
    return found


def _logits(plan: Plan, sizes: SymSizes) -> Expr:
    """Elements of the logits on a rank."""
    value = next(value for value in plan.values.values() if value.logits)
    return largest(sizes).elements(value.shape, value.layout)


FIRST, MIDDLE = "first", "middle"
SAVED = "saved activations"
LAYER = "within a layer"
LOGITS = "logits"
RESERVE = "reserve"
SLOWEST = "slowest stage"

GATHERED_LOGIT = 4
"""Bytes per logit that a gather over tensor ranks holds: the parts, and their concatenation."""


def _peaks(held: Mapping[str, Expr], names: list[str]) -> dict[str, Expr]:
    """Bytes by position and term with what allocator and libraries take beside."""
    found = dict(held)
    for name in names:
        found[f"{name} {SAVED}"] *= symbol("allocator")
        found[f"{name} {RESERVE}"] = symbol("reserve")
    return found


def _slot(work: Work, kind: Kind, sizes: SymSizes) -> dict[str, Expr]:
    """Seconds of one micro-batch on a rank, by term; traffic that nothing waits for is hidden.

    Gathers of parameters and reductions of gradients in the loop run beside the computation, and
    show where they take longer.
    """
    speed = symbol("flops")
    efficiency = symbols.rational(Fraction(str(ATTENTION[kind.attention].efficiency)))
    found = {
        "matrix products": work.matrix / (speed * symbol("matrix")),
        "attention": work.attention / (speed * efficiency),
        "element-wise": work.elements / _reading(),
        "launches": work.launches * symbol("launch"),
    }
    computing = symbols.total(found.values())
    for message in (m for m in work.messages if m.looped and m.waits):
        name = f"traffic over {'*'.join(message.axes)}"
        found[name] = found.get(name, 0) + seconds(message, sizes.axes)
    hidden = [seconds(m, sizes.axes) for m in work.messages if m.looped and not m.waits]
    if hidden:
        beside = symbols.total(hidden)
        found["gathers that show"] = symbols.largest([beside - computing, symbols.total([])])
    return found


def _reading() -> Expr:
    """Bytes a second that element-wise operations read and write."""
    return symbol("bandwidth") * symbol("memory")


def _time(
    kind: Kind, slots: Mapping[str, Expr], work: Mapping[str, Work], sizes: SymSizes
) -> dict[str, Expr]:
    """Seconds of a training step by term.

    All micro-batches pass the slowest stage; the first one also passes the others, which with
    ``v`` chunks takes a ``v``-th of their time (arXiv 2104.04473, section 2.2).
    """
    stages = {n: _at(slots, n) for n in work}
    slowest = symbols.largest(list(stages.values()))
    found = {SLOWEST: sizes.micro * slowest}
    if kind.pipeline:
        between = (sizes.axes["pp"] - 2) * stages[MIDDLE]
        ends = symbols.total(x for n, x in stages.items() if n != MIDDLE)
        found["bubble"] = (ends + between - slowest) / kind.chunks
    once = {n: [m for m in w.messages if not m.looped] for n, w in work.items()}
    reductions = [
        staged(symbols.total(seconds(m, sizes.axes) for m in messages), kind, f"{name} once")
        for name, messages in once.items()
    ]
    found["reduction and publishing"] = symbols.largest(reductions)
    return found
