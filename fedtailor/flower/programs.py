"""Flower's programs: where they are, in which environment they run, how they are started and ended."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedtailor.errors import UserError

VERSION = "1.41.0"
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
GRACE = 5.0  # seconds a program gets to end by itself


def require() -> None:
    """Refuse to go on without Flower."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise UserError("a federation needs Flower: pip install 'fedtailor[flower]'") from None
    if found != VERSION:
        raise UserError(f"a federation needs flwr {VERSION}, not {found}: pip install 'fedtailor[flower]'")


def environment(home: Path) -> dict[str, str]:
    """No telemetry, no look for updates, no installing of packages; Flower's own files in ``home``."""
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
    """A running program whose output goes to a file; it ends with its whole process group."""

    def __init__(self, command: Sequence[str], home: Path, log: Path):
        self.name, self.log = command[0], log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                list(command),
                env=environment(home),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent if _LIBRARY is not None else None,
            )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        """End it and what it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE)

    def said(self, lines: int = 8) -> str:
        """The last lines of its output."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.strip().splitlines()[-lines:])


def _end_with_parent() -> None:
    """In the new process: end when the one that started it is gone, even by SIGKILL (PR_SET_PDEATHSIG)."""
    if _LIBRARY is not None:
        _LIBRARY.prctl(1, signal.SIGTERM)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, program: Program, seconds: float = 60.0) -> None:
    """Until the program answers on this port of the loopback."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if program.ended:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise UserError(f"{program.name} did not start: {program.said(3)}")
