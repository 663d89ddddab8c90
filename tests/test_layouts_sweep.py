"""Sweeps: any executor, a worker killed in the middle, interrupted and resumed: the same file."""

import csv
import importlib.util
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace

import pytest
from conftest import ROOT

from placement_proofs.errors import IllFormed
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.devices import load_machine
from placement_proofs.layouts.setting import Job
from placement_proofs.layouts.space import Choices
from placement_proofs.layouts.sweep import HEADER, solved, sweep, tasks
from placement_proofs.zoo import PRESETS

SHAPE = replace(PRESETS["llama-13b"], sequence=2048)
FEW = Choices(chunks=(1,), zero=(1, 3), recompute=("none",), context=(1,), micro_batch=(1, 2, 4))
ROWS = 4


def jobs(*gpus):
    return [Job("llama-13b", SHAPE, 512, n, load_machine("a100-80gb")) for n in gpus]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Formulas kept over the tests of this module, so that only the first one works them out."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def whole(folder):
    """The file of an undisturbed sweep in this process."""
    output = folder / "whole.csv"
    swept = sweep(jobs(16, 32), output, Constants(), choices=FEW, folder=folder, rows=ROWS)
    assert swept.found == 0 and swept.chunks > 40
    return output.read_bytes()


def test_a_row_for_each_layout(whole):
    lines = whole.decode().splitlines()
    rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == HEADER
    layouts = {tuple(v for k, v in row.items() if k not in HEADER[-4:]) for row in rows}
    assert len(layouts) == len(rows) == sum(len(t.block) for t in tasks(jobs(16, 32), FEW)) > 150
    for row in rows[::50]:
        degrees = [int(row[k]) for k in ("tensor", "pipeline", "data", "context", "expert")]
        assert degrees[0] * degrees[1] * degrees[2] * degrees[3] * degrees[4] == int(row["gpus"])
        assert (row["fits"] == "True") == (float(row["peak_bytes"]) <= 80 * 2**30)
        assert 0 < float(row["mfu"]) < 1


class Shuffled(Executor):
    """Finishes what was submitted last first, one at a time, as a remote executor may."""

    def __init__(self):
        self.threads = ThreadPoolExecutor(1)
        self.held = []

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        self.held.append((future, function, args, kwargs))
        if len(self.held) == 4:
            self.threads.submit(self.run)
        return future

    def run(self):
        while self.held:
            future, function, args, kwargs = self.held.pop()
            future.set_result(function(*args, **kwargs))

    def shutdown(self, wait=True, *, cancel_futures=False):
        self.threads.shutdown(wait)


def test_any_executor_gives_the_same_file(tmp_path, whole, folder):
    output = tmp_path / "out.csv"
    four = jobs(16, 32)
    count = len(tasks(four, FEW, rows=ROWS))
    with Shuffled() as executor:
        extra = -count % 4
        swept = sweep(
            four,
            output,
            Constants(),
            choices=FEW,
            executor=executor,
            window=4 if not extra else 1000,
            folder=folder,
            rows=ROWS,
        )
    assert output.read_bytes() == whole and swept.chunks == count


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path, whole, folder):
    output = tmp_path / "out.csv"

    def interrupted(parts, missing):
        for i, part in enumerate(parts):
            if i == 9:
                raise KeyboardInterrupt
            yield part

    options = {"choices": FEW, "folder": folder, "rows": ROWS}
    with pytest.raises(KeyboardInterrupt):
        sweep(jobs(16, 32), output, Constants(), watch=interrupted, **options)
    assert not output.exists()
    swept = sweep(jobs(16, 32), output, Constants(), **options)
    assert swept.found == 10 and output.read_bytes() == whole
    assert not list(tmp_path.glob("*.parts"))


def test_another_sweep_does_not_go_on_with_its_chunks(tmp_path, folder):
    output = tmp_path / "out.csv"
    (tmp_path / "out.csv.parts").mkdir()
    (tmp_path / "out.csv.parts" / "sweep.json").write_text('{"sweep": "another"}')
    with pytest.raises(IllFormed, match="only the same sweep can go on"):
        sweep(jobs(16), output, Constants(), choices=FEW, folder=folder)
    output.write_text("mine")
    with pytest.raises(IllFormed, match="a finished sweep is not overwritten"):
        sweep(jobs(16), output, Constants(), choices=FEW, folder=folder)
    assert output.read_text() == "mine"
    with pytest.raises(IllFormed, match=r"a sweep writes \.csv or \.parquet"):
        sweep(jobs(16), tmp_path / "out.txt", Constants(), choices=FEW, folder=folder)


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, "tests")
from test_layouts_sweep import FEW, ROWS, jobs
from placement_proofs.layouts.constants import Constants
from placement_proofs.layouts.sweep import sweep

def slowly(parts, missing):
    for part in parts:
        time.sleep(0.02)
        yield part

output, folder = map(Path, sys.argv[1:])
sweep(jobs(16, 32), output, Constants(), choices=FEW, folder=folder, rows=ROWS, watch=slowly)
"""


def test_killed_in_the_middle_and_resumed_the_file_is_identical(tmp_path, whole, folder):
    output = tmp_path / "out.csv"
    command = [sys.executable, "-c", KILLED, str(output), str(folder)]
    process = subprocess.Popen(command, cwd=ROOT)
    parts = tmp_path / "out.csv.parts"
    _until(lambda: len(list(parts.glob("*.csv"))) >= 5)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not output.exists()
    kept = len(list(parts.glob("*.csv")))
    swept = sweep(jobs(16, 32), output, Constants(), choices=FEW, folder=folder, rows=ROWS)
    assert kept <= swept.found < swept.chunks
    assert output.read_bytes() == whole


def _until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.skipif(not importlib.util.find_spec("distributed"), reason="needs distributed (Dask)")
def test_a_dask_worker_killed_in_the_middle_loses_nothing(tmp_path, whole, folder):
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    quiet = {"dashboard_address": None, "silence_logs": 50}
    output, killed = tmp_path / "out.csv", []
    with LocalCluster(**options, **quiet) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        before = set(client.run(os.getpid).values())

        def kill_one(parts, missing):
            for i, part in enumerate(parts):
                if i == 5:
                    killed.append(before.pop())
                    os.kill(killed[0], signal.SIGKILL)
                yield part

        swept = sweep(
            jobs(16, 32),
            output,
            Constants(),
            choices=FEW,
            executor=client.get_executor(),
            window=8,
            folder=folder,
            rows=ROWS,
            watch=kill_one,
        )
    assert killed and swept.found == 0 and output.read_bytes() == whole


@pytest.mark.skipif(not importlib.util.find_spec("pyarrow"), reason="needs pyarrow")
def test_parquet_has_the_same_rows(tmp_path, whole, folder):
    import pyarrow.parquet

    output = tmp_path / "out.parquet"
    swept = sweep(jobs(16, 32), output, Constants(), choices=FEW, folder=folder, rows=ROWS)
    table = pyarrow.parquet.read_table(output)
    rows = list(csv.DictReader(whole.decode().splitlines()))
    assert table.num_rows == swept.rows == len(rows) and tuple(table.column_names) == HEADER
    texts = [{k: str(v) for k, v in row.items()} for row in table.to_pylist()]
    assert texts == rows


def test_parquet_without_pyarrow_is_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(IllFormed, match=r"pip install 'placement-proofs\[parquet\]'"):
        sweep(jobs(16), tmp_path / "out.parquet", Constants(), choices=FEW)


def test_a_class_that_is_not_proved_has_no_rows(monkeypatch):
    from placement_proofs.layouts import prepared as module
    from placement_proofs.layouts.proofs import ClassProof
    from placement_proofs.verdict import Verdict

    unknown = ClassProof("data(dp='d')", Verdict.UNKNOWN, reason="as a test wants")
    monkeypatch.setattr(module, "proof_of", lambda kind, job: unknown)
    module._made.cache_clear()
    task = tasks(jobs(16), FEW)[0]
    assert all(not len(column) for column in solved(task, Constants()).values())
    module._made.cache_clear()
