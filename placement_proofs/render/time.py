"""Time of a rank's traffic as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, paragraph, section
from placement_proofs.render.units import bytes_text, seconds_text

BOUNDS = (
    (
        "exposed_at_least",
        "exposed, at least",
        "activations and their gradients, which are waited for",
    ),
    ("exposed_at_most", "exposed, at most", "nothing is hidden behind computation"),
)


def time_text(time: Mapping[str, Any] | None, paint: Paint = PLAIN) -> str:
    """Seconds by collective, axes, phase and link, between bounds of what computation hides."""
    if time is None:
        return ""
    title = paint.strong(f"time of that traffic on {time['topology']['name']}")
    table = columns(list(_rows(time)), right=(3, 4, 6))
    bounds = columns([(name, seconds_text(time[key]), why) for key, name, why in BOUNDS])
    return section(title, "\n".join([table, bounds, _note(time, paint)]).lstrip("\n"))


def times_text(times: Mapping[str, Mapping[str, Any]]) -> str:
    """The bounds of several subjects beside each other."""
    if not times:
        return ""
    first = next(iter(times.values()))
    rows: list[tuple[str, ...]] = [("", "exposed, at least", "at most", "the longest")]
    for subject, time in times.items():
        bounds = [seconds_text(time[key]) for key, _, _ in BOUNDS]
        rows.append((subject, *bounds, _longest(time["lines"])))
    title = f"time of a rank's traffic in a step on {first['topology']['name']}"
    return section(title, columns(rows, right=(1, 2)))


def _longest(lines: Sequence[Mapping[str, Any]]) -> str:
    if not lines:
        return "nothing"
    most = max(lines, key=lambda line: float(line["seconds"]))
    over = f" over {'*'.join(most['axes'])}" if most["axes"] else ""
    return f"{most['collective']}{over}, {most['phase']}: {seconds_text(most['seconds'])}"


def _rows(time: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for line in time["lines"]:
        yield (
            line["collective"],
            "*".join(line["axes"]),
            line["phase"],
            f"{line['count']:,} x",
            bytes_text(line["bytes"]),
            line["link"],
            seconds_text(line["seconds"]),
            f"latency {seconds_text(line['latency'])}",
            "waited for" if line["waits"] else "",
        )


def _note(time: Mapping[str, Any], paint: Paint) -> str:
    topology = time["topology"]
    order = ", ".join(time["order"])
    numbered = f"; ranks numbered by {order}, the last fastest" if time["order"] else ""
    text = f"{topology['ranks_per_node']} ranks a node{numbered}; {topology['source']}"
    return paint.faint(paragraph(text))


def links_text(extra: Mapping[str, Any], paint: Paint = PLAIN) -> str:
    """The numbers of latencies and bandwidths on a topology, or why there are none."""
    if "topology" not in extra:
        return ""
    title = paint.strong(f"links of {extra['topology']['name']}")
    if "links" not in extra:
        return section(title, paragraph(f"no numbers: {extra['no_links']}"))
    rows = [(name, _link_number(name, value)) for name, value in extra["links"].items()]
    note = _note({"topology": extra["topology"], "order": extra["topology"]["order"]}, paint)
    return section(title, f"{columns(rows)}\n{note}".lstrip("\n"))


def _link_number(name: str, value: float) -> str:
    if name.startswith("alpha"):
        return seconds_text(value)
    return "no traffic" if math.isinf(value) else f"{bytes_text(value)}/s"
