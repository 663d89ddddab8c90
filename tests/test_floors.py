"""The staircase: imports go down only, and each heavy library has one home."""

import ast
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "placement_proofs"

FLOORS = [
    {"errors", "mesh", "layout", "placement", "toml_file", "verdict"},
    {"layers", "model", "models", "profile", "program", "plan", "schedule", "shape", "zoo"},
    {"composition"},
    {"strategies", "expression", "advice"},
    {"derive", "deviate", "deviation"},
    {"project", "replay"},
    {"prove", "cost", "simulate"},
    {"conditions", "configs", "report", "theorems", "topologies", "inequalities"},
    {"inputs"},
    {"checking", "small"},
    {"needed"},
    {"theories", "faults", "exercises", "layouts"},
    {"render"},
    {"cli"},
]
"""From the bottom; a module imports its own floor and those below."""

ALONE = {"prove", "cost", "simulate"}
"""Readers of a plan that do not know each other."""

HOMES = {
    "z3": {"prove/smt.py"},
    "sympy": {"cost/symbols.py"},
    "numpy": {"simulate/", "layouts/"},
    "click": {"cli/"},
    "cvc5": {"prove/certificate.py", "prove/smt.py"},
}
"""Where a library may be named: a file, or a folder with all its files."""

ENGINE = ("derive", "project", "prove", "cost", "simulate")

FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent.name != "_theories")


def part(path):
    """The module or package directly below ``placement_proofs``."""
    return Path(path).relative_to(PACKAGE).parts[0].removesuffix(".py")


def floor(name):
    return next((i for i, names in enumerate(FLOORS) if name in names), None)


@cache
def imports(path):
    """Dotted names that a file imports at run time; imports for type checkers do not count."""
    tree = ast.parse(path.read_text())
    typing = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for child in branch.body
        for node in ast.walk(child)
    }
    names = []
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def our_imports(path):
    for name in imports(path):
        words = name.split(".")
        if words[0] == "placement_proofs" and len(words) > 1:
            yield words[1]


def shown(path):
    return str(path.relative_to(PACKAGE))


def test_every_module_has_a_floor():
    missing = {part(path) for path in FILES if floor(part(path)) is None}
    assert missing == {"__init__", "__main__"}


def test_imports_go_down_only():
    for path in FILES:
        own = floor(part(path))
        if own is not None:
            above = {name for name in our_imports(path) if (floor(name) or 0) > own}
            assert not above, f"{shown(path)} imports upwards"


def test_readers_of_a_plan_do_not_know_each_other():
    for path in FILES:
        if part(path) in ALONE:
            assert not set(our_imports(path)) & (ALONE - {part(path)}), shown(path)


def test_replay_shares_only_the_program_with_prove():
    for path in FILES:
        if part(path) == "replay":
            assert set(our_imports(path)) <= {"errors", "program", "replay"}, shown(path)
        if part(path) in ("project", "program"):
            assert not set(our_imports(path)) & ALONE, shown(path)


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_named_in_its_home_only(library):
    for path in FILES:
        if library in {name.split(".")[0] for name in imports(path)}:
            assert any(shown(path).startswith(home) for home in HOMES[library]), shown(path)


def test_no_strategy_is_named_in_the_engine():
    from placement_proofs.expression import STRATEGIES

    # These strategies' names are also words of the engine's own vocabulary.
    words = {"data", "tensor", "single", "pipeline", "context", "expert", "place", "recompute"}
    telling = set(STRATEGIES) - words - {"offload", "accumulate"}
    for path in FILES:
        if part(path) in ENGINE:
            assert not set(our_imports(path)) & {"strategies"}, shown(path)
            assert not telling & set(_names(path)), shown(path)


def _names(path):
    """Names, attributes and texts in the code of a file, docstrings aside."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and id(node) not in docs:
            yield node.value


def test_the_floors_can_fail(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from placement_proofs.cli import main\n")
    assert {floor(name) for name in our_imports(wrong)} == {len(FLOORS) - 1}
