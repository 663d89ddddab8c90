"""Gathers and releases: sharded parameters are whole between their first and their last use."""

from __future__ import annotations

from collections.abc import Sequence

from placement_proofs.derive.placed import Placed, by_shard, by_unit, spans, unshared
from placement_proofs.layout import Collective, Entry, Layout, without
from placement_proofs.model import PARAMETERS_READ
from placement_proofs.plan import Action, Buffer, Item, Local, Phase, Run, Step, Transfer
from placement_proofs.profile import Profile


def add_gathers(
    placed: Sequence[Placed],
    forward: list[Step],
    backward: list[Step],
    profile: Profile,
    *,
    scheduled: bool,
) -> tuple[list[Step], list[Step]]:
    """Insert gathers and releases; returns those that run once before and after the loop.

    A unit that stays gathered from forward to backward is gathered once a step under a pipeline
    schedule, whose passes of different micro-batches interleave.
    """
    before: list[Step] = []
    after: list[Step] = []
    last = _last_unit(forward, placed)
    for members in by_unit(p for p in placed if p.gather or p.fetched):
        unit = members[0].tensor.unit
        root = profile.root_spans_step and unit == "root"
        kept = root or (profile.keep_last_unit and unit == last) or any(p.keep for p in members)
        kept = kept or profile.gathers_once
        whole = unit == "root" and (root or profile.root_spans_pass)
        if kept and scheduled:
            before += gather(members, Phase.FORWARD)
            after.append(release(members, Phase.BACKWARD))
        else:
            over = profile.regather_axes
            _insert(forward, members, Phase.FORWARD, over, whole=whole, release_too=not kept)
            _insert(backward, members, Phase.BACKWARD, over, whole=whole, gather_too=not kept)
            if profile.gathers_once:
                _gather_again(backward, members, profile.regathered)
    return before, after


def _gather_again(steps: list[Step], members: Sequence[Placed], kinds: tuple[str, ...]) -> None:
    """Gather anew what the backward pass of a recomputed block reads, and of some kinds always.

    A copy from the forward pass is there; the compiler gathers for these uses all the same.
    """
    for first, last in reversed(spans(steps, {p.tensor.name for p in members})):
        runs = [s for s in steps[first : last + 1] if isinstance(s, Run)]
        read = [s for s in runs if not s.backward or s.kind in PARAMETERS_READ]
        recomputed = read if any(not s.backward for s in runs) else []
        always = [s for s in read if s.backward and s.kind in kinds]
        for users in (always, recomputed):
            names = {name for s in users for name in s.params}
            again = [p for p in members if p.tensor.name in names]
            if again:
                steps[first:first] = gather(again, Phase.BACKWARD)


def _last_unit(forward: Sequence[Step], placed: Sequence[Placed]) -> str:
    units = {p.tensor.name: p.tensor.unit for p in placed}
    used = [s.params[0] for s in forward if isinstance(s, Run) and s.params]
    return units[used[-1]] if used else ""


def _insert(
    steps: list[Step],
    members: Sequence[Placed],
    phase: Phase,
    over: tuple[str, ...] = (),
    *,
    whole: bool,
    gather_too: bool = True,
    release_too: bool = True,
) -> None:
    found = spans(steps, {p.tensor.name for p in members})
    if whole and found:
        found = [(0, len(steps) - 1)]
    here = [_used_in(steps[a : b + 1], members, whole=whole) for a, b in found]
    gathered = here if release_too else _once(here)
    released = here if gather_too else _once(here[::-1])[::-1]
    for i in reversed(range(len(found))):
        first, last = found[i]
        if release_too and released[i]:
            steps[last + 1 : last + 1] = let_go(released[i], phase, over)
        if gather_too and gathered[i]:
            steps[first:first] = gather(gathered[i], phase, over)


def _used_in(steps: Sequence[Step], members: Sequence[Placed], *, whole: bool) -> list[Placed]:
    used = {name for s in steps if isinstance(s, Run) for name in s.params}
    return [p for p in members if whole or p.tensor.name in used]


def _once(groups: Sequence[list[Placed]]) -> list[list[Placed]]:
    """Each tensor in the first group that has it: a kept copy is gathered and dropped once."""
    seen: set[str] = set()
    result = []
    for group in groups:
        result.append([p for p in group if p.tensor.name not in seen])
        seen |= {p.tensor.name for p in group}
    return result


def let_go(members: Sequence[Placed], phase: Phase, over: tuple[str, ...]) -> list[Step]:
    """Drop the gathered copies; after the forward pass, of some keep the part on ``over``."""
    kept = [p for p in members if phase is Phase.FORWARD and _part(p, over) is not None]
    rest = [p for p in members if p not in kept]
    steps: list[Step] = [release(rest, phase)] if rest else []
    if kept:
        items = tuple(p.parameter(p.own, _part(p, over) or (), Buffer.GATHERED) for p in kept)
        where = kept[0].where(phase)
        steps.append(Local(Action.SLICE, items, where, "a part stays for the backward pass"))
    return steps


def _part(placed: Placed, over: tuple[str, ...]) -> Layout | None:
    """The layout of a copy that is cut to its part on some of the axes of its only shard."""
    if not over or len(placed.gather) != 1 or not set(over) < set(placed.gather[0].axes):
        return None
    return (*placed.own, Entry(over, placed.gather[0].on))


def _regathered(members: Sequence[Placed], phase: Phase, over: tuple[str, ...]) -> Step:
    items = tuple(p.parameter(_part(p, over) or (), p.own, Buffer.GATHERED) for p in members)
    pad = members[0].gather[0].axes
    where, why = members[0].where(phase), "gather the rest again"
    return Transfer(Collective.ALL_GATHER, over, items, where, why, pad=pad)


def gather(members: Sequence[Placed], phase: Phase, over: tuple[str, ...] = ()) -> list[Step]:
    """Fetch from the host what is stored there, then all-gather, innermost shards first.

    Before the backward pass, what was kept in part is gathered over the axes ``over`` alone.
    """
    steps: list[Step] = []
    parts = [p for p in members if phase is Phase.BACKWARD and _part(p, over) is not None]
    if parts:
        steps.append(_regathered(parts, phase, over))
        members = [p for p in members if p not in parts]
    fetched = [p for p in members if p.fetched]
    if fetched:
        stored = [p.parameter(p.tensor.stored, p.tensor.stored, Buffer.STORED) for p in fetched]
        where = fetched[0].where(phase)
        steps.append(Transfer(Collective.HOST, (), tuple(stored), where, "fetch parameters", 1))
    for axes, group in by_shard(members, lambda p: p.gather):
        items = tuple(_gathered(p, axes) for p in group)
        where = group[0].where(phase)
        flat = all(p.tensor.flat for p in group)
        why = "gather before use"
        steps.append(Transfer(Collective.ALL_GATHER, axes, items, where, why, flat=flat))
    return steps


def _gathered(placed: Placed, axes: tuple[str, ...]) -> Item:
    names = [e.axes for e in placed.gather]
    done = placed.gather[names.index(axes) + 1 :]
    before = unshared(placed.tensor.stored, done)
    return placed.parameter(before, without(before, axes), Buffer.GATHERED)


def release(members: Sequence[Placed], phase: Phase) -> Step:
    """Drop the gathered copies."""
    items = tuple(p.parameter(p.own, p.tensor.stored, Buffer.GATHERED) for p in members)
    return Local(Action.RELEASE, items, members[0].where(phase), "after use")
