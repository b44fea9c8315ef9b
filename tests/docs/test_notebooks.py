"""The notebooks in examples/notebooks run, and print what they show."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install ipykernel")

pytestmark = pytest.mark.compile
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
_LIMIT_S = 300  # of a cell, on a busy machine


def list_texts(notebook: Any) -> list[str]:
    """The printed text of each cell with code. A kernel may send it in several parts."""
    return [
        "".join(part["text"] for part in cell.outputs if part["output_type"] == "stream")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    shown = list_texts(notebook)
    assert any(shown)
    fresh = deepcopy(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    nbclient.NotebookClient(fresh, timeout=_LIMIT_S, kernel_name="python3").execute()
    assert list_texts(fresh) == shown
