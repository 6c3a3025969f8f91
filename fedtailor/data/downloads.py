"""Download the published files of the known sources."""

import hashlib
import os
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fedtailor.errors import UserError, unknown

from .files import File, members
from .sources import SOURCES

Progress = Callable[[str, int, int | None], None]  # (file name, bytes so far, total bytes if known)
TIMEOUT = 30  # seconds without a byte before the next address is tried
ATTEMPTS = 5  # per address; each continues where the previous one stopped
BLOCK = 1 << 16


def get(
    name: str,
    target_dir: Path,
    progress: Progress | None = None,
    addresses: Sequence[str] | None = None,
) -> list[Path]:
    """Download a source (and the sources it is made from) into ``target_dir/<source>/``; returns the files.

    Intact files are not downloaded again. An interrupted download continues where it stopped. A file
    gets its name only after its checksum is verified. The published addresses are tried in turn;
    ``addresses`` replaces them by mirrors: folders such as ``https://host/data/`` that hold the files
    under their names.
    """
    if name not in SOURCES:
        raise unknown("source", name, SOURCES)
    source = SOURCES[name]
    paths = []
    for part in source.parts:
        paths += get(part, target_dir, progress, addresses)
    folder = target_dir.expanduser() / name
    for file in source.canonical:
        paths.append(_get_file(file, folder / file.name, progress or _silent, addresses))
    return paths


class Unusable(Exception):
    """Why an address did not deliver a file."""


def _get_file(file: File, path: Path, progress: Progress, mirrors: Sequence[str] | None) -> Path:
    if path.exists() and flaw(file, path) is None:
        return path
    addresses = file.addresses if mirrors is None else [f"{base.rstrip('/')}/{file.name}" for base in mirrors]
    reasons = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for address in addresses:
            try:
                _from_address(address, file, path, progress)
                return path
            except Unusable as reason:
                reasons.append(f"{address}: {reason}")
    except OSError as problem:
        raise UserError(
            f"{path} cannot be written ({problem.strerror or problem}): choose another folder or free some disk space"
        ) from problem
    raise UserError(
        f"{path} could not be downloaded ({'; '.join(reasons) or 'no address is known'}): check the network, "
        f"name a mirror, or put the file there yourself"
    )


def _from_address(address: str, file: File, path: Path, progress: Progress) -> None:
    """Download one file from one address, continuing an existing part."""
    part = path.with_name(path.name + ".part")
    inherited = part.exists()
    for _ in range(ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        if _fetch(address, file, part, progress):
            break
        if part.stat().st_size <= before:
            raise Unusable("the connection broke")
    else:
        raise Unusable(f"the connection broke {ATTEMPTS} times")
    wrong = flaw(file, part)
    if wrong is None:
        os.replace(part, path)
        return
    part.unlink()
    if inherited:
        # The existing part may come from another file or mirror: start again without it.
        _from_address(address, file, path, progress)
        return
    raise Unusable(wrong)


def _fetch(address: str, file: File, part: Path, progress: Progress) -> bool:
    """Append the missing bytes to the part; return False if the connection broke before the end."""
    done = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fedtailor", **({"Range": f"bytes={done}-"} if done else {})}
    try:
        response = urlopen(Request(address, headers=headers), timeout=TIMEOUT)
    except HTTPError as problem:
        problem.close()
        if problem.code == 416 and done:  # nothing is missing, or the part is too long: the checksum decides
            return True
        raise Unusable(f"the server answers {problem.code} {problem.reason}") from problem
    except (URLError, HTTPException, OSError, ValueError) as problem:
        raise Unusable(f"{getattr(problem, 'reason', None) or problem}") from problem
    with response:
        resumed = getattr(response, "status", 200) == 206 and _starts_at(response, done)
        done = done if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length and length.isdigit() else file.size
        with part.open("ab" if resumed else "wb") as out:
            done = _copy(response, out, done, lambda now: progress(file.name, now, total))
    return total is None or done >= total


def _copy(response: Any, out: IO[bytes], done: int, tell: Callable[[int], None]) -> int:
    """Copy until the end or until the connection breaks; return the number of bytes so far."""
    tell(done)
    while True:
        try:
            block = response.read(BLOCK)
        except (HTTPException, OSError):
            return done
        if not block:
            return done
        out.write(block)
        done += len(block)
        tell(done)


def _starts_at(response: Any, done: int) -> bool:
    return str(response.headers.get("Content-Range", "")).startswith(f"bytes {done}-")


def flaw(file: File, path: Path) -> str | None:
    """Return what is wrong with a downloaded file, or None."""
    if file.sha256 or file.md5:
        wanted = file.sha256 or file.md5
        with path.open("rb") as content:
            found = hashlib.file_digest(content, "sha256" if file.sha256 else _md5).hexdigest()
        return None if found == wanted else f"the checksum is {found} instead of {wanted}"
    if file.size is not None and path.stat().st_size != file.size:
        return f"the file has {path.stat().st_size} bytes instead of {file.size}"
    return _unreadable(path, file.name)


def _md5() -> Any:
    return hashlib.md5(usedforsecurity=False)


def _unreadable(path: Path, name: str) -> str | None:
    """Read an archive to its end to verify the checksum inside it, for files without a published one."""
    import tarfile
    import zlib

    if not name.endswith(("gz", "zip")):
        return None
    try:
        if name.endswith(("tgz", "tar.gz")):
            for _ in members(path, lambda _: False):
                pass
        elif name.endswith(".gz"):
            import gzip

            with gzip.open(path) as content:
                while content.read(BLOCK):
                    pass
    except (OSError, EOFError, zlib.error, tarfile.TarError) as problem:
        return f"the archive is damaged ({problem})"
    return None


def _silent(name: str, done: int, total: int | None) -> None:
    pass
