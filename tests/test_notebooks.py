"""The notebooks run and show what they give; ``python tests/test_notebooks.py`` writes it."""

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def executed(path):
    nbformat = pytest.importorskip("nbformat", reason="the notebooks extra is not installed")
    client = pytest.importorskip("nbclient", reason="the notebooks extra is not installed")
    notebook = nbformat.read(path, as_version=4)
    options = {"resources": {"metadata": {"path": str(path.parent)}}, "timeout": 300}
    # Times of day would differ at every run.
    client.NotebookClient(notebook, kernel_name="python3", record_timing=False, **options).execute()
    return notebook


def outputs(notebook):
    """Source and output of every cell; a stream may come in any number of pieces."""
    for cell in notebook.cells:
        pieces = [
            output.get("text") or output.get("data", {}).get("text/plain", "")
            for output in cell.get("outputs", ())
        ]
        yield cell.source, "".join(pieces)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_shows_what_it_gives(path):
    nbformat = pytest.importorskip("nbformat", reason="the notebooks extra is not installed")
    shown = list(outputs(nbformat.read(path, as_version=4)))
    assert any(text for _, text in shown), "a notebook without outputs"
    assert list(outputs(executed(path))) == shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_prose_and_calls(path):
    nbformat = pytest.importorskip("nbformat", reason="the notebooks extra is not installed")
    notebook = nbformat.read(path, as_version=4)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == "markdown" and kinds.count("markdown") * 2 >= kinds.count("code")
    assert not [c for c in notebook.cells if c.cell_type == "code" and "def " in c.source]


if __name__ == "__main__":
    import nbformat

    for notebook_path in NOTEBOOKS:
        nbformat.write(executed(notebook_path), notebook_path)
