"""Write docs/results/security.md: ``python -m tests.support.security``.

It runs the tables of lies and refusals, counts what they hold, and adds the kills of docs/results/kills.json
(``python -m tests.support.kills``, ``python -m tests.support.federation_kills``); ``--kills`` writes
these only. ``--fuzz`` also runs the 10,000 examples, a quarter of each kind of message, some minutes.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fedtailor.runs.environment import environment
from tests.flower.test_fuzzing import MANY
from tests.support.kills import RECORD
from tests.support.lying import ANSWERS, HELLOS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "security.md"
LIES = ("tests/flower/test_lies.py", "-k", "each_lie or lies_about_itself")
REFUSED = (
    "tests/flower/node/test_policy.py",
    "tests/flower/coordinator/test_gateway.py",
    "tests/flower/test_refusals.py",
)
FAULTS = ("tests/runs/test_flaws.py",)
MEASURED = ("robust.md", "privacy.md")  # pages beside this one
FUZZ = ("tests/flower/test_fuzzing.py", "-m", "slow")


def main(fuzz: bool) -> int:
    bad = 0
    lines = ["# Security, in numbers", "", _written(), ""]
    for title, arguments in (("Refusals, and what they let through", REFUSED), ("Faults survived", FAULTS)):
        cases = _cases(*arguments)
        bad += sum(outcome == "failed" for _, outcome in cases)
        lines += [f"## {title}", "", f"{_count(cases)} (`pytest {' '.join(arguments)}`).", ""]
        lines += [*(f"* {name}: {outcome}" for name, outcome in cases), ""]
    lies = _cases(*LIES)
    bad += sum(outcome == "failed" for _, outcome in lies)
    verdict = "each is the failure of its node alone" if all(o == "passed" for _, o in lies) else "NOT all held"
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
        lines += [*(f"* {name}, {MANY:,} examples: {outcome}" for name, outcome in cases), ""]
    else:
        lines += ["Not run for this page: `python -m tests.support.security --fuzz`.", ""]
    lines += [*_tables(), *_kills()]
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


def _tables() -> list[str]:
    """The first table of each page that `fedtailor reproduce` wrote, with a link; nothing for a missing page."""
    lines: list[str] = []
    for page in (page for page in MEASURED if (PAGE.parent / page).exists()):
        written = (PAGE.parent / page).read_text(encoding="utf-8").splitlines()
        title = next(line.removeprefix("# ") for line in written if line.startswith("# "))
        section = next(place for place, line in enumerate(written) if line.startswith("## "))
        rows = list(takewhile(bool, dropwhile(lambda line: not line.startswith("|"), written[section:])))
        about = f"{written[section].removeprefix('## ')}. Footnotes, seeds and verdicts: [{page}]({page})."
        lines += [f"## {title}", "", about, "", *rows, ""]
    return lines


def _kills() -> list[str]:
    kills: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    every, kills = len(kills), [kill for kill in kills if kill["killed"]]
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
        lines += [f"* {row['phase']}: {'; '.join(row['events'])}" for row in rows if row.get("events")]
    nodes = [kill for kill in kills if kill["phase"].startswith("node")]
    lines += ["", f"{len(nodes)} of the kills in the federation hit a node, the others the coordinator."]
    lines += ["", f"{every - len(kills)} further runs ended before their random moment came, and are not counted."]
    return [*lines, ""]


def renew_kills() -> int:
    """Write the section of kills again, from the record; the rest of the page stays."""
    rest = PAGE.read_text(encoding="utf-8").partition("## Kills with an identical resume")[0]
    PAGE.write_text(rest + "\n".join(_kills()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(renew_kills() if "--kills" in sys.argv else main("--fuzz" in sys.argv))
