"""Files that cannot be written, as one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedtailor.errors import UserError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a file or folder that cannot be written into a user error."""
    try:
        yield
    except FileExistsError:
        raise UserError(f"{path} exists: name another file") from None
    except OSError as error:
        raise UserError(f"{error.filename or path} cannot be written: {error.strerror}") from None
