"""What following a run in the dashboard costs the run: its time while a browser follows, over its time alone.

Runs of the same settings take turns: alone, and followed by a dashboard in a process of its own whose page and panels
are asked for again after every round, as a browser does. The ratio of times is the median over pairs; following should
cost less than 1 %. On a machine that others use, pairs differ by more than that. So processor times are measured too:
that of the run does not depend on other processes that wait, and that of the dashboard is what it takes from others.

Example: ``python benchmarks/dashboard.py --pairs 5 --rounds 10``. Prints one JSON document.
"""

import argparse
import http.client
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import fedtailor

SERVER = """
import sys
from pathlib import Path
from fedtailor.views.dashboard.gate import Gate
from fedtailor.views.dashboard.server import Dashboard
server = Dashboard(Path(sys.argv[1]), Gate())
print(server.address, flush=True)
server.serve_forever()
"""


class Follower:
    """A dashboard in its own process, and a thread that reads what a browser reads."""

    def __init__(self, root: Path):
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(root)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = urlsplit(self.process.stdout.readline().strip())
        self.place = found.netloc
        self.cookie = {"Cookie": f"fedtailor-{found.port}={parse_qs(found.query)['token'][0]}"}
        self.asked, self.begin = 0, processor_seconds(self.process.pid)
        self.stream = self._open("/api/changes")
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def close(self) -> float:
        """End the dashboard, and return the seconds of a processor that it used since it was ready."""
        used = processor_seconds(self.process.pid) - self.begin
        self.process.terminate()
        self.process.wait()
        self.thread.join()
        return used

    def _open(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.place, timeout=600)
        connection.request("GET", path, headers=self.cookie)
        return connection.getresponse()

    def _follow(self) -> None:
        try:
            while line := self.stream.readline():
                if line.startswith(b"data: ["):
                    self._open("/api/run?id=run").read()
                    self._open("/api/method?id=run").read()
                    self.asked += 1
        except (OSError, http.client.HTTPException):  # the dashboard ended
            pass


def processor_seconds(process: int) -> float:
    """The seconds of a processor that a process has used, from the system's own account."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """A run: its seconds, the processor's seconds of it and its workers, and those of a dashboard that followed."""

    seconds: float
    processor: float
    dashboard: float = 0.0
    pages: int = 0


def measure(settings: dict[str, object], followed: bool) -> Measured:
    with tempfile.TemporaryDirectory() as place:
        follower = Follower(Path(place)) if followed else None
        used, before = 0.0, _own_and_workers()
        try:
            with fedtailor.run(settings, folder=Path(place) / "run") as run:
                spent = sum(row["seconds"] for row in run.rounds())
            own = _own_and_workers() - before
        finally:
            if follower is not None:
                used = follower.close()
        return Measured(spent, own, used, 0 if follower is None else follower.asked)


def _own_and_workers() -> float:
    """Of this process and of the workers that have ended."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    settings = {
        "rounds": given.rounds,
        "data": {"clients": given.clients},
        "training": {"epochs": 20},
        "engine": {"kind": "processes", "workers": given.workers},
    }
    measure({**settings, "rounds": 1}, followed=False)  # the first run of a process also imports
    pairs: list[dict[bool, Measured]] = []
    for number in range(given.pairs):
        order = (False, True) if number % 2 == 0 else (True, False)
        pairs.append({followed: measure(settings, followed) for followed in order})

    def median(of: Callable[[dict[bool, Measured]], float]) -> float:
        return round(statistics.median(of(pair) for pair in pairs), 4)

    document = {
        "followed_over_alone": median(lambda pair: pair[True].seconds / pair[False].seconds),
        "goal": "< 1.01",
        "of_each_pair": [round(pair[True].seconds / pair[False].seconds, 4) for pair in pairs],
        "processor_time_followed_over_alone": median(lambda pair: pair[True].processor / pair[False].processor),
        "of_each_pair_processor_time": [round(pair[True].processor / pair[False].processor, 4) for pair in pairs],
        "processor_time_dashboard_over_run": median(lambda pair: pair[True].dashboard / pair[True].processor),
        "pages_read_in_a_run": median(lambda pair: pair[True].pages),
        "seconds_of_a_run": median(lambda pair: pair[False].seconds),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[1], 1),
        "settings": vars(given),
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
