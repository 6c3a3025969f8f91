"""How soon a browser shows the dashboard of many runs: the first paint, and the complete table.

A Chromium without a cache opens the dashboard of a folder with 100 runs, several times, each time from a dashboard that
has just been started. ``first_paint`` is the browser's own first contentful paint, in milliseconds after it asked for
the page; ``table`` is when all runs stand in the table. The first paint should take less than 1,000 ms. It needs
Chromium and Playwright.

Example: ``python benchmarks/first_paint.py --runs 100 --times 7``. Prints one JSON document.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
from pathlib import Path
from typing import Any

from fedtailor.views.dashboard.gate import Gate
from playwright.sync_api import sync_playwright

import fedtailor
from fedtailor.views.dashboard.server import Dashboard

PAINTED = "performance.getEntriesByName('first-contentful-paint').length > 0"
FILLED = "count => document.querySelectorAll('tbody tr').length === count && performance.now()"


def opened(browser: Any, root: Path, runs: int) -> tuple[float, float]:
    """Milliseconds until the first paint, and until the table is complete."""
    dashboard = Dashboard(root, Gate())
    serving = threading.Thread(target=dashboard.serve_forever)
    serving.start()
    try:
        page = browser.new_context().new_page()
        page.goto(dashboard.address, wait_until="commit")
        filled = page.wait_for_function(FILLED, arg=runs, polling=10).json_value()
        page.wait_for_function(PAINTED)
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        page.context.close()
        return painted, filled
    finally:
        dashboard.stop()
        serving.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--times", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        root = Path(place) / "runs"
        settings = {"rounds": 20, "data": {"clients": 20}, "engine": {"kind": "inline"}, "training": {"epochs": 1}}
        fedtailor.run(settings, folder=root / "run-000").close()
        for number in range(1, given.runs):
            shutil.copytree(root / "run-000", root / f"run-{number:03d}")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened(browser, root, given.runs)  # the first page of a browser also starts its processes
        found = [opened(browser, root, given.runs) for _ in range(given.times)]
        browser.close()
    document = {
        "first_paint_ms": round(statistics.median(painted for painted, _ in found)),
        "goal": "< 1000",
        "first_paints_ms": [round(painted) for painted, _ in found],
        "table_ms": round(statistics.median(filled for _, filled in found)),
        "tables_ms": [round(filled) for _, filled in found],
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[1], 1),
        "settings": vars(given),
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
