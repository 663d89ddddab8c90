"""Devices and clusters as data: by name from ``devices.toml``, or from a file of that form."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from placement_proofs.cost.time import Link
from placement_proofs.errors import IllFormed

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
    title: str
    node: int
    inside: Link
    between: Link
    sources: tuple[tuple[str, str], ...] = ()


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
            "inside": _link_json(cluster.inside),
            "between": _link_json(cluster.between),
            "sources": dict(device.sources) | dict(cluster.sources),
        }


def _link_json(link: Link) -> dict[str, float]:
    return {"latency": link.latency, "bandwidth": link.bandwidth}


def machines() -> tuple[Machine, ...]:
    """Every built-in device in its usual cluster."""
    table = _built_in()
    return tuple(_machine(table, name, None, "devices.toml") for name in table["device"])


def load_machine(device: str, cluster: str | None = None) -> Machine:
    """A device by name, or the one of a TOML file, in its usual cluster or in another one.

    A file has the tables of ``devices.toml``: one ``[device.NAME]`` and, unless the device names a
    built-in cluster, one ``[cluster.NAME]``.

    Raises:
        IllFormed: no such device or cluster, or a file with a missing, unknown or wrong figure.
    """
    table, name, place = _built_in(), device, "--device"
    if device.endswith(".toml"):
        table, name = _with_file(table, Path(device))
        place = device
    if cluster is not None and cluster.endswith(".toml"):
        own = _read(Path(cluster))
        table = {**table, "cluster": table["cluster"] | own.get("cluster", {})}
        cluster = _only(own.get("cluster", {}), "cluster", cluster)
    return _machine(table, name, cluster, place)


@cache
def _built_in() -> dict[str, Any]:
    text = Path(__file__).with_name("devices.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise IllFormed(
            str(path), "no such file", "a device file must exist", "correct the path"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise IllFormed(str(path), str(error), "the file is TOML in UTF-8", "correct it") from None


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
    figures = _named(table["device"], name, "--device" if place == "--device" else place, "device")
    chosen = cluster or figures.get("cluster")
    if chosen is None:
        raise IllFormed(
            f"{place}: device.{name}",
            "no cluster",
            "a device stands in a cluster of nodes and links",
            f'write cluster = "dgx-h100" (known: {", ".join(table["cluster"])}) or [cluster.NAME]',
        )
    where = "--cluster" if cluster else f"{place}: device.{name}: cluster"
    net = _named(table["cluster"], str(chosen), where, "cluster")
    return Machine(_device(name, figures, place), _cluster(str(chosen), net, place))


def _named(tables: Mapping[str, Any], name: str, place: str, what: str) -> Mapping[str, Any]:
    if name not in tables:
        begun = [known for known in tables if known.startswith(name.lower())]
        close = begun or difflib.get_close_matches(name.lower(), tables, n=1, cutoff=0.5)
        likely = " or ".join(close)
        remedy = f"did you mean {likely}?" if name and close else "name one, or give a TOML file"
        raise IllFormed(place, repr(name), f"a {what} is one of {', '.join(tables)}", remedy)
    found: Mapping[str, Any] = tables[name]
    return found


def _device(name: str, table: Mapping[str, Any], place: str) -> Device:
    where = f"{place}: device.{name}"
    _check_keys(table, ("title", "memory", "flops", "bandwidth", "cluster", "sources"), where)
    memory, flops, bandwidth = (
        _figure(table, key, where) for key in ("memory", "flops", "bandwidth")
    )
    title = str(table.get("title", name))
    return Device(name, title, int(memory), flops, bandwidth, _sources(table, where))


def _cluster(name: str, table: Mapping[str, Any], place: str) -> Cluster:
    where = f"{place}: cluster.{name}"
    _check_keys(table, ("title", "node", "inside", "between", "sources"), where)
    node = _figure(table, "node", where)
    if node != int(node):
        raise IllFormed(
            f"{where}: node", str(node), "a whole number of devices a node", "write node = 8"
        )
    inside, between = (_link(table, key, where) for key in ("inside", "between"))
    title = str(table.get("title", name))
    return Cluster(name, title, int(node), inside, between, _sources(table, where))


def _link(table: Mapping[str, Any], key: str, where: str) -> Link:
    found = table.get(key)
    if not isinstance(found, dict):
        raise IllFormed(
            f"{where}: {key}",
            "nothing" if found is None else repr(found)[:60],
            "a link has a latency in seconds and a bandwidth in bytes/s that a device can send",
            f"write {key} = {{ latency = 5e-6, bandwidth = 25e9 }}",
        )
    _check_keys(found, ("latency", "bandwidth"), f"{where}: {key}")
    latency = _figure(found, "latency", f"{where}: {key}", least=0)
    return Link(key, latency, _figure(found, "bandwidth", f"{where}: {key}"))


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
    "node": "devices",
    "latency": "seconds",
}


def _figure(table: Mapping[str, Any], key: str, where: str, least: float = 1) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e30:
        raise IllFormed(
            f"{where}: {key}",
            "nothing" if value is None else repr(value)[:60],
            f"a number of {_UNITS[key]}, at least {least}",
            f"write {key} = {_EXAMPLES[key]}",
        )
    return float(value)


_EXAMPLES = {
    "memory": "80e9",
    "flops": "312e12",
    "bandwidth": "2.0e12",
    "node": "8",
    "latency": "5e-6",
}


def _sources(table: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    found = table.get("sources", {})
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise IllFormed(
            f"{where}: sources", repr(found)[:60], "texts by figure", 'write flops = "data sheet"'
        )
    return tuple(found.items())
