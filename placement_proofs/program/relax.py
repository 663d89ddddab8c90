"""Claims that are weaker on purpose, chosen beside a program that promises more.

`late W=2`: the gradient of W may be of two steps before. `within w=1`: the copy w may be read one
version late. `sync W`: copies of W may differ from rank to rank, and agree where they are
averaged or broadcast (local SGD, DiLoCo); what they agree on is then not claimed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from placement_proofs.errors import IllFormed
from placement_proofs.program import (
    Apply,
    Expect,
    Loop,
    Program,
    Reduce,
    Step,
    Take,
    Update,
    Use,
    validate,
)

RULE = "a relaxed claim is 'late W=1', 'within w=1' or 'sync W'"


def relaxed(program: Program, claims: Iterable[str]) -> Program:
    """The program with weaker claims; raises `IllFormed`."""
    texts = tuple(claims)
    for text in texts:
        program = _relaxed(program, text)
    if texts:
        validate(program)
    return program


def _relaxed(program: Program, text: str) -> Program:
    match = re.fullmatch(
        r"(late|within)\s+([\w.]+)\s*=\s*(\d{1,3})|(sync)\s+([\w.]+)", text.strip()
    )
    if match is None:
        raise IllFormed("relax", repr(text[:60]), RULE, "write one of them")
    kind, name = match[1] or match[4], match[2] or match[5]
    params = {p.name for p in program.params}
    copies = {b.name for b in program.buffers if b.of}
    known = copies if kind == "within" else params
    if name not in known:
        found = f"{', '.join(sorted(known)) or 'none'}"
        what = "copies" if kind == "within" else "parameters"
        raise IllFormed("relax", repr(text), f"the program has the {what} {found}", "name one")
    match kind:
        case "late":
            late = int(match[3])
            params_ = (replace(p, late=late) if p.name == name else p for p in program.params)
            return replace(program, params=tuple(params_))
        case "within":
            return replace(program, steps=tuple(_read_late(program.steps, name, int(match[3]))))
        case _:
            return _agreeing(program, name)


def _read_late(steps: tuple[Step, ...], name: str, within: int) -> Iterator[Step]:
    for step in steps:
        match step:
            case Loop(body=body):
                yield replace(step, body=tuple(_read_late(body, name, within)))
            case Use(buf=buf) if buf == name:
                yield replace(step, within=within)
            case _:
                yield step


def _agreeing(program: Program, name: str) -> Program:
    """Copies that follow their own ranks, and must agree after every collective on them."""
    copies = {b.name for b in program.buffers if b.of == name}
    steps = tuple(_synced(program.steps, copies))
    if not any(isinstance(s, Reduce | Take) and s.buf in copies for s in _walk(steps)):
        raise IllFormed(
            "relax",
            f"'sync {name}'",
            f"no step averages or broadcasts {' or '.join(sorted(copies)) or 'a copy'}",
            "copies that nothing synchronises never agree",
        )
    return replace(program, steps=steps)


def _synced(steps: tuple[Step, ...], copies: set[str]) -> Iterator[Step]:
    for step in steps:
        match step:
            case Loop(body=body):
                inner = tuple(_synced(body, copies))
                yield from (replace(step, body=inner),) if inner else ()
            case Use(buf=buf) if buf in copies:
                continue
            case Update(buf=buf, grad=grad) if buf in copies:
                yield Apply(buf, "step", (buf, grad), g=step.g, why="the own optimizer")
            case Reduce(buf=buf) | Take(buf=buf) if buf in copies:
                yield step
                yield Expect(buf, "agree", about="copy-at-sync", g=step.g)
            case _:
                yield step


def _walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from _walk(step.body)
