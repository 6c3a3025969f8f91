"""Run all tests of a federation and write docs/results/test-federation.md."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from fedtailor.runs.environment import environment

ROOT = Path(__file__).parents[2]
TESTS = ("tests/flower", "tests/cli/test_federation.py")
PAGE = ROOT / "docs" / "results" / "test-federation.md"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-n", "0", "-v", "-m", "slow or not slow", *TESTS]
        done = subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, check=False)
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    facts = ", ".join(f"{name} {value}" for name, value in environment().items())
    lines = [
        "# test-federation",
        "",
        f"Written by `make test-federation` on {time.strftime('%Y-%m-%d')}: {facts}. Real processes on one machine;",
        "see [a real federation](../federation.md).",
        "",
        "| test | outcome | seconds |",
        "| --- | --- | ---: |",
    ]
    for case in cases:
        bad = next((kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None), "")
        module = case.get("classname", "").rpartition(".")[2].removeprefix("test_")
        name = case.get("name", "").removeprefix("test_").replace("_", " ").replace("|", "/")
        lines.append(f"| {module}: {name} | {bad or 'passed'} | {float(case.get('time', 0)):.1f} |")
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(PAGE)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
