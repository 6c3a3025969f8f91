"""A run that is killed, and a database that is damaged, while a browser looks on."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.browser import opened
from tests.views.dashboard.test_scale import served

HOLDING = """
import sys, threading
import fedtailor

class Hold(fedtailor.Callback):
    def round_done(self, report):
        if report.round == 2:
            print("holding", flush=True)
            threading.Event().wait()

settings = {"rounds": 9, "data": {"clients": 3, "samples": 90}, "engine": {"kind": "inline"}}
fedtailor.run(settings, folder=sys.argv[1], callbacks=Hold())
"""


def test_a_run_that_is_killed_is_shown_as_stopped(browser: Any, tmp_path: Path) -> None:
    """The browser sees rounds of a process, then that it is gone; nothing that it showed is lost."""
    program = [sys.executable, "-c", HOLDING, str(tmp_path / "run")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as going:
        try:
            assert going.stdout is not None
            assert going.stdout.readline() == "holding\n"
            with served(tmp_path) as server, opened(browser, server.address) as page:
                page.get_by_role("link", name="run", exact=True).click()
                page.wait_for_selector(".badge.running")
                page.wait_for_selector("#live.on")
                going.send_signal(signal.SIGKILL)
                going.wait()
                page.wait_for_selector(".badge.stopped")
                assert page.inner_text("#progress").startswith("2 of 9 rounds")
                assert page.locator("#curves svg path").count() > 0
                page.get_by_role("link", name="All runs").click()
                page.wait_for_selector("tbody tr:has-text('2/9') .badge.stopped")
        finally:
            going.kill()


def test_a_database_that_is_damaged_meanwhile_gives_a_sentence(compared: Path, browser: Any, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    database = tmp_path / "one" / "run.db"
    whole = (compared / "local-s0" / "run.db").read_bytes()
    database.write_bytes(whole)
    with served(tmp_path) as server, opened(browser, server.address) as page:
        page.get_by_role("link", name="one", exact=True).click()
        page.wait_for_selector("#map canvas")
        database.write_bytes(b"garbage" * 20_000)
        page.wait_for_selector("main .error:has-text('damaged')")
        page.get_by_role("link", name="All runs").click()
        page.wait_for_selector("tbody .badge.damaged")
        database.write_bytes(whole)  # and it comes back by itself
        page.wait_for_selector("tbody .badge.finished")


def test_the_page_says_when_the_dashboard_has_ended(compared: Path, browser: Any) -> None:
    with served(compared) as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.address)
        page.wait_for_selector("#live.on")
        server.stopping.set()
    page.wait_for_selector("#live.off:text-is('not connected')")
    assert page.locator("tbody tr").count() == 6  # what was shown stays
    context.close()
