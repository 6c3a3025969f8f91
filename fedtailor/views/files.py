"""Files that cannot be written, as one sentence."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedtailor.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_texts(folder: Path, texts: Mapping[str, str], pictures: "Mapping[str, Figure]") -> list[Path]:
    """Write texts and pictures into a folder, by the names of their files."""
    with writing(folder):
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name, figure in pictures.items():
            figure.savefig(folder / name)
    return [folder / name for name in (*texts, *pictures)]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a file or folder that cannot be written into a user error."""
    try:
        yield
    except FileExistsError:
        raise UserError(f"{path} exists: name another file") from None
    except OSError as error:
        raise UserError(f"{error.filename or path} cannot be written: {error.strerror}") from None
