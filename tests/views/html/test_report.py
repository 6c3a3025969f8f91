"""The report: one file that opens anywhere, with every table in the markup and every name escaped."""

import json
import re
import tomllib
from base64 import b64decode
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.runs.store import Store
from fedtailor.views.html.report import PAGE, comparison_report, run_report, write_page
from tests.support.browser import opened, overflow
from tests.views.conftest import EVIL


class Texts(HTMLParser):
    """The tags of a page, and its text without scripts and styles."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.said: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] not in (["script"], ["style"]):
            self.said.append(data)


def saved_settings(page: str) -> dict[str, Any]:
    found = re.search(r'href="data:text/plain;charset=utf-8;base64,([^"]*)"', page)
    assert found is not None
    return tomllib.loads(b64decode(unescape(found[1])).decode())


def test_names_that_are_markup_stay_text(named_run: Path) -> None:
    with fedtailor.Run(named_run) as run:
        page = run_report(run)
    found = Texts(page)
    assert set(EVIL) <= set(found.said)
    assert "a & b" in found.said
    assert found.tags.count("script") == 2  # the numbers, and the program
    assert {"img", "b"} & set(found.tags) == set()


def test_the_page_of_a_run_has_its_tables_settings_and_versions(named_run: Path) -> None:
    with fedtailor.Run(named_run) as run:
        page, final = run_report(run), run.last()["final"].accuracy
        assert saved_settings(page) == run.settings
        versions = run.environment
    text = " ".join(Texts(page).said)
    assert f"{100 * final:.1f}" in text
    for word in ("worst 10 %", "Where the time of 3 rounds went", "Failures", versions["torch"]):
        assert word in text


def test_the_page_of_a_comparison_has_verdicts_and_settings_that_run_again(compared: Path) -> None:
    comparison = fedtailor.Comparison(compared)
    page = comparison_report(comparison)
    text = " ".join(Texts(page).said)
    summary = comparison.summary()
    assert summary.row("<b>strong</b>").difference.outcome.split()[0] in text
    assert "A difference is decided by the 95 % t-interval" in text
    assert "<b>strong</b>" in text
    assert "b" not in Texts(page).tags
    assert fedtailor.experiment(saved_settings(page)) == comparison.experiment


def test_a_warning_is_on_the_page(tmp_path: Path) -> None:
    settings = {"rounds": 1, "data": {"clients": 3, "samples": 90}, "method": {"name": "fedprox", "mu": 0.0}}
    with fedtailor.run({**settings, "engine": {"kind": "inline"}}, folder=tmp_path / "run") as run:
        assert "Warning: " + run.warnings[0] in unescape(run_report(run))


def test_a_page_replaces_the_old_one(compared: Path, tmp_path: Path) -> None:
    with fedtailor.Run(compared / "local-s0") as run:
        path = tmp_path / PAGE
        path.write_text("old")
        assert write_page(run, path).read_text().startswith("<!doctype html>")
        assert [file.name for file in tmp_path.iterdir()] == [PAGE]
        assert path.stat().st_size < 3_000_000


def test_a_run_without_a_complete_round_has_a_page(compared: Path, tmp_path: Path) -> None:
    with Store(compared / "local-s0") as store:
        facts = {row["key"]: json.loads(row["value"]) for row in store.read("meta")}
    Store.create(tmp_path, {key: value for key, value in facts.items() if key not in ("schema", "finished")})
    with fedtailor.Run(tmp_path) as run:
        assert "No round has been evaluated yet." in run_report(run)


@pytest.mark.parametrize("looks", ["light", "dark"])
def test_a_browser_draws_a_run(named_run: Path, tmp_path: Path, browser: Any, looks: str) -> None:
    with fedtailor.Run(named_run) as run:
        page_file = write_page(run, tmp_path / PAGE)
    with opened(browser, page_file.as_uri(), color_scheme=looks, viewport={"width": 390, "height": 800}) as page:
        assert page.title() == "a & b · FedTailor"
        assert page.locator("#curves svg path").count() >= 3
        assert overflow(page) == 0
        page.locator("#map canvas").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#map .tip b").inner_text() == f"client {EVIL[0]}"
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(20, 24, 28)") == (looks == "dark")


def test_a_browser_draws_a_comparison_and_sorts_its_table(compared: Path, tmp_path: Path, browser: Any) -> None:
    page_file = write_page(fedtailor.Comparison(compared), tmp_path / PAGE)
    with opened(browser, page_file.as_uri()) as page:
        table = page.locator("section:has(h2:text-is('Result')) table")
        header = table.locator("thead th").first
        orders = []
        for _ in range(2):
            header.locator("button").focus()
            page.keyboard.press("Enter")
            orders.append(table.locator("tbody th").all_inner_texts())
        assert orders[0] == sorted(orders[0], key=str.lower)
        assert orders[1] == orders[0][::-1]
        assert "is better for" in page.locator("#scatter").inner_text()
        page.locator("#curves select").select_option("megabytes")
        assert "MB sent and received" in page.locator("#curves").inner_text()
        page.locator("#curves svg").first.hover()
        assert "local: " in page.locator("#curves .tip").inner_text()


def test_the_page_of_a_comparison_says_what_each_system_did(tmp_path: Path) -> None:
    settings = {"rounds": 2, "data": {"clients": 3, "samples": 120}, "engine": {"kind": "inline"}}
    made = fedtailor.compare(settings, methods=["fedavg", "bwa"], seeds=[0], folder=tmp_path / "c")
    text = " ".join(Texts(comparison_report(made)).said)
    assert "What each system did" in text
    assert "bwa chose by the rule" in text
    assert f"fedtailor draw {made.runs()['bwa'][0]}" in text
