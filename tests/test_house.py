"""Rules of the house that a test can see."""

import ast
import re
import statistics

from conftest import ROOT

FILES = sorted((ROOT / "placement_proofs").rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def functions():
    for tree in TREES.values():
        yield from (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def test_no_module_is_over_400_lines():
    long = {p.name: n for p in FILES if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_functions_are_short():
    assert statistics.median(f.end_lineno - f.lineno + 1 for f in functions()) < 12


def test_text_is_never_evaluated():
    forbidden = {"eval", "exec", "compile", "parse_expr", "__import__"}
    for path, tree in TREES.items():
        nodes = list(ast.walk(tree))
        own = {f.name for f in nodes if isinstance(f, FUNCTIONS)}
        ours = own | ({"parse_expr"} if _from_package(tree) else set())
        calls = {
            n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        assert not calls & (forbidden - ours), path


def _from_package(tree):
    """Whether ``parse_expr`` is our parser of element programs, not a library's evaluator."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "placement_proofs.program.expr"
        and any(alias.name == "parse_expr" for alias in node.names)
        for node in ast.walk(tree)
    )


def test_sympify_sees_numbers_only():
    """``sympify`` evaluates text; here it is given values of a typed mapping only."""
    named = [p.name for p in FILES if "sympify" in p.read_text()]
    assert named in ([], ["symbols.py"])


def test_every_public_name_is_documented():
    assert not [path for path, tree in TREES.items() if not ast.get_docstring(tree)]
    bare = [
        f"{path.name}: {node.name}"
        for path, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef | FUNCTIONS) and not node.name.startswith("_")
        if not ast.get_docstring(node) and path.parent.name != "cli"
    ]
    assert not bare, "commands have their help instead"


def test_no_module_is_called_utils():
    assert not [p for p in FILES if re.search(r"util|helper|misc|common", p.stem)]


def test_nothing_of_a_machine_is_in_the_project():
    wanted = ("*.py", "*.toml", "*.md", "*.json", "*.yaml", "*.ipynb")
    files = [p for glob in wanted for p in ROOT.rglob(glob) if not _hidden(p)]
    for path in [*files, ROOT / ".ci" / "run"]:
        found = re.search(r"(?<![\w.])/(home|work|Users|root)/", path.read_text())
        assert not found or path.name == "test_house.py", path


def _hidden(path):
    parts = path.relative_to(ROOT).parts
    return any(part.startswith(".") or part in ("build", "dist") for part in parts)
