"""Find and open the files of a data set; a missing or damaged file is one sentence."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from fedtailor.errors import UserError

if TYPE_CHECKING:
    import gzip


@dataclass(frozen=True)
class File:
    """A published file: where it can be downloaded from and how to recognise it.

    ``size`` (bytes) and the checksums are given only where they are certain.
    """

    name: str
    addresses: tuple[str, ...] = ()
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class SourceFiles:
    """The files of one source on disk, in ``dir/<source>/``, its usual sub folders, or ``dir/`` itself."""

    directory: Path
    source: str
    folders: tuple[str, ...] = ()
    compact: tuple[File, ...] = ()

    def find(self, *names: str) -> Path | None:
        """Return the first of these files or folders that exists."""
        for place in (self.source, *self.folders, "."):
            for name in names:
                path = self.directory / place / name
                if path.exists():
                    return path
        return None

    def need(self, *names: str) -> Path:
        """Return the first of these files that exists; otherwise raise an error that says how to get it."""
        found = self.find(*names)
        if found is None:
            raise self.missing(names[0])
        return found

    def missing(self, name: str) -> UserError:
        expected = self.directory / self.source / name
        return UserError(f"{expected} does not exist: run 'fedtailor data get {self.source}' to download it")

    @contextmanager
    def reading(self, path: Path, expected: str) -> Iterator[None]:
        """Turn any error from a damaged file into one sentence with its path."""
        try:
            yield
        except UserError:
            raise
        except _damage() as problem:
            detail = " ".join(str(problem).split()) or type(problem).__name__
            raise UserError(
                f"{path} is damaged or not {expected} ({detail}): delete it and run 'fedtailor data get {self.source}'"
            ) from problem

    def arrays(self, path: Path, expected: str, *keys: str) -> list[np.ndarray]:
        """Read these arrays of a compact ``.npz`` file, without unpickling."""
        known = next((file for file in self.compact if file.name == path.name), None)
        with self.reading(path, expected):
            if known and known.size not in (None, path.stat().st_size):
                raise ValueError(f"it has {path.stat().st_size} bytes instead of {known.size}")
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return [archive[key] for key in keys]


def open_maybe_gz(path: Path) -> "gzip.GzipFile | IO[bytes]":
    """Open a file for reading bytes; decompress it if its name ends in .gz."""
    if path.suffix == ".gz":
        import gzip

        return gzip.open(path)
    return path.open("rb")


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the wanted files in a zip, a tar or a folder, without unpacking to disk."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path.parent).as_posix()
            if file.is_file() and wanted(name):
                yield name, file.read_bytes()
    elif path.suffix == ".zip":
        import zipfile

        with zipfile.ZipFile(path) as zipped:
            for name in sorted(zipped.namelist()):
                if not name.endswith("/") and wanted(name):
                    yield name, zipped.read(name)
    else:
        import tarfile

        with tarfile.open(path, "r:*") as tar:
            for entry in tar:
                content = tar.extractfile(entry) if entry.isfile() and wanted(entry.name) else None
                if content is not None:
                    yield entry.name, content.read()


def _damage() -> tuple[type[Exception], ...]:
    """The exceptions of the standard library and numpy for truncated, corrupt or wrong files."""
    import csv
    import lzma
    import struct
    import tarfile
    import zipfile
    import zlib

    plain = (OSError, EOFError, ValueError, LookupError, RuntimeError)
    return (*plain, csv.Error, lzma.LZMAError, struct.error, tarfile.TarError, zipfile.BadZipFile, zlib.error)
