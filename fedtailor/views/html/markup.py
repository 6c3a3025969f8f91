"""Builds HTML from Python. Every text is escaped, unless it is markup that these functions made."""

import json
import math
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from fedtailor.views.tables import Grid

VOID = ("meta", "link", "input", "img", "br", "hr")


class Html(str):
    """A text that is markup already."""


def element(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element with its children; whatever is not markup is escaped.

    ``class_`` stands for ``class`` and ``data_x`` for ``data-x``; an attribute that is None is left out.

    Examples
    --------
    >>> print(element("p", "a < b", element("b", "!"), class_="note"))
    <p class="note">a &lt; b<b>!</b></p>
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{escape(str(value))}"' for key, value in given.items())
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: Any) -> Html:
    """Markup and escaped texts after each other; None is nothing."""
    texts = (child if isinstance(child, Html) else escape(str(child)) for child in children if child is not None)
    return Html("".join(texts))


def table(grid: Grid, *, sortable: bool = True, badges: int | None = None) -> Html:
    """A grid as a table with its notes; the cells of column ``badges`` are marked by their word."""
    header = [element("th", name, scope="col", class_=_side(grid, i)) for i, name in enumerate(grid.header)]
    rows = [
        element("tr", *(_cell(grid, column, cell, column == badges) for column, cell in enumerate(cells)))
        for cells in grid.rows
    ]
    inner = element(
        "table",
        element("caption", grid.title) if grid.title else None,
        element("thead", element("tr", *header)),
        element("tbody", *rows),
        class_="sortable" if sortable and len(rows) > 1 else None,
    )
    notes = [element("p", note, class_="note") for note in grid.notes]
    # A wide table scrolls by itself; the keyboard must reach it.
    return joined(element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=grid.title), *notes)


def _cell(grid: Grid, column: int, text: str, badge: bool) -> Html:
    inner: Any = text
    if badge and text.split() and text.split()[0] in ("ahead", "behind", "level", "not"):
        inner = element("span", text, class_=f"badge {text.split()[0]}")
    if column == 0:
        return element("th", inner, scope="row", class_=_side(grid, column))
    return element("td", inner, class_=_side(grid, column))


def _side(grid: Grid, column: int) -> str | None:
    return None if column in grid.words else "number"


def section(title: str, *children: Any, id: str | None = None) -> Html:
    """A part of a page with its heading."""
    return element("section", element("h2", title), *children, id=id)


def details(title: str, *children: Any) -> Html:
    """A part of a page that is closed until the reader opens it."""
    return element("details", element("summary", title), *children)


def asset(name: str) -> str:
    """A file of ``static``."""
    return files("fedtailor.views.html").joinpath("static", name).read_text(encoding="utf-8")


def data_block(document: Any, id: str = "facts") -> Html:
    """A JSON document inside a page. No text in it can end the block."""
    text = json.dumps(standard(document), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{escape(id)}">{text}</script>')


def standard(value: Any) -> Any:
    """A document as JSON has it: numbers with five figures, None for infinity and NaN."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): standard(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [standard(inner) for inner in value]
    return value


def whole_page(title: str, body: Html, scripts: tuple[str, ...]) -> str:
    """A complete page in one file. Its policy runs the given scripts and nothing else, and loads nothing."""
    program = "\n".join(asset(name) for name in scripts)
    style = asset("style.css")
    policy = (
        f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_fingerprint(style)}'; script-src '{_fingerprint(program)}'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(style)),
    )
    return f'<!doctype html>\n<html lang="en">{head}<body>{body}<script>{program}</script></body></html>\n'


def _fingerprint(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
