"""What a method is doing, in a real browser: scrubbing, groups, a client's page, a report of the same."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.views.dashboard.server import Dashboard
from fedtailor.views.html.report import PAGE, write_page
from tests.support.browser import opened, overflow
from tests.support.waiting import wait_until
from tests.views.conftest import EVIL
from tests.views.dashboard.test_scale import served


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return method_runs(tmp_path_factory.mktemp("methods"))


def method_runs(place: Path) -> Path:
    """Make a run of pFedRLLA whose clients' names are markup, one of FedALP, and one of HAPFL."""
    random, clients = np.random.RandomState(0), {}
    for shift, name in enumerate(EVIL):
        y = random.randint(0, 2, 40)
        clients[name] = (random.normal(y[:, None] * 2.0 + shift, 1.0, (40, 3)).astype(np.float32), y)
    small: dict[str, Any] = {"rounds": 3, "engine": {"kind": "inline"}, "model": {"name": "mlp"}}
    small["training"] = {"epochs": 1}
    data = {"clients": 5, "samples": 150}
    federation = fedtailor.Federation.from_clients(clients)
    agents = {**small, "method": {"name": "pfedrlla"}}
    fedtailor.run(agents, folder=place / "weights", federation=federation).close()
    groups = {**small, "data": data, "method": {"name": "fedalp", "groups": 2}}
    fedtailor.run(groups, folder=place / "groups").close()
    sizes = {"name": "hapfl", "sizes": ["small", "large"]}
    devices = {"speed": 0.001, "profiles": {"kind": "uniform", "spread": 10}}
    clock = {**small, "data": data, "method": sizes, "devices": devices}
    fedtailor.run(clock, folder=place / "clock").close()
    return place


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Dashboard]:
    with served(root) as dashboard:
        yield dashboard


def test_weights_between_clients_are_scrubbed_with_the_keyboard(server: Dashboard, browser: Any) -> None:
    looks = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}
    with opened(browser, server.address, **looks) as page:
        page.get_by_role("link", name="weights").click()
        slider = page.get_by_label("round of Weights of heads", exact=True)
        panel = page.locator(".panel", has=slider)
        slider.focus()
        assert panel.locator("output").inner_text() == "round 3"
        page.keyboard.press("ArrowLeft")
        assert panel.locator("output").inner_text() == "round 2"
        panel.locator("canvas").focus()
        page.keyboard.press("ArrowDown")
        assert panel.locator(".tip b").inner_text() == f"client {EVIL[0]}"
        assert overflow(page) == 0


def test_a_report_has_the_same_panels(root: Path, tmp_path: Path, browser: Any) -> None:
    with fedtailor.Run(root / "weights") as run:
        file = write_page(run, tmp_path / PAGE)
    with opened(browser, file.as_uri()) as page:
        assert page.locator("#method h3").all_inner_texts()[:2] == ["Weights of heads", "Mean weights of heads"]
        slider = page.get_by_label("round of Weights of heads", exact=True)
        slider.fill("0")
        assert page.locator(".panel", has=slider).locator("output").inner_text() == "round 1"


def test_clients_are_mapped_by_group_beside_the_tree(server: Dashboard, root: Path, browser: Any) -> None:
    with fedtailor.Run(root / "groups") as run:
        members = run.server_state("groups")["groups"]["member"]
    with opened(browser, server.address) as page:
        page.get_by_role("link", name="groups").click()
        page.wait_for_selector("#method .panel svg path")
        page.locator("#map select").nth(1).select_option("group")

        def next_client() -> bool:
            page.locator("#map canvas").focus()
            page.keyboard.press("ArrowRight")
            return bool(page.locator("#map .tip b").is_visible())

        seen = []
        for _ in range(5):
            wait_until(next_client, "a client under the cursor")  # the map may be drawn again after the choice
            seen.append(int(page.inner_text("#map .tip b").removeprefix("client ")))
            assert f"group {members[seen[-1]]}" in page.inner_text("#map .tip")
        assert seen == sorted(members, key=lambda client: (members[client], client))
        page.keyboard.press("Enter")
        page.wait_for_selector(f"text=It is in group {members[seen[-1]]}")


def test_bars_show_the_straggler_of_every_round(server: Dashboard, root: Path, browser: Any) -> None:
    with fedtailor.Run(root / "clock") as run:
        slowest = max((row for row in run.times() if row["round"] == 1), key=lambda row: row["compute"])
    with opened(browser, server.address, viewport={"width": 390, "height": 800}) as page:
        page.get_by_role("link", name="clock").click()
        slider = page.get_by_label("round of Rounds on the clock of the devices")
        slider.fill("0")
        said = page.locator(".panel", has=slider).locator(".said").inner_text()
        assert f"the slowest is client {slowest['client']} " in said
        assert page.locator(".panel", has=slider).locator("svg g text").first.text_content() == str(slowest["client"])
        assert overflow(page) == 0


def test_a_client_has_its_data_its_model_and_what_was_decided(
    server: Dashboard, root: Path, browser: Any, tmp_path: Path
) -> None:
    with opened(browser, f"{server.address}#/run/clock/client/2") as page:
        page.goto(f"{server.address.partition('?')[0]}#/run/clock/client/2")
        page.wait_for_selector("text=samples to train")
        assert page.locator("#data svg rect").count() == 10
        rows = page.locator("section:has(h2:text('What the method decided')) tbody tr")
        assert rows.count() == 6  # two agents, three rounds
        assert rows.first.locator("td").nth(2).inner_text().startswith("time: ")
        with page.expect_download() as loading:
            page.get_by_role("link", name="Download the model").click()
        loading.value.save_as(tmp_path / "model.zip")
        assert "card.json" in zipfile.ZipFile(tmp_path / "model.zip").namelist()


def test_the_keyboard_alone_leads_from_the_list_to_a_client_and_back(server: Dashboard, browser: Any) -> None:
    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
                return
        raise AssertionError(f"the keyboard does not reach {selector}")

    with opened(browser, server.address) as page:
        page.wait_for_selector("tbody tr")
        tab_to("input[type=search]")
        page.keyboard.type("clock")
        tab_to("tbody input[type=checkbox]")
        page.keyboard.press("Space")
        assert page.locator("tbody input").is_checked()
        tab_to("tbody a")
        page.keyboard.press("Enter")
        page.wait_for_selector("#method .panel")
        assert page.evaluate("document.activeElement.id") == "page"  # a reader begins at the top of the new page
        tab_to("#curves select")
        page.keyboard.press("ArrowDown")
        tab_to("#curves svg")
        page.keyboard.press("ArrowLeft")
        assert page.inner_text("#curves .tip b").startswith("MB sent and received")
        tab_to("#map canvas")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:text-is('Client 0')")
        tab_to("a[download]")
        tab_to("#where a")
        page.keyboard.press("Enter")
        page.wait_for_selector("#method .panel")


def test_names_that_are_markup_stay_text_on_a_client_page(server: Dashboard, browser: Any) -> None:
    with opened(browser, server.address) as page:
        page.get_by_role("link", name="weights").click()
        page.locator("#map canvas").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"h1:text-is('Client {EVIL[0]}')")
        page.wait_for_selector("text=its head was mixed from")
        assert "onerror=alert(2)" in page.inner_text("main")  # the name of a peer
        assert page.locator("main img, main script").count() == 0
        assert overflow(page) == 0
