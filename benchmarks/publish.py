"""Run every benchmark and write docs/results/benchmarks.md: ``python benchmarks/publish.py``."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "benchmarks.md"
BENCHMARKS = ("start", "speed", "memory", "methods")


def main() -> None:
    parts = ["# Benchmarks", "", "Written by `python benchmarks/publish.py`; every ratio is measured in one run.", ""]
    for name in BENCHMARKS:
        print(f"{name} ...", file=sys.stderr)
        done = subprocess.run([sys.executable, str(HERE / f"{name}.py")], stdout=subprocess.PIPE, text=True, check=True)
        about = (HERE / f"{name}.py").read_text(encoding="utf-8").split('"""')[1].partition("Example:")[0].strip()
        parts += [f"## {name}", "", about, "", "```json", json.dumps(json.loads(done.stdout), indent=2), "```", ""]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
