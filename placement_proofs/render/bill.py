"""Memory and traffic of a rank as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, paragraph, section
from placement_proofs.render.units import amount


def memory_text(memory: Mapping[str, Any] | None, paint: Paint = PLAIN) -> str:
    """Bytes per rank by state, with the convention in force."""
    if memory is None:
        return ""
    title = paint.strong(f"memory of a rank{_position(memory)}")
    table = columns(_memory_rows(memory), right=(1,))
    return section(title, f"{table}\n{_convention(memory, paint)}")


def _memory_rows(memory: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for state, held in memory["device"].items():
        yield state, amount(held), ""
    for state, held in memory["host"].items():
        if held:
            yield f"{state}, off device", amount(held), ""
    yield "between steps", amount(memory["persistent"]), "on the device"
    flying = memory["in_flight"]
    waiting = memory["waiting_for_weights"]
    kept = ["kept for backward"]
    kept += [f"{flying} micro-batches in flight"] if flying != 1 else []
    kept += [f"{waiting} more until the gradients of weights"] if waiting else []
    yield "activations", amount(memory["saved_activations"]), ", ".join(kept)
    for kind, held in memory["transient"].items():
        if held and kind != "activations":
            yield kind, amount(held), "at most at a time"
    yield "peak", amount(memory["peak"]), "within a step"


def communication_text(communication: Mapping[str, Any] | None, paint: Paint = PLAIN) -> str:
    """Bytes sent per rank and step, by collective and axis."""
    if communication is None:
        return ""
    title = paint.strong(f"bytes sent by a rank in a step{_position(communication)}")
    rows = list(_traffic_rows(communication))
    return section(title, columns(rows, right=(2,)) if rows else "  nothing")


def _traffic_rows(communication: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for line in communication["bytes"]:
        if line["bytes"]:
            yield line["collective"], "*".join(line["axes"]), amount(line["bytes"])
    if communication["total"]:
        yield "total", "", amount(communication["total"])
    if communication["host"]:
        yield "host link", "both ways", amount(communication["host"])


def _position(bill: Mapping[str, Any]) -> str:
    name = bill.get("position", "")
    return f" at pipeline position {name}" if name in ("first", "middle", "last") else ""


def _convention(bill: Mapping[str, Any], paint: Paint) -> str:
    c = bill["convention"]
    widths = f"{c['parameter']}+{c['gradient']}+{c['optimizer']}"
    text = f"convention {c['name']}: {widths} bytes per parameter (parameter, gradient, optimizer)"
    return paint.faint(paragraph(text))
