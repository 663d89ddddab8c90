"""Topologies by name or from a TOML file (``docs/topologies.md``).

Bandwidths are of one rank and one way. Those of the named ones are data sheets' figures, which no
collective reaches in full. Latencies are NCCL's own model of a step of a ring with its Simple
protocol: 3.4 us over NVLink, 5.7 us over PCIe, 14 us over a network (NCCL, src/graph/tuning.cc);
other libraries are taken to be alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from placement_proofs.cost.convention import Convention
from placement_proofs.cost.time import traffic_time
from placement_proofs.cost.topology import Link, Topology
from placement_proofs.errors import IllFormed
from placement_proofs.mesh import IntSizes
from placement_proofs.plan import Plan
from placement_proofs.toml_file import read_toml

NVLINK, PCIE, NETWORK = 3.4e-6, 5.7e-6, 14e-6
"""Seconds of a step of a ring."""

BANDWIDTHS = {
    "Tbit/s": 10**12 // 8,
    "Tb/s": 10**12 // 8,
    "Gbit/s": 10**9 // 8,
    "Gb/s": 10**9 // 8,
    "TB/s": 10**12,
    "GiB/s": 2**30,
    "GB/s": 10**9,
    "MiB/s": 2**20,
    "MB/s": 10**6,
}
"""Bytes a second of a unit; ``Gb`` are bits."""
LATENCIES = {"us": Fraction(1, 10**6), "ns": Fraction(1, 10**9), "ms": Fraction(1, 10**3)}
"""Seconds of a unit."""

SLOWEST = 10**6
"""Bytes a second below which a bandwidth is a number whose unit was forgotten."""
MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class Described:
    """A topology with its name and where its figures are from."""

    name: str
    topology: Topology
    source: str

    def to_json(self) -> dict[str, object]:
        """Name, source and the topology (seconds, bytes a second)."""
        return {"name": self.name, "source": self.source, **self.topology.to_json()}

    def timed(self, plan: Plan, sizes: IntSizes, widths: Convention) -> dict[str, object]:
        """The time of the traffic of a plan's largest rank, as plain data (seconds)."""
        found = traffic_time(plan, sizes, widths, self.topology)
        return {"topology": self.to_json(), **found.to_json()}


def _nodes(
    name: str,
    node: int,
    inside: tuple[str, float, float],
    between: tuple[str, float],
    host: float,
    source: str,
) -> Described:
    """Links as (name, seconds, GB/s); a network has the latency of networks, a host of PCIe."""
    topology = Topology(
        node,
        Link(inside[0], inside[1], inside[2] * 1e9),
        Link(between[0], NETWORK, between[1] * 1e9),
        Link("host", PCIE, host * 1e9),
    )
    return Described(name, topology, source)


_ALL = (
    _nodes(
        "dgx-a100",
        8,
        ("NVLink 3", NVLINK, 300),
        ("HDR InfiniBand", 25),
        31.5,
        "DGX A100: NVLink 600 GB/s both ways, a 200 Gbit/s adapter for each GPU, PCIe 4.0 x16",
    ),
    _nodes(
        "dgx-h100",
        8,
        ("NVLink 4", NVLINK, 450),
        ("NDR InfiniBand", 50),
        63,
        "DGX H100: NVLink 900 GB/s both ways, a 400 Gbit/s adapter for each GPU, PCIe 5.0 x16",
    ),
    _nodes(
        "dgx-b200",
        8,
        ("NVLink 5", NVLINK, 900),
        ("NDR InfiniBand", 50),
        63,
        "DGX B200: NVLink 1.8 TB/s both ways, a 400 Gbit/s adapter for each GPU, PCIe 5.0 x16",
    ),
    _nodes(
        "gb200-nvl72",
        72,
        ("NVLink 5", NVLINK, 900),
        ("NDR InfiniBand", 50),
        450,
        "GB200 NVL72: NVLink 1.8 TB/s both ways over 72 GPUs, 400 Gbit/s for each GPU, NVLink-C2C "
        "900 GB/s both ways to a processor, which two GPUs share",
    ),
    _nodes(
        "a100-pcie",
        8,
        ("PCIe 4.0", PCIE, 31.5),
        ("HDR InfiniBand", 3.125),
        31.5,
        "eight A100 on PCIe 4.0 x16 without NVLink, one 200 Gbit/s adapter for the node",
    ),
    _nodes(
        "aws-p4d",
        8,
        ("NVLink 3", NVLINK, 300),
        ("EFA", 6.25),
        31.5,
        "p4d.24xlarge: A100, 400 Gbit/s of network for eight GPUs",
    ),
    _nodes(
        "aws-p5",
        8,
        ("NVLink 4", NVLINK, 450),
        ("EFA", 50),
        63,
        "p5.48xlarge: H100, 3200 Gbit/s of network for eight GPUs",
    ),
)

TOPOLOGIES: Mapping[str, Described] = {described.name: described for described in _ALL}
"""The named topologies."""


def topology(text: str) -> Described:
    """The topology of that name, or of the TOML file at that path.

    Raises:
        IllFormed: neither, or the file describes none.
    """
    if text in TOPOLOGIES:
        return TOPOLOGIES[text]
    path = Path(text)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "neither a name nor a file"
        raise IllFormed(
            f"--topology {text[:80]}",
            found,
            f"named topologies are {', '.join(TOPOLOGIES)}",
            "name one, or give the path of a TOML file such as examples/topology.toml",
        )
    if path.stat().st_size > MAX_BYTES:
        raise IllFormed(text, "a large file", f"at most {MAX_BYTES:,} bytes", "give a topology")
    return from_table(read_toml(path), text)


def from_table(table: Mapping[str, Any], place: str) -> Described:
    """The topology that a table describes.

    Raises:
        IllFormed: a key is missing or unknown, or a value is none.
    """
    known = {"name", "source", "ranks_per_node", "inside", "between", "host", "order", "axes"}
    _only(table, known, place, "a topology")
    _have(table, ("ranks_per_node", "inside", "between"), place, "a topology")
    inside = _link(table["inside"], f"{place}: inside", "inside")
    between = _link(table["between"], f"{place}: between", "between")
    host = _link(table["host"], f"{place}: host", "host") if "host" in table else None
    named = {"inside": inside, "between": between} | ({"host": host} if host else {})
    own = {
        axis: _axis_link(value, f"{place}: axes.{axis}", axis, named)
        for axis, value in _table(table.get("axes", {}), f"{place}: axes").items()
    }
    node = _count(table["ranks_per_node"], f"{place}: ranks_per_node")
    order = _order(table.get("order", []), f"{place}: order")
    name = str(table.get("name", Path(place).stem))
    source = str(table.get("source", place))
    return Described(name, Topology(node, inside, between, host, order, own), source)


def _only(table: Mapping[str, Any], known: set[str], place: str, what: str) -> None:
    for key in table:
        if key not in known:
            raise IllFormed(
                f"{place}: {key}",
                "an unknown key",
                f"{what} has {', '.join(sorted(known))}",
                "rename or remove it",
            )


def _have(table: Mapping[str, Any], keys: tuple[str, ...], place: str, what: str) -> None:
    for key in keys:
        if key not in table:
            raise IllFormed(
                place, f"no {key}", f"{what} has {', '.join(keys)}", f"write {EXAMPLES[key]}"
            )


EXAMPLES = {
    "ranks_per_node": "ranks_per_node = 8",
    "inside": 'inside = {latency = "3.4 us", bandwidth = "300 GB/s"}',
    "between": 'between = {latency = "14 us", bandwidth = "200 Gbit/s"}',
    "latency": 'latency = "3.4 us"',
    "bandwidth": 'bandwidth = "300 GB/s"',
}
"""What to write for a key that is missing."""


def _table(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise IllFormed(place, repr(value)[:60], "a table", f"write {EXAMPLES['inside']}")
    return value


def _link(value: object, place: str, default: str) -> Link:
    table = _table(value, place)
    _only(table, {"name", "latency", "bandwidth"}, place, "a link")
    _have(table, ("latency", "bandwidth"), place, "a link")
    return Link(
        str(table.get("name", default)),
        _latency(table["latency"], f"{place}.latency"),
        _bandwidth(table["bandwidth"], f"{place}.bandwidth"),
    )


def _axis_link(value: object, place: str, axis: str, named: Mapping[str, Link]) -> Link:
    """A link of its own, or the name of one above."""
    if not isinstance(value, str):
        return _link(value, place, axis)
    if value not in named:
        raise IllFormed(place, repr(value)[:60], f"a link is {', '.join(named)}", "name one")
    return named[value]


def _count(value: object, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise IllFormed(place, repr(value)[:60], "a whole number from 1", "write 8")
    return value


def _order(value: object, place: str) -> tuple[str, ...]:
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if names != value or len(set(names)) != len(names):
        raise IllFormed(
            place,
            repr(value)[:60],
            "a list of axes, each once, the one whose ranks are neighbours last",
            'write order = ["pp", "dp", "tp"]',
        )
    return tuple(names)


def _latency(value: object, place: str) -> float:
    seconds = _amount(value, LATENCIES | {"s": Fraction(1)})
    if seconds is None or not 0 <= seconds < 1:
        raise IllFormed(
            place,
            repr(value)[:60],
            f"a number of seconds below 1, or a text in {', '.join(LATENCIES)}",
            f"write {EXAMPLES['latency']}",
        )
    return float(seconds)


def _bandwidth(value: object, place: str) -> float:
    rate = _amount(value, BANDWIDTHS)
    if rate is None or rate < SLOWEST:
        raise IllFormed(
            place,
            repr(value)[:60],
            f"bytes a second of one rank and one way, at least {SLOWEST:,}, or a text in "
            f"{', '.join(BANDWIDTHS)}",
            f"write {EXAMPLES['bandwidth']}",
        )
    return float(rate)


def _amount(value: object, units: Mapping[str, int | Fraction]) -> Fraction | None:
    """A number, or a text of a number and a unit; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value).strip()
    unit = next((u for u in units if text.endswith(u)), "") if isinstance(value, str) else ""
    number = text.removesuffix(unit).strip()
    try:
        found = Fraction(number) if 0 < len(number) < 40 else None
    except (ValueError, ZeroDivisionError):
        return None
    return None if found is None else found * units.get(unit, 1)
