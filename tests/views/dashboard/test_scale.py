"""Many clients and many runs in a real browser."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedtailor.learning import Score
from fedtailor.runs.measuring import measures
from fedtailor.runs.store import Store
from fedtailor.views.dashboard.access import Access
from fedtailor.views.dashboard.server import Dashboard
from fedtailor.views.html.report import run_report
from tests.support.browser import opened, overflow

CLIENTS = 10_000
RUNS = 500


@contextmanager
def served(root: Path, control: bool = False) -> Iterator[Dashboard]:
    dashboard = Dashboard(root, Access(), control=control)
    thread = threading.Thread(target=dashboard.serve_forever)
    thread.start()
    try:
        yield dashboard
    finally:
        dashboard.stop()
        thread.join()


def large_run(like: Path, folder: Path, clients: int, rounds: int) -> None:
    """A run of many clients: the records of a real one with made-up scores."""
    folder.mkdir(parents=True)
    with Store(like) as store:
        facts = {row["key"]: json.loads(row["value"]) for row in store.read("meta") if row["key"] != "schema"}
    Store.create(folder, {**facts, "clients": clients})
    with Store(folder, write=True) as store, store.transaction():
        for round in range(1, rounds + 1):
            scores = {client: Score((client * 7 + round) % 41, 30.0, 40) for client in range(clients)}
            place = {"episode": 0, "round": round, "model": "held"}
            store.set_scores(place, scores.items())
            found = vars(measures(scores, round))
            columns = {key: value for key, value in found.items() if key not in ("more", "headline", "population")}
            store.insert("metrics", [{**place, **columns}])
            row = {"cohort": json.dumps(list(range(100))), "bytes_down": 1, "bytes_up": 1, "seconds": 1.0}
            store.insert("rounds", [{"episode": 0, "round": round, **row}])


@pytest.mark.slow
def test_ten_thousand_clients_are_a_map(compared: Path, tmp_path: Path, browser: Any) -> None:
    from fedtailor.runs import Run

    large_run(compared / "local-s0", tmp_path / "large", CLIENTS, 20)
    with Run(tmp_path / "large") as run:
        assert len(run_report(run).encode()) < 3_000_000
    with served(tmp_path) as server, opened(browser, server.address) as page:
        page.get_by_role("link", name="large").click()
        page.wait_for_selector("#map canvas")
        page.locator("#map canvas").focus()
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#map .tip b") == "client 0"
        page.locator("#map select").nth(1).select_option("value")
        page.wait_for_selector("#map canvas")
        assert overflow(page) == 0


@pytest.mark.slow
def test_five_hundred_runs_are_listed(compared: Path, tmp_path: Path, browser: Any) -> None:
    for number in range(RUNS):
        folder = tmp_path / f"run-{number:03d}"
        folder.mkdir()
        shutil.copyfile(compared / "local-s0" / "run.db", folder / "run.db")
    with served(tmp_path) as server, opened(browser, server.address) as page:
        page.wait_for_selector("tbody tr")
        assert page.locator("tbody tr").count() == RUNS
        page.get_by_label("Filter runs").fill("run-49")
        assert page.locator("tbody tr").count() == 10
