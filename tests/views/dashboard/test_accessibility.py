"""Axe finds no serious or critical fault in the pages, in light and in dark."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.views.html.report import PAGE, write_page
from tests.support.browser import opened
from tests.views.dashboard.test_method import method_runs
from tests.views.dashboard.test_scale import served

pytestmark = pytest.mark.slow


def faults(page: Any) -> list[str]:
    """The serious and critical findings of axe-core on a page."""
    program = next(file for file in files("axe_playwright_python").iterdir() if file.name == "axe.min.js")
    page.evaluate(program.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {node['html'][:200]} {node['failureSummary']}" for one in serious for node in one["nodes"]]


@pytest.mark.parametrize("looks", ["light", "dark"])
def test_every_page_of_the_dashboard(compared: Path, browser: Any, looks: str) -> None:
    with served(compared.parent) as server, opened(browser, server.address, color_scheme=looks) as page:
        page.wait_for_selector("#live.on")
        pages = {
            "#/": "tbody tr",
            "#/run/two%2Flocal-s0": "#map canvas",
            "#/run/two%2Flocal-s0/client/1": "h1:has-text('Client 1')",
            "#/compare/two%2Flocal-s0/two%2F_b_strong__b_-s0": "#scatter canvas",
        }
        for address, ready in pages.items():
            page.evaluate("where => { location.hash = where; }", address)
            page.wait_for_selector(ready)
            assert faults(page) == [], address


@pytest.mark.parametrize("looks", ["light", "dark"])
def test_what_methods_do(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, browser: Any, looks: str) -> None:
    root = method_runs(tmp_path_factory.mktemp("methods"))
    with served(root) as server, opened(browser, server.address, color_scheme=looks) as page:
        page.wait_for_selector("#live.on")
        for name in ("weights", "groups", "clock"):
            for address in (f"#/run/{name}", f"#/run/{name}/client/1"):
                page.evaluate("where => { location.hash = where; }", address)
                page.wait_for_selector("h1:has-text('Client')" if "client" in address else "#method .panel")
                assert faults(page) == [], address
    with fedtailor.Run(root / "clock") as run:
        file = write_page(run, tmp_path / PAGE)
    with opened(browser, file.as_uri(), color_scheme=looks) as page:
        assert faults(page) == []


@pytest.mark.parametrize("looks", ["light", "dark"])
def test_the_form_that_starts_a_run(tmp_path: Path, browser: Any, looks: str) -> None:
    with served(tmp_path, control=True) as server, opened(browser, server.address, color_scheme=looks) as page:
        page.get_by_role("link", name="Start a run").click()
        page.wait_for_selector("form")
        page.locator("[name='rounds']").fill("0")
        page.get_by_role("button", name="Check").click()
        page.wait_for_selector(".field .error:not(:empty)")
        assert faults(page) == []


@pytest.mark.parametrize("looks", ["light", "dark"])
def test_reports(compared: Path, named_run: Path, tmp_path: Path, browser: Any, looks: str) -> None:
    with fedtailor.Run(named_run) as run:
        one = write_page(run, tmp_path / PAGE)
    two = write_page(fedtailor.Comparison(compared), tmp_path / "two.html")
    for file in (one, two):
        with opened(browser, file.as_uri(), color_scheme=looks) as page:
            assert faults(page) == []


def test_the_search_for_faults_finds_one(tmp_path: Path, browser: Any) -> None:
    (tmp_path / "bad.html").write_text('<html lang="en"><title>x</title><main><input type="text"></main></html>')
    with opened(browser, (tmp_path / "bad.html").as_uri()) as page:
        assert [found.partition(":")[0] for found in faults(page)] == ["label"]
