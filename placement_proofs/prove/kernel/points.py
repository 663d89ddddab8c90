"""The points at which agreement is agreement everywhere, for given bounds on degrees."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from placement_proofs.prove.kernel.machine import Cert
from placement_proofs.prove.kernel.numbers import Degrees


def grid(cert: Cert, degrees: Mapping[str, int]) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """The points that bounds on degrees ask for: one more size than the degree, and the small.

    The blocks of an axis are the rank, the index and the named positions (and, where counts are
    added up, another rank): from as many ranks on all sizes are alike. Turns are alike from four
    on: first, middle, last but one, last.
    """
    owners = [(a, o) for a in cert["axes"] for o in sorted(cert["owners"][a], key=_ends_first)]
    rest = 3 if cert["counts"] else 2
    blocks = {a: rest + len(cert["owners"][a]) for a in cert["axes"]}
    least = {**blocks, **dict.fromkeys(cert["loops"], 4)}
    tops = {name: degrees[name] + least[name] for name in least}
    ranges = [range(tops[a] if _endless(cert, a) else 1, tops[a] + 1) for a in least]
    for choice in itertools.product(*ranges):
        sizes = dict(zip(least, choice, strict=True))
        yield from ((sizes, at) for at in _placements(owners, sizes))


def _ends_first(owner: str) -> tuple[bool, str]:
    return owner not in ("first", "last"), owner


def _endless(cert: Cert, name: str) -> bool:
    """Whether a shorter run is the beginning of a longer one: the last step, and no one asks."""
    last = cert["steps"][-1] if cert["steps"] else {"op": "none"}
    own = last["op"] == "loop" and last["loop"] == name
    return own and _times_named([cert["steps"], cert["normal_form"]], name) == 1


def _times_named(tree: Any, name: str) -> int:
    if isinstance(tree, dict):
        tree = list(tree.values())
    return sum(_times_named(t, name) for t in tree) if isinstance(tree, list) else tree == name


def _placements(
    owners: list[tuple[str, str]], sizes: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Positions of owners, alike but for which coincide with each other and with named ends."""
    if not owners:
        yield {}
        return
    axis, owner = owners[-1]
    for at in _placements(owners[:-1], sizes):
        used = {p for name, p in at.items() if name.rpartition(":")[0] == axis}
        fresh = [p for p in range(sizes[axis]) if p not in used][:1]
        ends = {"first": [0], "last": [sizes[axis] - 1]}
        for position in ends.get(owner, sorted({*used, *fresh})):
            yield {**at, f"{axis}:{owner}": position}


def simplex(count: int, degree: int) -> Iterator[Degrees]:
    """All numbers >= 0, that many, of sum at most `degree`: they fix polynomials of that degree."""
    if count == 0:
        yield ()
        return
    for first in range(degree + 1):
        yield from ((first, *rest) for rest in simplex(count - 1, degree - first))
