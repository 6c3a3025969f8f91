"""What is installed on this machine, and whether FedTailor can use it."""

import importlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from fedtailor.data import SOURCES
from fedtailor.data.downloads import flaw
from fedtailor.data.files import SourceFiles
from fedtailor.data.settings import data_directory
from fedtailor.data.sources import Source
from fedtailor.engines import cores, usable_device
from fedtailor.errors import CPU_BUILD
from fedtailor.learning.precision import native_bf16
from fedtailor.models.processor import announced, matrix_units
from fedtailor.version import __version__

OLDEST = (3, 11)  # version of Python
UNSEEN = ("", "all", "dev", "docs")  # extras that no command needs
MODULES = {"scikit-learn": "sklearn"}  # packages that are imported under another name
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Finding:
    """Something on this machine: usable, absent although nothing needs it, or a problem to put right."""

    group: Literal["machine", "package", "extra", "data", "program"]
    name: str
    state: Literal["ok", "absent", "problem"]
    about: str


def examine(data_dir: Path | None = None) -> list[Finding]:
    """Look at Python, the packages, this machine, the extras and the data sets.

    Parameters
    ----------
    data_dir : Path, optional
        The folder of the data sets; by default that of the environment.

    Returns
    -------
    list of Finding
        FedTailor works here if none of them is a problem.
    """
    return [*_machine(), *_packages(), *_extras(), *_data(data_directory(data_dir)), *_programs()]


def _machine() -> Iterator[Finding]:
    import torch

    good = sys.version_info >= OLDEST
    wanted = "" if good else f": version {'.'.join(map(str, OLDEST))} or newer is needed"
    yield Finding("machine", "python", "ok" if good else "problem", f"{platform.python_version()}{wanted}")
    yield Finding("machine", "fedtailor", "ok", __version__)
    yield Finding("machine", "cores", "ok", f"{cores()}; each worker trains with one thread")
    threads = f"{torch.get_num_threads()} in torch by default; runs use one per process"
    yield Finding("machine", "threads", "ok", threads)
    yield Finding("machine", "memory", "ok", _memory())
    device = usable_device("auto")
    yield Finding("machine", "GPU", "absent" if device == "cpu" else "ok", "none" if device == "cpu" else device)
    yield _torch_build(torch.version.cuda, device)
    bf16 = native_bf16(device)
    broken = device == "cpu" and announced() and not matrix_units()
    why = "the matrix units of this processor are not used" if broken else "this processor has no instructions for it"
    yield Finding("machine", "bf16", "ok" if bf16 else "absent", "native" if bf16 else f"{why}: slower than fp32")
    free = shutil.disk_usage(Path.cwd()).free
    yield Finding("machine", "disk", "ok" if free > 1e9 else "problem", f"{free / 1e9:.1f} GB free in this folder")


def _torch_build(cuda: str | None, device: str) -> Finding:
    """Whether torch is built for this machine; a build for another one works, but costs gigabytes."""
    if cuda is None:
        return Finding("machine", "torch build", "ok", "for the CPU" if device == "cpu" else f"for {device}")
    if device == "cpu":
        about = f"for CUDA {cuda}, without a GPU to use; the CPU build saves gigabytes: {CPU_BUILD}"
        return Finding("machine", "torch build", "absent", about)
    return Finding("machine", "torch build", "ok", f"for CUDA {cuda}")


def _memory() -> str:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "unknown"
    return f"{total / 1e9:.1f} GB, {free / 1e9:.1f} GB of it free"


def _requirements() -> dict[str, list[Requirement]]:
    """The packages that FedTailor declares, by extra; those that it cannot do without are under ``""``."""
    found: dict[str, list[Requirement]] = {"": []}
    extras = metadata.metadata("fedtailor").get_all("Provides-Extra") or []
    for one in map(Requirement, metadata.requires("fedtailor") or ()):
        names = [extra for extra in extras if one.marker is not None and one.marker.evaluate({"extra": extra})]
        for name in names or [""]:
            found.setdefault(name, []).append(one)
    for needed in found.values():  # an extra that consists of others needs what they need
        for own in [one for one in needed if one.name == "fedtailor"]:
            needed.remove(own)
            needed.extend(one for extra in sorted(own.extras) for one in found.get(extra, []) if one not in needed)
    return found


def _packages() -> Iterator[Finding]:
    try:
        needed = _requirements()[""]
    except metadata.PackageNotFoundError:
        about = "not installed, so its requirements are unknown: pip install --editable ."
        yield Finding("package", "fedtailor", "problem", about)
        return
    for one in needed:
        problem = _unfit(one) or _unimportable(MODULES.get(one.name, one.name))
        yield Finding("package", one.name, "problem" if problem else "ok", problem or metadata.version(one.name))


def _extras() -> Iterator[Finding]:
    try:
        extras = {name: needed for name, needed in _requirements().items() if name not in UNSEEN}
    except metadata.PackageNotFoundError:
        return
    for name, needed in extras.items():
        missing = [problem for one in needed if (problem := _unfit(one))]
        versions = ", ".join(f"{one.name} {metadata.version(one.name)}" for one in needed if not _unfit(one))
        advice = f"{'; '.join(missing)}: pip install 'fedtailor[{name}]'"
        yield Finding("extra", name, "absent" if missing else "ok", advice if missing else versions)


def _unfit(needed: Requirement) -> str:
    """Why an installed package does not do; empty if it does."""
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return f"{needed.name} is not installed"
    fits = needed.specifier.contains(version, prereleases=True)
    return "" if fits else f"{needed.name} {version} is installed, {needed.specifier} is needed"


def _unimportable(module: str, load: Callable[[str], object] = importlib.import_module) -> str:
    try:
        load(module)
    except Exception as error:  # a broken package may raise anything
        return " ".join(f"cannot be imported: {type(error).__name__}: {error}".split())[:200]
    return ""


def _data(directory: Path) -> Iterator[Finding]:
    there = directory.is_dir()
    about = f"{directory}" if there else f"{directory} does not exist: 'fedtailor data get NAME' makes it"
    yield Finding("data", "folder", "ok" if there else "absent", about)
    for source in SOURCES.values():
        yield _data_set(source, directory)


def _data_set(source: Source, directory: Path) -> Finding:
    if source.parts:
        inner = [_data_set(SOURCES[part], directory) for part in source.parts]
        worst = next((one for state in ("problem", "absent") for one in inner if one.state == state), None)
        if worst is not None:
            return Finding("data", source.name, worst.state, f"made from {', '.join(source.parts)}: see {worst.name}")
    if not (source.canonical or source.compact):
        return Finding("data", source.name, "ok", f"made from {', '.join(source.parts)}" if source.parts else "bundled")
    on_disk = SourceFiles(directory, source.name, source.folders, source.compact)
    for files in (source.canonical, source.compact):
        places = [(file, on_disk.find(file.name)) for file in files]
        if files and all(place is not None for _, place in places):
            for file, place in places:
                if place is not None and place.is_file() and (found := flaw(file, place)):
                    about = f"{place}: {found}; delete it, then: fedtailor data get {source.name}"
                    return Finding("data", source.name, "problem", about)
            return Finding("data", source.name, "ok", "its files are there and intact")
    return Finding("data", source.name, "absent", f"fedtailor data get {source.name}")


def _programs() -> Iterator[Finding]:
    browser = next((place for name in BROWSERS if (place := shutil.which(name))), None)
    yield Finding("program", "chromium", "ok" if browser else "absent", browser or "only tests of web pages need it")
