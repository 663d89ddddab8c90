"""Importing is cheap: heavy libraries load only where they are needed."""

import pytest
from conftest import python

HEAVY = ("sympy", "z3", "numpy")

LOADED = """
import sys
{code}
print(*sorted({{m.partition(".")[0] for m in sys.modules}} & set({names!r})))
"""


def loaded(code, names):
    return python(LOADED.format(code=code, names=tuple(names))).split()


def command(*arguments):
    return f"from placement_proofs.cli import main; main({list(arguments)!r})"


def quiet(code):
    return f"import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()): {code}"


def test_import_loads_nothing_heavy():
    assert loaded("import placement_proofs", (*HEAVY, "click", "rich", "yaml")) == []


@pytest.mark.parametrize("name", HEAVY)
def test_the_test_can_fail(name):
    assert loaded(f"import placement_proofs, {name}", HEAVY)


def test_strategies_load_nothing_heavy():
    code = "from placement_proofs import tensor, zero3; zero3(dp=8) * tensor(tp=4)"
    assert loaded(code, (*HEAVY, "click")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("zero3(dp=8) * tensor(tp=4, sequence=True)",),
        ("data(dp=8)", "--without", "drop all-reduce gradient dp"),
        ("examples/configs/deepspeed_zero3.json", "--world", "64"),
        ("examples/two_machines.toml", "--json"),
    ],
)
def test_check_loads_neither_sympy_nor_numpy(arguments):
    assert loaded(quiet(command("check", *arguments)), ("sympy", "numpy")) == []


def test_check_starts_quickly():
    """Half a second from a cold start; the processor's time, so that a busy machine passes."""
    code = f"""
import resource, subprocess, sys
command = [sys.executable, "-m", "placement_proofs", "check", "{FIVE}"]
def seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
def once():
    before = seconds()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return seconds() - before
print(min(once() for _ in range(3)))
"""
    assert float(python(code)) < 0.7


FIVE = (
    "hsdp(dp_replicate=2, dp_shard=4) * tensor(tp=4, sequence=True) * context(cp=2) * "
    "pipeline(pp=2, microbatches=8)"
)


def test_formula_loads_no_z3():
    code = quiet(command("formula", "zero3(dp=N)", "--model", "abstract"))
    assert loaded(code, HEAVY) == ["sympy"]


def test_public_names_are_there():
    import placement_proofs

    for name in placement_proofs.__all__:
        assert getattr(placement_proofs, name).__doc__, name
    assert 20 <= len(placement_proofs.__all__) <= 30


def test_names_survive_the_import_of_their_modules():
    """A function must not be shadowed by a module of its name, in whatever order they load."""
    from importlib import import_module
    from pathlib import Path

    import placement_proofs

    modules = {path.stem for path in Path(placement_proofs.__file__).parent.iterdir()}
    assert not modules & set(placement_proofs.__all__)
    for name in ("checking", "composition", "report"):
        import_module(f"placement_proofs.{name}")
    assert callable(placement_proofs.check)


def test_unknown_name():
    import placement_proofs

    with pytest.raises(AttributeError, match="zero4"):
        placement_proofs.zero4  # noqa: B018
