"""Pages that are made from the code while the site is built, so that they cannot be out of date."""

from pathlib import Path
from typing import Any

from api_page import using_page, writing_page
from cli_page import cli_page
from method_pages import method_page, names, overview
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from settings_page import settings_page

PAGES = {
    "methods/index.md": overview,
    "reference/python.md": using_page,
    "reference/methods.md": writing_page,
    "reference/settings.md": settings_page,
    "reference/cli.md": cli_page,
}
ALL_CARDS = Path("methods.md")  # the search finds the pages of the methods instead
EACH = "methods/*.md"  # stands in the menu for the pages of all methods


def on_config(config: Any) -> Any:
    """Put every method into the menu."""
    config.nav = _filled(config.nav, _made(names))
    return config


def on_files(files: Files, config: Any) -> Files:
    for place, make in PAGES.items():
        files.append(File.generated(config, place, content=_made(make)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = Path(page.file.src_uri)
    if place == ALL_CARDS:
        page.meta["search"] = {"exclude": True}
    if place.parent == Path("methods") and place.stem != "index":
        return str(_made(lambda: method_page(place.stem, markdown)))
    return markdown


def _filled(nav: Any, methods: list[str]) -> Any:
    if isinstance(nav, dict):
        return {title: _filled(inner, methods) for title, inner in nav.items()}
    if isinstance(nav, list):
        return [_filled(one, methods) for one in nav]
    return [f"methods/{name}.md" for name in methods] if nav == EACH else nav


def _made(make: Any) -> Any:
    """What a function makes; what it misses ends the build with its sentence."""
    try:
        return make()
    except ValueError as error:
        raise PluginError(str(error)) from error
