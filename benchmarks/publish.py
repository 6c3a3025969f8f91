"""Run benchmarks and write a page of each under docs/results: ``python benchmarks/publish.py [NAME ...]``.

Names are pages: benchmarks (four programs), federation, method-speed (methods), fedah-speed (the methods that
FedAH is compared with, at its one epoch), ray-cost (ray_cost), pfedrlla-cost (pfedrlla_cost), precision-speed
(precision), roof (training over the peak of the processor), dashboard-cost (dashboard, first_paint), million (a million
clients, also on Ray), round-cost (rounds: evaluated and empty ones), grouped-speed (grouped) and peers (after
``make bench-peers``); all but peers by default. Names after ``method-speed`` measure only these methods again.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fedtailor.views.provenance import made_by

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "results"
PAGES = {
    "benchmarks": ("start", "first_round", "speed", "memory"),
    "method-speed": ("methods",),
    "federation": ("federation",),
    "fedah-speed": (
        "methods --epochs 1 --rounds 9 fedprox per-fedavg pfedme fedamp ditto fedper fedrep fedfomo fedala fedah",
    ),
    "ray-cost": ("ray_cost",),
    "pfedrlla-cost": ("pfedrlla_cost",),
    "precision-speed": ("precision",),
    "roof": ("roof",),
    "dashboard-cost": ("dashboard", "first_paint"),
    "million": ("million", "million --engine ray --clients 100 1000000"),
    "round-cost": ("rounds",),
    "grouped-speed": ("grouped",),
    "peers": ("peers",),
}


def main(pages: list[str]) -> None:
    if pages[:1] == ["method-speed"] and len(pages) > 1:
        renew("method-speed", pages[1:])
        return
    for page in pages or [page for page in PAGES if page != "peers"]:
        begin = time.monotonic()
        parts = [f"# {page}", "", "Every ratio is measured in one run.", ""]
        for name in PAGES[page]:
            parts += section(name)
        parts += [made_by(f"python benchmarks/publish.py {page}", begin), ""]
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{page}.md").write_text("\n".join(parts), encoding="utf-8")
        print(RESULTS / f"{page}.md")


def renew(page: str, methods: list[str]) -> None:
    """Measure some methods again, each in turns with FedAvg as before; the others keep their lines."""
    file = RESULTS / f"{page}.md"
    head, found, tail = re.split(r"(?<=```json\n)(.*?)(?=\n```)", file.read_text(encoding="utf-8"), flags=re.S)
    known, fresh = json.loads(found), measured(f"methods {' '.join(methods)}")
    known["methods"] = dict(sorted({**known["methods"], **fresh["methods"]}.items()))
    known["largest"] = max(line["over"] for line in known["methods"].values())
    file.write_text(head + json.dumps(known, indent=2) + tail, encoding="utf-8")
    print(file)


def section(command: str) -> list[str]:
    print(f"{command} ...", file=sys.stderr)
    program = HERE / f"{command.split()[0]}.py"
    about = program.read_text(encoding="utf-8").split('"""')[1].partition("Example:")[0].strip()
    return [f"## {command}", "", about, "", "```json", json.dumps(measured(command), indent=2), "```", ""]


def measured(command: str) -> dict[str, Any]:
    name, *arguments = command.split()
    program = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
