"""The notebooks run and show what they give; ``python tests/test_notebooks.py`` writes it.

Every exercise has a cell for the answer, a check, and a worked answer folded in: its first block
of code must be told to be right, every other one to be wrong.
"""

import ast
import re
from copy import deepcopy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
OWN_STRATEGY = "10_your_own_strategy"
"""The notebook that writes functions: strategies."""

BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
KINDS = ("image/svg+xml", "text/latex", "text/markdown", "text/plain")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    nbformat = pytest.importorskip("nbformat", reason="the notebooks extra is not installed")
    return nbformat.read(path, as_version=4)


def executed(notebook):
    client = pytest.importorskip("nbclient", reason="the notebooks extra is not installed")
    # Times of day, pieces of streams and the version of Python would differ at every run.
    client.NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
        timeout=300,
        record_timing=False,
        coalesce_streams=True,
    ).execute()
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def tags(cell):
    return cell.metadata.get("tags", ())


def shown(cell):
    """The outputs of a cell, each in its richest form."""
    texts = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        rich = next((data[kind] for kind in KINDS if kind in data), "")
        texts.append(output.get("text") or "".join(rich))
    return "".join(texts)


def exercises(notebook):
    """The number of each check's cell, and the blocks of code of its worked answer."""
    cells = notebook.cells
    for number, cell in enumerate(cells):
        if "check" in tags(cell):
            assert "answer" in tags(cells[number - 1]) and "worked" in tags(cells[number + 1])
            yield number, BLOCK.findall(cells[number + 1].source)


def with_answers(notebook):
    """The notebook with every answer, right and wrong, checked behind its exercise."""
    from nbformat.v4 import new_code_cell

    filled = deepcopy(notebook)
    for number, blocks in reversed(list(exercises(notebook))):
        check = notebook.cells[number].source
        more = [
            new_code_cell(source, metadata={"tags": [kind]})
            for index, block in enumerate(blocks)
            for source, kind in ((block, "filled"), (check, "wrong" if index else "right"))
        ]
        filled.cells[number + 1 : number + 1] = more
    return filled


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@each_notebook
def test_notebook_shows_what_it_gives_and_tells_right_from_wrong(path):
    committed = read(path)
    cells = code(executed(with_answers(committed)))
    own = [c for c in cells if not {"filled", "right", "wrong"} & set(tags(c))]
    assert [(c.source, shown(c)) for c in own] == [(c.source, shown(c)) for c in code(committed)]
    assert all(shown(c).startswith("right: ") for c in cells if "right" in tags(c))
    assert all(shown(c).startswith("not right: ") for c in cells if "wrong" in tags(c))


@each_notebook
def test_notebook_ends_in_exercises(path):
    notebook = read(path)
    found = list(exercises(notebook))
    assert len(found) >= (1 if path.stem.startswith("00") else 3)
    assert all(len(blocks) >= 2 for _, blocks in found), "a right and a wrong answer"
    assert all(shown(notebook.cells[n]).startswith("no answer yet") for n, _ in found)
    first = next(i for i, c in enumerate(notebook.cells) if c.source.startswith("## Exercises"))
    assert all(n > first for n, _ in found)
    assert not [c for c in notebook.cells[first + 1 :] if c.source.startswith("## ")]


@each_notebook
def test_notebook_is_prose_calls_and_pictures(path):
    notebook = read(path)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == "markdown" and kinds.count("markdown") * 2 >= kinds.count("code")
    if path.stem != OWN_STRATEGY:
        assert not [name for cell in code(notebook) for name in defined(cell.source)]


def defined(source):
    """Functions and classes that code defines."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    return [ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]


@each_notebook
def test_numbers_in_the_text_are_computed(path):
    """Every number from 10 on, and every decimal, is in some cell's source or output.

    Worked answers are compared with the package by their checks.
    """
    notebook = read(path)
    given = " ".join(c.source + " " + shown(c) for c in code(notebook))
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "worked" not in tags(cell):
            missing = [n for n in numbers(cell.source) if n not in numbers(given)]
            assert not missing, (cell.id, missing)


def numbers(text):
    """Numbers apart from names such as 1F1B, ``ep2`` or those of papers, notebooks and headings."""
    names = r"arXiv\s+\d+\.\d+|\[\d+\]\([^)]*\)|\]\([^)]*\)|https?://\S+|notebook \d+|^#+ \d+\."
    plain = re.sub(names, "", text, flags=re.M)
    found = re.findall(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w)", plain)
    return {n.replace(",", "") for n in found if len(n.replace(",", "")) > 1}


@each_notebook
def test_links_between_notebooks_lead_somewhere(path):
    for cell in read(path).cells:
        for target in re.findall(r"\]\(([^)]*)\)", cell.source):
            assert target.startswith("https://") or (FOLDER / target).exists(), target


@each_notebook
def test_notebook_makes_small_differences(path):
    """Cells keep their names, and nothing of a machine or of a run is written down."""
    notebook = read(path)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert not [c for c in notebook.cells if re.fullmatch("[0-9a-f]{8}", c.id)], "name the cell"
    assert not [c for c in notebook.cells if set(c.metadata) - {"tags"}]
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}


def test_the_numbers_can_fail():
    assert numbers("7.5 billion on 64 ranks, arXiv 1910.02054, 1F1B") == {"7.5", "64"}
    assert defined("x = [lambda: 1]\ndef f(): pass")


def test_a_notebook_that_shows_something_else_is_noticed():
    nbformat = pytest.importorskip("nbformat", reason="the notebooks extra is not installed")
    cell = nbformat.v4.new_code_cell("1 + 1")
    assert shown(cell) == ""
    ran = executed(nbformat.v4.new_notebook(cells=[cell]))
    assert shown(ran.cells[0]) == "2"


if __name__ == "__main__":
    import nbformat

    for notebook_path in NOTEBOOKS:
        nbformat.write(executed(read(notebook_path)), notebook_path)
