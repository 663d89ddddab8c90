"""How long ``check`` takes, as ratios against a baseline in the same run.

Run with ``python benchmarks/check.py``. Absolute times depend on the machine; the ratios say
whether the work grows with sizes, depth or the number of axes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from placement_proofs import checking, conditions
from placement_proofs.inputs import read_subject

ONE = "data(dp=8)"
FIVE = (
    "zero1(dp=4, shard_over=('dp', 'cp')) * context(cp=2, method='ring') "
    "* tensor(tp=4, sequence=True) * pipeline(pp=4, microbatches=16) * expert(ep=2)"
)
REPEATS = 7


def median(run: Callable[[], object]) -> float:
    """Median time of a call in seconds, after one call that is not counted."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def checked(text: str, **options: object) -> Callable[[], object]:
    """A check that proves everything again, without the cache of earlier proofs."""

    def run() -> object:
        conditions.forget()
        return checking.check(read_subject(text, **options))  # type: ignore[arg-type]

    return run


def cold(*arguments: str) -> Callable[[], object]:
    """A new Python process."""
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def main() -> None:
    base = median(checked(ONE))
    start = median(cold("-c", "pass"))
    rows = [
        ("check, one axis (baseline)", base, base),
        ("check, five axes with micro-batches", median(checked(FIVE)), base),
        ("check, dp = 1,000,000", median(checked("data(dp=1000000)")), base),
        ("check, a fault", median(checked(ONE, without=["drop all-reduce gradient dp"])), base),
        ("python alone (baseline)", start, start),
        ("check from a cold start", median(cold("-m", "placement_proofs", "check", ONE)), start),
        ("five axes, cold", median(cold("-m", "placement_proofs", "check", FIVE)), start),
    ]
    for name, seconds, baseline in rows:
        print(f"{name:40} {seconds * 1e3:8.1f} ms  {seconds / baseline:6.1f} x")


if __name__ == "__main__":
    main()
