"""A plan of layouts: what fits, how fast it is, what separates the best, and what would fit."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from placement_proofs.composition import Composition
from placement_proofs.layouts.bill import Bill, bill
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.jobs import with_tokens
from placement_proofs.layouts.proofs import ClassProof
from placement_proofs.layouts.rank import (
    SAME,
    Comparison,
    Order,
    OutOfReach,
    compared,
    faster_with_more,
    pareto,
    ranked,
    runner_up,
    smallest,
)
from placement_proofs.layouts.setting import Job, Layout
from placement_proofs.layouts.space import Choices, concrete, space
from placement_proofs.layouts.table import Rows, Table, table

Watch: TypeAlias = Callable[[Iterator[Rows], int], Iterator[Rows]]

DOUBLINGS = 6
"""How often the ranks are doubled, or the tokens halved, to find what would fit."""


@dataclass(frozen=True)
class Offer:
    """One layout as it is offered.

    Attributes:
        layout, composition, proof: what it is, how it is written, and why it is right.
        step: seconds of a training step.
        peak: bytes of the fullest rank.
        mfu: fraction of the devices' peak FLOP/s.
    """

    layout: Layout
    composition: Composition
    proof: ClassProof
    step: float
    peak: float
    mfu: float

    def to_json(self) -> dict[str, object]:
        """Fields by name (seconds, bytes)."""
        return {
            "layout": vars(self.layout),
            "composition": repr(self.composition),
            "verdict": self.proof.verdict.value,
            "covers": self.proof.covers,
            "step_seconds": self.step,
            "peak_bytes": self.peak,
            "mfu": self.mfu,
        }


@dataclass(frozen=True)
class Planned:
    """The layouts of a job, ranked.

    Attributes:
        table: all proved layouts with their results.
        constants: of the time and memory model.
        limit: bytes of a device that may be filled.
        order: rows that fit, the fastest first.
    """

    table: Table
    constants: Constants
    limit: float
    order: Order

    @property
    def job(self) -> Job:
        """Whose layouts they are."""
        return self.table.job

    def offer(self, row: int) -> Offer:
        """The layout of a row of the table."""
        layout, proof = self.table.at(row)
        step, peak = float(self.table.step[row]), float(self.table.peak[row])
        return Offer(layout, concrete(layout, self.job), proof, step, peak, self.job.mfu(step))

    def top(self, count: int) -> tuple[Offer, ...]:
        """The fastest that fit."""
        return tuple(self.offer(int(row)) for row in self.order[:count])

    @cached_property
    def front(self) -> tuple[Offer, ...]:
        """What no other layout beats in memory and time at once, the smallest memory first."""
        return tuple(self.offer(int(row)) for row in pareto(self.table))

    @cached_property
    def bill(self) -> Bill | None:
        """The terms of the winner."""
        if not len(self.order):
            return None
        layout, _ = self.table.at(int(self.order[0]))
        return bill(layout, self.job, self.constants)

    @cached_property
    def comparison(self) -> Comparison | None:
        """Why the winner is faster than the next one that is not as fast."""
        second = runner_up(self.table, self.order)
        if second is None:
            return None
        (first, _), (other, _) = self.table.at(int(self.order[0])), self.table.at(second)
        return compared(first, other, self.job, self.constants)

    @property
    def faster(self) -> OutOfReach | None:
        """The smallest layout that does not fit and would beat the winner."""
        return faster_with_more(self.table, self.limit)

    @property
    def nearest(self) -> OutOfReach | None:
        """The layout that needs the least memory."""
        return smallest(self.table)


def planned(
    job: Job,
    constants: Constants,
    choices: Choices | None = None,
    *,
    fraction: float = 1.0,
    executor: Executor | None = None,
    folder: Path | None = None,
    watch: Watch = lambda rows, _: rows,
) -> Planned:
    """All valid layouts of a job among ``choices``, proved, evaluated and ranked.

    ``fraction`` of a device's memory may be filled. The other arguments are those of
    :func:`~placement_proofs.layouts.table.table`.
    """
    found = table(space(job, choices), constants, executor=executor, folder=folder, watch=watch)
    limit = fraction * job.machine.device.memory
    return Planned(found, constants, limit, ranked(found, limit))


def against(plan: Planned, best: Planned) -> Comparison | None:
    """Why the fastest of ``best`` beats the fastest of ``plan``; ``None`` where it does not."""
    if not len(plan.order) or not len(best.order):
        return None
    (first, _), (second, _) = best.table.at(int(best.order[0])), plan.table.at(int(plan.order[0]))
    found = compared(first, second, plan.job, plan.constants)
    return found if found.first.step < found.second.step * (1 - SAME) else None


@dataclass(frozen=True)
class Remedy:
    """One change of a job after which something fits: what is changed, and what then is fastest."""

    change: str
    offer: Offer

    def to_json(self) -> dict[str, object]:
        """The change and the layout."""
        return {"change": self.change, "offer": self.offer.to_json()}


def remedies(plan: Planned, choices: Choices | None, folder: Path | None) -> tuple[Remedy, ...]:
    """The fewest ranks (doubled) and the most tokens (halved) with which a layout fits."""
    job = plan.job
    fraction = plan.limit / job.machine.device.memory
    larger = (replace(job, gpus=job.gpus << i) for i in range(1, DOUBLINGS + 1))
    shorter = (with_tokens(job, job.shape.sequence >> i) for i in range(1, DOUBLINGS + 1))
    changes = ((j, f"on {j.gpus} devices") for j in larger)
    more = ((j, f"with {j.shape.sequence} tokens a sequence") for j in shorter)
    found = []
    for candidates in (changes, more):
        for other, text in candidates:
            if other.shape.sequence < 1:
                break
            again = planned(other, plan.constants, choices, fraction=fraction, folder=folder)
            if len(again.order):
                found.append(Remedy(text, again.offer(int(again.order[0]))))
                break
    return tuple(found)


def plan_json(plan: Planned, top: int, helped: Sequence[Remedy] = ()) -> dict[str, object]:
    """A plan as plain data (seconds, bytes)."""
    job, table = plan.job, plan.table
    faster, nearest = plan.faster, plan.nearest
    return {
        "model": job.name,
        "gpus": job.gpus,
        "sequence": job.shape.sequence,
        "global_batch": job.global_batch,
        "machine": job.machine.to_json(),
        "convention": job.convention.to_json(),
        "constants": vars(plan.constants),
        "limit_bytes": plan.limit,
        "valid": len(table.space),
        "proved": len(table),
        "classes": table.classes,
        "fit": len(plan.order),
        "offers": [offer.to_json() for offer in plan.top(top)],
        "bill": plan.bill.to_json() if plan.bill else None,
        "comparison": plan.comparison.to_json() if plan.comparison else None,
        "pareto": [offer.to_json() for offer in plan.front],
        "faster_with_more_memory": faster.to_json() if faster else None,
        "least_memory": nearest.to_json() if nearest else None,
        "would_fit": [remedy.to_json() for remedy in helped],
        "rejected": [{"layouts": n, "rule": text} for n, text in table.space.reasons()],
        "withheld": [
            {
                "layouts": count,
                "composition": proof.composition,
                "verdict": proof.verdict.value,
                "reason": proof.reason,
            }
            for count, proof in table.withheld
        ],
    }


def write_csv(plan: Planned, path: Path) -> None:
    """All layouts that fit, the fastest first, with a column for each part of an offer."""
    offers = plan.top(len(plan.order))
    figures = ("step_seconds", "peak_bytes", "mfu", "composition")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(f.name for f in fields(Layout)), *figures])
        for offer in offers:
            values = (offer.step, offer.peak, offer.mfu, repr(offer.composition))
            writer.writerow([*vars(offer.layout).values(), *values])
