"""Names and layouts of element programs: owners on axes, held layouts, moves between layouts."""

from __future__ import annotations

from placement_proofs.layout import Entry, Kind, Layout
from placement_proofs.program import Held, Slice, Step, Take

MICRO = "micro"
STEP = "step"


def owner(entry: Entry) -> str:
    """The owner's name of a shard: shards over other dims or products are other partitions."""
    dim = "" if not entry.on.dim else str(entry.on.dim)
    product = "" if len(entry.axes) == 1 else "_".join(("", *entry.axes))
    return f"p{dim}{product}"


def held(layout: Layout) -> Held:
    """The axes on which only an owner stores the generic element."""
    shards = [entry for entry in layout if entry.on.kind is Kind.SHARDED]
    return tuple(sorted((axis, owner(entry)) for entry in shards for axis in entry.axes))


def owner_of(entries: Layout, axes: tuple[str, ...]) -> str:
    """The owner's name where a step over ``axes`` makes or reads a shard."""
    own = [entry for entry in entries if set(entry.axes) & set(axes)] or list(entries)
    return owner(own[0]) if own else "p"


def gathered(buffer: str, entries: Layout, axes: tuple[str, ...], why: str) -> list[Step]:
    """All-gather: on each axis of the step, every rank takes the owner's value."""
    return [Take(buffer, axis, owner_of(entries, (axis,)), why=why) for axis in axes]


def sliced(buffer: str, entries: Layout, why: str) -> list[Step]:
    """Each rank keeps its part."""
    return [Slice(buffer, axis, owner(e), why=why) for e in entries for axis in e.axes]


def shards(layout: Layout) -> Layout:
    """The sharded entries of a layout."""
    return tuple(entry for entry in layout if entry.on.kind is Kind.SHARDED)


def lost(before: Layout, after: Layout) -> Layout:
    """Shards of ``before`` that ``after`` does not have."""
    return tuple(entry for entry in shards(before) if entry not in after)
