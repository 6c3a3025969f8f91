"""The tutorials of ``examples`` run, and are stored with their outputs."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.notebooks import EXAMPLES, LARGEST, executed

BOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SYSTEMS = {"bwa", "fedah", "fedalp", "hapfl", "pfedrlla"}


def pictures(book: Any) -> list[int]:
    """The places of the cells that show a picture."""
    outputs = [(place, out) for place, cell in enumerate(book.cells) for out in cell.get("outputs", ())]
    return [place for place, out in outputs if "image/png" in out.get("data", {})]


def test_there_is_a_tutorial_for_every_system() -> None:
    assert {book.stem for book in BOOKS} == SYSTEMS


@pytest.mark.parametrize("file", BOOKS, ids=lambda file: file.stem)
def test_a_tutorial_is_stored_with_its_outputs_and_no_path_of_a_machine(file: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    book, text = nbformat.read(file, as_version=4), file.read_text(encoding="utf-8")
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))  # in order, by one kernel
    assert len(pictures(book)) >= 3
    assert file.stat().st_size < LARGEST
    for place in ("/tmp", "/home", "/work", "/root", "site-packages"):
        assert place not in text


@pytest.mark.slow
@pytest.mark.parametrize("file", BOOKS, ids=lambda file: file.stem)
def test_a_tutorial_runs_and_shows_the_same_pictures(file: Path, tmp_path: Path) -> None:
    for module in ("nbclient", "ipykernel", "pandas"):
        pytest.importorskip(module)
    nbformat = pytest.importorskip("nbformat")
    fresh = executed(file, tmp_path)
    assert pictures(fresh) == pictures(nbformat.read(file, as_version=4))
    assert str(tmp_path) not in nbformat.writes(fresh)
