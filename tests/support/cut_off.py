"""Command lines where something is missing: room on the disk, a network, the right to write.

``python -m tests.support.cut_off KIND FOLDER`` reads a JSON list of commands from stdin, calls each in FOLDER, and
answers with a list of `Ending`. ``unshare`` gives it a mount or a network of its own where KIND needs one. torch is
loaded once: every command is a fork of this process.
"""

import contextlib
import hashlib
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SPACES = {"read-only": "--mount", "full": "--mount", "nearly full": "--mount", "no network": "--net"}
KINDS = ["not allowed", *SPACES]
ROOM = {"full": 0, "nearly full": 64 * 1024}  # bytes that are left: a command begins, but its model does not fit
LOADED = ("fedtailor.cli.app", "fedtailor.runs.running", "fedtailor.runs.adapting", "fedtailor.runs.exporting")


class Ending(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str
    changed: list[str]  # files below the folder that are new, gone or different


def missing(kind: str) -> str:
    """Why this machine cannot be such a place; empty if it can."""
    if absent := [word for word in _python(kind)[:1] if shutil.which(word) is None]:
        return f"there is no program {absent[0]}"
    with tempfile.TemporaryDirectory() as folder:
        code = f"from tests.support.cut_off import make; make({kind!r}, {folder!r})"
        tried = subprocess.run([*_python(kind), "-c", code], capture_output=True, text=True, env=_environment())
    return tried.stderr.strip().splitlines()[-1] if tried.returncode else ""


def call(kind: str, folder: Path, commands: list[list[str]]) -> list[Ending]:
    """Call commands one after the other in such a place; what they write to a disk of its own is lost with it."""
    words = [*_python(kind), "-m", "tests.support.cut_off", kind, str(folder)]
    if kind == "not allowed":
        _forbid(folder)
    done = subprocess.run(words, input=json.dumps(commands), capture_output=True, text=True, env=_environment())
    assert done.returncode == 0, done.stderr
    return [Ending(*each) for each in json.loads(done.stdout.splitlines()[-1])]


def make(kind: str, folder: str) -> None:
    """Turn what this process sees of a folder into such a place."""
    if kind == "read-only":
        _mount("--bind", folder, folder)
        _mount("--options", "remount,bind,ro", folder)
    elif kind in ROOM:
        with tempfile.TemporaryDirectory() as beside:
            shutil.copytree(folder, beside, dirs_exist_ok=True)
            _mount("--types", "tmpfs", "tmpfs", folder)
            shutil.copytree(beside, folder, dirs_exist_ok=True)
        used = os.statvfs(folder)
        size = (used.f_blocks - used.f_bfree) * used.f_frsize + ROOM[kind]
        _mount("--options", f"remount,size={size}", folder)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, stdout=subprocess.DEVNULL)


def _forbid(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)


def _python(kind: str) -> list[str]:
    administrator = os.geteuid() == 0
    if kind == "not allowed":  # permissions do not hold back an administrator with all powers
        less = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"]
        return [*(less if administrator else []), sys.executable]
    return ["unshare", *([] if administrator else ["--user", "--map-root-user"]), SPACES[kind], sys.executable]


def _environment() -> dict[str, str]:
    import fedtailor

    return {**os.environ, "PYTHONPATH": str(Path(fedtailor.__file__).parents[1]), "COLUMNS": "300"}


def _contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


def _call(folder: Path, words: list[str]) -> Ending:
    """Call a command in a fork of this process."""
    before = _contents(folder)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.chdir(folder)
        from fedtailor.__main__ import main

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(words)
            except BaseException as error:  # what a user would see as a traceback
                code = -1
                err.write(repr(error))
        with os.fdopen(writing, "w") as pipe:
            json.dump((code, out.getvalue(), err.getvalue()), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        code, said, complained = json.load(pipe)
    os.waitpid(child, 0)
    after = _contents(folder)
    changed = sorted(name for name in before.keys() | after if before.get(name) != after.get(name))
    return Ending(code, said, complained, changed)


def main(kind: str, folder: Path) -> None:
    make(kind, str(folder))
    for name in LOADED:
        importlib.import_module(name)
    print(json.dumps([_call(folder, words) for words in json.load(sys.stdin)]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
