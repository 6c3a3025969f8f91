"""Runs in a real kernel of Jupyter and in plain IPython; frames."""

from pathlib import Path

import pytest

import fedtailor
from fedtailor.errors import UserError

CODE = """
import fedtailor
settings = {"name": "small", "rounds": 2, "data": {"clients": 3, "samples": 120}, "model": {"name": "linear"}}
settings |= {"training": {"epochs": 1}, "engine": {"kind": "inline"}}
run = fedtailor.run({**settings, "method": {"name": "fedper"}}, folder="one")
run
""".strip()
MORE = 'comparison = fedtailor.compare(settings, methods=["local", "fedper"], folder="both")\ncomparison'


def test_a_kernel_shows_progress_and_pictures(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (CODE, MORE)])
    nbclient.NotebookClient(book, resources={"metadata": {"path": str(tmp_path)}}).execute()
    progress, result = book.cells[0].outputs
    assert "round 2/2" in progress.data["text/html"]
    assert result.data["image/png"]
    last = book.cells[1].outputs[-1].data
    assert last["image/png"]
    assert "fedper" in last["text/html"]
    assert str(tmp_path) not in nbformat.writes(book)

    with fedtailor.Run(tmp_path / "one") as run:
        assert run.frame()["accuracy"].notna().all()
        assert list(run.frame("scores")["client"]) == [0, 1, 2]
        assert list(run.frame("rounds")["round"]) == [1, 2]
        with pytest.raises(UserError, match="unknown frame"):
            run.frame("settings")
        assert fedtailor.picture(run)._repr_png_().startswith(b"\x89PNG")
        with pytest.raises(UserError, match="unknown picture"):
            fedtailor.picture(run, "dendrogram")
    comparison = fedtailor.Comparison(tmp_path / "both")
    assert set(comparison.frame()["method"]) == {"local", "fedper"}
    assert len(comparison.frame("clients")) == 6
