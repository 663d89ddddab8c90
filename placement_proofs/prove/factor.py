"""By how much a refuted value is wrong, in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from placement_proofs.prove.algebra import ONE, Opaque, Poly, mono_poly
from placement_proofs.prove.compare import Blocks
from placement_proofs.prove.engine import Run, Runs
from placement_proofs.prove.forms import Form
from placement_proofs.prove.state import Obligation

Entry: TypeAlias = tuple[str, str, str]
"""The ratio of a coefficient, which contribution, and on which ranks."""
SHOWN = ("contribution", "count", "square")


@dataclass(frozen=True)
class Factor:
    """`text`: what is there over what should be; `uniform` if alike for all contributions."""

    text: str
    uniform: bool


def without_clip(run: Run, form: Form) -> Form:
    """A value with every clip factor replaced by one."""
    atoms = run.state.atoms

    def plain(index: int) -> Poly:
        atom = atoms.atoms[index]
        clip = isinstance(atom, Opaque) and atom.kind == "clip"
        return ONE if clip else mono_poly(((index, 1),))

    return {key: atoms.substitute(poly, plain) for key, poly in form.items()}


def only_clip(run: Run, obligation: Obligation) -> bool:
    """Whether a gradient is wrong in nothing but its clip factor."""
    got, want = (without_clip(run, form) for form in (obligation.got, obligation.want))
    return run.state.compare.equal(got, want, obligation.layout)


def find_factor(runs: Runs, condition: str) -> Factor | None:
    """The factor of the first failed obligation of a condition that has one."""
    ordered = sorted(runs.runs, key=lambda run: (len(run.size.ones), len(run.size.bounded)))
    for run in ordered:
        for obligation in run.failed:
            if obligation.condition == condition:
                found = _factor(run, obligation)
                if found is not None:
                    return found
    return None


def _factor(run: Run, obligation: Obligation) -> Factor | None:
    ratios: dict[str, list[str]] = {}
    for ratio, place in _placed(run, obligation):
        ratios.setdefault(ratio, []).append(place)
    if not ratios:
        return None
    if len(ratios) == 1:
        return Factor(next(iter(ratios)), True)
    parts = [f"{ratio} for {_join(places)}" for ratio, places in ratios.items()]
    return Factor("; ".join(parts[:4]), False)


def _placed(run: Run, obligation: Obligation) -> Iterator[tuple[str, str]]:
    """The ratio of every entry, and where it is: as little of it as tells the ratios apart."""
    state = run.state
    families: dict[str, list[Entry]] = {}
    for symbol, got, want, where in state.compare.pairs(
        obligation.got, obligation.want, obligation.layout
    ):
        if state.symbols.symbols[symbol].kind in SHOWN and (got or want):
            entry = (_ratio(run, got, want), _where(where), _on_rank(where))
            families.setdefault(_name(run, symbol), []).append(entry)
    for name, entries in families.items():
        yield from ((ratio, f"{name}{place}") for ratio, place in _told_apart(entries))


def _told_apart(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Ratios with a place: none, the contribution's, the rank's, or both."""
    choices = (
        [(ratio, "") for ratio, _, _ in entries],
        [(ratio, where) for ratio, where, _ in entries],
        [(ratio, rank) for ratio, _, rank in entries],
    )
    both = [(ratio, where + rank) for ratio, where, rank in entries]
    return next((c for c in choices if len({p for _, p in c}) == len(set(c))), both)


def _on_rank(where: Mapping[str, Blocks]) -> str:
    """At which named positions the rank is that holds the value; empty without any."""
    parts = []
    for axis, blocks in where.items():
        named = [n for n in blocks if n not in ("r", "c")]
        at = [n for n in named if blocks[n] == blocks.get("r")]
        parts += [f"{axis} {'='.join(at)}" if at else f"other {axis}"] if named else []
    return f" on {', '.join(parts)}" if parts else ""


def _join(places: list[str]) -> str:
    distinct = list(dict.fromkeys(places))
    return " and ".join(distinct[:3])


def _ratio(run: Run, got: Poly, want: Poly) -> str:
    atoms = run.state.atoms
    if not want:
        return "a contribution that is not wanted"
    quotient = got * atoms.inverse(want)
    return atoms.text(quotient)


def _where(where: Mapping[str, Blocks]) -> str:
    """Which contributions, in brackets: own, of a named position, or other."""
    parts = []
    for axis, blocks in where.items():
        own = "r" in blocks and blocks["r"] == blocks["c"]
        here = [n for n, b in blocks.items() if n not in ("r", "c") and b == blocks["c"]]
        if own:
            parts.append(f"own {axis}")
        elif here:
            parts.append(f"{axis} {'='.join(here)}")
        else:
            parts.append(f"other {axis}")
    return f"[{', '.join(parts)}]" if parts else ""


def _name(run: Run, symbol: int) -> str:
    """The family of a symbol; for squares, of what was squared."""
    data = run.state.symbols.symbols[symbol].data
    if isinstance(data, str):
        return data
    inner = data[0] if isinstance(data, tuple) else data
    if not isinstance(inner, frozenset):
        return "a value"
    names = {_name(run, key[0]) for key, _ in inner}
    return f"squares of {' and '.join(sorted(names))}"
