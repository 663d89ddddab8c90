"""Which steps and rules a proof uses: unsat cores with one assertion for each step.

A run of the prover is traced: whatever a step writes is named, and what it is in terms of what
was there becomes an assertion under the step's label; that sizes are at least 1 (or 2) is one
more. What an obligation compares, taken to differ, is refuted from them; the labels that z3
needs for it are tried once more without each, so that a core is minimal where every deletion
was shown satisfiable. A step that only passes a value on is used, too: whether the program could
do without it is what deleting it tells (:mod:`placement_proofs.needed`).

Loops are run for a few turns (that these stand for all is the induction of
:mod:`~placement_proofs.prove.loops`). Values that go into functions, squares and norms are not
named: a step that makes them counts as used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from placement_proofs.program import (
    Apply,
    Clip,
    Guard,
    Loop,
    Move,
    Program,
    Square,
    Step,
    Tick,
)
from placement_proofs.program.rules import walk
from placement_proofs.prove import smt
from placement_proofs.prove.algebra import Opaque, Poly
from placement_proofs.prove.blame import paths, step_texts
from placement_proofs.prove.certificate import declarations, equal, unequal
from placement_proofs.prove.compare import Comparer
from placement_proofs.prove.engine import Run, execute
from placement_proofs.prove.forms import Form, Layout
from placement_proofs.prove.owners import unified
from placement_proofs.prove.semantics import run
from placement_proofs.prove.state import Obligation, State
from placement_proofs.replay import Path, step_name

TURNS, STEPS = 3, 2
"""Turns of a loop, and of one whose turns are training steps."""

SIZES = "sizes"

RULES = {
    "Source": "contributions enter, each rank's own",
    "Init": "an unknown enters",
    "Sample": "random numbers enter",
    "Reduce": "a sum over ranks: own contributions become all, equal ones as many as ranks",
    "Take": "all ranks get what one has",
    "Slice": "each rank keeps what it owns",
    "Scale": "a factor",
    "Move": "a copy, or the sum of two values",
    "Apply": "equal arguments of a function give equal values",
    "Square": "squares of an element count once for each rank that has it",
    "Clip": "equal norms give equal factors",
    "Update": "equal state and gradient give equal updates",
    SIZES: "a size that divides is not zero",
}
"""The rule of each kind of step."""


@dataclass(frozen=True)
class Follows:
    """What one obligation's proof uses: steps with text and rule; whether no less would do."""

    condition: str
    subject: str
    steps: tuple[tuple[Path, str, str], ...]
    sizes: bool
    minimal: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        steps = [{"step": step_name(p), "text": text, "rule": rule} for p, text, rule in self.steps]
        about = {"condition": self.condition, "of": self.subject}
        return {**about, "steps": steps, "sizes": self.sizes, "minimal": self.minimal}


class _Assumed(Comparer):
    """Takes everything for equal: what is traced has been proved."""

    def equal(self, got: Form, want: Form, layout: Layout) -> bool:
        return True


class _Traced(State):
    """A run that names what steps write."""

    def __init__(self, program: Program, of: Run) -> None:
        ticking = {s.axis for s in walk(program.steps) if isinstance(s, Loop) and _ticks(s)}
        free = [loop for loop in program.loops if loop not in of.size.ones]
        turns = {loop: STEPS if loop in ticking else TURNS for loop in free}
        size = replace(of.size, bounded={**turns, **of.size.bounded})
        super().__init__(program, of.state.symbols, size)
        self.compare = _Assumed(self.symbols, self.positions, self.fixed, frozenset(program.loops))
        self.defined: list[tuple[Path, int, Poly]] = []
        self.inlined: set[Path] = set()
        self.unnamed = _into_functions(program)

    def write(self, name: str, form: Form, layout: Layout, guard: Guard) -> None:
        super().write(name, form, layout, guard)
        form, layout = self.env[name]
        if name in self.unnamed or any(self.atoms.marks(poly) for poly in form.values()):
            self.inlined.add(self.path)
            return
        self.env[name] = {key: self._name(poly) for key, poly in form.items()}, layout

    def _name(self, poly: Poly) -> Poly:
        atom = Opaque("step", (self.path, len(self.defined), self.tick), ())
        self.defined.append((self.path, self.atoms.id(atom), poly))
        return self.atoms.poly(atom)


def _ticks(loop: Loop) -> bool:
    return any(isinstance(step, Tick) for step in walk(loop.body))


def _into_functions(program: Program) -> set[str]:
    """The buffers whose values go into functions, squares and norms."""
    steps = list(walk(program.steps))
    found: set[str] = set()
    for step in steps:
        match step:
            case Apply(args=names) | Square(srcs=names):
                found.update(names)
            case Clip(bufs=names, by=by):
                found.update((*names, by))
    while more := {s.src for s in steps if isinstance(s, Move) and s.dst in found} - found:
        found |= more
    return found


def uses(program: Program) -> tuple[Follows, ...]:
    """For each obligation of a proved program, in the class of the largest sizes.

    Raises:
        IllFormed: the program has no meaning.
    """
    general = min(execute(program, dict(program.sizes)).runs, key=lambda r: len(r.size.ones))
    state = _Traced(unified(program, dict(program.sizes)), general)
    run(state, state.program.steps)
    groups: dict[tuple[str, Path, str], list[Obligation]] = {}
    for obligation in state.obligations:
        if not obligation.got and not obligation.want:
            continue
        key = (obligation.condition, obligation.step, obligation.subject)
        groups.setdefault(key, []).append(obligation)
    texts, steps = step_texts(program), dict(paths(program.steps))
    found = (_use(state, key, group, texts, steps) for key, group in groups.items())
    return tuple(dict.fromkeys(use for use in found if use is not None))


def _use(
    state: _Traced,
    key: tuple[str, Path, str],
    group: Iterable[Obligation],
    texts: dict[Path, str],
    steps: dict[Path, Step],
) -> Follows | None:
    labels = {path: f"step{i}" for i, path in enumerate(texts)}
    core = smt.core(_script(state, group, labels), [SIZES, *labels.values()])
    if core is None:
        return None
    copies = key[0] in ("state_consistency", "optimizer_class")
    unnamed = set() if copies else state.inlined
    used = [path for path, label in labels.items() if label in core.labels or path in unnamed]
    rules = {path: RULES.get(type(steps[path]).__name__, "") for path in used}
    told = tuple((path, texts[path], rules[path]) for path in used)
    whole = core.minimal and not unnamed
    return Follows(key[0], key[2], told, SIZES in core.labels, whole)


def _script(state: _Traced, group: Iterable[Obligation], labels: dict[Path, str]) -> str:
    pairs = {
        (got, want)
        for o in group
        for _, got, want, _ in state.compare.pairs(o.got, o.want, o.layout)
    }
    defined = [(path, state.atoms.poly(state.atoms.atoms[a]), p) for path, a, p in state.defined]
    polys = [p for pair in pairs for p in pair] + [p for _, *pair in defined for p in pair]
    flags = [SIZES, *labels.values()]
    lines = [f"(declare-const {flag} Bool)" for flag in flags]
    lines += declarations(state.atoms, state.size, polys, SIZES)
    lines += [f"(assert (=> {labels[path]} {equal(name, p)}))" for path, name, p in defined]
    different = sorted(unequal(got, want) for got, want in pairs)
    lines.append(f"(assert (or false {' '.join(different)}))")
    return "\n".join(lines) + "\n"
