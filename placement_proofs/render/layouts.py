"""Planned layouts as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from placement_proofs.layouts.bill import Bill, Item, bill
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.devices import Machine
from placement_proofs.layouts.planned import Offer, Planned, Remedy
from placement_proofs.layouts.rank import Change, Comparison, Difference, OutOfReach
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import bullets, columns, paragraph, section, sections
from placement_proofs.render.units import plural
from placement_proofs.verdict import Verdict

TELLING = 0.005
"""Differences below this share of the whole are not told."""
LONGEST = 300
"""Characters of a formula that is shown; longer ones are in the JSON."""


def gib(count: float) -> str:
    """Bytes in GiB (2**30).

    >>> gib(80 * 2**30)
    '80.0 GiB'
    """
    return f"{count / 2**30:.1f} GiB"


def seconds(value: float) -> str:
    """Seconds with four digits.

    >>> seconds(17.3518)
    '17.35 s'
    """
    return f"{value:.4g} s"


def plan_text(
    plan: Planned,
    *,
    top: int,
    front: bool = False,
    remedies: Sequence[Remedy] = (),
    paint: Paint = PLAIN,
) -> str:
    """What is planned: the best that fit, why the first one wins, and what does not fit."""
    parts = [_heading(plan, paint)]
    if len(plan.order):
        offers = plan.top(top)
        parts += [
            section(paint.strong("the fastest that fit"), _offers(offers, plan)),
            _winner(plan, offers[0], paint),
            _separated(plan, paint),
            _faster(plan, paint),
        ]
    else:
        parts += [_nothing(plan, remedies, paint)]
    if front:
        body = _offers(plan.front, plan)
        parts.append(section(paint.strong("front of memory and time (no layout beats both)"), body))
    parts += [_not_offered(plan, paint), _assumptions(plan.job, plan.constants)]
    return sections(parts)


def _heading(plan: Planned, paint: Paint) -> str:
    lines = [_job(plan, paint), _counts(plan, paint)]
    return "\n".join(line for line in lines if line)


def _job(plan: Planned, paint: Paint) -> str:
    job, machine = plan.job, plan.job.machine
    nodes = f"in nodes of {machine.cluster.node} ({machine.cluster.name})"
    title = f"{job.name} on {job.gpus} x {machine.device.title} {nodes}"
    tokens = f"{job.global_batch:,} sequences of {job.shape.sequence:,} tokens in a training step"
    return f"{paint.strong(title)}\n{tokens}"


def _counts(plan: Planned, paint: Paint) -> str:
    table = plan.table
    if not len(table):
        return ""
    classes = f"{table.classes:,} class{'es' if table.classes > 1 else ''}"
    return (
        f"{plural(len(table), 'layout')} in {classes}, each class "
        f"{paint.verdict(Verdict.PROVED)} for all sizes of its axes; "
        f"{len(plan.order):,} fit {gib(plan.limit)}"
    )


def _offers(offers: Sequence[Offer], plan: Planned) -> str:
    head = ("step", "MFU", "memory", "b", "t", "p", "v", "d", "c", "e", "zero", "options")
    rows = [head, *(_row(offer) for offer in offers)]
    keep = [i for i, name in enumerate(head) if name not in "vce" or _varies(rows, i)]
    shown = [tuple(row[i] for i in keep) for row in rows]
    return columns(shown, right=range(len(keep) - 1))


def _varies(rows: Sequence[Sequence[str]], column: int) -> bool:
    return any(row[column] != "1" for row in rows[1:])


def _row(offer: Offer) -> tuple[str, ...]:
    x = offer.layout
    degrees = (x.micro_batch, x.tensor, x.pipeline, x.chunks, x.data, x.context, x.expert, x.zero)
    numbers = (seconds(offer.step), f"{offer.mfu:.1%}", gib(offer.peak), *map(str, degrees))
    return (*numbers, _options(x))


def _options(layout: Layout) -> str:
    words = ["sequence-parallel"] if layout.sequence else []
    words += [f"recompute {layout.recompute}"] if layout.recompute != "none" else []
    words += [layout.attention] if layout.attention != "flash-2" else []
    words += [f"{layout.norm} norms"] if layout.norm != "fused" else []
    return ", ".join(words) or "-"


def _winner(plan: Planned, offer: Offer, paint: Paint) -> str:
    assert plan.bill is not None
    lines = [
        f"  {offer.composition!r}",
        f"  {paint.verdict(offer.proof.verdict)}  {offer.proof.composition}",
        f"  {offer.proof.covers}",
        f"  {layout_words(offer.layout)}",
    ]
    title = paint.strong("the winner")
    return sections([f"{title}\n" + "\n".join(lines), bill_text(plan.bill)])


def layout_words(layout: Layout) -> str:
    """A layout in words."""
    words = [f"micro-batch {layout.micro_batch}", f"attention {layout.attention}"]
    return ", ".join([*words, f"norms {layout.norm}"])


def bill_text(found: Bill) -> str:
    """Terms of a step and of the fullest rank, the largest first."""
    time = columns(_terms(found.time, found.step, seconds), right=(1, 2))
    memory = columns(_terms(found.memory, found.peak, gib), right=(1, 2))
    return sections(
        [
            section(f"time of a step (slowest stage: {found.stage})", time),
            section(f"memory of the fullest rank (stage: {found.fullest})", memory),
        ]
    )


def _terms(
    items: Sequence[Item], whole: float, write: Callable[[float], str]
) -> Iterator[tuple[str, ...]]:
    for item in sorted(items, key=lambda item: -item.value):
        yield item.name, write(item.value), f"{item.value / whole:.1%}"
    yield "total", write(whole), ""


def _separated(plan: Planned, paint: Paint) -> str:
    found = plan.comparison
    if found is None:
        return "no second layout that fits is slower"
    return comparison_text(found, "why it beats the next one", "next", paint)


def comparison_text(found: Comparison, title: str, other: str, paint: Paint = PLAIN) -> str:
    """Why the first of two layouts is faster, and what would make the other one faster."""
    a, b = found.first, found.second
    lines = [
        paint.strong(f"{title}: {seconds(a.step)} < {seconds(b.step)}"),
        paragraph(f"{other}: {b.layout}; {gib(b.peak)}"),
        *_inequalities(found, other),
    ]
    changes = [_change(change) for change in found.changes]
    if found.less_memory is not None:
        changes.append(f"a device had less than {gib(a.peak)} to fill, and at least {gib(b.peak)}")
    wins = (
        section(f"the {other} one would win if", bullets(changes))
        if changes
        else f"within a factor of 1,000, no single figure makes the {other} one win"
    )
    return sections(["\n".join(lines), wins])


def why_not_text(
    asked: str,
    plan: Planned,
    best: Planned,
    found: Comparison | None,
    remedies: Sequence[Remedy] = (),
    paint: Paint = PLAIN,
) -> str:
    """What is said against layouts: the rules they break, that none fits, or that one is faster."""
    parts = [_job(plan, paint)]
    if not len(plan.order):
        parts += [_nothing(plan, remedies, paint), _not_offered(plan, paint)]
    elif found is None:
        title = paint.strong(f"with {asked}: nothing is said against it, it is among the fastest")
        parts.append(section(title, _offers(plan.top(1), plan)))
    else:
        title = f"with {asked}, {len(plan.order):,} of {plural(len(plan.table), 'layout')} fit"
        parts += [
            section(paint.strong(f"{title}; the fastest"), _offers(plan.top(1), plan)),
            section(paint.strong("the fastest of all"), _offers(best.top(1), best)),
            comparison_text(found, "why that one is faster", "asked", paint),
        ]
    return sections([*parts, _assumptions(plan.job, plan.constants)])


def _inequalities(found: Comparison, other: str) -> Iterator[str]:
    """For and against, the decisive terms first, in numbers and in symbols."""
    whole = found.first.step
    telling = [d for d in found.time if abs(d.value) >= TELLING * whole] or list(found.time[:2])
    for_it = [d for d in telling if d.value > 0]
    against = [d for d in telling if d.value < 0]
    for difference in for_it:
        yield from _difference(difference, "saves", other)
    for difference in against:
        yield from _difference(difference, "costs", other)
    if against:
        more, less = sum(d.value for d in for_it), -sum(d.value for d in against)
        yield f"  together: {seconds(less)} lost < {seconds(more)} saved"


def _difference(difference: Difference, verb: str, other: str) -> Iterator[str]:
    a, b = difference.first, difference.second
    values = f"{seconds(a.value if a else 0)} against {seconds(b.value if b else 0)}"
    yield f"  {verb} {seconds(abs(difference.value))} in {difference.name}: {values}"
    for word, item in (("first", a), (other, b)):
        formula = str(item.here) if item else "0"
        if len(formula) <= LONGEST:
            yield paragraph(f"{word}: {formula}", indent=6, hanging=2)


def _change(change: Change) -> str:
    side = "above" if change.then > change.now else "below"
    return (
        f"the {change.name} were {side} {_figure(change.then, change.unit)} "
        f"(now {_figure(change.now, change.unit)})"
    )


SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""), (1e-3, "m"), (1e-6, "u"))


def _figure(value: float, unit: str) -> str:
    """A figure with three digits and a prefix; whole numbers of sequences."""
    if unit == "sequences":
        return f"{value:,.0f} {unit}"
    scale, prefix = next((pair for pair in SCALES if value >= pair[0]), SCALES[-1])
    return f"{value / scale:.3g} {prefix}{unit.replace('bytes', 'B')}"


def _faster(plan: Planned, paint: Paint) -> str:
    found = plan.faster
    if found is None:
        return ""
    lines = [_out_of_reach(found), f"  it would fit and win with {gib(found.peak)} to fill"]
    return section(paint.strong("faster, but it does not fit"), "\n".join(lines))


def _out_of_reach(found: OutOfReach) -> str:
    return f"  {found.layout}: {seconds(found.step)}, {gib(found.peak)}"


def _nothing(plan: Planned, remedies: Sequence[Remedy], paint: Paint) -> str:
    nearest = plan.nearest
    title = paint.strong(f"nothing fits {gib(plan.limit)}")
    if nearest is None:
        return paint.strong("no layout is valid")
    held = bill(nearest.layout, plan.job, plan.constants)
    most = max(held.memory, key=lambda item: item.value)
    lines = [
        "  the nearest is",
        _out_of_reach(nearest),
        f"  {gib(most.value)} of it are {most.name}; it would fit with {gib(nearest.peak)} to fill",
    ]
    for remedy in remedies:
        offer = remedy.offer
        lines.append(
            f"  {remedy.change} this fits: {offer.layout}: {seconds(offer.step)}, {gib(offer.peak)}"
        )
    return "\n".join([title, *lines])


def _not_offered(plan: Planned, paint: Paint) -> str:
    rows = [(f"{count:,}", text) for count, text in plan.table.space.reasons()]
    rows += [
        (f"{count:,}", f"{proof.verdict.value}: {proof.composition}: {proof.reason}")
        for count, proof in plan.table.withheld
    ]
    return section(paint.strong("not offered (layouts, rule)"), columns(rows, right=(0,)))


def _assumptions(job: Job, constants: Constants) -> str:
    texts = [
        "memory and traffic are closed forms of the derived plan; times are of a model with the "
        f"constants: {constants.fitted or 'not fitted'}",
        str(job.convention),
    ]
    return section("assumptions", bullets(texts))


def devices_text(machines: Sequence[Machine], paint: Paint = PLAIN) -> str:
    """Devices and clusters with their figures and sources."""
    head = ("name", "memory", "bf16", "bandwidth", "node", "inside", "between", "cluster")
    rows = [head, *(_machine_row(machine) for machine in machines)]
    sources = [
        section(f"{m.device.name}: {m.device.title}", bullets(_sources(m))) for m in machines
    ]
    return sections([columns(rows, right=range(1, 7)), *sources])


def _machine_row(machine: Machine) -> tuple[str, ...]:
    device, cluster = machine.device, machine.cluster
    return (
        device.name,
        gib(device.memory),
        _figure(device.flops, "FLOP/s"),
        _figure(device.bandwidth, "bytes/s"),
        str(cluster.node),
        _figure(cluster.inside.bandwidth, "bytes/s"),
        _figure(cluster.between.bandwidth, "bytes/s"),
        cluster.name,
    )


def _sources(machine: Machine) -> Iterator[str]:
    yield from (f"{name}: {text}" for name, text in machine.device.sources)
    yield f"links of {machine.cluster.name}: {machine.cluster.source}"
