"""Runs that are started from the dashboard: real processes, in a real browser."""

import http.client
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedtailor.views.dashboard.access import TOKEN, Access
from fedtailor.views.dashboard.server import Dashboard
from tests.support.browser import opened, overflow

TINY = {"data.clients": "3", "data.samples": "90", "engine.kind": "inline", "training.epochs": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    dashboard = Dashboard(tmp_path_factory.mktemp("controlled") / "runs", Access(), control=True)
    thread = threading.Thread(target=dashboard.serve_forever)
    thread.start()
    yield dashboard
    dashboard.stop()
    thread.join()


def post(server: Dashboard, path: str, body: Any, **changed: str | None) -> tuple[int, Any]:
    host = f"127.0.0.1:{server.port}"
    headers = {
        "Cookie": f"{Access.cookie_name(server.port)}={server.access.token}",
        "Origin": f"http://{host}",
        TOKEN: server.access.page_token,
        **{key.replace("_", "-"): value for key, value in changed.items()},
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, text, {key: value for key, value in headers.items() if value is not None})
        answer = connection.getresponse()
        said = answer.read()
        return answer.status, json.loads(said) if said.startswith(b"{") else said
    finally:
        connection.close()


def process(server: Dashboard, name: str) -> Any:
    assert server.control is not None
    return server.control._runs[name].process


def test_commands_from_elsewhere_are_refused(server: Dashboard) -> None:
    elsewhere: list[dict[str, str | None]] = [
        {TOKEN: None},
        {TOKEN: "wrong"},
        {"Origin": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Cookie": None},
    ]
    for changed in elsewhere:
        for path in ("/api/start", "/api/preview", "/api/stop", "/api/resume"):
            assert post(server, path, {"values": TINY, "id": "x"}, **changed)[0] == 403, changed
    assert server.control is not None
    assert server.control.states() == {}


def test_without_control_nothing_can_be_commanded(tmp_path: Path) -> None:
    dashboard = Dashboard(tmp_path, Access())
    thread = threading.Thread(target=dashboard.serve_forever)
    thread.start()
    try:
        for path in ("/api/start", "/api/preview", "/api/stop", "/api/resume", "/api/runs"):
            status, found = post(dashboard, path, {"values": TINY})
            assert status == 403
            assert "--control" in found["error"]
    finally:
        dashboard.stop()
        thread.join()


def test_wrong_requests_are_answered(server: Dashboard) -> None:
    assert post(server, "/api/nothing", {})[0] == 404
    assert post(server, "/api/stop", {})[0] == 400
    for body in (b"", b"{", b"[]", b'{"values": 3}', b"[" * 100_000):
        assert "JSON" in post(server, "/api/start", body)[1]["error"]
    assert "did not start 'x'" in post(server, "/api/stop", {"id": "x"})[1]["error"]
    found = post(server, "/api/start", {"values": {"rounds": "0"}})[1]
    assert found["problems"] == [{"key": "rounds", "text": "rounds = 0: should be greater than or equal to 1"}]
    assert server.control is not None
    assert server.control.states() == {}


def test_a_run_that_cannot_begin_says_why(server: Dashboard) -> None:
    values = {**TINY, "data.source": "mnist", "data.dir": "nowhere"}
    assert "mnist" in post(server, "/api/preview", {"values": values})[1]["error"]
    name = post(server, "/api/start", {"values": values})[1]["id"]
    assert process(server, name).wait(600) == 2
    assert server.control is not None
    state = server.control.states()[name]
    assert (state["state"], state["resumable"]) == ("failed", False)
    assert "nowhere" in state["why"]


def test_a_browser_starts_a_run_sees_it_killed_resumes_and_stops_it(server: Dashboard, browser: Any) -> None:
    with opened(browser, server.address, viewport={"width": 390, "height": 800}, color_scheme="dark") as page:
        page.get_by_role("link", name="Start a run").press("Enter")
        page.wait_for_selector("form")
        assert overflow(page) == 0
        fill = {"name": "<b>x", "rounds": "0", **TINY, "engine.kind": None, "data.clients": None, "data.samples": None}
        for key, value in fill.items():
            if value is not None:
                page.locator(f"[name='{key}']").fill(value)
        page.get_by_label("more").evaluate("node => node.closest('details').open = true")
        page.get_by_label("more").fill("data.clients=3\ndata.samples=90\nengine.kind=inline")
        page.get_by_role("button", name="Check").press("Enter")
        page.wait_for_selector(".field:has([name='rounds']) .error:has-text('rounds = 0: should be greater')")
        page.wait_for_selector(".field:has([name='name']) .error:has-text('it names a folder')")
        page.locator("[name='name']").fill("mine & yours")
        page.locator("[name='rounds']").fill("100000")
        page.get_by_role("button", name="Check").press("Enter")
        page.wait_for_selector("#preview canvas")
        assert "3 clients, 90 samples" in page.inner_text("#preview")
        assert page.inner_text("#time").startswith("Not known")
        page.get_by_role("button", name="Start", exact=True).press("Enter")
        page.wait_for_selector("#mine .badge.running")
        page.get_by_role("link", name="mine & yours").first.press("Enter")
        page.wait_for_selector("#curves svg")

        os.kill(process(server, "mine & yours").pid, signal.SIGKILL)
        page.wait_for_selector(".lead .badge.stopped")
        page.wait_for_selector(".commands .error:has-text('signal 9')")
        page.get_by_role("button", name="Resume").press("Enter")
        page.wait_for_selector(".lead .badge.running")
        page.get_by_role("button", name="Stop").press("Enter")
        page.wait_for_selector("button:has-text('Resume')")
        assert process(server, "mine & yours").returncode == 130
        assert overflow(page) == 0
