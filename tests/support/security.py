"""Write docs/results/security.md: ``python -m tests.support.security``.

It runs the tables of lies and refusals, counts what they hold, and adds the kills of docs/results/kills.json
(``python -m tests.support.kills``). ``--fuzz`` also runs the 10,000 examples of every kind of message, some minutes.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fedtailor.runs.environment import environment
from tests.support.kills import RECORD
from tests.support.lying import ANSWERS, HELLOS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "security.md"
LIES = ("tests/flower/test_lies.py", "-k", "each_lie or lies_about_itself")
REFUSED = ("tests/flower/test_policy.py", "tests/flower/test_gateway.py", "tests/flower/test_refusals.py")
FAULTS = ("tests/runs/test_flaws.py",)
FUZZ = ("tests/flower/test_fuzzing.py", "-m", "slow")


def main(fuzz: bool) -> int:
    bad = 0
    lines = ["# Security, in numbers", "", _written(), ""]
    for title, arguments in (("Refused", REFUSED), ("Faults survived", FAULTS)):
        cases = _cases(*arguments)
        bad += sum(outcome == "failed" for _, outcome in cases)
        lines += [f"## {title}", "", f"{_count(cases)} (`pytest {' '.join(arguments)}`).", ""]
        lines += [*(f"* {name}: {outcome}" for name, outcome in cases), ""]
    lies = _cases(*LIES)
    bad += sum(outcome == "failed" for _, outcome in lies)
    verdict = "each is its node's failure and nobody else's" if all(o == "passed" for _, o in lies) else "NOT all held"
    lines += [
        "## Lies of a registered node",
        "",
        f"{len(ANSWERS)} answers and {len(HELLOS)} descriptions: {verdict}.",
        "",
    ]
    lines += [f"* answer: {name}" for name in ANSWERS] + [f"* description: {name}" for name in HELLOS] + [""]
    lines += ["## Fuzzing", ""]
    if fuzz:
        cases = _cases(*FUZZ)
        bad += sum(outcome == "failed" for _, outcome in cases)
        lines += [*(f"* {name}, 10,000 examples: {outcome}" for name, outcome in cases), ""]
    else:
        lines += ["Not run for this page: `python -m tests.support.security --fuzz`.", ""]
    lines += _kills()
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print(PAGE)
    return bad


def _written() -> str:
    facts = ", ".join(f"{name} {value}" for name, value in environment().items())
    return f"Written by `python -m tests.support.security` on {time.strftime('%Y-%m-%d')}: {facts}."


def _cases(*arguments: str) -> list[tuple[str, str]]:
    """Run tests; their names and outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", *arguments, f"--junitxml={report}"]
        subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL)
        found = list(ElementTree.parse(report).getroot().iter("testcase"))
    return [(case.get("name", "").removeprefix("test_").replace("_", " "), _outcome(case)) for case in found]


def _outcome(case: ElementTree.Element) -> str:
    if case.find("skipped") is not None:
        return "skipped"
    return "failed" if case.find("failure") is not None or case.find("error") is not None else "passed"


def _count(cases: list[tuple[str, str]]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in Counter(outcome for _, outcome in cases).items())


def _kills() -> list[str]:
    kills: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    kills = [kill for kill in kills if kill["killed"]]  # some runs ended before the moment came
    lines = ["## Kills with an identical resume", "", "Each kill is SIGKILL to a fresh run, which is then resumed and"]
    lines += [
        "compared, table by table and bit by bit, with a run that nothing disturbed (`tests/support/kills.py`).",
        "",
    ]
    lines += ["| where | run | phase | kills | identical | complete rounds when killed | seconds |"]
    lines += ["| --- | --- | --- | ---: | ---: | --- | ---: |"]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for kill in kills:
        groups.setdefault((kill["where"], kill["run"], kill["phase"]), []).append(kill)
    for (where, run, phase), rows in sorted(groups.items()):
        same, rounds = sum(row["identical"] for row in rows), sorted({row["rounds"] for row in rows})
        seconds, reached = sum(row["seconds"] for row in rows), ", ".join(map(str, rounds))
        lines.append(f"| {where} | {run} | {phase} | {len(rows)} | {same} | {reached} | {seconds:.0f} |")
    for where in ("simulation", "federation"):
        rows = [kill for kill in kills if kill["where"] == where]
        same = sum(row["identical"] for row in rows)
        lines += ["", f"{where.capitalize()}: {same} of {len(rows)} kills were resumed identically."]
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main("--fuzz" in sys.argv))
