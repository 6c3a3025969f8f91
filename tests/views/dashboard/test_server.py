"""The dashboard over HTTP, and in a real browser."""

import http.client
import io
import json
import shutil
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import fedtailor
from fedtailor.views.dashboard.access import Access
from fedtailor.views.dashboard.server import Dashboard
from tests.support.browser import opened, overflow
from tests.views.conftest import EVIL


@pytest.fixture(scope="module")
def runs(named_run: Path, compared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dashboard") / "runs"
    shutil.copytree(named_run, root / "named")
    shutil.copytree(compared, root / "two")
    (root / "bad").mkdir()
    (root / "bad" / "run.db").write_bytes(b"garbage" * 10_000)
    return root


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Dashboard]:
    dashboard = Dashboard(runs, Access())
    thread = threading.Thread(target=dashboard.serve_forever)
    thread.start()
    yield dashboard
    dashboard.stop()
    thread.join()


def ask(server: Dashboard, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        cookie = f"{Access.cookie_name(server.port)}={server.access.token}"
        connection.request(method, path, headers={"Cookie": cookie, **headers})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_without_the_token_nothing_is_shown(server: Dashboard) -> None:
    for path in ("/", "/api/runs", "/static/charts.js", "/report?id=named", "/api/changes", "/?token=wrong"):
        status, _, body = ask(server, path, Cookie="")
        assert status == 403
        assert b"token" in body
    status, headers, _ = ask(server, f"/?token={server.access.token}", Cookie="")
    assert (status, headers["Location"]) == (303, "/")
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "SameSite=Strict" in headers["Set-Cookie"]


def test_other_origins_and_other_methods_are_refused(server: Dashboard) -> None:
    assert ask(server, "/api/runs")[0] == 200
    assert ask(server, "/api/runs", Origin="http://evil.example")[0] == 403
    assert ask(server, "/api/runs", Host="evil.example")[0] == 403
    assert ask(server, "/api/runs", method="POST")[0] == 403
    assert ask(server, "/api/runs", method="DELETE")[0] == 501


@pytest.mark.parametrize("name", ["../named", "/etc", "nothing", "named/../named", "bad"])
def test_only_runs_below_the_folder_are_read(server: Dashboard, name: str) -> None:
    status, headers, body = ask(server, f"/api/run?id={quote(name, safe='')}")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert list(json.loads(body)) == ["error", "problems"]
    assert ask(server, f"/report?id={quote(name, safe='')}")[0] == 422


def test_wrong_addresses_are_answered(server: Dashboard) -> None:
    assert ask(server, "/static/../server.py")[0] == 404
    assert ask(server, "/nothing")[0] == 404
    assert ask(server, "/api/run")[0] == 400
    assert "unknown client '99'" in json.loads(ask(server, "/api/client?id=named&client=99")[2])["error"]
    assert "tick from 2" in json.loads(ask(server, "/api/compare?ids=named")[2])["error"]
    assert ask(server, "/api/model?id=named&client=99")[0] == 422


def test_a_damaged_run_is_a_line_among_others(server: Dashboard) -> None:
    lines = {line["id"]: line for line in json.loads(ask(server, "/api/runs")[2])["runs"]}
    assert lines["bad"]["status"] == "damaged"
    assert "damaged" in lines["bad"]["error"]
    assert lines["named"]["status"] == "finished"
    assert lines["two/local-s0"]["done"] == 2


def test_a_client_has_its_curve_and_its_model(server: Dashboard, runs: Path) -> None:
    found = json.loads(ask(server, "/api/client?id=two/local-s0&client=1")[2])
    with fedtailor.Run(runs / "two" / "local-s0") as run:
        assert found["curves"]["final"]["y"] == pytest.approx([run.scores("final")[1]["accuracy"]], rel=1e-4)
    status, headers, body = ask(server, "/api/model?id=two/local-s0&client=1")
    assert (status, headers["Content-Disposition"]) == (200, 'attachment; filename="client-1.zip"')
    assert {"card.json", "model.safetensors"} <= set(zipfile.ZipFile(io.BytesIO(body)).namelist())


def test_data_and_reports_are_served(server: Dashboard) -> None:
    data = json.loads(ask(server, "/api/data?id=two/local-s0")[2])
    assert (len(data["classes"]), len(data["counts"]), len(data["counts"][0])) == (10, 10, 4)
    assert "error" in json.loads(ask(server, "/api/data?id=named")[2])  # its data were Python objects
    for name in ("two", "named"):
        assert ask(server, f"/report?id={name}")[2].startswith(b"<!doctype html>")


def test_a_browser_lists_filters_and_compares(server: Dashboard, browser: Any) -> None:
    with opened(browser, server.address, viewport={"width": 390, "height": 800}, color_scheme="dark") as page:
        page.wait_for_selector("tbody tr")
        assert "token" not in page.url
        assert page.locator("tbody tr").count() == 8
        assert "garbage" not in page.inner_text("body")
        assert overflow(page) == 0
        page.get_by_label("Filter runs").fill("fedprox")
        assert page.locator("tbody tr").count() == 3
        for box in page.locator("tbody input").all():
            box.check()
        page.get_by_label("Filter runs").fill("two/local")
        for box in page.locator("tbody input").all():
            box.check()
        page.get_by_role("button", name="Compare 6 runs").press("Enter")
        page.wait_for_selector("#scatter canvas")
        assert "is better for" in page.inner_text("#scatter")
        assert overflow(page) == 0


def test_a_redraw_leaves_the_keyboard_where_it_was(browser: Any, compared: Path, tmp_path: Path) -> None:
    shutil.copytree(compared, tmp_path / "two")
    dashboard = Dashboard(tmp_path, Access())
    serving = threading.Thread(target=dashboard.serve_forever)
    serving.start()
    try:
        with opened(browser, dashboard.address) as page:
            page.wait_for_selector("#live:text-is('live')")
            page.get_by_role("link", name="two/local-s1").focus()
            page.evaluate("window.focused = document.activeElement")
            shutil.copytree(compared / "local-s0", tmp_path / "third")
            page.wait_for_selector("a:text-is('third')")
            assert not page.evaluate("window.focused.isConnected")
            assert page.evaluate("document.activeElement.textContent") == "two/local-s1"
            page.keyboard.press("Enter")
            page.wait_for_selector("#progress")
    finally:
        dashboard.stop()
        serving.join()


def test_a_browser_shows_names_that_are_markup_as_text(server: Dashboard, browser: Any) -> None:
    with opened(browser, server.address) as page:
        page.get_by_role("link", name="named").click()
        canvas = page.locator("#map canvas")
        canvas.focus()
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#map .tip b") == f"client {EVIL[0]}"
        page.keyboard.press("Enter")
        page.wait_for_selector(f"h1:text-is('Client {EVIL[0]}')")
        page.wait_for_selector("section svg path")
        assert overflow(page) == 0


def test_a_browser_follows_a_run(browser: Any, tmp_path: Path) -> None:
    """The run goes on only after the page has shown each round: the browser waits for the event, not for seconds."""
    dashboard = Dashboard(tmp_path, Access())
    serving = threading.Thread(target=dashboard.serve_forever)
    serving.start()
    stored, go_on = threading.Event(), threading.Event()

    class Step(fedtailor.Callback):
        def round_done(self, report: Any) -> None:
            stored.set()
            assert go_on.wait(600)
            go_on.clear()

    settings = {"rounds": 3, "data": {"clients": 4, "samples": 120}, "engine": {"kind": "inline"}}
    settings |= {"model": {"name": "mlp"}, "training": {"epochs": 1}, "method": {"name": "pfedrlla"}}
    running = threading.Thread(
        target=lambda: fedtailor.run(settings, folder=tmp_path / "run", callbacks=Step()).close()
    )
    try:
        running.start()
        assert stored.wait(600)
        with opened(browser, dashboard.address) as page:
            page.get_by_role("link", name="run", exact=True).click()
            page.wait_for_selector("#live:text-is('live')")
            page.wait_for_selector("#progress:has-text('1 of 3 rounds')")
            for done in ("2 of 3", "3 of 3"):
                go_on.set()
                page.wait_for_selector(f"#progress:has-text('{done} rounds')")
                page.wait_for_selector(f"#method output:text-is('round {done[0]}')")
            go_on.set()
            page.wait_for_selector(".badge.finished")
    finally:
        go_on.set()
        running.join()
        dashboard.stop()
        serving.join()
