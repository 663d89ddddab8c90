"""Megatron's batch: micro-batch, global batch, and the micro-batches that follow from them."""

from __future__ import annotations

from placement_proofs.configs.megatron_job import Job, is_open, origin
from placement_proofs.configs.notes import Notes, nearest_multiple
from placement_proofs.configs.record import Batch

MICRO_BATCH, GLOBAL = "micro_batch_size", "global_batch_size"
RAMP, ROUNDED = "rampup_batch_size", "decrease_batch_size_if_needed"
_WHERE = "core/num_microbatches_calculator.py"


def batch_of(job: Job, notes: Notes) -> Batch:
    """The batch triple; the accumulation is global / (micro * data-parallel ranks)."""
    micro, total = job.whole(MICRO_BATCH), job.whole(GLOBAL)
    dp = job.dp if isinstance(job.dp, int) else None
    steps = _given_steps(job, micro)
    if steps and total is None:
        total = micro * steps * dp if micro and dp else None
    elif micro and total and dp:
        steps = _steps(job, micro, total, dp, notes)
    elif micro and total is None and not is_open(job.section, GLOBAL) and not job.dialect.partial:
        steps, total = 1, micro * dp if dp else None
    _field(job, "micro_batch", MICRO_BATCH, micro, notes)
    _field(job, "global_batch", GLOBAL, total, notes)
    note = "global / (micro * dp)"
    notes.add("accumulation", steps, "unknown" if steps is None else "derived", "", note)
    _ramp(job, micro, notes)
    return Batch(micro, steps, total)


def _given_steps(job: Job, micro: int | None) -> int | None:
    """Micro-batches given as such, or as the samples of a replica (MLPerf's ``MINIBS``)."""
    samples = job.whole("samples_per_replica")
    if samples and micro:
        return max(1, samples // micro)
    return job.whole("gradient_accumulation_steps") or None


def _steps(job: Job, micro: int, total: int, dp: int, notes: Notes) -> int | None:
    step = micro * dp
    if total % step == 0:
        return total // step
    rounded = job.given(ROUNDED)
    message = f"global batch {total} / (micro {micro} * dp {dp}) = {total / step:.6g} micro-batches"
    if rounded and total >= step:
        notes.find(
            "ignored",
            "batch rounded down",
            job.section.place(GLOBAL),
            f"{message}; with --decrease-batch-size-if-needed it becomes {total // step * step}",
            f"write {nearest_multiple(total, step)}",
            _WHERE,
        )
        return total // step
    notes.find(
        "rejected",
        "batch triple",
        job.section.place(GLOBAL),
        message,
        f"write a global batch of {nearest_multiple(total, step)}",
        _WHERE,
    )
    return total // step or None


def _field(job: Job, name: str, key: str, value: int | None, notes: Notes) -> None:
    section = job.section
    if is_open(section, key):
        notes.add(name, None, "cli or environment", section.place(key))
    elif key in section:
        provenance, note = origin(section, key)
        notes.add(name, value, provenance, section.place(key), note)
    else:
        notes.add(name, value, "unknown" if value is None else "derived")


def _ramp(job: Job, micro: int | None, notes: Notes) -> None:
    """Every batch of a ramp is a whole number of micro-batches."""
    value = job.section.raw(RAMP)
    if not isinstance(value, tuple) or len(value) != 3:
        return
    start, increment = (n for n in value[:2]) if _numbers(value[:2]) else (0, 0)
    place = job.section.place(RAMP)
    notes.add("rampup", f"{value[0]} + {value[1]} to the global batch", "literal", place)
    step = (micro or 0) * job.dp if isinstance(job.dp, int) else 0
    if not step or not isinstance(start, int) or not isinstance(increment, int) or not start:
        return
    wrong = next((n for n in (start, start + increment) if n % step), None)
    if wrong is None or job.given(ROUNDED):
        return
    notes.find(
        "rejected",
        "batch ramp",
        place,
        f"a batch of {wrong} on the ramp is not a multiple of micro {micro} * dp {job.dp} = {step}",
        f"start and increase by multiples of {step}",
        _WHERE,
    )


def _numbers(values: tuple[object, ...]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)
