"""Run benchmarks and write a page of each under docs/results: ``python benchmarks/publish.py [NAME ...]``.

Names are pages: benchmarks (start, speed, memory), method-speed (methods) and fedah-speed (the methods that FedAH is
compared with, at its one epoch); all by default.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "results"
PAGES = {
    "benchmarks": ("start", "speed", "memory"),
    "method-speed": ("methods",),
    "fedah-speed": (
        "methods --epochs 1 --rounds 9 fedprox per-fedavg pfedme fedamp ditto fedper fedrep fedfomo fedala fedah",
    ),
}


def main(pages: list[str]) -> None:
    for page in pages or list(PAGES):
        parts = [f"# {page}", "", "Written by `python benchmarks/publish.py`; every ratio is measured in one run.", ""]
        for name in PAGES[page]:
            parts += section(name)
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{page}.md").write_text("\n".join(parts), encoding="utf-8")
        print(RESULTS / f"{page}.md")


def section(command: str) -> list[str]:
    print(f"{command} ...", file=sys.stderr)
    name, *arguments = command.split()
    program = HERE / f"{name}.py"
    done = subprocess.run([sys.executable, str(program), *arguments], stdout=subprocess.PIPE, text=True, check=True)
    about = program.read_text(encoding="utf-8").split('"""')[1].partition("Example:")[0].strip()
    return [f"## {command}", "", about, "", "```json", json.dumps(json.loads(done.stdout), indent=2), "```", ""]


if __name__ == "__main__":
    main(sys.argv[1:])
