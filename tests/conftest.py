"""Property-test profiles, the shared folder, and a runner of the command line."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.register_profile(
    "deep",
    derandomize=False,
    deadline=None,
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_configure(config):
    deep = "deep" in config.option.markexpr and "not deep" not in config.option.markexpr
    settings.load_profile("deep" if deep else "ci")


@pytest.fixture(scope="session", autouse=True)
def kept(tmp_path_factory):
    """What programs keep for the next time goes to a folder of this run of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("kept")))
        yield


@pytest.fixture
def shared():
    """The shared folder beside the checkout, which a fresh clone does not have."""
    if not SHARED.is_dir():
        pytest.skip("no folder ../shared beside the checkout")
    return SHARED


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs ``placement-proofs`` in this process, from the root of the checkout."""
    from placement_proofs.cli import main

    monkeypatch.chdir(ROOT)

    def ran(*arguments):
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return ran


def python(code, *, timeout=60):
    """Run Python code in a new interpreter; returns what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
