"""The shipped summary of measured runs; ``python tests/test_layouts_summary.py`` writes it."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SHARED

from placement_proofs.layouts import summary as module
from placement_proofs.layouts.rules import RULES
from placement_proofs.layouts.runs import read_runs
from placement_proofs.layouts.setups import load_setup
from placement_proofs.layouts.summary import HELD_OUT, shipped, summarized, summary

RUNS = Path("data", "layout_runs.csv")


def without_held_out(found):
    return replace(found, ways=tuple(w for w in found.ways if w.name != HELD_OUT))


def test_the_shipped_summary_is_that_of_the_runs(shared):
    assert summary(shared / RUNS) == without_held_out(shipped())


@pytest.mark.deep
def test_the_shipped_errors_on_models_left_out(shared):
    runs = read_runs(shared / RUNS, load_setup("paper"))
    assert summarized(runs, held_out=True) == shipped()


def test_without_a_file_the_shipped_summary_is_given(tmp_path):
    assert summary(tmp_path / "none.csv") is shipped()


def test_a_file_of_other_runs_has_another_summary(shared, tmp_path):
    lines = (shared / RUNS).read_text().splitlines()
    some = [lines[0], *(line for line in lines if line.startswith("llama-13b-2k-64"))]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(some))
    found = summary(path)
    assert found.ran < shipped().ran and found.rules[0].sweeps == 1


def test_the_summary_is_written_as_it_is_read():
    path = Path(module.__file__).with_name("summary.toml")
    assert shipped().to_toml() == path.read_text(encoding="utf-8")
    assert [pairs.rule for pairs in shipped().rules] == [rule.name for rule in RULES]


if __name__ == "__main__":
    measured = summarized(read_runs(SHARED / RUNS, load_setup("paper")), held_out=True)
    home = Path(module.__file__).with_name("summary.toml")
    home.write_text(measured.to_toml(), encoding="utf-8")
