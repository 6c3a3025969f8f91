"""The documentation site: complete, without a link that leads nowhere, and readable without a server or a network."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import fedtailor
from fedtailor.methods import catalogue
from tests.support.browser import chromium, opened, overflow

pytest.importorskip("mkdocs", reason="needs the extra 'docs'")

ROOT = Path(__file__).parent.parent
HOOKS = ROOT / "docs" / ".hooks"


def hook(name: str) -> ModuleType:
    """A module that makes pages; it imports its neighbours, as mkdocs lets it."""
    sys.path.insert(0, str(HOOKS))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(HOOKS))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Links(HTMLParser):
    """What a page links to and loads, and the places in it that links may name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.places: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in values:
            self.loaded.add(values["src"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon"):
            self.loaded.add(values["href"])


def test_every_link_leads_to_a_place_of_the_site_and_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = {file: Links(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    assert len(pages) > 100
    wrong = []
    for file, page in pages.items():
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                wrong += [f"{file.name} loads {link}"] if link in page.loaded else []
                continue
            if file.name == "404.html":  # its addresses begin at the root of a server
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                wrong.append(f"{file.relative_to(site)} links to {link}")
            elif target in pages and unquote(parts.fragment) not in pages[target].places | {"__top"}:
                wrong.append(f"{file.relative_to(site)} links to {link}, which has no such place")
    assert wrong == []


def test_every_setting_is_in_the_reference() -> None:
    page, keys = hook("settings_page").settings_page(), list(hook("settings_page").keys())
    assert {"rounds", "training.lr", "data.partition.alpha", "devices.profiles.tiers.share"} <= set(keys)
    assert [key for key in keys if f"| `{key}` |" not in page] == []
    assert "| `training.lr` | number > 0 and ≤ 100 | `0.05` | Learning rate. |" in page


def test_a_setting_without_a_description_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    page = hook("settings_page")
    schema = fedtailor.Experiment.model_json_schema()
    del schema["properties"]["rounds"]["description"]
    monkeypatch.setattr(fedtailor.Experiment, "model_json_schema", lambda: schema)
    with pytest.raises(ValueError, match="without a description: rounds"):
        page.settings_page()


def test_every_command_is_in_the_reference() -> None:
    page = hook("cli_page").cli_page()
    listed = subprocess.run([sys.executable, "-m", "fedtailor", "--help"], capture_output=True, text=True).stdout
    commands = set(re.findall(r"^│ (\w[\w-]*) ", listed, re.MULTILINE)) - {"data", "keys"}
    assert commands >= {"run", "compare", "serve"}
    wanted = {f"fedtailor {name}" for name in (*commands, "data list", "keys audit")}
    assert {words for words in wanted if f"## {words}\n" not in page} == set()
    assert "--smallest-cohort" in page


def test_every_exported_name_is_in_the_reference_with_its_docstring() -> None:
    text = hook("api_page").using_page() + hook("api_page").writing_page()
    names = set(fedtailor.__all__) - {"__version__"}
    assert {name for name in names if f"### {name}\n" not in text} == set()
    for sentence in ("Resume a run from its last complete round.", "Mini-batches per round.", "The name of the run."):
        assert sentence in text, sentence


def test_a_name_without_a_docstring_ends_the_build() -> None:
    class Bare:
        """It has one, but its function has none."""

        def bare(self) -> None: ...

    with pytest.raises(ValueError, match=r"Bare\.bare has no docstring"):
        list(hook("api_page")._entry("Bare", Bare))


def test_every_method_has_a_page_with_all_its_parts() -> None:
    written = {file.stem for file in (ROOT / "docs" / "methods").glob("*.md")}
    assert written == set(catalogue()), "docs/methods has a page for each method, and no other"
    parts = ["Algorithm", "Settings", "Card", "When to use it", "When not", "Results"]
    pages = {}
    for name in catalogue():
        text = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
        pages[name] = hook("method_pages").method_page(name, text)
        assert re.findall("^## (.*)", pages[name], re.MULTILINE) == parts, name
    assert "| `mu` | number ≥ 0 and ≤ 1000 | `0.1` | strength of the pull; 0 is FedAvg |" in pages["fedprox"]
    assert "[Digits: 20 clients" in pages["fedprox"], "its row in a committed table"


def test_the_results_on_a_page_are_the_rows_of_the_committed_tables(tmp_path: Path) -> None:
    page = tmp_path / "methods-x.md"
    page.write_text(
        "# methods-x\n\n## One\n\n|  | final % | held % | a | b |\n| --- | ---: | ---: | - | - |\n"
        "| fedavg ² | 1 | 2 | 3 | 4 |\n| fedavg-ft | 5 | 6 | 7 | 8 |\n\n¹ other: no\n\n² fedavg: yes\n\n"
        "## Two\n\n| method | final % |\n| - | - |\n| fedavg mu=1 | 9 |\n| fedavgm | 10 |\n"
    )
    found = [tuple(one) for one in hook("method_pages").results_of(page, "fedavg")]
    one = (
        "One",
        "methods-x.md",
        ["method", "final %", "held %", "a"],
        [["fedavg ²", "1", "2", "3"]],
        ["² fedavg: yes"],
    )
    assert found == [one, ("Two", "methods-x.md", ["method", "final %"], [["fedavg mu=1", "9"]], [])]


def test_pages_open_from_a_folder_and_their_search_finds(site: Path) -> None:
    """From file://, where a browser allows no worker and no request. Nothing fails, or is wider than a phone."""
    with chromium() as browser:
        for looks in ({"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}):
            with opened(browser, f"file://{site}/methods/fedper.html", **looks) as page:
                assert overflow(page) <= 0
                page.keyboard.press("/")
                page.locator("[data-md-component=search-query]").press_sequentially("participation.ratio")
                found = page.locator(".md-search-result__link[href*='reference/settings.html']")
                found.first.wait_for(state="attached")
