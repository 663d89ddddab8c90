"""Formulas on arrays: one pass over a tape, in chunks that stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from placement_proofs.cost.symbols import Expr
from placement_proofs.cost.tape import OPERATIONS, ROUNDING, Step, Tape, tape
from placement_proofs.errors import IllFormed

Array: TypeAlias = NDArray[np.float64]

CHUNK = 8192
"""Rows that are worked on at a time: the buffers stay in a second-level cache."""

_UFUNCS: Mapping[str, np.ufunc] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
}


def compiled(expressions: Mapping[str, Expr], columns: Sequence[str] = ()) -> Compiled:
    """Formulas by name as one function of arrays; ``columns`` are the symbols that will be arrays.

    Subexpressions are shared among all formulas. What depends on no column is computed once, not
    row by row, wherever sums and products allow it.
    """
    return Compiled(tape(expressions, frozenset(columns)))


@dataclass(frozen=True)
class Compiled:
    """A tape that runs on arrays. It can be sent to other processes.

    ``known`` keeps the buffers of the steps by the inputs that are arrays.
    """

    tape: Tape
    known: dict[frozenset[int], tuple[list[_Placed], int]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols that need a value."""
        return self.tape.inputs

    def __call__(
        self, values: Mapping[str, float | Array], *, chunk: int = CHUNK
    ) -> dict[str, Array]:
        """The formulas at every row; each value is a number or an array of one length (float64).

        Raises:
            IllFormed: a symbol has no value, or two arrays differ in length.
        """
        rows = _rows(self.tape, values)
        length = _length(values)
        slots, program = _prepared(self.tape, values, rows)
        results = {name: np.empty(length) for name in self.tape.outputs}
        key = frozenset(rows)
        if key not in self.known:
            self.known[key] = _allocated(program, set(self.tape.outputs.values()))
        steps, size = self.known[key]
        buffers = [np.empty(min(chunk, length)) for _ in range(size)]
        for start in range(0, length, chunk):
            stop = min(start + chunk, length)
            self._run(slots, steps, buffers, rows, results, slice(start, stop))
        return results

    def _run(
        self,
        slots: list[float],
        steps: Sequence[_Placed],
        buffers: Sequence[Array],
        rows: Mapping[int, Array],
        results: Mapping[str, Array],
        part: slice,
    ) -> None:
        """One chunk of rows."""
        here: list[float | Array] = list(slots)
        for slot, column in rows.items():
            here[slot] = column[part]
        length = part.stop - part.start
        for step in steps:
            out = buffers[step.buffer][:length]
            if step.name == "ceil":
                np.ceil(np.subtract(here[step.a], ROUNDING, out=out), out=out)
            else:
                _UFUNCS[step.name](here[step.a], here[step.b], out=out)
            here[step.slot] = out
        for name, slot in self.tape.outputs.items():
            results[name][part] = here[slot]


@dataclass(frozen=True)
class _Placed:
    """A step on arrays: its slot, and the buffer that holds its result until its last reader."""

    name: str
    a: int
    b: int
    slot: int
    buffer: int


def _length(values: Mapping[str, float | Array]) -> int:
    """The number of rows: the length of every array, or one.

    Raises:
        IllFormed: two arrays differ in length.
    """
    lengths = {len(value) for value in values.values() if isinstance(value, np.ndarray)}
    if len(lengths) > 1:
        raise IllFormed(
            "columns",
            f"arrays of {' and '.join(map(str, sorted(lengths)))} rows",
            "all arrays have one length",
            "give equally long ones",
        )
    return lengths.pop() if lengths else 1


def _rows(code: Tape, values: Mapping[str, float | Array]) -> dict[int, Array]:
    """The inputs that are arrays, by slot.

    Raises:
        IllFormed: an input is missing.
    """
    missing = [name for name in code.inputs if name not in values]
    if missing:
        raise IllFormed(
            "columns", f"no value for {', '.join(missing)}", "every symbol needs one", "give it"
        )
    given = {slot: values[name] for slot, name in enumerate(code.inputs)}
    return {
        slot: np.asarray(value, dtype=np.float64)
        for slot, value in given.items()
        if isinstance(value, np.ndarray)
    }


def _prepared(
    code: Tape, values: Mapping[str, float | Array], rows: Mapping[int, Array]
) -> tuple[list[float], list[tuple[int, Step]]]:
    """All slots that are numbers, computed, and the steps that remain for arrays."""
    slots = [0.0 if i in rows else float(values[n]) for i, n in enumerate(code.inputs)]
    slots += code.constants
    varies = [i in rows for i in range(len(slots))]
    program = []
    for name, a, b in code.steps:
        vary = varies[a] or varies[b]
        if vary:
            program.append((len(slots), (name, a, b)))
        slots.append(0.0 if vary else OPERATIONS[name](slots[a], slots[b]))
        varies.append(vary)
    return slots, program


def _allocated(program: Sequence[tuple[int, Step]], kept: set[int]) -> tuple[list[_Placed], int]:
    """Buffers for the steps: a buffer is free again after the last step that reads it."""
    last = {slot: i for i, (_, (_, a, b)) in enumerate(program) for slot in (a, b)}
    free: list[int] = []
    held: dict[int, int] = {}
    placed, count = [], 0
    for i, (slot, (name, a, b)) in enumerate(program):
        for read in {a, b}:
            if read in held and last[read] == i and read not in kept:
                free.append(held.pop(read))
        if not free:
            free.append(count)
            count += 1
        held[slot] = free.pop()
        placed.append(_Placed(name, a, b, slot, held[slot]))
    return placed, count
