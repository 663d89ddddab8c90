"""Simulations as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import bullets, columns, section, sections
from placement_proofs.small import Small
from placement_proofs.verdict import Verdict

if TYPE_CHECKING:
    from placement_proofs.simulate import RankMeters, Simulation


def simulation_text(twin: Small, found: Simulation, paint: Paint = PLAIN) -> str:
    """Whether all ranks equal one device, then what the fullest rank sends and holds."""
    parts = [_headline(twin, found, paint), section("notes", bullets(twin.notes))]
    if found.ranks and not found.failure:
        rank = max(found.ranks, key=lambda r: r.peak)
        where = ", ".join(f"{axis}={i}" for axis, i in rank.coordinates.items()) or "0"
        traffic = columns(_traffic(rank), right=(3,)) or "  nothing"
        parts.append(section(paint.strong(f"sent by rank {where} in a step, in elements"), traffic))
        held = columns(_held(rank), right=(1,))
        parts.append(section(paint.strong(f"held by rank {where} at most, in elements"), held))
    return sections(parts)


def _headline(twin: Small, found: Simulation, paint: Paint) -> str:
    word, verdict = "EQUAL", Verdict.PROVED
    if not found.equal:
        word, verdict = ("CANNOT RUN" if found.failure else "DIFFERENT"), Verdict.REFUTED
    changes = "".join(f' with the deviation "{d}"' for d in twin.subject.deviations)
    return f"{paint.verdict(verdict, word)}  {twin.subject.text}{changes}: {found}"


def _traffic(rank: RankMeters) -> Iterator[tuple[str, str, str, str]]:
    totals: dict[tuple[str, str, str], Fraction] = {}
    for line, traffic in rank.traffic.items():
        key = (line.collective.value, "*".join(line.axes), line.phase.value)
        totals[key] = totals.get(key, Fraction(0)) + traffic.ring
    for (kind, axes, phase), ring in totals.items():
        yield kind, axes, phase, number(ring)


def _held(rank: RankMeters) -> Iterator[tuple[str, str]]:
    held: Mapping[str, int] = {state.value: count for state, count in rank.held.items()}
    for state, count in held.items():
        if count:
            yield state, f"{count:,}"
    yield "all at one time", f"{rank.peak:,}"


def number(value: Fraction) -> str:
    """A whole number, or a fraction as a decimal."""
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.2f}"
