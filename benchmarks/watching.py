"""What following a run in the dashboard costs the run: its time while a browser follows, over its time alone.

Runs of the same settings take turns: alone, and followed by a dashboard in a process of its own whose page is asked for
again after every round, as a browser does. The ratio is the median over pairs; following should cost less than 1 %.

Example: ``python benchmarks/watching.py --pairs 5 --rounds 10``. Prints one JSON document.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
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
        self.asked = 0
        self.stream = self._open("/api/changes")
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.thread.join()

    def _open(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.place, timeout=600)
        connection.request("GET", path, headers=self.cookie)
        return connection.getresponse()

    def _follow(self) -> None:
        try:
            while line := self.stream.readline():
                if line.startswith(b"data: ["):
                    self._open("/api/run?id=run").read()
                    self.asked += 1
        except (OSError, http.client.HTTPException):  # the dashboard ended
            pass


def seconds(settings: dict[str, object], followed: bool) -> tuple[float, int]:
    """The seconds of a run's rounds, and how often its page was read meanwhile."""
    with tempfile.TemporaryDirectory() as place:
        follower = Follower(Path(place)) if followed else None
        try:
            with fedtailor.run(settings, folder=Path(place) / "run") as run:
                spent = sum(row["seconds"] for row in run.rounds())
        finally:
            if follower is not None:
                follower.close()
        return spent, 0 if follower is None else follower.asked


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
    seconds({**settings, "rounds": 1}, followed=False)  # the first run of a process also imports
    ratios, read = [], []
    for pair in range(given.pairs):
        times = {}
        for followed in (False, True) if pair % 2 == 0 else (True, False):
            times[followed], asked = seconds(settings, followed)
            read += [asked] if followed else []
        ratios.append(times[True] / times[False])
    document = {
        "followed_over_alone": round(statistics.median(ratios), 4),
        "goal": "< 1.01",
        "of_each_pair": [round(ratio, 4) for ratio in ratios],
        "pages_read_in_a_run": statistics.median(read),
        "settings": vars(given),
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
