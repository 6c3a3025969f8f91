"""The tutorials of ``examples``: ``python -m tests.support.notebooks [NAME ...]`` runs them and stores the outputs."""

import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
LARGEST = 300_000  # bytes of a stored notebook


def executed(file: Path, folder: Path) -> Any:
    """A notebook with fresh outputs, executed in a kernel of its own with ``folder`` as its place."""
    import nbclient
    import nbformat

    book = nbformat.read(file, as_version=4)
    nbclient.NotebookClient(book, timeout=3600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # the times of the cells
    return book


def main(names: list[str]) -> None:
    import nbformat

    for file in sorted(EXAMPLES.glob("*.ipynb")):
        if not names or file.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(executed(file, Path(folder)), file)
            print(file.name, file.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
