"""Devices as data: by name from ``devices.toml``, or from a file of that form.

A cluster is a topology (:mod:`placement_proofs.topologies`): named, or a table of such a file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from placement_proofs.cost.topology import Link
from placement_proofs.errors import IllFormed
from placement_proofs.toml_file import read_toml
from placement_proofs.topologies import TOPOLOGIES, Described, from_table, topology

SCHEMA = "see devices.toml of placement_proofs.layouts: [device.NAME] and [cluster.NAME]"


@dataclass(frozen=True)
class Device:
    """An accelerator.

    Attributes:
        name, title: how it is asked for, and what it is called.
        memory: bytes that a driver reports.
        flops: dense bfloat16 FLOP/s.
        bandwidth: bytes/s of its memory.
        sources: where each figure is from.
    """

    name: str
    title: str
    memory: int
    flops: float
    bandwidth: float
    sources: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cluster:
    """Nodes of ``node`` devices: a link inside a node and one between nodes, of each device."""

    name: str
    node: int
    inside: Link
    between: Link
    source: str = ""


@dataclass(frozen=True)
class Machine:
    """Devices in a cluster."""

    device: Device
    cluster: Cluster

    def to_json(self) -> dict[str, object]:
        """Figures by name: bytes, FLOP/s, bytes/s, seconds."""
        device, cluster = self.device, self.cluster
        return {
            "device": device.name,
            "title": device.title,
            "memory": device.memory,
            "flops": device.flops,
            "bandwidth": device.bandwidth,
            "cluster": cluster.name,
            "node": cluster.node,
            "inside": cluster.inside.to_json(),
            "between": cluster.between.to_json(),
            "sources": {**dict(device.sources), "links": cluster.source},
        }


def machines() -> tuple[Machine, ...]:
    """Every built-in device in its usual cluster."""
    table = _built_in()
    return tuple(_machine(table, name, None, "devices.toml") for name in table["device"])


def load_machine(device: str, cluster: str | None = None) -> Machine:
    """A device by name, or the one of a TOML file, in its usual cluster or in another one.

    A file has the tables of ``devices.toml``: one ``[device.NAME]`` and, unless the device names a
    topology as its ``cluster``, one ``[cluster.NAME]``. ``cluster`` is what ``--topology`` takes,
    or a cluster of ``devices.toml``.

    Raises:
        IllFormed: no such device or cluster, or a file with a missing, unknown or wrong figure.
    """
    table, name, place = _built_in(), device, "--device"
    if device.endswith(".toml"):
        table, name = _with_file(table, Path(device))
        place = device
    return _machine(table, name, cluster, place)


@cache
def _built_in() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("devices.toml"))


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except FileNotFoundError:
        raise IllFormed(
            str(path), "no such file", "a device file must exist", "correct the path"
        ) from None


def _with_file(table: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], str]:
    """The built-in tables with those of a file, and the name of its device."""
    own = _read(path)
    unknown = set(own) - {"device", "cluster"}
    if unknown:
        raise IllFormed(
            f"{path}: {min(unknown)}", "an unknown table", SCHEMA, "rename or remove it"
        )
    parts = {}
    for key in ("device", "cluster"):
        given = own.get(key, {})
        if not isinstance(given, dict) or not all(isinstance(v, dict) for v in given.values()):
            raise IllFormed(
                f"{path}: {key}", repr(given)[:60], SCHEMA, f"write [{key}.NAME] and its figures"
            )
        parts[key] = {**table[key], **given}
    name = _only(own.get("device", {}), "device", str(path))
    clusters = list(own.get("cluster", {}))
    if "cluster" not in parts["device"][name] and len(clusters) == 1:
        parts["device"][name] = parts["device"][name] | {"cluster": clusters[0]}
    return parts, name


def _only(tables: Mapping[str, Any], what: str, place: str) -> str:
    if len(tables) != 1:
        raise IllFormed(
            place, f"{len(tables)} tables [{what}.NAME]", f"a file has one {what}", "keep one"
        )
    return next(iter(tables))


def _machine(table: Mapping[str, Any], name: str, cluster: str | None, place: str) -> Machine:
    figures = _named(table["device"], name, place)
    chosen = cluster or figures.get("cluster")
    if chosen is None:
        known = ", ".join((*TOPOLOGIES, *table["cluster"]))
        raise IllFormed(
            f"{place}: device.{name}",
            "no cluster",
            "a device stands in a cluster of nodes and links",
            f'write cluster = "dgx-h100" (known: {known}) or [cluster.NAME]',
        )
    where = "--cluster" if cluster else f"{place}: device.{name}: cluster"
    return Machine(_device(name, figures, place), _cluster(table, str(chosen), where, place))


def _named(devices: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    if name not in devices:
        begun = [known for known in devices if known.startswith(name.lower())]
        close = begun or difflib.get_close_matches(name.lower(), devices, n=1, cutoff=0.5)
        likely = " or ".join(close)
        remedy = f"did you mean {likely}?" if name and close else "name one, or give a TOML file"
        raise IllFormed(place, repr(name), f"a device is one of {', '.join(devices)}", remedy)
    found: Mapping[str, Any] = devices[name]
    return found


def _cluster(table: Mapping[str, Any], name: str, where: str, place: str) -> Cluster:
    """A cluster of the tables, a named topology, or the file of one."""
    if name in table["cluster"]:
        found = from_table(table["cluster"][name], f"{place}: cluster.{name}")
    elif name in TOPOLOGIES or Path(name).is_file():
        found = topology(name)
    else:
        raise IllFormed(
            where,
            repr(name),
            f"a cluster is one of {', '.join((*TOPOLOGIES, *table['cluster']))}",
            "name one, or give a TOML file (docs/topologies.md)",
        )
    return _nodes(found, name if name in table["cluster"] else found.name)


def _nodes(found: Described, name: str) -> Cluster:
    nodes = found.topology
    return Cluster(name, nodes.node, nodes.inside, nodes.between, found.source)


def _device(name: str, table: Mapping[str, Any], place: str) -> Device:
    where = f"{place}: device.{name}"
    _check_keys(table, ("title", "memory", "flops", "bandwidth", "cluster", "sources"), where)
    memory, flops, bandwidth = (
        _figure(table, key, where) for key in ("memory", "flops", "bandwidth")
    )
    title = str(table.get("title", name))
    return Device(name, title, int(memory), flops, bandwidth, _sources(table, where))


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, n=1)
        raise IllFormed(
            f"{where}: {unknown[0]}",
            repr(table[unknown[0]])[:60],
            f"the keys are {', '.join(known)}",
            f"did you mean {close[0]}?" if close else "rename or remove it",
        )


_UNITS = {
    "memory": "bytes",
    "flops": "dense bfloat16 FLOP/s",
    "bandwidth": "bytes/s",
}


def _figure(table: Mapping[str, Any], key: str, where: str) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < 1e30:
        raise IllFormed(
            f"{where}: {key}",
            "nothing" if value is None else repr(value)[:60],
            f"a number of {_UNITS[key]}, at least 1",
            f"write {key} = {_EXAMPLES[key]}",
        )
    return float(value)


_EXAMPLES = {
    "memory": "80e9",
    "flops": "312e12",
    "bandwidth": "2.0e12",
}


def _sources(table: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    found = table.get("sources", {})
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise IllFormed(
            f"{where}: sources", repr(found)[:60], "texts by figure", 'write flops = "data sheet"'
        )
    return tuple(found.items())
