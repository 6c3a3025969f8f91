"""Starts, stops and resumes runs: each is a process of its own, ``python -m fedtailor run``."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtailor.data.statistics import summary
from fedtailor.errors import UserError
from fedtailor.runs import Resources, Run, toml
from fedtailor.runs.folders import fresh_name
from fedtailor.runs.store import DATABASE
from fedtailor.views.dashboard import documents, estimate, form
from fedtailor.views.dashboard.changes import runs_below

MOST = 8  # runs that go at the same time
LONGEST = 2000  # characters of what a process said
INTERRUPTED = 130  # the exit code of a run that stopped at a round boundary


@dataclass
class Started:
    """A run that this dashboard started, and its latest process."""

    folder: Path
    process: subprocess.Popen[bytes]
    said: Path  # what the process writes to stderr
    asked: int = field(default=0)  # how often it was asked to stop

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``stopping``, ``stopped``, ``finished`` or ``failed``."""
        code = self.process.poll()
        if code is None:
            return "stopping" if self.asked else "running" if self._exists else "starting"
        # Ctrl-C before the run has taken over its handling ends the process in Python's own ways.
        early = self.asked and code in (1, -signal.SIGINT)
        return "finished" if code == 0 else "stopped" if code == INTERRUPTED or early else "failed"

    @property
    def why(self) -> str:
        """The sentence that a failed run ended with."""
        if self.state != "failed":
            return ""
        lines = [line for line in self.said.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        sentence = lines[-1].removeprefix("error: ")[-LONGEST:] if lines else ""
        code = self.process.returncode
        return sentence if code > 0 and sentence else f"its process ended with {_ending(code)}"

    @property
    def resumable(self) -> bool:
        return self.state in ("stopped", "failed") and self._exists

    @property
    def _exists(self) -> bool:
        return (self.folder / DATABASE).is_file()


class Control:
    """The runs that this dashboard started. Close it to stop them at their next round boundary."""

    def __init__(self, root: Path):
        self.root = root
        self._runs: dict[str, Started] = {}
        self._lock = threading.Lock()
        self._notes = tempfile.TemporaryDirectory(prefix="fedtailor-dashboard-")

    def form(self, like: str | None) -> dict[str, Any]:
        """The fields of the form, with the settings of the run ``like`` filled in."""
        values: dict[str, str] = {}
        if like is not None:
            with Run(self._below(like)) as run:
                values = form.values_of(run.settings)
        return {"fields": form.form_fields(), "values": values}

    def preview(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What would start: the data of the clients, and how long it will take."""
        settings = form.settings_of(values)
        federation = Resources().federation(settings)
        return {
            "data": documents.data_picture(federation, federation.labels),
            "summary": summary(federation),
            "time": estimate.estimate(settings, federation.clients, runs_below(self.root).items()),
        }

    def start(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Start a run in a new folder below the root; its name gets a number if it is taken."""
        settings = form.settings_of(values)
        with self._lock:
            self._check_room()
            name = self._fresh(settings.name)
            file = Path(self._notes.name) / f"{len(self._runs)}.toml"
            file.write_text(toml.dumps({**settings.as_dict(), "name": name}), encoding="utf-8")
            folder = self.root / name
            words = ["run", str(file), "--name", name, "--out", str(self.root)]
            self._runs[name] = self._launch(folder, words)
        return {"id": name}

    def stop(self, name: str) -> dict[str, Any]:
        """Send what Ctrl-C sends: the first time the run stops at its next round boundary, the second time at once."""
        with self._lock:
            run = self._mine(name)
            if run.process.poll() is None:
                run.process.send_signal(signal.SIGINT)
                run.asked += 1
        return {"id": name}

    def resume(self, name: str) -> dict[str, Any]:
        """Continue a run that stopped, from its last complete round."""
        with self._lock:
            run = self._mine(name)
            if not run.resumable:
                raise UserError(f"{name} is {run.state}: only a run that has stopped can be resumed")
            self._check_room()
            self._runs[name] = self._launch(run.folder, ["resume", str(run.folder)])
        return {"id": name}

    def states(self) -> dict[str, dict[str, Any]]:
        """By name, the runs that this dashboard started."""
        with self._lock:
            runs = dict(self._runs)
        return {
            name: {"state": run.state, "why": run.why, "resumable": run.resumable, "asked": run.asked}
            for name, run in runs.items()
        }

    def running(self) -> int:
        """The number of runs whose processes have not ended."""
        return sum(run.process.poll() is None for run in self._runs.values())

    def close(self) -> list[Path]:
        """Stop all runs at their next round boundary, wait for them, and return the folders of those that stopped."""
        running = [run for run in self._runs.values() if run.process.poll() is None]
        for run in running:
            if not run.asked:
                run.process.send_signal(signal.SIGINT)
                run.asked += 1
        for run in running:
            run.process.wait()
        self._notes.cleanup()
        return [run.folder for run in running if run.process.returncode]

    def _launch(self, folder: Path, words: list[str]) -> Started:
        said = Path(self._notes.name) / f"{folder.name}-{len(self._runs)}.txt"
        # A password is for the dashboard only. A session of its own: Ctrl-C in the terminal reaches a run through
        # `close`, once, and not a second time from the terminal.
        environment = {key: value for key, value in os.environ.items() if key != "FEDTAILOR_PASSWORD"}
        with said.open("wb") as opened:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedtailor", *words, "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=opened,
                env=environment,
                start_new_session=True,
            )
        return Started(folder, process, said)

    def _check_room(self) -> None:
        if (running := self.running()) >= MOST:
            raise UserError(f"{running} runs are running: stop one, or wait until one has ended")

    def _fresh(self, name: str) -> str:
        """A name that has no folder, and that no run which is starting has taken."""
        number, fresh = 1, fresh_name(self.root, name)
        while fresh in self._runs and self._runs[fresh].state != "failed":
            number += 1
            fresh = fresh_name(self.root, f"{name}-{number}")
        return fresh

    def _mine(self, name: str) -> Started:
        run = self._runs.get(name)
        if run is None:
            raise UserError(f"this dashboard did not start {name!r}: use 'fedtailor resume', or Ctrl-C where it runs")
        return run

    def _below(self, name: str) -> Path:
        found = runs_below(self.root).get(name)
        if found is None:
            raise UserError(f"there is no run {name!r} below {self.root}")
        return found


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
