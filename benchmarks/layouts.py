"""How many layouts a second are evaluated, as ratios against baselines in the same run.

Run with ``python benchmarks/layouts.py``. Memory of the fullest rank and time of a step, of the
same formulas, three ways: on arrays, one layout after the other in plain Python, and by putting the
numbers of one layout into the symbolic formulas. Absolute figures depend on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import sympy

from placement_proofs.cost.symbols import symbol
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.forms import forms
from placement_proofs.layouts.prepared import COLUMNS, prepared
from placement_proofs.layouts.setting import Job, Kind
from placement_proofs.layouts.space import space
from placement_proofs.zoo import PRESETS

ROWS = 400_000
KINDS = {
    "data parallel": Kind(),
    "tensor, pipeline": Kind(tensor=True, sequence=True, pipeline=True),
    "interleaved, context, full recomputation": Kind(
        tensor=True, sequence=True, pipeline=True, context=True, chunks=2, recompute="full"
    ),
}


def best(run: Callable[[], object], repeats: int = 5) -> float:
    """The shortest time of a call in seconds of one processor, whatever else runs on it."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    job = Job("llama-13b", PRESETS["llama-13b"], 2048, 64, load_machine("a100-80gb"))
    print(
        f"{'kind':42} {'steps':>5} {'arrays':>12} {'Python loop':>12} {'symbolic':>10}  (layouts/s)"
    )
    for name, kind in KINDS.items():
        report(name, kind, job)
    whole = best(lambda: space(job))
    print(f"enumerating {len(space(job)):,} valid layouts: {len(space(job)) / whole:,.0f} a second")


def report(name: str, kind: Kind, job: Job) -> None:
    """One line: layouts a second three ways, and the ratios."""
    draw = np.random.default_rng(0)
    columns = {x: 2.0 ** draw.integers(1, 6, ROWS) for x in sorted(COLUMNS)}
    constant = {**job.symbols, **Constants().symbols}
    made, ready = forms(kind, job), prepared(kind, job).formulas
    assert ready is not None
    arrays = ROWS / best(lambda: ready({**constant, **columns}))
    loop = _loop(made.peak, made.step, constant, columns)
    one = {x: int(columns[x][0]) for x in columns}
    given = {symbol(k): sympy.Float(v) for k, v in {**constant, **one}.items()}
    symbolic = 1 / best(lambda: [float(f.xreplace(given)) for f in (made.peak, made.step)])
    steps = len(ready.tape.steps)
    print(f"{name:42} {steps:5} {arrays:12,.0f} {loop:12,.0f} {symbolic:10,.1f}")
    print(f"{'':42} {'':5} {'1':>12} {arrays / loop:>11.0f}x {arrays / symbolic:>9.0f}x  (slower)")


def _loop(
    peak: sympy.Expr,
    step: sympy.Expr,
    constant: dict[str, float],
    columns: dict[str, np.ndarray],
) -> float:
    """Layouts a second of a plain Python function of both formulas, called row by row."""
    names = sorted({*constant, *columns})
    function = sympy.lambdify([symbol(n) for n in names], [peak, step], "math", cse=True)
    rows = [[constant[n] if n in constant else columns[n][i] for n in names] for i in range(2000)]
    plain = [[float(x) for x in row] for row in rows]
    return len(plain) / best(lambda: [function(*row) for row in plain], 3)


if __name__ == "__main__":
    main()
