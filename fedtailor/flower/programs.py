"""Programs that run Flower: its version and environment, and how to start and end them."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedtailor.errors import UserError

VERSION = "1.41.0"
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
STOP_TIMEOUT = 5.0  # seconds that a program has to end after a signal


def require() -> None:
    """Raise a `UserError` unless the right version of Flower is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise UserError("a federation needs Flower: pip install 'fedtailor[flower]'") from None
    if found != VERSION:
        raise UserError(f"a federation needs flwr {VERSION}, not {found}: pip install 'fedtailor[flower]'")


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs.

    Telemetry, the check for updates and the installation of packages are off; Flower keeps its files in ``home``.
    """
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


class Program:
    """A running program; it ends with this process, and `stop` ends its whole process group.

    Parameters
    ----------
    name : str
        What error messages call it.
    command : sequence of str
        The program and its arguments.
    home : Path
        The folder for Flower's own files.
    log : Path
        The file that output and errors are appended to.
    inherited : sequence of int
        File descriptors that the program inherits.
    """

    def __init__(self, name: str, command: Sequence[str], home: Path, log: Path, inherited: Sequence[int] = ()):
        self.name, self.log = name, log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                list(command),
                env=environment(home),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=inherited,
                preexec_fn=_end_with_parent if _LIBRARY is not None else None,
            )

    @property
    def ended(self) -> bool:
        """Whether the program has ended."""
        return self.process.poll() is not None

    def stop(self) -> None:
        """End the program and everything it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT)

    def last_lines(self, lines: int = 8) -> str:
        """Return the last lines of the program's output."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.strip().splitlines()[-lines:])


def _end_with_parent() -> None:
    """Runs in the new process: end when the parent ends, even by SIGKILL (PR_SET_PDEATHSIG)."""
    if _LIBRARY is not None:
        _LIBRARY.prctl(1, signal.SIGTERM)
