"""The batch triple: samples per rank, micro-batches, samples per step."""

from __future__ import annotations

from dataclasses import dataclass

from placement_proofs import strategies
from placement_proofs.composition import Strategy
from placement_proofs.configs.document import Section
from placement_proofs.configs.notes import MICRO, Notes, nearest_multiple
from placement_proofs.configs.record import Batch, Provenance
from placement_proofs.mesh import Dim

GLOBAL = "train_batch_size"
MICRO_BATCH = "train_micro_batch_size_per_gpu"
ACCUMULATION = "gradient_accumulation_steps"
KEYS = (MICRO_BATCH, ACCUMULATION, GLOBAL)
NAMES = ("micro_batch", "accumulation", "global_batch")
_WHERE = "runtime/config.py (_set_batch_related_parameters, _batch_assertion)"


@dataclass(frozen=True)
class Triple:
    """The three numbers as written, and the data-parallel ranks they are counted over."""

    section: Section
    micro: int | None
    accumulation: int | None
    total: int | None
    ranks: Dim

    @property
    def any_auto(self) -> bool:
        return any(self.section.is_auto(key) for key in KEYS)


def deepspeed_batch(section: Section, ranks: Dim, notes: Notes) -> Batch:
    """Complete the triple as DeepSpeed does: by floor division, then by an equality check."""
    triple = Triple(
        section,
        section.integer(MICRO_BATCH, least=1),
        section.integer(ACCUMULATION, least=1),
        section.integer(GLOBAL, least=1),
        ranks,
    )
    if triple.micro is None and triple.total is None and not triple.any_auto:
        _neither(triple, notes)
    batch = _completed(triple)
    _check(triple, batch, notes)
    _record(triple, batch, notes)
    return batch


def implied_ranks(section: Section) -> int | None:
    """The data-parallel ranks, where all three numbers are written: no other number passes."""
    micro, steps, total = (section.integer(key, least=1) for key in KEYS)
    if micro is None or steps is None or total is None or total % (micro * steps):
        return None
    return total // (micro * steps)


def _neither(triple: Triple, notes: Notes) -> None:
    notes.find(
        "rejected",
        "batch size present",
        triple.section.place(),
        f"neither {GLOBAL} nor {MICRO_BATCH} is given",
        f"write {MICRO_BATCH}",
        "runtime/config.py (_set_batch_related_parameters)",
    )


def _completed(triple: Triple) -> Batch:
    """Fill the gaps that can be filled: one from two, accumulation 1 when it is alone absent."""
    micro, steps, total, ranks = triple.micro, triple.accumulation, triple.total, triple.ranks
    known = ranks if isinstance(ranks, int) else None
    alone = (micro is None) != (total is None)
    if steps is None and alone and not triple.any_auto:
        steps = 1
    if known is None:
        return Batch(micro, steps, total)
    if steps is None and micro and total:
        steps = total // micro // known
    elif micro is None and steps and total:
        micro = total // known // steps
    elif total is None and micro and steps:
        total = micro * steps * known
    return Batch(micro, steps, total)


def _check(triple: Triple, batch: Batch, notes: Notes) -> None:
    micro, steps, total = batch.micro_batch, batch.accumulation, batch.global_batch
    ranks = triple.ranks
    if micro is None or steps is None or total is None:
        return
    if not isinstance(ranks, int):
        _check_any(triple, notes)
        return
    if micro > 0 and steps > 0 and micro * steps * ranks == total:
        return
    step = (triple.micro or 1) * (triple.accumulation or 1) * ranks
    if micro == 0 or steps == 0:
        _too_small(triple, total, step, notes)
        return
    _wrong(
        triple,
        notes,
        f"{GLOBAL} {total} is not micro batch {micro} * accumulation {steps} * "
        f"{ranks} data-parallel ranks = {micro * steps * ranks}",
        f"write {GLOBAL} {nearest_multiple(total, step)}, or leave one of the three out",
    )


def _wrong(triple: Triple, notes: Notes, message: str, remedy: str) -> None:
    place = triple.section.place(GLOBAL)
    notes.find("rejected", "batch triple", place, message, remedy, _WHERE)


def _too_small(triple: Triple, total: int, least: int, notes: Notes) -> None:
    _wrong(
        triple,
        notes,
        f"{GLOBAL} {total} is less than the {least} samples of one micro-batch on each of "
        f"{triple.ranks} data-parallel ranks",
        f"write {GLOBAL} {least} or a multiple, or use fewer ranks",
    )


def _check_any(triple: Triple, notes: Notes) -> None:
    """Whether the numbers as written are right for any number of ranks."""
    micro, steps, total = triple.micro, triple.accumulation, triple.total
    if micro is None or steps is None or total is None or total % (micro * steps) == 0:
        return
    _wrong(
        triple,
        notes,
        f"{GLOBAL} {total} is not a multiple of micro batch {micro} * accumulation {steps} = "
        f"{micro * steps}, whatever the number of data-parallel ranks",
        f"write {GLOBAL} {nearest_multiple(total, micro * steps)}, or leave one of the three out",
    )


def _record(triple: Triple, batch: Batch, notes: Notes) -> None:
    values = (batch.micro_batch, batch.accumulation, batch.global_batch)
    for name, key, value in zip(NAMES, KEYS, values, strict=True):
        section = triple.section
        place = section.place(key) if key in section else ""
        notes.add(name, value, _provenance(section, key, value), place)


def _provenance(section: Section, key: str, value: int | None) -> Provenance:
    if section.is_auto(key):
        return "cli or environment" if value is None else "derived"
    if key in section:
        return "literal"
    return "unknown" if value is None else "derived"


def loop(batch: Batch, notes: Notes) -> tuple[Strategy, ...]:
    """The accumulation loop of a composition: none for one micro-batch, a symbol if unknown."""
    steps = batch.accumulation
    if steps is None:
        notes.assume(f"the number of micro-batches is not in the file; {MICRO} stands for it")
        return (strategies.accumulate(micro=MICRO),)
    return (strategies.accumulate(micro=steps),) if steps > 1 else ()
